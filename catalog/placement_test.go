package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/sealane/sealane/catalog"
	"pgregory.net/rapid"
)

// TestGoldenPlacement pins where destinations and messages live. A difference would lose the messages of every cluster that exists.
func TestGoldenPlacement(t *testing.T) {
	datadriven.RunTest(t, "testdata/placement", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		switch d.Cmd {
		case "shards":
			for _, shards := range []uint32{1, 4, 16, 64} {
				for _, name := range []string{"default/billing", "default/crm", "other/billing", "default/a"} {
					ns, dest, _ := strings.Cut(name, "/")
					fmt.Fprintf(&b, "%s on %d:", name, shards)
					for slot := range min(shards, 6) {
						fmt.Fprintf(&b, " %d", catalog.ShardOf(ns, dest, slot, shards))
					}
					b.WriteString("\n")
				}
			}
		case "slots":
			for _, k := range [][3]string{{"order", "idem", "random"}, {"order", "", ""}, {"", "idem", "random"}, {"", "order", ""}, {"", "", "random"}, {"", "", "\x00\x01\x02"}} {
				fmt.Fprintf(&b, "%q:", k)
				for _, spread := range []uint32{1, 2, 3, 16, 64} {
					fmt.Fprintf(&b, " %d/%d", catalog.SlotOf(k[0], k[1], []byte(k[2]), spread), spread)
				}
				b.WriteString("\n")
			}
		}
		return b.String()
	})
}

// TestSlotsAreSpread: the slots of a destination lie in different shards as long as there are enough, and slot 0 is what the short way finds.
func TestSlotsAreSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns, name := rapid.String().Draw(t, "namespace"), rapid.String().Draw(t, "name")
		shards := rapid.Uint32Range(1, 64).Draw(t, "shards")
		seen := map[uint16]bool{}
		for slot := range shards {
			s := catalog.ShardOf(ns, name, slot, shards)
			if uint32(s) >= shards || seen[s] {
				t.Fatalf("slot %d of %d is in shard %d", slot, shards, s)
			}
			seen[s] = true
		}
		if a, b := catalog.ShardOf(ns, name, 0, shards), catalog.ShardOf(ns, name, shards, shards); a != b {
			t.Fatalf("slot 0 is in shard %d, found the long way in %d", a, b)
		}
	})
}

// TestPlacementIsEven: many destinations fill the shards within a fifth of the mean, and so do the slots of many messages.
func TestPlacementIsEven(t *testing.T) {
	const destinations, shards = 20_000, 16
	counts := make([]int, shards)
	for i := range destinations {
		counts[catalog.ShardOf("default", fmt.Sprintf("dest-%d", i), 0, shards)]++
	}
	even(t, "destinations", counts, destinations)
	for _, key := range []func(i int) (string, string, []byte){
		func(i int) (string, string, []byte) { return fmt.Sprint("customer-", i), "x", nil },
		func(i int) (string, string, []byte) { return "", fmt.Sprint(i), nil },
		func(i int) (string, string, []byte) { return "", "", []byte{byte(i), byte(i >> 8), 0, 0} },
	} {
		counts := make([]int, shards)
		for i := range destinations {
			order, idem, random := key(i)
			counts[catalog.SlotOf(order, idem, random, shards)]++
		}
		even(t, "messages", counts, destinations)
	}
}

func even(t *testing.T, what string, counts []int, total int) {
	t.Helper()
	mean := total / len(counts)
	for i, n := range counts {
		if n < mean*4/5 || n > mean*6/5 {
			t.Errorf("%s: %d in %d, the mean is %d", what, n, i, mean)
		}
	}
}

// TestPlacementMovesLittle: with one shard more only about its share of the destinations has another home.
func TestPlacementMovesLittle(t *testing.T) {
	moved := 0
	for i := range 10_000 {
		name := fmt.Sprint("d", i)
		if before, after := catalog.ShardOf("n", name, 0, 16), catalog.ShardOf("n", name, 0, 17); before != after {
			if after != 16 {
				t.Fatalf("%s moved from %d to %d, not to the new shard", name, before, after)
			}
			moved++
		}
	}
	if moved < 400 || moved > 800 {
		t.Errorf("%d of 10000 moved, about 588 would be fair", moved)
	}
}

// TestSlotPriority: the ordering key decides before the idempotency key, and that before the random part.
func TestSlotPriority(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		order, idem, other := rapid.StringN(1, 8, -1).Draw(t, "order"), rapid.String().Draw(t, "idem"), rapid.String().Draw(t, "other")
		spread := rapid.Uint32Range(0, 64).Draw(t, "spread")
		a := catalog.SlotOf(order, idem, []byte(other), spread)
		if b := catalog.SlotOf(order, other, []byte(idem), spread); a != b {
			t.Fatalf("one ordering key in two slots: %d %d", a, b)
		}
		if idem != "" && catalog.SlotOf("", idem, []byte(other), spread) != catalog.SlotOf("", idem, nil, spread) {
			t.Fatal("one idempotency key in two slots")
		}
		if a >= max(spread, 1) {
			t.Fatalf("slot %d of %d", a, spread)
		}
	})
}
