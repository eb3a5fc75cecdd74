package storage_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
	"github.com/sealane/sealane/storage/storagetest"
)

// TestDamagedEntryOnDisk (F6, F7): the entry is an error that names it; its neighbours are served.
func TestDamagedEntryOnDisk(t *testing.T) {
	fs, opts := closedStoreFS(t)
	storage.OverwriteEntry(t, fs, storagetest.Dir, 1, 2, func(v []byte) []byte { v[len(v)-1] ^= 1; return v })
	s := storagetest.Open(t, opts)
	l, err := s.RaftLog(1)
	must(t, err)
	var e raft.Log
	err = l.GetLog(2, &e)
	wantErr(t, err, storage.ErrCorrupt)
	if !strings.Contains(err.Error(), "group 1, entry 2") {
		t.Fatalf("the error does not name the entry: %v", err)
	}
	storagetest.CheckEntries(t, l, 1, 1, 1, storagetest.Always(1))
	storagetest.CheckEntries(t, l, 1, 3, 3, storagetest.Always(1))
}

// TestLostEntry: a hole in the log is noticed at open.
func TestLostEntry(t *testing.T) {
	fs, opts := closedStoreFS(t)
	storage.OverwriteEntry(t, fs, storagetest.Dir, 1, 2, func([]byte) []byte { return nil })
	_, err := storagetest.Open(t, opts).RaftLog(1)
	wantErr(t, err, storage.ErrLogGap)
}

// TestConcurrentGroups: many groups write, read, apply, truncate and flush at the same time; -race watches.
func TestConcurrentGroups(t *testing.T) {
	opts := storagetest.Options(t, vfs.NewMem())
	opts.MemTableBytes = 256 << 10
	s := storagetest.Open(t, opts)
	var wg sync.WaitGroup
	for g := range uint32(8) {
		wg.Go(func() {
			l, err := s.RaftLog(g)
			if err != nil {
				t.Error(err)
				return
			}
			for i := uint64(1); i <= 300; i += 3 {
				if err := l.StoreLogs(storagetest.Entries(g, i, i+2, 1)); err != nil {
					t.Error(err)
					return
				}
				storagetest.Apply(t, s.State(g), i+1)
				if i%60 == 1 {
					if err := errors.Join(s.Flush(t.Context()), l.DeleteRange(1, i)); err != nil {
						t.Error(err)
					}
				}
			}
		})
		wg.Go(func() { // readers
			var e raft.Log
			for i := range 300 {
				l, err := s.RaftLog(g)
				if err == nil {
					err = l.GetLog(uint64(i), &e)
				}
				if err != nil && err != raft.ErrLogNotFound { //nolint:errorlint // Raft compares with ==
					t.Error(err)
				}
				if _, _, err := s.State(g).Get([]byte("k1")); err != nil {
					t.Error(err)
				}
				s.Metrics()
			}
		})
	}
	wg.Wait()
	for g := range uint32(8) {
		l, err := s.RaftLog(g)
		must(t, err)
		b := storagetest.Bounds(t, l)
		storagetest.CheckEntries(t, l, g, b[0], b[1], storagetest.Always(1))
		if b[1] != 300 || b[0] < 200 {
			t.Errorf("group %d: log is %v", g, b)
		}
	}
}
