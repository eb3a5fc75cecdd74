package storage_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sealane/sealane/storage"
)

// TestMemtablesLeaveTheCache: Pebble takes every memtable out of the block cache. With the defaults the two instances' memtables were as large as
// the cache, so that every read of a table went to the disk and was decompressed anew.
func TestMemtablesLeaveTheCache(t *testing.T) {
	s, err := storage.Open(storage.Options{Dir: "cache", FS: vfs.NewMem(), NoSync: true, CacheBytes: 4 << 20, MemTableBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	state := s.State(1)
	key := func(i int) []byte { return []byte(fmt.Sprintf("key-%06d", i)) }
	const keys = 8_000
	for round := range uint64(12) { // memtables grow to their size by and by
		b := state.NewBatch()
		for i := range keys {
			if err := b.Set(key(i), make([]byte, 200)); err != nil {
				t.Fatal(err)
			}
		}
		b.SetApplied(round + 1)
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
		b.Close()
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	read := func() {
		for i := range keys {
			if _, ok, err := state.Get(key(i)); err != nil || !ok {
				t.Fatalf("%s: %v, %v", key(i), ok, err)
			}
		}
	}
	read()
	before := s.Metrics().CacheMisses
	read()
	if missed := s.Metrics().CacheMisses - before; missed > keys/10 { // a compaction may move some blocks between the two
		t.Errorf("%d misses when %d keys were read again", missed, keys)
	}
}
