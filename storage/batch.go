package storage

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

var (
	// ErrAppliedIndex means that a batch with writes carries no applied index, or one that is not above the state's. A programming
	// error: the entries were applied before, or the batch would not say what it applied. Nothing was written.
	ErrAppliedIndex = errors.New("storage: applied index must rise with every batch")
	// ErrBatchDone means that a batch was used after Commit without Reset, or after Close. A programming error.
	ErrBatchDone = errors.New("storage: batch is done")
	// ErrBatchStale means that another batch of the same group was committed since this one began: what it read may be old. A
	// programming error: one goroutine writes a group. Nothing was written.
	ErrBatchStale = errors.New("storage: another batch of the group was committed meanwhile")
)

// Batch collects the effects of some log entries on one group and commits them, with the applied index, atomically. Its reads see its
// own writes over the committed state. It is for one goroutine; one batch per group at a time.
//
// Slices passed in may be reused after the call. Slices that Get returns or a Scan callback is given stay valid, whatever is written
// meanwhile, until Reset or Close; they must not be modified.
//
// Reads are remembered, so that repeated ones cost a map lookup; a batch's memory is bounded by what it touches.
type Batch struct {
	state *State
	over  overlay
	iter  *pebble.Iterator // kept for the next Scan; sees the state as of the first
	lent  bool             // iter is in use by a Scan
	from  []byte           // space for bounds
	to    []byte

	begun      bool
	generation uint64
	applied    uint64
	hasApplied bool
	done       bool
	closed     bool // lies in the pool
}

// NewBatch starts an empty batch.
func (s *State) NewBatch() *Batch {
	b, ok := s.batches.Get().(*Batch)
	if !ok {
		b = &Batch{state: s}
		b.over.init()
	}
	b.done, b.closed = false, false
	return b
}

// begin notes which state the batch works on. Every use goes through it.
func (b *Batch) begin() error {
	if b.done {
		return ErrBatchDone
	}
	if b.state.store.closed.Load() {
		return ErrClosed
	}
	if !b.begun {
		b.begun, b.generation = true, b.state.generation.Load()
	}
	return nil
}

// Get reads one key, the batch's own writes first.
func (b *Batch) Get(key []byte) (value []byte, ok bool, err error) {
	if err := b.begin(); err != nil {
		return nil, false, err
	}
	if err := b.state.checkKey(key); err != nil {
		return nil, false, err
	}
	if e := b.over.find(key); e != nil {
		return e.value, e.present(), nil
	}
	e := b.over.add(b.state.prefix, key)
	if v, ok := b.state.recent.get(key); ok {
		e.was, e.value = basePresent, v
		return v, true, nil
	}
	v, closer, err := b.state.store.state.Get(e.full)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		e.was = baseAbsent
		return nil, false, nil
	case err != nil:
		b.over.forget(key)
		return nil, false, fmt.Errorf("read state of group %d: %w", b.state.group, damaged(err))
	}
	e.was = basePresent
	e.value = b.over.memory.copy(v)
	return e.value, true, closer.Close()
}

// Set writes a key. Both slices are copied.
func (b *Batch) Set(key, value []byte) error { return b.write(key, value, false) }

// Delete removes a key, if it is there.
func (b *Batch) Delete(key []byte) error { return b.write(key, nil, true) }

func (b *Batch) write(key, value []byte, deleted bool) error {
	if err := b.begin(); err != nil {
		return err
	}
	if err := b.state.checkKey(key); err != nil {
		return err
	}
	if len(value) > MaxBatchBytes {
		return fmt.Errorf("%w: state of group %d: value has %d bytes, limit MaxBatchBytes %d", ErrTooLarge, b.state.group, len(value), MaxBatchBytes)
	}
	e := b.over.find(key)
	if e == nil {
		e = b.over.add(b.state.prefix, key)
	}
	b.over.set(e, value, deleted)
	return nil
}

// Scan walks a range, as State.Scan, over the batch's own writes and the committed state. fn may write to the batch: keys that it
// writes ahead of the walk are seen, as they are when the walk gets there.
func (b *Batch) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (more bool, err error)) error {
	if err := b.begin(); err != nil {
		return err
	}
	if emptyRange(lower, upper) {
		return nil
	}
	base, giveBack, err := b.iterator(lower, upper)
	if err != nil {
		return b.state.scanFailed(err)
	}
	m := merge{over: &b.over, base: base, lower: lower, upper: upper, reverse: reverse}
	stop := m.walk(fn)
	if err := errors.Join(base.Error(), giveBack()); err != nil {
		return b.state.scanFailed(err)
	}
	return stop
}

// iterator lends the kept iterator, or makes one for a Scan inside a Scan.
func (b *Batch) iterator(lower, upper []byte) (it *pebble.Iterator, giveBack func() error, err error) {
	from, to := b.state.bounds(lower, upper, b.from, b.to) // Pebble copies them
	b.from = from
	if len(upper) > 0 {
		b.to = to
	}
	if b.iter != nil && !b.lent {
		b.iter.SetBounds(from, to)
	} else {
		if it, err = b.state.store.state.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to}); err != nil {
			return nil, nil, err
		}
		if b.iter != nil {
			return it, it.Close, nil
		}
		b.iter = it
	}
	b.lent = true
	return b.iter, func() error { b.lent = false; return nil }, nil
}

// SetApplied says that the batch holds the effects of all entries up to index.
func (b *Batch) SetApplied(index uint64) { b.applied, b.hasApplied = index, true }

// Len gives the number of keys written.
func (b *Batch) Len() int { return len(b.over.dirty) }

// Bytes gives the bytes of keys and values to be written.
func (b *Batch) Bytes() int { return b.over.bytes }

// Commit makes the writes and the applied index visible, atomically. They become durable with a later flush, in the order of commits. An
// empty batch without an applied index does nothing. Errors: ErrAppliedIndex, ErrBatchStale, ErrTooLarge, ErrBatchDone (nothing
// written); ErrFailed (the process must stop). Afterwards the batch can be Reset or Closed; its slices stay valid until then.
func (b *Batch) Commit() error {
	if err := b.begin(); err != nil {
		return err
	}
	if err := b.check(); err != nil {
		return err
	}
	if !b.hasApplied {
		b.done = true
		return b.releaseIterator()
	}
	st := b.state
	if err := st.store.usable(); err != nil {
		return err
	}
	out := st.store.state.NewBatchWithSize(b.over.bytes + len(b.over.dirty)*(prefixBytes+16) + 64)
	if err := errors.Join(b.over.writeTo(out), out.Set(st.prefix, binary.BigEndian.AppendUint64(nil, b.applied), nil)); err != nil {
		return errors.Join(fmt.Errorf("commit state of group %d: %w", st.group, err), out.Close())
	}
	b.done = true
	if err := errors.Join(st.store.state.Apply(out, pebble.NoSync), out.Close()); err != nil {
		return st.store.fail(fmt.Errorf("commit state of group %d: %w", st.group, err))
	}
	if err := st.store.Failed(); err != nil {
		return err
	}
	st.recent.commit(b.over.dirty)
	st.generation.Add(1)
	st.visible.Store(b.applied)
	st.store.flush.dirty.Store(true)
	return b.releaseIterator()
}

// check refuses what must not be written.
func (b *Batch) check() error {
	st := b.state
	if !b.hasApplied && len(b.over.dirty) > 0 {
		return fmt.Errorf("%w: group %d: %d writes without SetApplied", ErrAppliedIndex, st.group, len(b.over.dirty))
	}
	if have := st.visible.Load(); b.hasApplied && b.applied <= have {
		return fmt.Errorf("%w: group %d: batch has %d, state is at %d", ErrAppliedIndex, st.group, b.applied, have)
	}
	if b.generation != st.generation.Load() {
		return fmt.Errorf("%w: group %d", ErrBatchStale, st.group)
	}
	if b.over.bytes > MaxBatchBytes {
		return fmt.Errorf("%w: batch of group %d has %d bytes, limit MaxBatchBytes %d", ErrTooLarge, st.group, b.over.bytes, MaxBatchBytes)
	}
	return nil
}

// Reset empties the batch for new use.
func (b *Batch) Reset() {
	b.over.reset()
	if err := b.releaseIterator(); err != nil {
		b.state.store.opts.Logger.Error("close iterator of a batch", "group", b.state.group, "error", err)
	}
	b.begun, b.hasApplied, b.done = false, false, false
}

// Close drops the batch. Uncommitted writes are forgotten. The memory goes to the group's next batch: do not touch this one again.
func (b *Batch) Close() {
	if b.closed {
		return
	}
	b.Reset()
	b.done, b.closed = true, true
	b.state.batches.Put(b)
}

func (b *Batch) releaseIterator() error {
	if b.iter == nil {
		return nil
	}
	it := b.iter
	b.iter, b.lent = nil, false
	return it.Close()
}
