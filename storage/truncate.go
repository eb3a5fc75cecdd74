package storage

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"
)

// Around a snapshot Raft v1.8 asks for the term at the snapshot's index after that entry was removed, and keeps entries that a snapshot
// from a peer has proven wrong. Both are repaired here: by the sentinel, by InstalledSnapshot, and by reconcile at open.

// DeleteRange removes a range of entries, both ends included. Raft uses it for two things:
//
//   - Truncation, from the front, behind a snapshot. Never beyond the group's durable applied index, nor beyond the newest snapshot
//     marker if there is one, nor into what is held (Hold): the range is cut there, and the next truncation takes the rest. The last removed
//     entry becomes the sentinel.
//   - Conflict, to the end: entries that another leader's replace. Not cut; these were never committed.
//
// A range over the whole log is a truncation if the newest snapshot marker covers it, else a conflict. A range that would leave a hole is
// ErrLogOrder. The removal is not synced: until the next synced write a crash may bring the entries back, which is harmless.
func (l *RaftLog) DeleteRange(from, to uint64) error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	l.mu.RLock()
	first, last, marker := l.first, l.last, l.marker
	l.mu.RUnlock()
	if last == 0 || to < first || from > last || from > to {
		return nil
	}
	fromFront, toEnd := from <= first, to >= last
	switch {
	case fromFront && (!toEnd || last <= marker.index):
		if toEnd {
			to = last
		}
		return l.truncate(first, to, marker)
	case toEnd:
		return l.removeConflict(from, first)
	}
	return fmt.Errorf("%w: group %d: removing %d to %d would leave a hole in %d to %d", ErrLogOrder, l.group, from, to, first, last)
}

// truncate removes first to to, cut at the durable applied index and at the marker, behind which Raft reads on after a restart.
func (l *RaftLog) truncate(first, to uint64, marker edge) error {
	to = min(to, l.state.DurableApplied())
	if marker.index != 0 {
		to = min(to, marker.index)
	}
	to = l.unheld(to)
	if to < first {
		return nil
	}
	var entry raft.Log
	if err := l.GetLog(to, &entry); err != nil {
		return fmt.Errorf("truncate log of group %d: %w", l.group, err)
	}
	cut := edge{entry.Index, entry.Term}
	b := l.store.logDB.NewBatch()
	if err := deleteEntries(b, l.group, first, to); err != nil {
		return err
	}
	if err := setSentinel(b, l.group, cut); err != nil {
		return err
	}
	if err := l.store.commitLog(l.group, b, false); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sentinel = cut
	l.ring.removeTo(to)
	if l.first = to + 1; l.first > l.last {
		l.first, l.last = 0, 0
	}
	return nil
}

// removeConflict removes everything from index from on. The sentinel stays: it stands before first.
func (l *RaftLog) removeConflict(from, first uint64) error {
	from = max(from, first)
	b := l.store.logDB.NewBatch()
	if err := deleteEntries(b, l.group, from, ^uint64(0)); err != nil {
		return err
	}
	if err := l.store.commitLog(l.group, b, false); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring.removeFrom(from)
	if l.last = from - 1; l.last < l.first {
		l.first, l.last = 0, 0
	}
	return nil
}

// InstalledSnapshot makes the log agree with a snapshot (index, term) whose state is durable. Call it from the FSM's Restore, where
// Raft's main goroutine waits, after the state was flushed. If the log has that entry with that term, everything is kept. Otherwise
// entries up to index are removed and (index, term) becomes the sentinel; entries behind it stay and fall to Raft's conflict rule.
// Durable when it returns. An index above the durable applied one is ErrLogGap: the log would be gone before the state is there.
func (l *RaftLog) InstalledSnapshot(index, term uint64) error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	return l.adopt(l.store.logDB.NewBatch(), edge{index, term})
}

// adopt is InstalledSnapshot, together with what b holds already. The caller holds writeMu.
func (l *RaftLog) adopt(b *pebble.Batch, e edge) error {
	if durable := l.state.DurableApplied(); e.index > durable {
		err := fmt.Errorf("%w: group %d: snapshot at index %d, state durable up to %d", ErrLogGap, l.group, e.index, durable)
		return errors.Join(err, b.Close())
	}
	agrees, err := l.agrees(e)
	switch {
	case err != nil:
		return errors.Join(err, b.Close())
	case !agrees:
		return l.resetTo(b, e, e.index)
	case b.Empty():
		return b.Close()
	}
	return l.store.commitLog(l.group, b, true)
}

// agrees tells whether the log, or its sentinel, has this entry with this term.
func (l *RaftLog) agrees(e edge) (bool, error) {
	var entry raft.Log
	err := l.GetLog(e.index, &entry)
	if err == raft.ErrLogNotFound { //nolint:errorlint // GetLog gives exactly this value
		return false, nil
	}
	return err == nil && entry.Term == e.term, err
}

// resetTo removes all entries up to index and puts the sentinel at e, with what b holds, in one durable write.
func (l *RaftLog) resetTo(b *pebble.Batch, e edge, index uint64) error {
	if err := deleteEntries(b, l.group, 0, index); err != nil {
		return err
	}
	if err := setSentinel(b, l.group, e); err != nil {
		return err
	}
	if err := l.store.commitLog(l.group, b, true); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sentinel = e
	l.ring.removeTo(index)
	switch {
	case l.last <= index:
		l.first, l.last = 0, 0
	case l.first <= index:
		l.first = index + 1
	}
	return nil
}

// reconcile wipes a log that contradicts the newest snapshot marker: a crash came between an install and its InstalledSnapshot. Entries
// behind a wrong one were never committed either. It wipes only what the durable state covers.
func (l *RaftLog) reconcile() error {
	m := l.marker
	if m.index == 0 {
		return nil
	}
	agrees, err := l.agrees(m)
	if err != nil || agrees {
		return err
	}
	if durable := l.state.DurableApplied(); m.index > durable {
		return fmt.Errorf("%w: group %d: log %d to %d does not reach the snapshot at index %d term %d, and the state is durable only up to %d",
			ErrLogGap, l.group, l.first, l.last, m.index, m.term, durable)
	}
	if l.sentinel.index > m.index {
		return fmt.Errorf("%w: group %d: log was truncated up to %d, behind its snapshot at index %d", ErrLogGap, l.group, l.sentinel.index, m.index)
	}
	l.store.opts.Logger.Warn("log contradicts the newest snapshot and is wiped", "group", l.group, "first", l.first, "last", l.last,
		"snapshot_index", m.index, "snapshot_term", m.term)
	return l.resetTo(l.store.logDB.NewBatch(), m, ^uint64(0))
}

// checkStart asserts that sentinel, log and state meet.
func (l *RaftLog) checkStart() error {
	return logMeetsState(l.group, l.first, l.sentinel, l.state.DurableApplied())
}

// logMeetsState is I16, for the first entry of a log (0 while it is empty) and its sentinel.
func logMeetsState(group uint32, first uint64, sentinel edge, durable uint64) error {
	start := sentinel.index + 1
	if first != 0 {
		if sentinel.index != 0 && first != start {
			return fmt.Errorf("%w: log of group %d starts at %d, but was truncated up to %d", ErrLogGap, group, first, sentinel.index)
		}
		start = first
	}
	if start > durable+1 {
		return fmt.Errorf("%w: log of group %d starts at %d, state is durable up to %d", ErrLogGap, group, start, durable)
	}
	return nil
}

func deleteEntries(b *pebble.Batch, group uint32, from, to uint64) error {
	return b.DeleteRange(entryKey(group, from), entryEnd(group, to), nil)
}

func setSentinel(b *pebble.Batch, group uint32, e edge) error {
	v := binary.BigEndian.AppendUint64(make([]byte, 0, 16), e.index)
	return b.Set(groupKey(kindSentinel, group), binary.BigEndian.AppendUint64(v, e.term), nil)
}

func readSentinel(r pebble.Reader, group uint32) (edge, error) {
	v, found, err := getCopy(r, groupKey(kindSentinel, group))
	if err != nil || !found {
		return edge{}, err
	}
	if len(v) != 16 {
		return edge{}, fmt.Errorf("%w: sentinel of group %d has %d bytes, want 16", ErrCorrupt, group, len(v))
	}
	return edge{binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:])}, nil
}
