package storage_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
	"github.com/sealane/sealane/storage/storagetest"
)

// groupModel drives one group and remembers what must, and what may, be found after a crash at any moment. The entries' content
// follows from their terms, the state from the applied index, the vote's candidate from its term.
type groupModel struct {
	group uint32
	log   *storage.RaftLog
	state *storage.State
	store *storage.Store

	mu sync.Mutex
	expectation
}

// expectation is the part that is copied at the moment of the crash.
type expectation struct {
	versions   [][]uint64 // terms of entries 1.. that the log may show a prefix of; the last is what is being written
	acked      int        // how many of them at least
	applied    uint64     // committed to the state, or just about to be
	durable    uint64     // seen as durable
	voteAcked  uint64     // term of the last vote that was answered
	voteTried  uint64
	markAcked  uint64
	markTried  uint64
	termAcked  uint64
	termTried  uint64
	markerTerm map[uint64]uint64
}

func newGroupModel(group uint32) *groupModel {
	return &groupModel{group: group, expectation: expectation{versions: [][]uint64{nil}, markerTerm: map[uint64]uint64{}}}
}

func (m *groupModel) attach(store *storage.Store) error {
	l, err := store.RaftLog(m.group)
	if err != nil {
		return err
	}
	m.store, m.log, m.state = store, l, store.State(m.group)
	return nil
}

// frozenLocked copies what a crash now must keep.
func (m *groupModel) frozenLocked() expectation {
	e := m.expectation
	e.versions = append([][]uint64(nil), m.versions...)
	e.markerTerm = map[uint64]uint64{}
	for k, v := range m.markerTerm {
		e.markerTerm[k] = v
	}
	return e
}

func (m *groupModel) note(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

func (m *groupModel) terms() []uint64 { return m.versions[len(m.versions)-1] }

// step does one random thing that Raft and its state machine do.
func (m *groupModel) step(rng *rand.Rand) error {
	switch n := rng.IntN(20); {
	case n < 8:
		return m.append(1 + rng.IntN(4))
	case n < 14:
		return m.apply(rng)
	case n < 15:
		return m.conflict(rng)
	case n < 16:
		return m.vote()
	case n < 17:
		return m.setTerm()
	case n < 18:
		return m.flush()
	}
	return m.snapshot()
}

func (m *groupModel) currentTerm() uint64 { return max(1, m.termAcked) }

func (m *groupModel) append(n int) error {
	old := m.terms()
	next := append([]uint64(nil), old...)
	first := uint64(len(old) + 1)
	for range n {
		next = append(next, m.currentTerm())
	}
	m.note(func() { m.versions = append(m.versions, next) })
	if err := m.log.StoreLogs(storagetest.Entries(m.group, first, uint64(len(next)), m.currentTerm())); err != nil {
		return err
	}
	m.note(func() { m.versions, m.acked = [][]uint64{next}, len(next) })
	return nil
}

// conflict replaces the part of the log that is not applied, as a new leader does.
func (m *groupModel) conflict(rng *rand.Rand) error {
	old := m.terms()
	loose := len(old) - int(m.applied)
	if loose == 0 {
		return nil
	}
	if err := m.setTerm(); err != nil {
		return err
	}
	keep := int(m.applied) + rng.IntN(loose)
	m.note(func() { m.versions, m.acked = [][]uint64{old, old[:keep]}, keep })
	if err := m.log.DeleteRange(uint64(keep+1), uint64(len(old))); err != nil {
		return err
	}
	return m.append(1 + rng.IntN(3))
}

func (m *groupModel) apply(rng *rand.Rand) error {
	if int(m.applied) >= m.acked {
		return nil
	}
	to := m.applied + 1 + uint64(rng.IntN(m.acked-int(m.applied)))
	b := m.state.NewBatch()
	defer b.Close()
	for i := m.applied + 1; i <= to; i++ {
		if err := applyEntry(b, i, m.terms()[i-1]); err != nil {
			return err
		}
	}
	b.SetApplied(to)
	m.note(func() { m.applied = to })
	if err := b.Commit(); err != nil {
		return err
	}
	m.note(func() { m.durable = max(m.durable, m.state.DurableApplied()) })
	return nil
}

// applyEntry makes one of twenty keys, removes another now and then, and counts in a third.
func applyEntry(b storagetest.State, index, term uint64) error {
	counter := []byte("count")
	v, _, err := b.Get(counter)
	if err != nil {
		return err
	}
	if err := b.Set(counter, append([]byte{byte(index), byte(term)}, v[:min(len(v), 30)]...)); err != nil {
		return err
	}
	if index%3 == 0 {
		if err := b.Delete(fmt.Appendf(nil, "k%d", (index+7)%20)); err != nil {
			return err
		}
	}
	value := fmt.Appendf(nil, "%d/%d", index, term)
	if index%11 == 0 {
		value = append(value, make([]byte, 2000)...)
	}
	return b.Set(fmt.Appendf(nil, "k%d", index%20), value)
}

func (m *groupModel) vote() error {
	term := max(m.voteTried, m.termAcked) + 1
	m.note(func() { m.voteTried = term })
	if err := m.log.SetUint64([]byte("LastVoteTerm"), term); err != nil {
		return err
	}
	if err := m.log.Set([]byte("LastVoteCand"), candidate(term)); err != nil {
		return err
	}
	m.note(func() { m.voteAcked = term })
	return nil
}

func candidate(term uint64) []byte { return fmt.Appendf(nil, "node-%d", term) }

func (m *groupModel) setTerm() error {
	term := m.termTried + 1
	m.note(func() { m.termTried = term })
	if err := m.log.SetUint64([]byte("CurrentTerm"), term); err != nil {
		return err
	}
	m.note(func() { m.termAcked = term })
	return nil
}

func (m *groupModel) flush() error {
	applied := m.applied
	if err := m.store.Flush(context.Background()); err != nil {
		return err
	}
	if got := m.state.DurableApplied(); got < applied {
		return fmt.Errorf("durable %d after a flush at %d", got, applied)
	}
	m.note(func() { m.durable = max(m.durable, applied) })
	return nil
}

// snapshot writes a marker and truncates behind it, sometimes more than is durable: the store must cut that.
func (m *groupModel) snapshot() error {
	if m.durable > m.markAcked {
		index := m.durable
		term := m.terms()[index-1]
		m.note(func() { m.markTried, m.markerTerm[index] = index, term })
		if err := m.store.SaveSnapshotMarker(m.group, storage.SnapshotMarker{Index: index, Term: term}); err != nil {
			return err
		}
		m.note(func() { m.markAcked = index })
	}
	if m.applied > 5 && int(m.applied) < len(m.terms()) {
		return m.log.DeleteRange(1, m.applied-2)
	}
	return nil
}

// check compares a group that was opened after a crash with what was expected at that moment, replays the log into the state, and
// makes the recovered content the model's.
func (m *groupModel) check(t *testing.T, store *storage.Store, want expectation) {
	t.Helper()
	if err := m.attach(store); err != nil {
		t.Fatalf("group %d: open log: %v", m.group, err)
	}
	terms := m.checkLog(t, want)
	m.checkStable(t, want)
	applied, err := m.state.Applied()
	if err != nil || applied < want.durable || applied > want.applied || m.state.DurableApplied() != applied {
		t.Fatalf("group %d: applied %d, durable %d (%v), want %d to %d", m.group, applied, m.state.DurableApplied(), err, want.durable, want.applied)
	}
	checkState(t, m.group, m.state, terms, applied)
	b := m.state.NewBatch()
	defer b.Close()
	for i := applied + 1; i <= uint64(len(terms)); i++ {
		var e raft.Log
		if err := m.log.GetLog(i, &e); err != nil {
			t.Fatalf("group %d: replay of entry %d: %v", m.group, i, err)
		}
		if err := applyEntry(b, i, e.Term); err != nil {
			t.Fatal(err)
		}
		b.SetApplied(i)
	}
	if err := b.Commit(); err != nil {
		t.Fatalf("group %d: replay: %v", m.group, err)
	}
	checkState(t, m.group, m.state, terms, uint64(len(terms)))
	m.expectation = expectation{versions: [][]uint64{terms}, acked: len(terms), applied: uint64(len(terms)), durable: applied,
		voteAcked: m.voteAcked, voteTried: m.voteTried, markAcked: m.markAcked, markTried: m.markAcked, termAcked: m.termAcked,
		termTried: m.termAcked, markerTerm: want.markerTerm}
}

// checkLog finds the version of which the log is a prefix, and gives its terms.
func (m *groupModel) checkLog(t *testing.T, want expectation) []uint64 {
	t.Helper()
	bounds := storagetest.Bounds(t, m.log)
	last := int(bounds[1])
	if last < want.acked {
		t.Fatalf("group %d: log is %d to %d, want up to %d", m.group, bounds[0], bounds[1], want.acked)
	}
	mismatch := ""
	for _, version := range want.versions {
		if last > len(version) {
			continue
		}
		mismatch = ""
		for i := bounds[0]; i <= bounds[1] && i > 0; i++ {
			var e raft.Log
			if err := m.log.GetLog(i, &e); err != nil {
				t.Fatalf("group %d entry %d: %v", m.group, i, err)
			}
			if e.Term != version[i-1] {
				mismatch = fmt.Sprintf("entry %d has term %d", i, e.Term)
				break
			}
		}
		if mismatch == "" {
			if last > 0 {
				storagetest.CheckEntries(t, m.log, m.group, bounds[0], bounds[1], func(i uint64) uint64 { return version[i-1] })
			}
			return append([]uint64(nil), version[:last]...)
		}
	}
	t.Fatalf("group %d: log %v is no prefix of %d versions: %s", m.group, bounds, len(want.versions), mismatch)
	return nil
}

func (m *groupModel) checkStable(t *testing.T, want expectation) {
	t.Helper()
	read := func(key string) uint64 {
		v, err := m.log.GetUint64([]byte(key))
		if err != nil && err.Error() != "not found" {
			t.Fatal(err)
		}
		return v
	}
	m.voteAcked, m.termAcked = read("LastVoteTerm"), read("CurrentTerm")
	m.voteTried = m.voteAcked
	var cand []byte
	if m.voteAcked > 0 {
		cand = candidate(m.voteAcked)
	}
	if got, err := m.log.Get([]byte("LastVoteCand")); string(got) != string(cand) || m.voteAcked > 0 && err != nil {
		t.Fatalf("group %d: vote in term %d for %q (%v)", m.group, m.voteAcked, got, err)
	}
	if m.voteAcked < want.voteAcked || m.voteAcked > want.voteTried || m.termAcked < want.termAcked || m.termAcked > want.termTried {
		t.Fatalf("group %d: vote %d want %d to %d, term %d want %d to %d", m.group, m.voteAcked, want.voteAcked, want.voteTried,
			m.termAcked, want.termAcked, want.termTried)
	}
	mark, _, err := m.store.LoadSnapshotMarker(m.group)
	if err != nil || mark.Index < want.markAcked || mark.Index > want.markTried || mark.Term != want.markerTerm[mark.Index] {
		t.Fatalf("group %d: marker %+v (%v), want index %d to %d", m.group, mark, err, want.markAcked, want.markTried)
	}
	m.markAcked = mark.Index
}

// checkState compares the state with what applying the entries to an empty map gives.
func checkState(t *testing.T, group uint32, st *storage.State, terms []uint64, applied uint64) {
	t.Helper()
	want := mapState{}
	for i := uint64(1); i <= applied; i++ {
		if err := applyEntry(want, i, terms[i-1]); err != nil {
			t.Fatal(err)
		}
	}
	got := mapState{}
	err := st.Scan(nil, nil, false, func(k, v []byte) (bool, error) { return true, got.Set(k, v) })
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("group %d at %d: %d keys, want %d", group, applied, len(got), len(want))
	}
	for k, v := range want {
		if got[k] != v {
			t.Fatalf("group %d at %d: %s is %.40q, want %.40q", group, applied, k, got[k], v)
		}
	}
}

// mapState is the obvious state.
type mapState map[string]string

func (m mapState) Get(k []byte) ([]byte, bool, error) {
	v, ok := m[string(k)]
	return []byte(v), ok, nil
}
func (m mapState) Set(k, v []byte) error { m[string(k)] = string(v); return nil }
func (m mapState) Delete(k []byte) error { delete(m, string(k)); return nil }
func (m mapState) Scan(_, _ []byte, _ bool, _ func(k, v []byte) (bool, error)) error {
	panic("not needed")
}
