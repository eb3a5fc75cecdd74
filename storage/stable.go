package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Raft's names of the two halves of a vote. It writes them one after the other, with a sync each; a crash in between leaves the new term
// with the old candidate. Here the first is held back and both are written in one batch.
const (
	voteTermName      = "LastVoteTerm"
	voteCandidateName = "LastVoteCand"
)

// errStableNotFound has the text that Raft compares; it has no other way to tell a missing value from a failed read.
var errStableNotFound = errors.New("not found")

// readStable reads all stable values of a group.
func readStable(r pebble.Reader, group uint32) (map[string][]byte, error) {
	values := map[string][]byte{}
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: groupKey(kindStable, group), UpperBound: groupEnd(kindStable, group)})
	if err != nil {
		return nil, fmt.Errorf("read stable values of group %d: %w", group, damaged(err))
	}
	for ok := it.First(); ok; ok = it.Next() {
		values[string(it.Key()[prefixBytes:])] = append([]byte{}, it.Value()...)
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, fmt.Errorf("read stable values of group %d: %w", group, damaged(err))
	}
	return values, nil
}

// Set stores a value durably. Key 1 to MaxKeyBytes. Setting a vote's candidate also stores the vote's term that was set before, atomically.
func (l *RaftLog) Set(key, val []byte) error {
	if len(key) == 0 || len(key) > MaxKeyBytes {
		return fmt.Errorf("%w: group %d: stable key has %d bytes, want 1 to MaxKeyBytes %d", ErrTooLarge, l.group, len(key), MaxKeyBytes)
	}
	l.stableMu.Lock()
	defer l.stableMu.Unlock()
	b := l.store.logDB.NewBatch()
	var vote []byte
	if string(key) == voteCandidateName {
		vote, l.heldVote = l.heldVote, nil
	}
	if vote != nil {
		if err := b.Set(stableKey(l.group, []byte(voteTermName)), vote, nil); err != nil {
			return err
		}
	}
	if err := b.Set(stableKey(l.group, key), val, nil); err != nil {
		return err
	}
	if err := l.store.commitLog(l.group, b, true); err != nil {
		return err
	}
	if vote != nil {
		l.stable[voteTermName] = vote
	}
	l.stable[string(key)] = append([]byte{}, val...)
	return nil
}

// Get reads a value; a missing one is an error with the text "not found".
func (l *RaftLog) Get(key []byte) ([]byte, error) {
	l.stableMu.Lock()
	defer l.stableMu.Unlock()
	v, ok := l.stable[string(key)]
	if !ok {
		return nil, errStableNotFound
	}
	return append([]byte{}, v...), nil
}

// SetUint64 stores a number durably. A number that does not change is not written again: Raft rewrites the current term at every start.
// The term of a vote is only held until its candidate is Set, and not readable before.
func (l *RaftLog) SetUint64(key []byte, val uint64) error {
	v := binary.BigEndian.AppendUint64(nil, val)
	l.stableMu.Lock()
	if string(key) == voteTermName {
		l.heldVote = v
		l.stableMu.Unlock()
		return l.store.usable()
	}
	old, ok := l.stable[string(key)]
	l.stableMu.Unlock()
	if ok && bytes.Equal(old, v) {
		return l.store.usable()
	}
	return l.Set(key, v)
}

// GetUint64 reads a number; a missing one is an error with the text "not found".
func (l *RaftLog) GetUint64(key []byte) (uint64, error) {
	v, err := l.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: stable value %q of group %d has %d bytes, want 8", ErrCorrupt, key, l.group, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}
