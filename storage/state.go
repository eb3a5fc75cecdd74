package storage

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// State is the applied state of one group: an ordered map of bytes. Reads see what is committed and may come from any goroutine. Writes
// go through a Batch, one at a time per group.
//
// Keys have 1 to MaxKeyBytes bytes, without any prefix. What Get returns and what a Scan callback is given belongs to the caller.
type State struct {
	store  *Store
	group  uint32
	prefix []byte // also the key of the applied index
	end    []byte

	visible    atomic.Uint64 // applied index, committed
	durable    atomic.Uint64 // applied index, flushed
	generation atomic.Uint64 // committed batches; finds a batch that works on old reads
	replaced   atomic.Uint64 // installs begun; finds a Snapshot from before one
	batches    sync.Pool
	recent     recent
}

// State gives the state of a group; the same one every time. A group without state is empty, at applied index 0.
func (s *Store) State(group uint32) *State {
	s.groupsMu.Lock()
	defer s.groupsMu.Unlock()
	st := s.states[group]
	if st == nil {
		st = &State{store: s, group: group, prefix: groupKey(kindGroup, group), end: groupEnd(kindGroup, group)}
		s.states[group] = st
	}
	return st
}

// Applied gives the index of the last entry whose effects are committed. It may be ahead of DurableApplied.
func (s *State) Applied() (uint64, error) {
	if s.store.closed.Load() {
		return 0, ErrClosed
	}
	return s.visible.Load(), nil
}

// DurableApplied gives the index up to which effects survive a crash. It follows flushes with a short delay and never falls; Store.Flush
// brings it up to date.
func (s *State) DurableApplied() uint64 { return s.durable.Load() }

// Get reads one key.
func (s *State) Get(key []byte) (value []byte, ok bool, err error) {
	if s.store.closed.Load() {
		return nil, false, ErrClosed
	}
	if v, ok := s.recent.get(key); ok {
		return append([]byte(nil), v...), true, nil // the caller owns what it gets
	}
	return s.get(s.store.state, key)
}

// Scan calls fn for each key in [lower, upper), in order or in reverse, until fn returns false or an error, which Scan returns. An empty
// bound is open. It sees the state as of its start.
func (s *State) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (more bool, err error)) error {
	if s.store.closed.Load() {
		return ErrClosed
	}
	return s.scan(s.store.state, lower, upper, reverse, fn)
}

func (s *State) get(r pebble.Reader, key []byte) ([]byte, bool, error) {
	if err := s.checkKey(key); err != nil {
		return nil, false, err
	}
	var space [128]byte
	value, found, err := getCopy(r, append(append(space[:0], s.prefix...), key...))
	if err != nil {
		return nil, false, fmt.Errorf("read state of group %d: %w", s.group, err)
	}
	return value, found, nil
}

func (s *State) scan(r pebble.Reader, lower, upper []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	if emptyRange(lower, upper) {
		return nil
	}
	from, to := s.bounds(lower, upper, nil, nil)
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return s.scanFailed(err)
	}
	var own arena // never reused: what fn was given may be kept
	start, step := it.First, it.Next
	if reverse {
		start, step = it.Last, it.Prev
	}
	var stop error
	for ok := start(); ok; ok = step() {
		value, err := it.ValueAndErr()
		if err != nil {
			return errors.Join(s.scanFailed(err), it.Close())
		}
		var more bool
		if more, stop = fn(own.copy(it.Key()[prefixBytes:]), own.copy(value)); !more || stop != nil {
			break
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return s.scanFailed(err)
	}
	return stop
}

func (s *State) scanFailed(err error) error {
	return fmt.Errorf("scan state of group %d: %w", s.group, err)
}

// emptyRange finds bounds that hold nothing. Pebble must not see them: a kept iterator that was given lower above upper goes wrong later.
func emptyRange(lower, upper []byte) bool { return len(upper) > 0 && bytes.Compare(lower, upper) >= 0 }

// bounds turns the caller's range into Pebble's, in the given space. The applied index lies before the first key and is never in it.
func (s *State) bounds(lower, upper, lowSpace, highSpace []byte) (from, to []byte) {
	from = append(append(lowSpace[:0], s.prefix...), lower...)
	if len(lower) == 0 {
		from = append(from, 0)
	}
	if len(upper) == 0 {
		return from, s.end
	}
	return from, append(append(highSpace[:0], s.prefix...), upper...)
}

func (s *State) checkKey(key []byte) error {
	if len(key) == 0 || len(key) > MaxKeyBytes {
		return fmt.Errorf("%w: state of group %d: key has %d bytes, want 1 to MaxKeyBytes %d", ErrTooLarge, s.group, len(key), MaxKeyBytes)
	}
	return nil
}

// Snapshot is the committed state of one group at one moment. Close it: it holds disk space.
//
// When an install replaces the state, Pebble takes the old tables away under its own snapshots too. From then on every read gives
// ErrStateReplaced; a Scan that had begun before goes on to its end.
type Snapshot struct {
	state    *State
	snap     *pebble.Snapshot
	replaced uint64
}

// NewSnapshot takes one. The store must be open.
func (s *State) NewSnapshot() *Snapshot {
	replaced := s.replaced.Load() // first: an install in between is found at the first read
	return &Snapshot{state: s, snap: s.store.state.NewSnapshot(), replaced: replaced}
}

// intact tells whether what was read is of the snapshot's moment. Asked after the read began: the count rises before tables go.
func (s *Snapshot) intact() error {
	if s.state.replaced.Load() != s.replaced {
		return fmt.Errorf("%w: group %d", ErrStateReplaced, s.state.group)
	}
	return nil
}

// Get reads one key, as State.Get. Error: ErrStateReplaced.
func (s *Snapshot) Get(key []byte) (value []byte, ok bool, err error) {
	if value, ok, err = s.state.get(s.snap, key); err == nil {
		err = s.intact()
	}
	if err != nil {
		return nil, false, err
	}
	return value, ok, nil
}

// Scan walks a range, as State.Scan. Error: ErrStateReplaced, before the first call of fn.
func (s *Snapshot) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (more bool, err error)) error {
	return s.state.scan(guarded{s.snap, s}, lower, upper, reverse, fn)
}

// Applied gives the applied index of exactly this state. Error: ErrStateReplaced.
func (s *Snapshot) Applied() (uint64, error) {
	v, found, err := getCopy(s.snap, s.state.prefix)
	if err == nil {
		err = s.intact()
	}
	if err != nil || !found {
		return 0, err
	}
	return decodeApplied(s.state.group, v)
}

// Close releases the snapshot.
func (s *Snapshot) Close() error { return s.snap.Close() }

// guarded makes iterators that are whole: an iterator holds the tables that it began with.
type guarded struct {
	pebble.Reader
	of *Snapshot
}

// NewIter is part of pebble.Reader.
func (g guarded) NewIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	it, err := g.Reader.NewIter(o)
	if err != nil {
		return nil, err
	}
	if err := g.of.intact(); err != nil {
		return nil, errors.Join(err, it.Close())
	}
	return it, nil
}
