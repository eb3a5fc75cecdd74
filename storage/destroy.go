package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Groups lists every group with a log, stable values or state, in order.
func (s *Store) Groups() ([]uint32, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	return listGroups(s.logDB, s.state)
}

func listGroups(log, state pebble.Reader) ([]uint32, error) {
	found := map[uint32]bool{}
	for _, place := range []struct {
		db   pebble.Reader
		kind byte
	}{{log, kindEntry}, {log, kindMarker}, {log, kindPending}, {log, kindStable}, {log, kindSentinel}, {state, kindGroup}} {
		if err := eachGroup(place.db, place.kind, func(g uint32) { found[g] = true }); err != nil {
			return nil, err
		}
	}
	groups := make([]uint32, 0, len(found))
	for g := range found {
		groups = append(groups, g)
	}
	slices.Sort(groups)
	return groups, nil
}

// eachGroup calls fn for each group that has a key of this kind.
func eachGroup(r pebble.Reader, kind byte, fn func(group uint32)) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{kind}, UpperBound: []byte{kind + 1}})
	if err != nil {
		return fmt.Errorf("find groups: %w", damaged(err))
	}
	for ok := it.First(); ok; {
		if len(it.Key()) < prefixBytes {
			err := fmt.Errorf("%w: key %x has no group", ErrCorrupt, it.Key())
			return errors.Join(err, it.Close())
		}
		group := groupOf(it.Key())
		fn(group)
		ok = it.SeekGE(groupEnd(kind, group))
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return fmt.Errorf("find groups: %w", damaged(err))
	}
	return nil
}

// DestroyGroup removes everything of a group, for good: log, stable values, marker and state. Only for a group whose removal was
// committed elsewhere; nothing here ever calls it by itself. The group's RaftLog, State and batches must not be in use. It is durable
// when it returns; after a crash in between, the next Open finishes it.
func (s *Store) DestroyGroup(group uint32) error {
	if err := s.usable(); err != nil {
		return err
	}
	s.groupsMu.Lock()
	defer s.groupsMu.Unlock()
	// The mark comes first: state and log cannot be removed in one write, and one without the other looks like a loss.
	b := s.logDB.NewBatch()
	if err := b.Set(groupKey(kindDestroyed, group), nil, nil); err != nil {
		return err
	}
	if err := s.commitLog(group, b, true); err != nil {
		return err
	}
	if err := s.destroy(group); err != nil {
		return err
	}
	if p, ok := s.pendingOf(group); ok {
		s.forgetPending(group, p)
	}
	delete(s.logs, group)
	delete(s.states, group)
	return nil
}

// destroy removes the state durably, then the log together with the mark.
func (s *Store) destroy(group uint32) error {
	if err := s.state.DeleteRange(groupKey(kindGroup, group), groupEnd(kindGroup, group), pebble.NoSync); err != nil {
		return s.fail(fmt.Errorf("destroy state of group %d: %w", group, err))
	}
	if err := s.flushInstance(context.Background(), s.state); err != nil {
		return err
	}
	b := s.logDB.NewBatch()
	for _, kind := range []byte{kindEntry, kindStable} {
		if err := b.DeleteRange(groupKey(kind, group), groupEnd(kind, group), nil); err != nil {
			return err
		}
	}
	for _, kind := range []byte{kindMarker, kindPending, kindSentinel, kindDestroyed} {
		if err := b.Delete(groupKey(kind, group), nil); err != nil {
			return err
		}
	}
	return s.commitLog(group, b, true)
}

// finishDestroys goes on where a crash interrupted DestroyGroup.
func (s *Store) finishDestroys() error {
	var marked []uint32
	if err := eachGroup(s.logDB, kindDestroyed, func(g uint32) { marked = append(marked, g) }); err != nil {
		return err
	}
	for _, g := range marked {
		if err := s.destroy(g); err != nil {
			return err
		}
		s.opts.Logger.Warn("finished an interrupted removal", "group", g)
	}
	return nil
}
