package storagetest

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
)

func notFound(t *testing.T, l *storage.RaftLog, index uint64) {
	t.Helper()
	var e raft.Log
	if err := l.GetLog(index, &e); err != raft.ErrLogNotFound { //nolint:errorlint // Raft compares with ==
		t.Fatalf("entry %d: error is %v, want exactly raft.ErrLogNotFound", index, err)
	}
}

func wantBounds(t *testing.T, l *storage.RaftLog, first, last uint64) {
	t.Helper()
	if got := Bounds(t, l); got != [2]uint64{first, last} {
		t.Fatalf("log goes from %d to %d, want %d to %d", got[0], got[1], first, last)
	}
}

func logAppendAndRead(t *testing.T, h *harness) {
	l := h.log(3)
	if l.IsMonotonic() {
		t.Fatal("the log must not be monotonic")
	}
	wantBounds(t, l, 0, 0)
	notFound(t, l, 0)
	notFound(t, l, 1)
	must(t, l.StoreLogs(nil))
	special := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: []byte("conf"), AppendedAt: time.Unix(12, 345)}
	must(t, l.StoreLog(special))
	must(t, l.StoreLogs([]*raft.Log{{Index: 2, Term: 1, Type: raft.LogNoop}}))
	must(t, l.StoreLogs(Entries(3, 3, 1200, 2)))
	check := func() {
		t.Helper()
		l := h.log(3)
		wantBounds(t, l, 1, 1200)
		var e raft.Log
		must(t, l.GetLog(1, &e))
		if !sameEntry(&e, special) {
			t.Fatalf("first entry is %+v", e)
		}
		must(t, l.GetLog(2, &e))
		if e.Type != raft.LogNoop || len(e.Data) != 0 {
			t.Fatalf("second entry is %+v", e)
		}
		CheckEntries(t, l, 3, 3, 1200, Always(2))
		notFound(t, l, 1201)
		notFound(t, l, 0)
	}
	check()
	h.reopen()
	check()
}

func logRefusesHoles(t *testing.T, h *harness) {
	l := h.log(1)
	wantErr(t, l.StoreLog(Entry(1, 5, 1)), storage.ErrLogOrder) // neither state nor sentinel account for 1 to 4
	wantErr(t, l.StoreLog(Entry(1, 0, 1)), storage.ErrLogOrder)
	must(t, l.StoreLogs(Entries(1, 1, 3, 1)))
	wantErr(t, l.StoreLog(Entry(1, 5, 1)), storage.ErrLogOrder)
	wantErr(t, l.StoreLog(Entry(1, 3, 1)), storage.ErrLogOrder)
	wantErr(t, l.StoreLogs([]*raft.Log{Entry(1, 4, 1), Entry(1, 6, 1)}), storage.ErrLogOrder)
	wantErr(t, l.StoreLog(&raft.Log{Index: 4, Data: make([]byte, storage.MaxEntryBytes+1)}), storage.ErrTooLarge)
	must(t, l.StoreLogs(Entries(1, 4, 9, 1)))
	wantErr(t, l.DeleteRange(4, 6), storage.ErrLogOrder)
	wantBounds(t, l, 1, 9)
}

func logConflict(t *testing.T, h *harness) {
	l := h.log(1)
	must(t, l.StoreLogs(Entries(1, 1, 20, 1)))
	must(t, l.DeleteRange(11, 25)) // Raft may name an end that it remembers from before an install
	wantBounds(t, l, 1, 10)
	notFound(t, l, 11)
	must(t, l.StoreLogs(Entries(1, 11, 13, 2)))
	term := func(i uint64) uint64 {
		if i <= 10 {
			return 1
		}
		return 2
	}
	CheckEntries(t, l, 1, 1, 13, term)
	h.reopen()
	l = h.log(1)
	wantBounds(t, l, 1, 13)
	CheckEntries(t, l, 1, 1, 13, term)
	must(t, l.DeleteRange(1, 13)) // all of it, no snapshot: a conflict with the whole log
	wantBounds(t, l, 0, 0)
	must(t, l.StoreLogs(Entries(1, 1, 2, 3)))
	must(t, l.DeleteRange(7, 9))
	must(t, l.DeleteRange(2, 1))
	CheckEntries(t, l, 1, 1, 2, Always(3))
}

func logTruncation(t *testing.T, h *harness) {
	l, st := h.log(1), h.State(1)
	must(t, l.StoreLogs(Entries(1, 1, 100, 4)))
	must(t, l.DeleteRange(1, 50))
	wantBounds(t, l, 1, 100) // nothing is durable yet
	for i := uint64(1); i <= 30; i++ {
		Apply(t, st, i)
	}
	must(t, l.DeleteRange(1, 50))
	wantBounds(t, l, 1, 100) // applied, still not durable
	must(t, h.Flush(t.Context()))
	if got := st.DurableApplied(); got != 30 {
		t.Fatalf("durable applied index is %d after a flush, want 30", got)
	}
	must(t, l.DeleteRange(1, 50))
	wantBounds(t, l, 31, 100)
	check := func() {
		t.Helper()
		l := h.log(1)
		wantBounds(t, l, 31, 100)
		notFound(t, l, 29)
		var e raft.Log
		must(t, l.GetLog(30, &e)) // the sentinel
		if e.Index != 30 || e.Term != 4 || len(e.Data) != 0 || e.Type != raft.LogNoop {
			t.Fatalf("sentinel is %+v", e)
		}
		CheckEntries(t, l, 1, 31, 100, Always(4))
	}
	check()
	h.reopen()
	check()
}

func logGroupsAreApart(t *testing.T, h *harness) {
	groups := []uint32{0, 1, 2, 255, 256, 1<<32 - 1}
	for _, g := range groups {
		must(t, h.log(g).StoreLogs(Entries(g, 1, 20, uint64(g)+1)))
		must(t, h.log(g).SetUint64([]byte("CurrentTerm"), uint64(g)+1))
		Apply(t, h.State(g), uint64(g)+1)
	}
	must(t, h.log(1).DeleteRange(1, 20))
	check := func() {
		t.Helper()
		for _, g := range groups {
			if got, err := h.State(g).Applied(); err != nil || got != uint64(g)+1 {
				t.Fatalf("group %d is applied up to %d (%v)", g, got, err)
			}
			if g == 1 {
				wantBounds(t, h.log(g), 0, 0)
				continue
			}
			CheckEntries(t, h.log(g), g, 1, 20, Always(uint64(g)+1))
			notFound(t, h.log(g), 21)
			n := 0
			must(t, h.State(g).Scan(nil, nil, false, func(k, v []byte) (bool, error) { n++; return true, nil }))
			if n != 1 {
				t.Fatalf("group %d has %d keys, want 1", g, n)
			}
		}
	}
	check()
	h.reopen()
	check()
	log, state := h.log(2), h.State(2)
	if h.log(2) != log || h.State(2) != state {
		t.Fatal("a group must have one log and one state")
	}
}

func stableValues(t *testing.T, h *harness) {
	l := h.log(1)
	missing := func(err error) {
		t.Helper()
		if err == nil || err.Error() != "not found" {
			t.Fatalf(`error is %v, Raft wants the text "not found"`, err)
		}
	}
	_, err := l.Get([]byte("a"))
	missing(err)
	_, err = l.GetUint64([]byte("a"))
	missing(err)
	must(t, l.Set([]byte("a"), []byte("1")))
	must(t, l.Set([]byte("empty"), nil))
	must(t, l.SetUint64([]byte("CurrentTerm"), 7))
	must(t, l.SetUint64([]byte("CurrentTerm"), 7))
	must(t, l.SetUint64([]byte("zero"), 0))
	must(t, l.SetUint64([]byte("LastVoteTerm"), 7))
	must(t, l.Set([]byte("LastVoteCand"), []byte("n2")))
	wantErr(t, l.Set(nil, nil), storage.ErrTooLarge)
	check := func() {
		t.Helper()
		l := h.log(1)
		for key, want := range map[string]string{"a": "1", "empty": "", "LastVoteCand": "n2"} {
			if got, err := l.Get([]byte(key)); err != nil || string(got) != want {
				t.Fatalf("%s is %q (%v), want %q", key, got, err, want)
			}
		}
		for key, want := range map[string]uint64{"CurrentTerm": 7, "LastVoteTerm": 7, "zero": 0} {
			if got, err := l.GetUint64([]byte(key)); err != nil || got != want {
				t.Fatalf("%s is %d (%v), want %d", key, got, err, want)
			}
		}
		_, err := l.GetUint64([]byte("a"))
		wantErr(t, err, storage.ErrCorrupt)
		_, err = h.log(2).Get([]byte("a"))
		missing(err)
	}
	check()
	h.reopen()
	check()
}

func snapshotMarker(t *testing.T, h *harness) {
	if _, ok, err := h.LoadSnapshotMarker(1); ok || err != nil {
		t.Fatalf("marker of a new group: %t %v", ok, err)
	}
	must(t, h.log(1).StoreLogs(Entries(1, 1, 20, 2)))
	m := storage.SnapshotMarker{Index: 10, Term: 2, Configuration: []byte("conf"), ConfigurationIndex: 1}
	must(t, h.SaveSnapshotMarker(1, m))
	must(t, h.SaveSnapshotMarker(1, m))
	wantErr(t, h.SaveSnapshotMarker(1, storage.SnapshotMarker{Index: 9, Term: 2}), storage.ErrSnapshotOlder)
	wantErr(t, h.SaveSnapshotMarker(1, storage.SnapshotMarker{Index: 10, Term: 1}), storage.ErrSnapshotOlder)
	if err := h.SaveSnapshotMarker(1, storage.SnapshotMarker{}); err == nil {
		t.Fatal("a marker without index was stored")
	}
	check := func() {
		t.Helper()
		got, ok, err := h.LoadSnapshotMarker(1)
		if err != nil || !ok || got.Index != m.Index || got.Term != m.Term || string(got.Configuration) != "conf" || got.ConfigurationIndex != 1 {
			t.Fatalf("marker is %+v %t %v", got, ok, err)
		}
		if _, ok, err := h.LoadSnapshotMarker(2); ok || err != nil {
			t.Fatalf("marker of another group: %t %v", ok, err)
		}
	}
	check()
	h.reopen()
	check()
	wantErr(t, h.SaveSnapshotMarker(1, storage.SnapshotMarker{Index: 9, Term: 2}), storage.ErrSnapshotOlder)
}
