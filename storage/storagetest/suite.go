package storagetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
)

// The store's log must fit Raft without an adapter.
var (
	_ raft.LogStore          = (*storage.RaftLog)(nil)
	_ raft.StableStore       = (*storage.RaftLog)(nil)
	_ raft.MonotonicLogStore = (*storage.RaftLog)(nil)
)

// Opener opens the store under test. Called again after Close, it opens the same one.
type Opener func() (*storage.Store, error)

// RunStore checks what every store must do. newStore gives a fresh, empty one per call.
func RunStore(t *testing.T, newStore func(t *testing.T) Opener) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, h *harness)
	}{
		{"LogAppendAndRead", logAppendAndRead},
		{"LogRefusesHoles", logRefusesHoles},
		{"LogConflict", logConflict},
		{"LogTruncation", logTruncation},
		{"LogGroupsAreApart", logGroupsAreApart},
		{"Stable", stableValues},
		{"Marker", snapshotMarker},
		{"StateAndApplied", stateAndApplied},
		{"StateSnapshot", stateSnapshot},
		{"BatchRules", batchRules},
		{"Destroy", destroyGroup},
		{"Closed", closedStore},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &harness{t: t, opener: newStore(t)}
			h.open()
			t.Cleanup(func() { closeQuietly(t, h.Store) })
			c.run(t, h)
		})
	}
}

type harness struct {
	*storage.Store
	t      *testing.T
	opener Opener
}

func (h *harness) open() {
	h.t.Helper()
	s, err := h.opener()
	if err != nil {
		h.t.Fatalf("open: %v", err)
	}
	h.Store = s
}

func (h *harness) reopen() {
	h.t.Helper()
	if err := h.Close(); err != nil {
		h.t.Fatalf("close: %v", err)
	}
	h.open()
}

func (h *harness) log(group uint32) *storage.RaftLog {
	h.t.Helper()
	l, err := h.RaftLog(group)
	if err != nil {
		h.t.Fatalf("open log of group %d: %v", group, err)
	}
	return l
}

// Entry makes a command entry whose content follows from group, index and term.
func Entry(group uint32, index, term uint64) *raft.Log {
	l := &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: fmt.Appendf(nil, "g%d i%d t%d", group, index, term)}
	if index%5 == 0 {
		l.Extensions = []byte("ext")
	}
	if index%7 == 0 {
		l.Data = append(l.Data, make([]byte, 3000)...) // large enough for a blob file
	}
	return l
}

// Entries makes those from first to last.
func Entries(group uint32, first, last, term uint64) []*raft.Log {
	var out []*raft.Log
	for i := first; i <= last; i++ {
		out = append(out, Entry(group, i, term))
	}
	return out
}

// CheckEntries compares the log's entries from first to last with Entry, by their terms.
func CheckEntries(t testing.TB, l *storage.RaftLog, group uint32, first, last uint64, term func(index uint64) uint64) {
	t.Helper()
	for i := first; i <= last; i++ {
		var got raft.Log
		if err := l.GetLog(i, &got); err != nil {
			t.Fatalf("group %d entry %d: %v", group, i, err)
		}
		if want := Entry(group, i, term(i)); !sameEntry(&got, want) {
			t.Fatalf("group %d entry %d is %+.200v, want %+.200v", group, i, got, *want)
		}
	}
}

func sameEntry(a, b *raft.Log) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && string(a.Data) == string(b.Data) &&
		string(a.Extensions) == string(b.Extensions) && a.AppendedAt.Equal(b.AppendedAt)
}

// Always gives the same term for every index.
func Always(term uint64) func(uint64) uint64 { return func(uint64) uint64 { return term } }

// Bounds reads the log's first and last index.
func Bounds(t testing.TB, l *storage.RaftLog) [2]uint64 {
	t.Helper()
	first, err := l.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	last, err := l.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	return [2]uint64{first, last}
}

// Apply commits one batch: key and value from the index, applied index included.
func Apply(t testing.TB, st *storage.State, index uint64) {
	t.Helper()
	b := st.NewBatch()
	defer b.Close()
	must(t, b.Set(fmt.Appendf(nil, "k%d", index%10), fmt.Appendf(nil, "v%d", index)))
	b.SetApplied(index)
	must(t, b.Commit())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}
