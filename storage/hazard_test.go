package storage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
	"github.com/sealane/sealane/storage/storagetest"
)

// store with one group whose log goes to last in term 1 and whose state is durable up to applied.
func storeAt(t *testing.T, opts storage.Options, last, applied uint64) (*storage.Store, *storage.RaftLog) {
	t.Helper()
	s := storagetest.Open(t, opts)
	l, err := s.RaftLog(1)
	must(t, err)
	if last > 0 {
		must(t, l.StoreLogs(storagetest.Entries(1, 1, last, 1)))
	}
	if applied > 0 {
		storagetest.Apply(t, s.State(1), applied)
		must(t, s.Flush(t.Context()))
	}
	return s, l
}

func termAt(t *testing.T, l *storage.RaftLog, index uint64) uint64 {
	t.Helper()
	var e raft.Log
	if err := l.GetLog(index, &e); err != nil {
		if err != raft.ErrLogNotFound { //nolint:errorlint // Raft compares with ==
			t.Fatalf("entry %d: %v", index, err)
		}
		return 0
	}
	return e.Term
}

// TestInstalledSnapshot: what Raft does not do after an install. Checked without the remedy: with InstalledSnapshot doing nothing, the
// rows "conflicting entry" and "shorter log" fail: the stale entries stay, and the term at the snapshot is wrong or unknown.
func TestInstalledSnapshot(t *testing.T) {
	for _, c := range []struct {
		name        string
		last        uint64 // of the log before, all in term 1
		index, term uint64 // of the snapshot
		want        [2]uint64
		next        uint64 // the entry that can follow
	}{
		{"agreeing entry keeps the log", 20, 10, 1, [2]uint64{1, 20}, 21},
		{"conflicting entry", 20, 10, 2, [2]uint64{11, 20}, 21},
		{"conflicting last entry", 20, 20, 2, [2]uint64{0, 0}, 21},
		{"shorter log", 20, 30, 2, [2]uint64{0, 0}, 31},
		{"empty log", 0, 30, 2, [2]uint64{0, 0}, 31},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := storagetest.Options(t, vfs.NewMem())
			s, l := storeAt(t, opts, c.last, c.index)
			must(t, l.InstalledSnapshot(c.index, c.term))
			check := func(l *storage.RaftLog) {
				t.Helper()
				if got := storagetest.Bounds(t, l); got != c.want {
					t.Fatalf("log is %v, want %v", got, c.want)
				}
				if got := termAt(t, l, c.index); got != c.term {
					t.Fatalf("term at the snapshot is %d, want %d", got, c.term)
				}
				if c.want[0] != 1 && termAt(t, l, c.index-1) != 0 {
					t.Fatalf("stale entry %d is still there", c.index-1)
				}
			}
			check(l)
			must(t, s.Close())
			s = storagetest.Open(t, opts)
			l, err := s.RaftLog(1)
			must(t, err)
			check(l)
			wantErr(t, l.StoreLog(storagetest.Entry(1, c.next+1, 3)), storage.ErrLogOrder)
			must(t, l.StoreLog(storagetest.Entry(1, c.next, 3)))
			must(t, l.InstalledSnapshot(c.index, c.term)) // again changes nothing
			if got := storagetest.Bounds(t, l)[1]; got != c.next {
				t.Fatalf("log ends at %d, want %d", got, c.next)
			}
		})
	}
}

// TestInstalledSnapshotNeedsTheState: the log is not given up before the state that replaces it is durable.
func TestInstalledSnapshotNeedsTheState(t *testing.T) {
	_, l := storeAt(t, storagetest.Options(t, vfs.NewMem()), 20, 5)
	wantErr(t, l.InstalledSnapshot(10, 2), storage.ErrLogGap)
	if got := storagetest.Bounds(t, l); got != [2]uint64{1, 20} {
		t.Fatalf("log is %v", got)
	}
}

// TestOpenWipesContradiction: a crash between an install and its InstalledSnapshot. Checked without the remedy: without reconcile at
// open the log still shows the entries that the snapshot has proven wrong.
func TestOpenWipesContradiction(t *testing.T) {
	for _, c := range []struct {
		name string
		last uint64
	}{{"longer log", 20}, {"shorter log", 7}} {
		t.Run(c.name, func(t *testing.T) {
			opts := storagetest.Options(t, vfs.NewMem())
			s, _ := storeAt(t, opts, c.last, 10)
			must(t, s.SaveSnapshotMarker(1, storage.SnapshotMarker{Index: 10, Term: 5}))
			must(t, s.Close())
			s = storagetest.Open(t, opts)
			l, err := s.RaftLog(1)
			must(t, err)
			if got := storagetest.Bounds(t, l); got != [2]uint64{0, 0} {
				t.Fatalf("log is %v, want it wiped", got)
			}
			if got := termAt(t, l, 10); got != 5 {
				t.Fatalf("term at the snapshot is %d, want 5", got)
			}
			must(t, l.StoreLogs(storagetest.Entries(1, 11, 12, 5)))
		})
	}
}

// TestOpenRefusesToWipeWithoutState: a marker alone is no reason to delete a log that the state does not replace (I19).
func TestOpenRefusesToWipeWithoutState(t *testing.T) {
	fs := vfs.NewMem()
	opts := storagetest.Options(t, fs)
	s, _ := storeAt(t, opts, 20, 5)
	must(t, s.SaveSnapshotMarker(1, storage.SnapshotMarker{Index: 10, Term: 5}))
	must(t, s.Close())
	for range 2 {
		s = storagetest.Open(t, opts)
		_, err := s.RaftLog(1)
		wantErr(t, err, storage.ErrLogGap)
		must(t, s.Close())
	}
	r, err := storage.VerifyFS(t.Context(), fs, storagetest.Dir, nil)
	must(t, err)
	if r.Groups[0].LogEntries != 20 || r.OK() {
		t.Fatalf("report is %+v", r)
	}
}

// TestWholeLogTruncation: a range over the whole log is a truncation when the marker covers it, and then it is cut at the durable
// index; else it is a conflict. Checked without the remedy: without the cut the log is gone and the state is at 6.
func TestWholeLogTruncation(t *testing.T) {
	opts := storagetest.Options(t, vfs.NewMem())
	s, l := storeAt(t, opts, 10, 6)
	must(t, s.SaveSnapshotMarker(1, storage.SnapshotMarker{Index: 10, Term: 1}))
	must(t, l.DeleteRange(1, 15))
	if got := storagetest.Bounds(t, l); got != [2]uint64{7, 10} {
		t.Fatalf("log is %v, want 7 to 10", got)
	}
	storagetest.Apply(t, s.State(1), 10)
	must(t, s.Flush(t.Context()))
	must(t, l.DeleteRange(7, 10))
	if got := storagetest.Bounds(t, l); got != [2]uint64{0, 0} || termAt(t, l, 10) != 1 {
		t.Fatalf("log is %v, term at 10 is %d", got, termAt(t, l, 10))
	}
	must(t, l.StoreLogs(storagetest.Entries(1, 11, 14, 2)))
	must(t, l.DeleteRange(11, 14)) // behind the marker: a conflict, though nothing of it is durable
	if got := storagetest.Bounds(t, l); got != [2]uint64{0, 0} || termAt(t, l, 10) != 1 || termAt(t, l, 14) != 0 {
		t.Fatalf("log is %v, term at 10 is %d, at 14 %d", got, termAt(t, l, 10), termAt(t, l, 14))
	}
}

// TestTruncationStopsAtTheMarker: Raft reads on behind its snapshot after a restart.
func TestTruncationStopsAtTheMarker(t *testing.T) {
	s, l := storeAt(t, storagetest.Options(t, vfs.NewMem()), 20, 15)
	must(t, s.SaveSnapshotMarker(1, storage.SnapshotMarker{Index: 8, Term: 1}))
	must(t, l.DeleteRange(1, 12))
	if got := storagetest.Bounds(t, l); got != [2]uint64{9, 20} {
		t.Fatalf("log is %v, want 9 to 20", got)
	}
}

// TestTruncationLeavesWhatIsHeld: the lowest of what is held counts; released twice is released once, and what is gone cannot be held.
func TestTruncationLeavesWhatIsHeld(t *testing.T) {
	_, l := storeAt(t, storagetest.Options(t, vfs.NewMem()), 20, 18)
	first, ok := l.Hold(6)
	second, ok2 := l.Hold(9)
	if !ok || !ok2 {
		t.Fatal("entries of the log cannot be held")
	}
	for _, step := range []struct {
		release func()
		want    uint64
	}{{func() {}, 6}, {first, 9}, {first, 9}, {second, 16}} {
		step.release()
		must(t, l.DeleteRange(1, 15))
		if got := storagetest.Bounds(t, l); got != [2]uint64{step.want, 20} {
			t.Fatalf("log is %v, want %d to 20", got, step.want)
		}
	}
	if _, ok := l.Hold(14); ok {
		t.Fatal("an entry that is gone can be held")
	}
	if release, ok := l.Hold(15); !ok { // the sentinel
		t.Fatal("the entry before the first cannot be held")
	} else {
		release()
	}
}

// TestStateOlderThanLog puts back an old state under a truncated log (F24).
func TestStateOlderThanLog(t *testing.T) {
	fs := vfs.NewMem()
	opts := storagetest.Options(t, fs)
	s, _ := storeAt(t, opts, 20, 5)
	must(t, s.Close())
	state := fs.PathJoin(storagetest.Dir, "state")
	if ok, err := vfs.Clone(fs, fs, state, "/old"); err != nil || !ok {
		t.Fatalf("copy: %t %v", ok, err)
	}
	s = storagetest.Open(t, opts)
	l, err := s.RaftLog(1)
	must(t, err)
	storagetest.Apply(t, s.State(1), 15)
	must(t, s.Flush(t.Context()))
	must(t, l.DeleteRange(1, 15))
	must(t, s.Close())
	must(t, fs.RemoveAll(state))
	if ok, err := vfs.Clone(fs, fs, "/old", state); err != nil || !ok {
		t.Fatalf("copy: %t %v", ok, err)
	}
	s = storagetest.Open(t, opts)
	_, err = s.RaftLog(1)
	wantErr(t, err, storage.ErrLogGap)
	if !strings.Contains(err.Error(), "starts at 16") || !strings.Contains(err.Error(), "durable up to 5") {
		t.Fatalf("the error does not name both: %v", err)
	}
}

// TestVoteIsAtomic: Raft sets the term, then the candidate. After a crash in between nothing of it is there (issue 661). Checked without
// the remedy: with the term written at once, the old candidate has a vote in the new term.
func TestVoteIsAtomic(t *testing.T) {
	disk := storagetest.NewDisk(t, 1)
	l, err := disk.MustOpen().RaftLog(1)
	must(t, err)
	must(t, l.SetUint64([]byte("LastVoteTerm"), 3))
	must(t, l.Set([]byte("LastVoteCand"), []byte("a")))
	must(t, l.SetUint64([]byte("LastVoteTerm"), 4))
	disk.Crash(100)
	check := func(term uint64, candidate string) {
		t.Helper()
		l, err = disk.MustOpen().RaftLog(1)
		must(t, err)
		gotTerm, err := l.GetUint64([]byte("LastVoteTerm"))
		must(t, err)
		gotCandidate, err := l.Get([]byte("LastVoteCand"))
		must(t, err)
		if gotTerm != term || string(gotCandidate) != candidate {
			t.Fatalf("vote in term %d for %q, want %d for %q", gotTerm, gotCandidate, term, candidate)
		}
	}
	check(3, "a")
	must(t, l.SetUint64([]byte("LastVoteTerm"), 4))
	must(t, l.Set([]byte("LastVoteCand"), []byte("b")))
	disk.Crash(0)
	check(4, "b")
}

// TestUnchangedTermIsNotWritten: Raft rewrites the term of each group at every start.
func TestUnchangedTermIsNotWritten(t *testing.T) {
	s := storagetest.OpenMem(t)
	l, err := s.RaftLog(1)
	must(t, err)
	must(t, l.SetUint64([]byte("CurrentTerm"), 3))
	before := s.Metrics()
	for range 10 {
		must(t, l.SetUint64([]byte("CurrentTerm"), 3))
	}
	if after := s.Metrics(); after.Fsyncs != before.Fsyncs || after.Log.WALBytes != before.Log.WALBytes {
		t.Fatalf("%d fsyncs and %d bytes for an unchanged term", after.Fsyncs-before.Fsyncs, after.Log.WALBytes-before.Log.WALBytes)
	}
	must(t, l.SetUint64([]byte("CurrentTerm"), 4))
	if after := s.Metrics(); after.Fsyncs == before.Fsyncs {
		t.Fatal("a new term was not synced")
	}
}

// TestRingServesReads: recent entries need no read from Pebble; with the log's own reads the result is the same.
func TestRingServesReads(t *testing.T) {
	for _, entries := range []int{1, 16, 1024} {
		t.Run(fmt.Sprint(entries), func(t *testing.T) {
			opts := storagetest.Options(t, vfs.NewMem())
			opts.RingEntries = entries
			_, l := storeAt(t, opts, 200, 0)
			storagetest.CheckEntries(t, l, 1, 1, 200, storagetest.Always(1))
			stored := storagetest.Entry(1, 201, 2)
			must(t, l.StoreLog(stored))
			var got raft.Log
			must(t, l.GetLog(201, &got))
			if &got.Data[0] != &stored.Data[0] {
				t.Fatal("the newest entry was not served from the ring")
			}
		})
	}
}
