package shard_test

import (
	"testing"

	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/shardtest"
)

// TestCheckFinds: the recount is only worth something if it notices. Every key whose loss it can notice is taken away once, and every index
// entry is put in a second time under another generation.
func TestCheckFinds(t *testing.T) {
	// What nothing else in the state can prove missing: facts that stand for themselves.
	alone := map[byte]string{1: "meta", 4: "destination", 5: "newest", 10: "dedup", 20: "operation", 21: "tombstone", 23: "incarnation"}
	index := map[byte]bool{11: true, 12: true, 13: true, 14: true, 15: true, 17: true, 18: true}
	tried := map[byte]int{}
	for seed := range uint64(3) {
		base := crowd(t, 10+seed).State
		for n := range base.Len() {
			k, v := nthKey(t, base, n)
			if alone[k[0]] == "" {
				st := base.Clone()
				if err := st.Delete(k); err != nil {
					t.Fatal(err)
				}
				wantProblem(t, st, "without", k)
				tried[k[0]]++
			}
			if index[k[0]] {
				other := append([]byte(nil), k...)
				other[len(other)-1] += 7
				st := base.Clone()
				if err := st.Set(other, v); err != nil {
					t.Fatal(err)
				}
				wantProblem(t, st, "with a stray", other)
			}
		}
	}
	for kind := byte(1); int(kind) < len(kinds); kind++ {
		if alone[kind] == "" && tried[kind] == 0 {
			t.Errorf("no key of kind %d (%s) was tried", kind, kinds[kind])
		}
	}
}

func wantProblem(t *testing.T, st *shardtest.Mem, what string, k []byte) {
	t.Helper()
	problems, err := shard.Check(st)
	if err == nil && len(problems) == 0 {
		t.Errorf("%s key %x (%s) the books still balance", what, k, kinds[k[0]])
	}
}
