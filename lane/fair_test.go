package lane

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestFairOneMillionBesideNinetyNine: one lane with endless work delays ninety-nine others by no more than one round (R194).
func TestFairOneMillionBesideNinetyNine(t *testing.T) {
	f := NewFair(10)
	f.Activate("ns", 0, 1)
	for i := ID(1); i < 100; i++ {
		f.Activate("ns", i, 1)
	}
	served := map[ID]bool{}
	for range 100 {
		id, budget, ok := f.Next()
		if !ok {
			t.Fatal("nothing to serve")
		}
		served[id] = true
		f.Served(id, budget, id == 0)
	}
	if len(served) != 100 {
		t.Errorf("%d of 100 lanes were served in one round", len(served))
	}
}

// TestFairWeights: a lane with weight three gets three times as much.
func TestFairWeights(t *testing.T) {
	f := NewFair(100)
	f.Activate("ns", 1, 1)
	f.Activate("ns", 2, 3)
	got := map[ID]int64{}
	for range 1000 {
		id, budget, _ := f.Next()
		got[id] += budget
		f.Served(id, budget, true)
	}
	if got[2] != 3*got[1] {
		t.Errorf("shares %v", got)
	}
}

// TestFairNamespaces: a namespace with a thousand lanes gets no more than one with a single lane.
func TestFairNamespaces(t *testing.T) {
	f := NewFair(1)
	for i := range ID(1000) {
		f.Activate("big", i, 1)
	}
	f.Activate("small", 5000, 1)
	small := 0
	for range 1000 {
		id, budget, _ := f.Next()
		if id == 5000 {
			small++
		}
		f.Served(id, budget, true)
	}
	if small != 500 {
		t.Errorf("the small namespace was served %d times of 1000", small)
	}
}

// TestFairServiceGap holds the scheduler to the bound its comment publishes, under lanes coming and going (invariant 40).
func TestFairServiceGap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := NewFair(5)
		type lane struct{ ns string }
		active := map[ID]lane{}
		waited := map[ID]int{}
		peakLanes := map[string]int{}
		count := func(ns string) (n int) {
			for _, l := range active {
				if l.ns == ns {
					n++
				}
			}
			return n
		}
		peakNS := 0
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op < 2:
				id := ID(rapid.IntRange(0, 20).Draw(t, "id"))
				ns := fmt.Sprintf("ns%d", id%3)
				f.Activate(ns, id, uint32(rapid.IntRange(0, 3).Draw(t, "weight")))
				active[id] = lane{ns}
			case op == 2:
				id := ID(rapid.IntRange(0, 20).Draw(t, "id"))
				f.Deactivate(id)
				delete(active, id)
				delete(waited, id)
			default:
				id, budget, ok := f.Next()
				if ok != (len(active) > 0) {
					t.Fatalf("ok=%v with %d active", ok, len(active))
				}
				if !ok {
					continue
				}
				if _, there := active[id]; !there || budget <= 0 && budget > -100 {
					t.Fatalf("visited %d, active %v, budget %d", id, there, budget)
				}
				for other := range active {
					waited[other]++
				}
				waited[id] = 0
				f.Served(id, rapid.Int64Range(0, budget).Draw(t, "cost"), true)
			}
			for _, ns := range []string{"ns0", "ns1", "ns2"} {
				peakLanes[ns] = max(peakLanes[ns], count(ns))
			}
			peakNS = max(peakNS, 3)
			for id, n := range waited {
				if bound := peakNS * (peakLanes[active[id].ns] + 1); n > bound {
					t.Fatalf("lane %d waited %d visits, bound %d", id, n, bound)
				}
			}
			if f.Len() != len(active) {
				t.Fatalf("Len %d, active %d", f.Len(), len(active))
			}
		}
	})
}

func TestFairAllocatesNothing(t *testing.T) {
	f := NewFair(10)
	for i := range ID(10) {
		f.Activate("ns", i, 1)
	}
	if n := testing.AllocsPerRun(1000, func() {
		id, budget, _ := f.Next()
		f.Served(id, budget, true)
	}); n != 0 {
		t.Errorf("%v allocations per visit", n)
	}
}
