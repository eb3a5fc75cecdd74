package storage_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sealane/sealane/storage"
	"github.com/sealane/sealane/storage/storagetest"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	suite := func(fs func() vfs.FS, change func(t *testing.T, o *storage.Options)) func(t *testing.T) {
		return func(t *testing.T) {
			storagetest.RunStore(t, func(t *testing.T) storagetest.Opener {
				opts := storagetest.Options(t, fs())
				change(t, &opts)
				return func() (*storage.Store, error) { return storage.Open(opts) }
			})
		}
	}
	mem := func() vfs.FS { return vfs.NewMem() }
	t.Run("disk", suite(func() vfs.FS { return nil }, func(t *testing.T, o *storage.Options) { o.Dir = t.TempDir() + "/new/store" }))
	t.Run("memory", suite(mem, func(*testing.T, *storage.Options) {}))
	// A ring of one entry and the smallest memtable: everything comes from tables and blobs.
	t.Run("tiny", suite(mem, func(_ *testing.T, o *storage.Options) {
		o.RingEntries, o.RingBytes, o.MemTableBytes = 1, 1, 64<<10
	}))
	t.Run("nosync", suite(mem, func(_ *testing.T, o *storage.Options) { o.NoSync = true }))
}

// TestBatchIsAState runs the model against a batch, with commits, resets and flushes in between.
func TestBatchIsAState(t *testing.T) {
	store := storagetest.OpenMem(t)
	group := uint32(0)
	storagetest.RunState(t, func(rt *rapid.T) storagetest.Stepper {
		group++ // an empty state for every run
		st := store.State(group)
		b := st.NewBatch()
		rt.Cleanup(func() { b.Close() })
		index := uint64(0)
		return storagetest.Stepper{State: b, Step: func(rt *rapid.T) storagetest.State {
			index++
			b.SetApplied(index)
			if err := b.Commit(); err != nil {
				rt.Fatalf("commit: %v", err)
			}
			if rapid.Bool().Draw(rt, "flush") {
				if err := store.Flush(t.Context()); err != nil {
					rt.Fatalf("flush: %v", err)
				}
			}
			if rapid.Bool().Draw(rt, "close") {
				b.Close()
				b = st.NewBatch()
			} else {
				b.Reset()
			}
			return b
		}}
	})
}
