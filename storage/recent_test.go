package storage_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sealane/sealane/storage"
)

// TestKeepRecentChangesNoAnswer: two groups get the same random writes, one keeps its recent writes and one does not; every read answers the same,
// also after what is kept was turned over several times, and over a batch that was dropped.
func TestKeepRecentChangesNoAnswer(t *testing.T) {
	s, err := storage.Open(storage.Options{Dir: "recent", FS: vfs.NewMem(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kept, plain := s.State(1), s.State(2)
	kept.KeepRecent('a', 'b')
	random := rand.New(rand.NewPCG(1, 2))
	for round := uint64(1); round <= 400; round++ {
		x, y := kept.NewBatch(), plain.NewBatch()
		for range 100 {
			key := []byte(fmt.Sprintf("%c%d", "abc"[random.IntN(3)], random.IntN(400)))
			if random.IntN(4) == 0 {
				if x.Delete(key) != nil || y.Delete(key) != nil {
					t.Fatal("delete failed")
				}
			} else {
				v := bytes.Repeat([]byte{byte(random.IntN(256))}, random.IntN(6000))
				if x.Set(key, v) != nil || y.Set(key, v) != nil {
					t.Fatal("set failed")
				}
			}
			same(t, key, x, y)
		}
		if random.IntN(5) > 0 {
			x.SetApplied(round)
			y.SetApplied(round)
			if x.Commit() != nil || y.Commit() != nil {
				t.Fatal("commit failed")
			}
		}
		x.Close()
		y.Close()
		for range 50 {
			same(t, []byte(fmt.Sprintf("%c%d", "abc"[random.IntN(3)], random.IntN(400))), kept, plain)
		}
	}
}

type getter interface {
	Get([]byte) ([]byte, bool, error)
}

func same(t *testing.T, key []byte, x, y getter) {
	t.Helper()
	a, okA, errA := x.Get(key)
	b, okB, errB := y.Get(key)
	if okA != okB || !bytes.Equal(a, b) || errA != nil || errB != nil {
		t.Fatalf("%s: %v %d bytes %v, want %v %d bytes %v", key, okA, len(a), errA, okB, len(b), errB)
	}
}
