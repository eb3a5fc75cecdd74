package storagetest

import (
	"fmt"
	"testing"

	"github.com/sealane/sealane/storage"
)

func wantValue(t *testing.T, r Reader, key, want string) {
	t.Helper()
	v, ok, err := r.Get([]byte(key))
	if err != nil || ok != (want != "") || string(v) != want {
		t.Fatalf("%s is %q %t (%v), want %q", key, v, ok, err, want)
	}
}

func stateAndApplied(t *testing.T, h *harness) {
	st := h.State(5)
	if got, err := st.Applied(); got != 0 || err != nil || st.DurableApplied() != 0 {
		t.Fatalf("new state is applied up to %d, durable %d (%v)", got, st.DurableApplied(), err)
	}
	b := st.NewBatch()
	must(t, b.Set([]byte("a"), []byte("1")))
	must(t, b.Set([]byte("b"), []byte("2")))
	if b.Len() != 2 || b.Bytes() != 4 {
		t.Fatalf("batch has %d keys, %d bytes", b.Len(), b.Bytes())
	}
	b.SetApplied(4)
	wantValue(t, st, "a", "") // not before Commit
	must(t, b.Commit())
	wantValue(t, st, "a", "1")
	if got, _ := st.Applied(); got != 4 || st.DurableApplied() != 0 {
		t.Fatalf("applied %d, durable %d, want 4 and 0", got, st.DurableApplied())
	}
	b.Reset()
	wantValue(t, b, "b", "2")
	must(t, b.Delete([]byte("a")))
	b.SetApplied(5)
	must(t, b.Commit())
	b.Close()
	empty := st.NewBatch()
	must(t, empty.Commit()) // nothing to do
	empty.Close()
	only := st.NewBatch()
	only.SetApplied(6) // an entry without effects
	must(t, only.Commit())
	only.Close()
	must(t, h.Flush(t.Context()))
	if got := st.DurableApplied(); got != 6 {
		t.Fatalf("durable %d after a flush, want 6", got)
	}
	Apply(t, st, 7)
	h.reopen() // Close flushes
	st = h.State(5)
	if got, _ := st.Applied(); got != 7 || st.DurableApplied() != 7 {
		t.Fatalf("applied %d, durable %d after a restart, want 7", got, st.DurableApplied())
	}
	wantValue(t, st, "a", "")
	wantValue(t, st, "b", "2")
	wantValue(t, st, "k7", "v7")
}

func stateSnapshot(t *testing.T, h *harness) {
	st := h.State(1)
	Apply(t, st, 1)
	snap := st.NewSnapshot()
	Apply(t, st, 11) // same key
	Apply(t, st, 12)
	wantValue(t, snap, "k1", "v1")
	wantValue(t, snap, "k2", "")
	wantValue(t, st, "k1", "v11")
	if got, err := snap.Applied(); got != 1 || err != nil {
		t.Fatalf("snapshot is applied up to %d (%v), want 1", got, err)
	}
	n := 0
	must(t, snap.Scan(nil, nil, true, func(k, v []byte) (bool, error) { n++; return true, nil }))
	if n != 1 {
		t.Fatalf("snapshot has %d keys, want 1", n)
	}
	must(t, snap.Close())
}

func batchRules(t *testing.T, h *harness) {
	st := h.State(1)
	Apply(t, st, 5)
	b := st.NewBatch()
	must(t, b.Set([]byte("x"), []byte("1")))
	wantErr(t, b.Commit(), storage.ErrAppliedIndex) // writes without an index
	b.SetApplied(5)
	wantErr(t, b.Commit(), storage.ErrAppliedIndex) // applied before
	b.SetApplied(6)
	must(t, b.Commit())
	wantErr(t, b.Set([]byte("x"), nil), storage.ErrBatchDone)
	b.Close()

	one, other := st.NewBatch(), st.NewBatch()
	_, _, err := one.Get([]byte("x"))
	must(t, err)
	must(t, other.Set([]byte("x"), []byte("2")))
	other.SetApplied(7)
	must(t, other.Commit())
	must(t, one.Set([]byte("y"), []byte("from an old x")))
	one.SetApplied(8)
	wantErr(t, one.Commit(), storage.ErrBatchStale)
	one.Close()
	other.Close()

	big := st.NewBatch()
	wantErr(t, big.Set(nil, nil), storage.ErrTooLarge)
	wantErr(t, big.Set(make([]byte, storage.MaxKeyBytes+1), nil), storage.ErrTooLarge)
	wantErr(t, big.Set([]byte("v"), make([]byte, storage.MaxBatchBytes+1)), storage.ErrTooLarge)
	for i := range 3 {
		must(t, big.Set(fmt.Appendf(nil, "big%d", i), make([]byte, storage.MaxBatchBytes/3)))
	}
	big.SetApplied(8)
	wantErr(t, big.Commit(), storage.ErrTooLarge)
	must(t, big.Delete([]byte("big0")))
	must(t, big.Commit()) // larger than this store's memtable
	big.Close()
	v, ok, err := st.Get([]byte("big2"))
	if err != nil || !ok || len(v) != storage.MaxBatchBytes/3 {
		t.Fatalf("large value: %d bytes %t (%v)", len(v), ok, err)
	}
}

func destroyGroup(t *testing.T, h *harness) {
	for g := range uint32(3) {
		must(t, h.log(g).StoreLogs(Entries(g, 1, 20, 1)))
		must(t, h.log(g).SetUint64([]byte("CurrentTerm"), 1))
		Apply(t, h.State(g), 10)
		must(t, h.SaveSnapshotMarker(g, storage.SnapshotMarker{Index: 10, Term: 1}))
	}
	must(t, h.DestroyGroup(1))
	check := func() {
		t.Helper()
		groups, err := h.Groups()
		must(t, err)
		if fmt.Sprint(groups) != "[0 2]" {
			t.Fatalf("groups are %v, want 0 and 2", groups)
		}
		wantBounds(t, h.log(1), 0, 0)
		wantBounds(t, h.log(0), 1, 20)
		wantBounds(t, h.log(2), 1, 20)
		wantValue(t, h.State(1), "k0", "")
		wantValue(t, h.State(2), "k0", "v10")
		if got, _ := h.State(1).Applied(); got != 0 {
			t.Fatalf("destroyed group is applied up to %d", got)
		}
		if _, ok, err := h.LoadSnapshotMarker(1); ok || err != nil {
			t.Fatalf("marker of the destroyed group: %t %v", ok, err)
		}
	}
	check()
	h.reopen()
	check()
	must(t, h.log(1).StoreLogs(Entries(1, 1, 2, 9))) // the number may be used again
	Apply(t, h.State(1), 1)
}

func closedStore(t *testing.T, h *harness) {
	l, st := h.log(1), h.State(1)
	must(t, l.StoreLogs(Entries(1, 1, 2, 1)))
	b := st.NewBatch()
	b.Close()
	must(t, h.Close())
	wantErr(t, h.Close(), storage.ErrClosed)
	wantErr(t, l.StoreLogs(Entries(1, 3, 3, 1)), storage.ErrClosed)
	_, _, err := st.Get([]byte("a"))
	wantErr(t, err, storage.ErrClosed)
	wantErr(t, st.Scan(nil, nil, false, nil), storage.ErrClosed)
	_, err = h.RaftLog(2)
	wantErr(t, err, storage.ErrClosed)
	wantErr(t, h.Flush(t.Context()), storage.ErrClosed)
	wantErr(t, h.SaveSnapshotMarker(1, storage.SnapshotMarker{Index: 1}), storage.ErrClosed)
	b = st.NewBatch()
	wantErr(t, b.Set([]byte("a"), nil), storage.ErrClosed)
	if m := h.Metrics(); m.Failed {
		t.Fatal("closing is not a failure")
	}
}
