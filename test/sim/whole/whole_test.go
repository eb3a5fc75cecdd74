package whole

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run only this seed")
	seedsFlag = flag.Uint64("seeds", 1, "number of seeds of each kind of run, from 1")
	traceFlag = flag.Bool("keep-trace", false, "keep the trace of runs that pass, too")
)

// kinds are the runs by name. Nodes, faults and what is expected belong to the kind; everything else is drawn from the seed.
var kinds = map[string]func(seed uint64) plan{
	"calm": func(uint64) plan { return plan{nodes: 3, lasts: 8 * time.Second, planned: true} },
	"crashes": func(s uint64) plan {
		return plan{nodes: 3 + 2*int(s%2), lasts: 30 * time.Second, faults: together(crashes, stalls)}
	},
	"network": func(s uint64) plan {
		return plan{nodes: 3 + 2*int(s%2), lasts: 30 * time.Second, faults: together(networks, stalls)}
	},
	"transfers": func(uint64) plan { return plan{nodes: 3, lasts: 25 * time.Second, faults: handing, planned: true} },
	"restarts": func(uint64) plan {
		return plan{nodes: 3, lasts: 25 * time.Second, faults: together(restarts, handing), planned: true}
	},
	"members": func(uint64) plan {
		return plan{nodes: 4, lasts: 40 * time.Second, faults: together(members, leavers, handing), planned: true}
	},
	"losses": func(uint64) plan {
		return plan{nodes: 5, lasts: 60 * time.Second, faults: together(losers, members, crashes)}
	},
	"clocks": func(uint64) plan {
		return plan{nodes: 3, lasts: 40 * time.Second, faults: together(clocks, crashes), clocks: true}
	},
	"all": func(s uint64) plan {
		return plan{nodes: 3 + int(s%3), lasts: 60 * time.Second, clocks: true,
			faults: together(crashes, networks, clocks, stalls, handing, cut, restarts, members, leavers, losers)}
	},
}

// TestMain gives the nodes of a run enough threads: with one each, a store that spins would hold up the others.
func TestMain(m *testing.M) {
	flag.Parse()
	if runtime.GOMAXPROCS(0) < 4 {
		runtime.GOMAXPROCS(4)
	}
	os.Exit(m.Run())
}

func TestCalm(t *testing.T)      { simulate(t, "calm") }
func TestCrashes(t *testing.T)   { simulate(t, "crashes") }
func TestNetwork(t *testing.T)   { simulate(t, "network") }
func TestTransfers(t *testing.T) { simulate(t, "transfers") }
func TestRestarts(t *testing.T)  { simulate(t, "restarts") }
func TestMembers(t *testing.T)   { simulate(t, "members") }
func TestLosses(t *testing.T)    { simulate(t, "losses") }
func TestClocks(t *testing.T)    { simulate(t, "clocks") }
func TestAll(t *testing.T)       { simulate(t, "all") }

// simulate runs seeds of one kind.
func simulate(t *testing.T, kind string) {
	first, last := uint64(1), *seedsFlag
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { once(t, kind, seed) })
	}
}

func once(t *testing.T, kind string, seed uint64) {
	p := kinds[kind](seed)
	p.shards, p.workers, p.registers = 4, 6, 2
	if p.snapshotEntries == 0 {
		p.snapshotEntries, p.trailingEntries = 60, 40
	}
	began := time.Now()
	path := tracePath(t, kind, seed)
	var r *Run
	watch := watchdog(t, &r, path)
	synctest.Test(t, func(t *testing.T) {
		r = newRun(seed, p)
		r.execute()
	})
	watch()
	t.Logf("%s in %s: %s, reads %d, faults %v", kind, time.Since(began).Round(time.Millisecond), r.report.String(), r.reads.Load(), r.did)
	for _, problem := range r.problems {
		t.Error(problem)
	}
	if !t.Failed() && !*traceFlag {
		return
	}
	if err := r.trace.save(path); err != nil {
		t.Errorf("save the trace: %v", err)
	}
	t.Logf("trace: %s\nto repeat: go test ./test/sim/whole -count=1 -run '^%s$' -seed=%d", path, topName(t), seed)
}

// topName is the name of the test that a seed belongs to.
func topName(t *testing.T) string {
	dir, _ := filepath.Split(t.Name())
	return filepath.Clean(dir)
}

// tracePath is where a run's trace goes: SEALANE_TEST_TRACE, or a directory of the test that outlives it.
func tracePath(t *testing.T, kind string, seed uint64) string {
	dir := os.Getenv("SEALANE_TEST_TRACE")
	if dir == "" {
		dir = os.TempDir()
	}
	return filepath.Join(dir, fmt.Sprintf("sealane-sim-%s-%d.trace", kind, seed))
}

// realTime bounds one run by the real clock: a livelock in which no simulated time passes would never end.
const realTime = 4 * time.Minute

// watchdog ends the process when a run takes too long by the real clock, and says what every goroutine was doing.
func watchdog(t *testing.T, r **Run, path string) (stop func()) {
	name := t.Name()
	timer := time.AfterFunc(realTime, func() {
		stacks := make([]byte, 64<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		_ = os.WriteFile(path+".stacks", stacks, 0o600) // the panic says the rest
		if *r != nil {
			_ = (*r).trace.save(path)
		}
		panic(fmt.Sprintf("%s does not end: see %s and %s.stacks", name, path, path))
	})
	return func() { timer.Stop() }
}
