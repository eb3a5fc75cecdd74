package lane

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// checkFair recounts the rings and compares: both rings are whole, and credit is where it belongs.
func checkFair(t rapid.TB, f *Fair) {
	t.Helper()
	lanes, namespaces := 0, 0
	for ns := f.turn; ns != nil; ns = ns.next {
		namespaces++
		if f.namespaces[ns.name] != ns || ns.next.prev != ns || ns.prev.next != ns {
			t.Fatalf("namespace %q is not linked", ns.name)
		}
		if ns != f.turn && ns.credit > 0 || ns.credit > f.quantum || ns.credit < -maxDebtQuanta*f.quantum {
			t.Fatalf("namespace %q has a credit of %d", ns.name, ns.credit)
		}
		for l := ns.turn; ; l = l.next {
			lanes++
			if f.lanes[l.id] != l || l.ns != ns || l.next.prev != l || l.prev.next != l {
				t.Fatalf("lane %d is not linked", l.id)
			}
			if l != ns.turn && l.credit > 0 || l.credit < -maxDebtQuanta*f.quantum {
				t.Fatalf("lane %d has a credit of %d", l.id, l.credit)
			}
			if l.next == ns.turn {
				break
			}
			if lanes > len(f.lanes) {
				t.Fatalf("the ring of %q does not end", ns.name)
			}
		}
		if ns.next == f.turn {
			break
		}
		if namespaces > len(f.namespaces) {
			t.Fatal("the ring of namespaces does not end")
		}
	}
	if lanes != len(f.lanes) || namespaces != len(f.namespaces) || lanes != f.Len() {
		t.Fatalf("%d lanes and %d namespaces in the rings, %d and %d known", lanes, namespaces, len(f.lanes), len(f.namespaces))
	}
}

// visit serves one visit with a cost that depends on the budget.
func visit(t rapid.TB, f *Fair, cost func(ID, int64) int64, more func(ID) bool) (ID, int64) {
	t.Helper()
	id, budget, ok := f.Next()
	if !ok || budget < 1 || !f.Active(id) {
		t.Fatalf("visit of %d with %d, %v", id, budget, ok)
	}
	c := cost(id, budget)
	f.Served(id, c, more(id))
	return id, c
}

func all(_ ID, budget int64) int64 { return budget }
func always(ID) bool               { return true }

// TestFairOneMillionBesideNinetyNine: one lane with endless work delays ninety-nine others by no more than one round (R194).
func TestFairOneMillionBesideNinetyNine(t *testing.T) {
	f := NewFair(10)
	for i := range ID(100) {
		f.Activate("ns", i, 1)
	}
	served := map[ID]int{}
	for f.Len() > 1 {
		id, _ := visit(t, f, all, func(id ID) bool { return id == 0 })
		served[id]++
	}
	if len(served) != 100 || served[0] != 1 {
		t.Errorf("%d lanes served, the busy one %d times before the others were done", len(served), served[0])
	}
}

// TestFairFirstRound: no lane has a second turn before each had one (R195), in any number of namespaces of one size.
func TestFairFirstRound(t *testing.T) {
	f := NewFair(7)
	for i := range ID(60) {
		f.Activate(fmt.Sprint("ns", i%4), i, 1)
	}
	seen := map[ID]bool{}
	for len(seen) < 60 {
		id, _ := visit(t, f, all, always)
		if seen[id] {
			t.Fatalf("lane %d again after %d lanes", id, len(seen))
		}
		seen[id] = true
	}
}

// TestFairWeights: a lane with weight three gets three times as much, whether visits use the whole budget, are cut short by the caller, or
// serve records of any size.
func TestFairWeights(t *testing.T) {
	record := func(id ID, budget int64) int64 { // whole records, the last of which may pass the budget
		size := int64(30 + 40*(id%2))
		return (budget + size - 1) / size * size
	}
	for name, cost := range map[string]func(ID, int64) int64{
		"whole": all, "cut short": func(_ ID, budget int64) int64 { return min(budget, 9) }, "records": record,
		"large records": func(id ID, _ int64) int64 { return 100 + 900*int64(id%2) },
	} {
		f := NewFair(100)
		f.Activate("ns", 1, 1)
		f.Activate("ns", 2, 3)
		var got [3]int64
		for range 100_000 {
			id, c := visit(t, f, cost, always)
			got[id] += c
		}
		if ratio := got[2] * 1000 / got[1]; ratio < 2990 || ratio > 3010 {
			t.Errorf("%s: shares %d and %d", name, got[1], got[2])
		}
	}
}

// TestFairNamespaces: namespaces get the same, whatever the number and the weights of their lanes and the size of their records.
func TestFairNamespaces(t *testing.T) {
	f := NewFair(100)
	for i := range ID(1000) {
		f.Activate("many", 1000+i, 1)
	}
	f.Activate("heavy", 1, 50)
	f.Activate("large", 2, 1)
	f.Activate("small", 3, 1)
	size := func(id ID, budget int64) int64 {
		switch id {
		case 2:
			return 5000
		case 3:
			return 7
		}
		return budget
	}
	got := map[ID]int64{}
	for range 200_000 {
		id, c := visit(t, f, size, always)
		got[min(id, 1000)] += c
	}
	for id, c := range got {
		if c < got[3]*99/100 || c > got[3]*101/100 {
			t.Errorf("shares %v, of %d", got, id)
		}
	}
}

// TestFairSharesATurn: lanes with one small message each share one turn of their namespace, so that many do not wait for a turn each.
func TestFairSharesATurn(t *testing.T) {
	f := NewFair(16)
	f.Activate("busy", 0, 1)
	for i := ID(1); i < 100; i++ {
		f.Activate("small", i, 1)
	}
	busy := 0
	for f.Len() > 1 {
		id, _ := visit(t, f, func(id ID, budget int64) int64 {
			if id == 0 {
				return budget
			}
			return 1
		}, func(id ID) bool { return id == 0 })
		if id == 0 {
			busy++
		}
	}
	if busy != 7 { // 99 messages of 1 are seven turns of 16
		t.Errorf("the busy namespace had %d turns meanwhile", busy)
	}
}

// gapBound is the bound that Fair publishes. Empty counts visits of the lane's own namespace that spent nothing.
func gapBound(quantum, overspend int64, own int64, others []int64, namespaces, empty int64) int64 {
	k := overspend/(quantum*own) + 1
	var s int64
	for _, w := range others {
		s += k * (quantum*w + overspend)
	}
	turns := (s+overspend+quantum-1)/quantum + 1 + empty
	return s + (namespaces-1)*(turns+1)*(quantum+overspend)
}

// TestFairServiceGap holds the scheduler to the bound its comment publishes (invariant 40), for lanes that stay active.
func TestFairServiceGap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quantum, overspend := rapid.Int64Range(1, 20).Draw(t, "quantum"), rapid.Int64Range(0, 50).Draw(t, "overspend")
		f := NewFair(quantum)
		weights := rapid.SliceOfN(rapid.Int64Range(1, 4), 1, 12).Draw(t, "weights")
		namespaces := rapid.Int64Range(1, 4).Draw(t, "namespaces")
		ns := func(id int) int64 { return int64(id) % namespaces }
		bounds := make([]int64, len(weights))
		for id, w := range weights {
			f.Activate(fmt.Sprint(ns(id)), ID(id), uint32(w))
			var others []int64
			for o, w := range weights {
				if o != id && ns(o) == ns(id) {
					others = append(others, w)
				}
			}
			bounds[id] = gapBound(quantum, overspend, w, others, min(namespaces, int64(len(weights))), 0)
		}
		gaps := make([]int64, len(weights))
		for range 300 {
			id, cost := visit(t, f, func(_ ID, budget int64) int64 {
				if rapid.Bool().Draw(t, "most") {
					return budget + overspend
				}
				return rapid.Int64Range(1, budget+overspend).Draw(t, "cost")
			}, always)
			checkFair(t, f)
			for other := range gaps {
				if gaps[other] += cost; ID(other) == id {
					gaps[other] = 0
				}
				if gaps[other] > bounds[other] {
					t.Fatalf("others got %d since lane %d was visited, bound %d", gaps[other], other, bounds[other])
				}
			}
		}
	})
}

// TestFairServiceGapWithComings: the bound holds for a waiting lane while others come and go and visits come to nothing. What might come is
// counted as if it were there all the time.
func TestFairServiceGapWithComings(t *testing.T) {
	const quantum, overspend, lanes, namespaces, heaviest = 5, 11, 21, 3, 3
	type wait struct{ gap, empty int64 }
	others := make([]int64, lanes/namespaces-1)
	for i := range others {
		others[i] = heaviest
	}
	rapid.Check(t, func(t *rapid.T) {
		f := NewFair(quantum)
		waits := map[ID]*wait{}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			id := ID(rapid.IntRange(0, lanes-1).Draw(t, "id"))
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op < 2:
				f.Activate(fmt.Sprint(id%namespaces), id, uint32(rapid.IntRange(0, heaviest).Draw(t, "weight")))
				if waits[id] == nil {
					waits[id] = &wait{}
				}
			case op == 2:
				f.Deactivate(id)
				delete(waits, id)
			case len(waits) > 0:
				more := rapid.IntRange(0, 3).Draw(t, "more") > 0
				id, cost := visit(t, f, func(_ ID, budget int64) int64 {
					return rapid.Int64Range(0, budget+overspend).Draw(t, "cost")
				}, func(ID) bool { return more })
				for other, w := range waits {
					w.gap += cost
					if cost == 0 && other%namespaces == id%namespaces {
						w.empty++
					}
				}
				*waits[id] = wait{}
				if !more {
					delete(waits, id)
				}
			default:
				if id, _, ok := f.Next(); ok {
					t.Fatalf("visit of lane %d when none is active", id)
				}
			}
			checkFair(t, f)
			if f.Len() != len(waits) {
				t.Fatalf("Len %d, active %d", f.Len(), len(waits))
			}
			for id, w := range waits {
				if bound := gapBound(quantum, overspend, 1, others, namespaces, w.empty); w.gap > bound {
					t.Fatalf("others got %d since lane %d was visited, bound %d", w.gap, id, bound)
				}
			}
		}
	})
}

// TestFairEmptyVisits: a lane that says it has work and spends nothing does not hold up its namespace or the others.
func TestFairEmptyVisits(t *testing.T) {
	f := NewFair(10)
	for i, ns := range []string{"a", "a", "b"} {
		f.Activate(ns, ID(i), 1)
	}
	var order []ID
	for range 8 {
		id, _ := visit(t, f, func(ID, int64) int64 { return 0 }, always)
		order = append(order, id)
	}
	if got := fmt.Sprint(order); got != "[0 2 1 2 0 2 1 2]" {
		t.Errorf("visits %s", got)
	}
}

// TestFairGoesOn: a visit that the caller cut short goes on with what was left; one that used its budget does not.
func TestFairGoesOn(t *testing.T) {
	f := NewFair(10)
	f.Activate("ns", 1, 1)
	f.Activate("ns", 2, 1)
	var got []string
	for _, cost := range []int64{4, 4, 4, 10, 8, 10} { // the third passes the budget by 2, which comes off the next turns of lane and namespace
		id, budget, _ := f.Next()
		got = append(got, fmt.Sprintf("%d:%d", id, budget))
		f.Served(id, cost, true)
	}
	if s := fmt.Sprint(got); s != "[1:10 1:6 1:2 2:8 1:8 2:10]" {
		t.Errorf("visits %s", s)
	}
}

// TestFairLeaving: whoever leaves in the middle of a turn passes it on to the next in line, with the rest of the namespace's turn.
func TestFairLeaving(t *testing.T) {
	f := NewFair(10)
	for _, l := range []struct {
		ns string
		id ID
	}{{"a", 1}, {"b", 2}, {"b", 3}, {"c", 4}, {"d", 5}} {
		f.Activate(l.ns, l.id, 1)
	}
	var got []string
	next := func(cost int64, more bool) {
		t.Helper()
		id, budget, _ := f.Next()
		got = append(got, fmt.Sprintf("%d:%d", id, budget))
		f.Served(id, cost, more)
		checkFair(t, f)
	}
	next(10, false) // 1 leaves, and a with it
	next(4, true)   // 2 is cut short
	f.Deactivate(2) // 3 goes on with the rest of b's turn
	next(6, true)
	next(3, true)   // 4 is cut short
	f.Deactivate(4) // c leaves with its only lane; d is next
	next(10, true)
	next(4, true) // 3 goes on with what was left of its own turn
	next(6, true) // and, after it, with b's
	next(10, true)
	if s := fmt.Sprint(got); s != "[1:10 2:10 3:6 4:10 5:10 3:4 3:6 5:10]" {
		t.Errorf("visits %s", s)
	}
}

// TestFairDebts: what was overspent is paid back in turns, an absurd cost only as far as debts go, and leaving forgives it.
func TestFairDebts(t *testing.T) {
	f := NewFair(10)
	f.Activate("a", 1, 1)
	f.Activate("b", 2, 1)
	visit(t, f, func(ID, int64) int64 { return 55 }, always)
	turns := 0
	for id := ID(2); id == 2; turns++ {
		id, _ = visit(t, f, all, always)
	}
	if turns != 5+1 { // 55 are five and a half turns, one of which it had
		t.Errorf("lane 1 was visited again after %d visits of lane 2", turns-1)
	}
	visit(t, f, func(ID, int64) int64 { return math.MaxInt64 }, always)
	visit(t, f, func(ID, int64) int64 { return math.MaxInt64 }, always)
	checkFair(t, f)
	visit(t, f, func(ID, int64) int64 { return -1 }, always)
	f.Deactivate(1)
	f.Deactivate(1)
	f.Activate("a", 1, 1)
	if l := f.lanes[1]; l.credit < 0 {
		t.Errorf("a lane that left still owes %d", -l.credit)
	}
}

// TestFairCornerCases: limits of the numbers, strangers, and a lane that is activated twice.
func TestFairCornerCases(t *testing.T) {
	for _, quantum := range []int64{math.MinInt64, 0, 1, math.MaxInt64} {
		f := NewFair(quantum)
		f.Served(1, 5, true)
		f.Deactivate(1)
		if _, _, ok := f.Next(); ok || f.Active(1) {
			t.Errorf("quantum %d: an empty scheduler has a lane", quantum)
		}
		f.Activate("ns", 1, math.MaxUint32)
		f.Activate("other", 1, 0)
		if f.Len() != 1 || f.lanes[1].weight != 1 || f.lanes[1].ns.name != "ns" {
			t.Errorf("quantum %d: activated twice: %+v", quantum, f.lanes[1])
		}
		f.Activate("ns", 2, math.MaxUint32)
		for range 10 {
			visit(t, f, func(ID, int64) int64 { return math.MaxInt64 }, always)
			checkFair(t, f)
		}
	}
}

// TestFairAllocatesNothing: neither visits nor lanes that leave and return.
func TestFairAllocatesNothing(t *testing.T) {
	f := NewFair(10)
	for i := range ID(10) {
		f.Activate(fmt.Sprint(i%3), i, 1)
	}
	if n := testing.AllocsPerRun(1000, func() {
		id, budget, _ := f.Next()
		f.Served(id, budget, true)
	}); n != 0 {
		t.Errorf("%v allocations per visit", n)
	}
	f.Activate("once", 99, 1)
	if n := testing.AllocsPerRun(1000, func() {
		f.Deactivate(99)
		f.Activate("once", 99, 1)
	}); n != 0 {
		t.Errorf("%v allocations per return", n)
	}
}

func BenchmarkFairVisit(b *testing.B) {
	for _, lanes := range []ID{1, 100, 100_000} {
		b.Run(fmt.Sprint(lanes), func(b *testing.B) {
			f := NewFair(16)
			for i := range lanes {
				f.Activate(fmt.Sprint(i%16), i, 1)
			}
			b.ReportAllocs()
			for b.Loop() {
				id, budget, _ := f.Next()
				f.Served(id, budget, true)
			}
		})
	}
}
