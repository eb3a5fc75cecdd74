package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane/sealane/server/fault"
)

// chaosFor is how long the chaos test harms: a short mix in every run, SEALANE_TEST_CHAOS in nightly.
func chaosFor(t *testing.T) time.Duration {
	t.Helper()
	v := os.Getenv("SEALANE_TEST_CHAOS")
	if v == "" {
		return 15 * time.Second
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < time.Second || d > 24*time.Hour {
		t.Fatalf("SEALANE_TEST_CHAOS=%q, want 1s to 24h", v)
	}
	return d
}

// network gives namespaces where the machine permits them, and else plain loopback, and says which.
func network(t *testing.T, faults func(id string) *Faults) Net {
	t.Helper()
	if os.Getenv("SEALANE_TEST_NET") != "loopback" {
		n, err := NewNamespaces()
		if err == nil {
			t.Cleanup(func() {
				if err := n.Close(); err != nil {
					t.Errorf("namespaces: %v", err)
				}
			})
			return n
		}
		if !errors.Is(err, ErrNoNamespaces) {
			t.Fatal(err)
		}
		t.Logf("plain loopback, cuts are made inside the nodes: %v", err)
	}
	return NewLoopback(faults)
}

// startRun starts a cluster of so many nodes under load; it ends with the test.
func startRun(ctx context.Context, t *testing.T, nodes int, change func(*RunOptions)) *Run {
	t.Helper()
	var run *Run
	s := seed(t)
	o := RunOptions{
		ClusterOptions: ClusterOptions{
			Binary: build(t, "faults"), Dir: t.ArtifactDir(), Nodes: nodes, Shards: 4,
			Log: func(format string, args ...any) {
				t.Helper()
				t.Logf("%s "+format, append([]any{time.Now().Format("15:04:05.000")}, args...)...)
			},
		},
		Seed: s, PerSecond: 500, ProbeEvery: 100 * time.Millisecond, Registers: 4, Readers: 4,
	}
	o.Net = network(t, func(id string) *Faults { return run.Member(id).Faults })
	if change != nil {
		change(&o)
	}
	r, err := StartRun(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	run = r
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// chaosFaults are all faults, or those whose name contains one of the words in SEALANE_TEST_FAULTS (comma-separated).
func chaosFaults(t *testing.T, clustered bool) []Fault {
	t.Helper()
	all := slices.Concat(processFaults(), diskFaults())
	if clustered {
		all = slices.Concat(all, networkFaults(), clusterFaults())
	}
	only := os.Getenv("SEALANE_TEST_FAULTS")
	if only == "" {
		return all
	}
	words := strings.Split(only, ",")
	all = slices.DeleteFunc(all, func(f Fault) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(f.Name, w) })
	})
	if len(all) == 0 {
		t.Fatalf("SEALANE_TEST_FAULTS=%q names no fault", only)
	}
	return all
}

// TestChaos harms a cluster of real processes for a while, under load, and then audits: nothing acknowledged is lost, no request is
// unexplained, all replicas are equal, reads were linearizable, and once the faults have stopped everything due moves.
func TestChaos(t *testing.T) {
	d := chaosFor(t)
	s := seed(t)
	t.Setenv("SEALANE_TEST_SEED", fmt.Sprint(s))
	t.Logf("repeat with: SEALANE_TEST_CHAOS=%s SEALANE_TEST_FAULTS=%q SEALANE_TEST_SEED=%d go test -count=1 -timeout %s -run '^TestChaos$' -v ./test/robustness",
		d, os.Getenv("SEALANE_TEST_FAULTS"), s, d+20*time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), d+18*time.Minute)
	defer cancel()
	r := startRun(ctx, t, chaosNodes(t), func(o *RunOptions) {
		o.Env = []string{fault.SnapshotVariable + "=500", fault.TrailingVariable + "=200"}
	})
	random := rand.New(rand.NewPCG(s, 3))
	events := r.Harm(ctx, chaosFaults(t, chaosNodes(t) > 1), random, time.Now().Add(d))
	finish(ctx, t, r, events, random)
}

func chaosNodes(t *testing.T) int {
	t.Helper()
	switch v := os.Getenv("SEALANE_TEST_NODES"); v {
	case "", "3":
		return 3
	case "1":
		return 1
	case "5":
		return 5
	default:
		t.Fatalf("SEALANE_TEST_NODES=%q, want 1, 3 or 5", v)
	}
	return 0
}

// finish ends a run, prints its summary, and fails the test for everything that must not be.
func finish(ctx context.Context, t *testing.T, r *Run, events []Event, random *rand.Rand) *Ending {
	t.Helper()
	e, err := r.Finish(ctx, random)
	t.Logf("%s", r.Summary(events, e))
	if err != nil {
		t.Fatalf("the run did not come to its end: %v", err)
	}
	if e.Audit.Failed() {
		t.Error("the audit failed")
	}
	if e.WorstWait > moveWithin {
		t.Errorf("something due waited %s although the faults had stopped: %s", e.WorstWait, e.WorstLane)
	}
	for _, v := range slices.Concat(r.Registers.Violations(), r.Readers.Violations(), r.Load.conflict, r.Problems()) {
		t.Errorf("%s", v)
	}
	if e.Audit.Acknowledged == 0 || e.Audit.Requests == 0 {
		t.Error("nothing was sent: the run proves nothing")
	}
	return e
}
