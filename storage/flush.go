package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// flusher holds what the flush loop and Flush share.
type flusher struct {
	wake    chan struct{} // capacity 1: Pebble finished a flush of the state
	dirty   atomic.Bool   // something was committed to the state since the last flush that this store asked for
	refresh sync.Mutex    // one reader of durable indexes at a time
}

// flushed is called by Pebble, with its lock held.
func (s *Store) flushed() {
	select {
	case s.flush.wake <- struct{}{}:
	default: // the loop has not taken the last one yet; it will see this flush too
	}
}

// Flush makes all state that was committed before the call durable, and then DurableApplied of every group says so. It returns early
// with the context's error, or with ErrFailed; the flush itself goes on.
func (s *Store) Flush(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	s.flush.dirty.Store(false)
	if err := s.flushInstance(ctx, s.state); err != nil {
		s.flush.dirty.Store(true)
		return err
	}
	return s.refreshDurable()
}

// flushInstance asks for a flush and waits. Pebble's own waiting flush never returns while the disk refuses.
func (s *Store) flushInstance(ctx context.Context, db *pebble.DB) error {
	done, err := db.AsyncFlush()
	if err != nil {
		return s.annotate(fmt.Errorf("flush: %w", err))
	}
	select {
	case <-done:
		return s.Failed()
	case <-s.health.failedCh:
		return s.Failed()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runFlushes keeps the time bounded for which state is not durable, and the durable indexes fresh. Pebble bounds the size by itself: a
// full memtable is flushed.
func (s *Store) runFlushes(ctx context.Context) {
	tick := time.NewTicker(s.opts.FlushInterval)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-s.health.failedCh:
			return
		case <-tick.C:
			if s.flush.dirty.Load() {
				err = s.Flush(ctx)
			}
		case <-s.flush.wake:
			err = s.refreshDurable()
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrFailed) {
			s.opts.Logger.Error("flush of the state failed", "error", err)
		}
	}
}

// refreshDurable reads the applied index of every group that has newer state than is known to be durable, from what is flushed.
func (s *Store) refreshDurable() error {
	s.flush.refresh.Lock()
	defer s.flush.refresh.Unlock()
	s.groupsMu.Lock()
	var behind []*State
	for _, st := range s.states {
		if st.durable.Load() < st.visible.Load() {
			behind = append(behind, st)
		}
	}
	s.groupsMu.Unlock()
	if len(behind) == 0 {
		return nil
	}
	it, err := s.state.NewIter(&pebble.IterOptions{
		LowerBound: []byte{kindGroup}, UpperBound: []byte{kindGroup + 1}, OnlyReadGuaranteedDurable: true,
	})
	if err != nil {
		return fmt.Errorf("read durable indexes: %w", damaged(err))
	}
	for _, st := range behind {
		if !it.SeekGE(st.prefix) || len(it.Key()) != prefixBytes || groupOf(it.Key()) != st.group {
			continue // nothing of this group is flushed yet
		}
		applied, err := decodeApplied(st.group, it.Value())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		raise(&st.durable, applied)
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return fmt.Errorf("read durable indexes: %w", damaged(err))
	}
	return nil
}

// raise sets the counter unless it is higher already.
func raise(counter *atomic.Uint64, to uint64) {
	for {
		have := counter.Load()
		if have >= to || counter.CompareAndSwap(have, to) {
			return
		}
	}
}

// loadStates finds every group that has state. At open everything in the state instance is durable, because it has no write-ahead log.
func (s *Store) loadStates() error {
	it, err := s.state.NewIter(&pebble.IterOptions{LowerBound: []byte{kindGroup}, UpperBound: []byte{kindGroup + 1}})
	if err != nil {
		return fmt.Errorf("find groups: %w", damaged(err))
	}
	for ok := it.First(); ok; {
		group := groupOf(it.Key())
		if len(it.Key()) != prefixBytes {
			err := fmt.Errorf("%w: state of group %d has no applied index", ErrCorrupt, group)
			return errors.Join(err, it.Close())
		}
		applied, err := decodeApplied(group, it.Value())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		st := s.State(group)
		st.visible.Store(applied)
		st.durable.Store(applied)
		ok = it.SeekGE(groupEnd(kindGroup, group))
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return fmt.Errorf("find groups: %w", damaged(err))
	}
	return nil
}

func decodeApplied(group uint32, value []byte) (uint64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: applied index of group %d has %d bytes, want 8", ErrCorrupt, group, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}
