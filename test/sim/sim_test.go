package sim

import (
	"flag"
	"fmt"
	"testing"

	"go.uber.org/goleak"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run only this seed")
	seedsFlag = flag.Uint64("seeds", 12, "number of seeds to run, from 1")
	stepsFlag = flag.Int("steps", 400, "steps of each run")
)

const replicas = 3

// TestMain also looks for goroutines that a closed store left behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSimulation runs seeds. A failing one prints the command that runs it alone.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), *seedsFlag
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	did := map[string]int{}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			c := NewCluster(t, seed, replicas)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("to repeat: go test ./test/sim -count=1 -run '^TestSimulation$' -seed=%d -steps=%d", seed, *stepsFlag)
				}
			})
			c.Run(*stepsFlag)
			for k, n := range c.did {
				did[k] += n
			}
		})
	}
	if t.Failed() || *seedFlag != 0 {
		return
	}
	for _, must := range []string{
		"batch applied", "flush", "caches forgotten", "restart", "crash", "crash with loss", "snapshot taken", "snapshot installed", "disk wiped",
	} {
		if did[must] == 0 {
			t.Errorf("no seed ever made this step: %s", must)
		}
	}
}
