package replication

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
)

func TestSnapshotTruncatesBehindDurableState(t *testing.T) {
	s := newStore(t)
	o := options(s, newCounter())
	o.TrailingEntries = 4 * MaxEntriesInFlight
	g, _ := lead(t, o)
	for i := range 200 {
		do(t, g, id(i))
	}
	if err := g.Snapshot(context.Background()); err != nil {
		t.Fatal(err)
	}
	first, err := g.log.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	st := g.Status()
	if st.SnapshotIndex != st.AppliedIndex || first != st.LastIndex-o.TrailingEntries+1 {
		t.Fatalf("log starts at %d, status %+v", first, st)
	}
	if durable := s.State(1).DurableApplied(); first > durable+1 {
		t.Fatalf("log starts at %d, state is durable up to %d", first, durable)
	}
	if err := g.Snapshot(context.Background()); err != nil {
		t.Fatalf("nothing new: %v", err)
	}
	do(t, g, "after")
	closeGroup(t, g)

	g, m := lead(t, options(s, newCounter()))
	if n := do(t, g, "after"); n != 2 {
		t.Fatalf("after a restart the id counts %d, want 2", n)
	}
	if len(m.entries()) > 2 {
		t.Fatalf("%d entries were applied after a restart, want leader-start and one", len(m.entries()))
	}
	if n := count(t, s, 1, id(7)); n != 1 {
		t.Fatalf("an early command counts %d", n)
	}
}

func TestSnapshotScheduler(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"entries": func(o *Options) { o.SnapshotEntries = 50 },
		"bytes":   func(o *Options) { o.SnapshotBytes = 4 << 10 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			o := options(s, newCounter())
			change(&o)
			g, _ := lead(t, o)
			for i := range 200 {
				do(t, g, id(i))
			}
			eventually(t, "a snapshot", func() bool { return g.Status().SnapshotIndex > 0 })
			first := g.Status().SnapshotIndex
			for i := range 200 {
				do(t, g, id(i))
			}
			eventually(t, "a second snapshot", func() bool { return g.Status().SnapshotIndex > first })
		})
	}
}

func TestRefusesToStartBehindItsSnapshot(t *testing.T) {
	s := newStore(t)
	err := s.SaveSnapshotMarker(1, storage.SnapshotMarker{Index: 9, Term: 1, Configuration: raft.EncodeConfiguration(
		raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(rid("n1")), Address: raft.ServerAddress(rid("n1"))}}})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewGroup(options(s, newCounter())); !errors.Is(err, ErrSnapshotNewer) {
		t.Fatalf("got %v, want ErrSnapshotNewer", err)
	}
}

func TestRefusesToStartAheadOfItsLog(t *testing.T) {
	s := newStore(t)
	b := s.State(1).NewBatch()
	b.SetApplied(500)
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if _, err := NewGroup(options(s, newCounter())); !errors.Is(err, ErrStateAhead) {
		t.Fatalf("got %v, want ErrStateAhead", err)
	}
}

// Entries at or below the stored applied index change nothing, however often Raft brings them.
func TestReplayChangesNothing(t *testing.T) {
	s := newStore(t)
	m := newCounter()
	f := &fsm{machine: m, state: s.State(1), store: s, watch: NopObserver{}, index: &appliedIndex{}, onTerm: func() {},
		onFail: func(err error) { t.Error(err) }, onGrow: func() {}, maxBytes: 1 << 40, maxCount: 1 << 40}
	var logs []*raft.Log
	for i := range 40 {
		l := &raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand}
		if i%7 == 3 {
			l.Type, l.Data = raft.LogConfiguration, raft.EncodeConfiguration(raft.Configuration{})
		} else {
			l.Data = AppendEntry(nil, &Entry{NodeID: "n1", Commands: [][]byte{[]byte(id(i))}})
		}
		logs = append(logs, l)
	}
	for end := 0; end < len(logs); {
		from := rand.IntN(end + 1)
		end = min(len(logs), from+1+rand.IntN(12))
		f.ApplyBatch(logs[from:end])
		end = int(f.applied)
	}
	if applied, err := s.State(1).Applied(); err != nil || applied != 40 || f.index.index.Load() != 40 {
		t.Fatalf("applied %d, published %d, %v", applied, f.index.index.Load(), err)
	}
	for i := range 40 {
		if n := count(t, s, 1, id(i)); n != 1 && i%7 != 3 {
			t.Fatalf("entry %d was applied %d times", i+1, n)
		}
	}
	for i := 1; i < len(m.committed); i++ {
		if m.committed[i] <= m.committed[i-1] {
			t.Fatalf("committed went from %d to %d", m.committed[i-1], m.committed[i])
		}
	}
}

// A long run of entries is committed in parts, each whole.
func TestLargeRunsAreCommittedInParts(t *testing.T) {
	s := newStore(t)
	m := &filler{}
	f := &fsm{machine: m, state: s.State(1), store: s, watch: NopObserver{}, index: &appliedIndex{}, onTerm: func() {},
		onFail: func(err error) { t.Error(err) }, onGrow: func() {}, maxBytes: 1 << 40, maxCount: 1 << 40}
	var logs []*raft.Log
	for i := range 64 {
		logs = append(logs, &raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand,
			Data: AppendEntry(nil, &Entry{NodeID: "n1", Commands: [][]byte{{byte(i)}}})})
	}
	f.ApplyBatch(logs)
	if len(m.committed) < 2 || m.committed[len(m.committed)-1] != 64 {
		t.Fatalf("committed at %v, want several steps to 64", m.committed)
	}
}

// filler writes 256 KiB for each entry.
type filler struct{ committed []uint64 }

func (f *filler) Apply(b *storage.Batch, e Entry) ([]any, error) {
	return []any{nil}, b.Set([]byte{e.Commands[0][0]}, make([]byte, 256<<10))
}
func (f *filler) Committed(i uint64) { f.committed = append(f.committed, i) }
func (f *filler) Led(uint64)         {}
func (f *filler) Deposed()           {}
func (f *filler) Installed(uint64)   {}

// After a failure Raft counts the failed entry as applied; a snapshot would name its index and let the log be cut there.
func TestNoSnapshotOfAFailedMachine(t *testing.T) {
	s := newStore(t)
	f := &fsm{machine: newCounter(), state: s.State(1), store: s, watch: NopObserver{}, index: &appliedIndex{}, onTerm: func() {},
		onFail: func(error) {}, onGrow: func() {}, maxBytes: 1 << 40, maxCount: 1 << 40}
	entry := func(index uint64, command string) *raft.Log {
		return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: AppendEntry(nil, &Entry{NodeID: "n1", Commands: [][]byte{[]byte(command)}})}
	}
	answers := f.ApplyBatch([]*raft.Log{entry(1, "a")})
	if _, err := resultsOf(answers[0]); err != nil {
		t.Fatal(err)
	}
	// The batch that holds the failing entry is dropped as a whole: entry 2 has no verdict either, and is applied again after a restart.
	for i, a := range f.ApplyBatch([]*raft.Log{entry(2, "b"), entry(3, "poison"), entry(4, "c")}) {
		if _, err := resultsOf(a); !errors.Is(err, ErrFailed) || !errors.Is(err, ErrMaybeAccepted) {
			t.Fatalf("entry %d: %v", i+2, err)
		}
	}
	if applied, err := s.State(1).Applied(); err != nil || applied != 1 || count(t, s, 1, "b") != 0 || count(t, s, 1, "c") != 0 {
		t.Fatalf("applied %d, %v, b %d, c %d", applied, err, count(t, s, 1, "b"), count(t, s, 1, "c"))
	}
	if _, err := f.Snapshot(); !errors.Is(err, ErrFailed) {
		t.Fatalf("snapshot: %v", err)
	}
}
