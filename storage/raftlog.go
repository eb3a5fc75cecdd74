package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"
)

var (
	// ErrLogGap means that entries are missing: between log and state (the log starts behind the durable applied index plus one), or
	// inside the log. The replica cannot be rebuilt from this directory; replace it. Nothing was deleted.
	ErrLogGap = errors.New("storage: entries are missing")
	// ErrLogOrder means that entries were stored that do not follow the last one. A programming error of the caller; nothing was stored.
	ErrLogOrder = errors.New("storage: log entries out of order")
	// ErrTooLarge means that a key, value, entry or batch is above its limit. The text names the limit.
	ErrTooLarge = errors.New("storage: too large")
)

// RaftLog is the Raft log and the stable state of one group. It satisfies raft.LogStore and raft.StableStore, and repairs what Raft
// does around snapshots (truncate.go) and votes (stable.go). Raft calls it from several goroutines; writes come from one at a time.
//
// Entries handed to StoreLogs are kept in memory without a copy of Data and Extensions, as Raft's own cache does: the caller must not
// change those bytes afterwards, and must not change what GetLog returns.
type RaftLog struct {
	store *Store
	group uint32
	state *State

	writeMu sync.Mutex           // one writer at a time; held over the sync
	held    map[*uint64]struct{} // what truncation must keep, by Hold; under writeMu

	mu       sync.RWMutex
	first    uint64 // 0 while the log is empty
	last     uint64
	sentinel edge
	marker   edge // newest snapshot marker, zero without one
	ring     *ring

	stableMu sync.Mutex
	stable   map[string][]byte
	heldVote []byte // LastVoteTerm, waiting for its LastVoteCand
}

// edge is an index and its term. Zero means none.
type edge struct{ index, term uint64 }

func (e edge) before(other edge) bool {
	return e.index < other.index || e.index == other.index && e.term < other.term
}

// RaftLog opens the log of a group; the same one every time. The first call repairs what a crash has left between a snapshot and its log
// (truncate.go) and checks that log and state meet: ErrLogGap, ErrCorrupt. A pending install was finished or dropped when the store opened.
func (s *Store) RaftLog(group uint32) (*RaftLog, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	state := s.State(group)
	s.groupsMu.Lock()
	defer s.groupsMu.Unlock()
	if l := s.logs[group]; l != nil {
		return l, nil
	}
	l := &RaftLog{store: s, group: group, state: state, ring: newRing(s.opts.RingEntries, s.opts.RingBytes)}
	if err := l.load(); err != nil {
		return nil, err
	}
	if err := l.reconcile(); err != nil {
		return nil, err
	}
	if err := l.checkStart(); err != nil {
		return nil, err
	}
	s.logs[group] = l
	return l, nil
}

// load reads the bounds of the log, the sentinel, the marker and the stable values. Entries are counted, not read.
func (l *RaftLog) load() error {
	first, last, count, err := logBounds(l.store.logDB, l.group)
	if err != nil {
		return err
	}
	if count > 0 && last-first+1 != count {
		return fmt.Errorf("%w: log of group %d has %d entries from %d to %d", ErrLogGap, l.group, count, first, last)
	}
	l.first, l.last = first, last
	if l.sentinel, err = readSentinel(l.store.logDB, l.group); err != nil {
		return err
	}
	marker, found, err := readMarker(l.store.logDB, l.group)
	if err != nil {
		return err
	}
	if found {
		l.marker = edge{marker.Index, marker.Term}
	}
	l.stable, err = readStable(l.store.logDB, l.group)
	return err
}

// logBounds walks the keys of a group's entries.
func logBounds(r pebble.Reader, group uint32) (first, last, count uint64, err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: groupKey(kindEntry, group), UpperBound: groupEnd(kindEntry, group)})
	if err != nil {
		return 0, 0, 0, fmt.Errorf("read log of group %d: %w", group, damaged(err))
	}
	for ok := it.First(); ok; ok = it.Next() {
		if len(it.Key()) != entryKeyBytes {
			err := fmt.Errorf("%w: log of group %d has a key of %d bytes", ErrCorrupt, group, len(it.Key()))
			return 0, 0, 0, errors.Join(err, it.Close())
		}
		last = indexOf(it.Key())
		if count == 0 {
			first = last
		}
		count++
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return 0, 0, 0, fmt.Errorf("read log of group %d: %w", group, damaged(err))
	}
	return first, last, count, nil
}

// IsMonotonic is part of raft.MonotonicLogStore. False: with true, Raft deletes the whole log after an install and can panic.
func (l *RaftLog) IsMonotonic() bool { return false }

// SnapshotIndex gives the index of the newest snapshot marker, 0 without one.
func (l *RaftLog) SnapshotIndex() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.marker.index
}

// FirstIndex gives the first index, 0 while the log is empty.
func (l *RaftLog) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.first, nil
}

// LastIndex gives the last index, 0 while the log is empty.
func (l *RaftLog) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last, nil
}

// GetLog reads one entry. It gives raft.ErrLogNotFound itself, unwrapped, where there is none: Raft compares it. For the last entry
// removed from the front it still gives index and term, with type LogNoop and no data. A damaged entry is ErrCorrupt.
func (l *RaftLog) GetLog(index uint64, log *raft.Log) error {
	l.mu.RLock()
	held := l.ring.get(index, log)
	outside := l.last == 0 || index < l.first || index > l.last
	sentinel := l.sentinel
	l.mu.RUnlock()
	if held {
		return nil
	}
	if outside {
		if index > 0 && index == sentinel.index {
			*log = raft.Log{Index: index, Term: sentinel.term, Type: raft.LogNoop}
			return nil
		}
		return raft.ErrLogNotFound
	}
	if l.store.closed.Load() {
		return ErrClosed
	}
	value, closer, err := l.store.logDB.Get(entryKey(l.group, index))
	if errors.Is(err, pebble.ErrNotFound) {
		return l.vanished(index)
	}
	if err != nil {
		return fmt.Errorf("read entry %d of group %d: %w", index, l.group, damaged(err))
	}
	return errors.Join(decodeEntry(l.group, index, value, log), closer.Close())
}

// vanished decides about an entry that was in the log a moment ago: truncated since, or lost.
func (l *RaftLog) vanished(index uint64) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.last == 0 || index < l.first || index > l.last {
		return raft.ErrLogNotFound
	}
	return fmt.Errorf("%w: log of group %d, %d to %d, has no entry %d", ErrLogGap, l.group, l.first, l.last, index)
}

// StoreLog appends one entry; see StoreLogs.
func (l *RaftLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends entries that follow each other and the last one, and returns when they are durable. Errors: ErrLogOrder,
// ErrTooLarge (nothing stored); ErrFailed (what is stored is unknown, and the process must stop).
func (l *RaftLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if err := l.checkAppend(logs); err != nil {
		return err
	}
	for rest := logs; len(rest) > 0; {
		n, size := splitBatch(rest)
		// Only the last part waits for the disk. All parts are in one write-ahead log, in order: syncing one syncs those before it.
		if err := l.writeEntries(rest[:n], size, n == len(rest)); err != nil {
			return err
		}
		rest = rest[n:]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range logs {
		l.ring.put(e)
	}
	if l.last == 0 {
		l.first = logs[0].Index
	}
	l.last = logs[len(logs)-1].Index
	return nil
}

// checkAppend refuses what would leave a hole or overwrite. An empty log goes on behind its sentinel; without one it may start anywhere
// that leaves no gap to the state.
func (l *RaftLog) checkAppend(logs []*raft.Log) error {
	l.mu.RLock()
	next := l.last + 1
	if l.last == 0 {
		next = l.sentinel.index + 1
		if durable := l.state.DurableApplied(); l.sentinel.index == 0 && logs[0].Index <= durable+1 {
			next = logs[0].Index
		}
	}
	l.mu.RUnlock()
	for _, e := range logs {
		if e.Index == 0 || e.Index != next {
			return fmt.Errorf("%w: group %d: entry %d, want %d", ErrLogOrder, l.group, e.Index, next)
		}
		if n := logBytes(e); n > MaxEntryBytes {
			return fmt.Errorf("%w: group %d: entry %d has %d bytes, limit MaxEntryBytes %d", ErrTooLarge, l.group, e.Index, n, MaxEntryBytes)
		}
		next++
	}
	return nil
}

// splitBatch gives how many entries go into the next Pebble batch, at least one, and its size.
func splitBatch(logs []*raft.Log) (n, size int) {
	for _, e := range logs {
		add := entrySize(e) + entryKeyBytes + 16
		if n > 0 && size+add > logBatchBytes {
			break
		}
		size += add
		n++
	}
	return n, size
}

func (l *RaftLog) writeEntries(logs []*raft.Log, size int, sync bool) error {
	b := l.store.logDB.NewBatchWithSize(size + 64)
	for _, e := range logs {
		op := b.SetDeferred(entryKeyBytes, entrySize(e))
		appendPrefix(op.Key[:0], kindEntry, l.group)
		binary.BigEndian.PutUint64(op.Key[prefixBytes:], e.Index)
		encodeEntry(op.Value, l.group, e)
		if err := op.Finish(); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	return l.store.commitLog(l.group, b, sync)
}

// commitLog writes one batch to the log instance and, with sync, returns when it is durable. An error or a late success is fatal for
// the store. It closes the batch.
func (s *Store) commitLog(group uint32, b *pebble.Batch, sync bool) error {
	if err := s.usable(); err != nil {
		return errors.Join(err, b.Close())
	}
	deadline := time.AfterFunc(s.opts.LogWriteDeadline, func() {
		s.fail(fmt.Errorf("%w of %v: group %d", ErrLogWriteDeadline, s.opts.LogWriteDeadline, group))
	})
	defer deadline.Stop()
	s.writing.begin()
	defer s.writing.end()
	if err := s.applyLog(b, sync && !s.opts.NoSync); err != nil {
		return s.fail(fmt.Errorf("write log of group %d: %w", group, err))
	}
	// Pebble reports some failures only to its logger, and the deadline only to the store.
	return s.Failed()
}

// applyLog splits the write from the wait: only so does Pebble return the error of a failed sync instead of ending the process.
func (s *Store) applyLog(b *pebble.Batch, sync bool) (err error) {
	defer func() {
		// A write behind a failed one panics in Pebble. The store has failed already, or fails now.
		if p := recover(); p != nil {
			err = fmt.Errorf("pebble: %v", p)
		}
	}()
	if !sync {
		return errors.Join(s.logDB.Apply(b, pebble.NoSync), b.Close())
	}
	if err := s.logDB.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		return err
	}
	return errors.Join(b.SyncWait(), b.Close())
}
