package storage

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"
)

// checkGroups goes through the groups of both instances. One that could not be opened is nil.
func (v *verifier) checkGroups(log, state *pebble.DB) error {
	if log == nil && state == nil {
		return nil
	}
	first, second := log, state
	if first == nil {
		first = state
	}
	if second == nil {
		second = log
	}
	groups, err := listGroups(first, second)
	if err != nil {
		v.report.problem("groups", err)
		return nil
	}
	for i, group := range groups {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		r := GroupReport{Group: group}
		if state != nil {
			v.progress(Progress{Stage: stateName, Done: i, Total: len(groups)})
			if err := v.checkState(state, &r); err != nil {
				return err
			}
		}
		if log != nil {
			v.progress(Progress{Stage: logName, Done: i, Total: len(groups)})
			if err := v.checkLog(log, state != nil, &r); err != nil {
				return err
			}
		}
		v.report.Groups = append(v.report.Groups, r)
	}
	return nil
}

// checkState reads all of a group's state, then asks the caller's checks.
func (v *verifier) checkState(db *pebble.DB, r *GroupReport) error {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: groupKey(kindGroup, r.Group), UpperBound: groupEnd(kindGroup, r.Group)})
	if err != nil {
		v.report.inGroup(stateName, r.Group, err)
		return nil
	}
	hasApplied := false
	for ok := it.First(); ok; ok = it.Next() {
		if r.StateKeys%4096 == 0 && v.ctx.Err() != nil {
			return errors.Join(v.ctx.Err(), it.Close())
		}
		value, err := it.ValueAndErr()
		if err != nil {
			v.report.inGroup(stateName, r.Group, fmt.Errorf("%w: key %x: %w", ErrCorrupt, it.Key(), err))
			continue
		}
		if len(it.Key()) > prefixBytes {
			r.StateKeys++
			r.StateBytes += uint64(len(it.Key()) - prefixBytes + len(value))
			continue
		}
		hasApplied = true
		if r.DurableApplied, err = decodeApplied(r.Group, value); err != nil {
			v.report.inGroup(stateName, r.Group, err)
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		v.report.inGroup(stateName, r.Group, fmt.Errorf("%w: %w", ErrCorrupt, err))
	}
	if r.StateKeys > 0 && !hasApplied {
		v.report.inGroup(stateName, r.Group, fmt.Errorf("%w: %d keys and no applied index", ErrCorrupt, r.StateKeys))
	}
	for _, check := range v.checks {
		snap := &Snapshot{
			state: &State{group: r.Group, prefix: groupKey(kindGroup, r.Group), end: groupEnd(kindGroup, r.Group)},
			snap:  db.NewSnapshot(),
		}
		for _, err := range check(v.ctx, r.Group, snap) {
			v.report.inGroup(stateName, r.Group, err)
		}
		if err := snap.Close(); err != nil {
			return err
		}
	}
	return nil
}

// checkLog decodes every entry and compares log, sentinel, marker and state. stateKnown is false if there is no applied index to compare.
func (v *verifier) checkLog(db *pebble.DB, stateKnown bool, r *GroupReport) error {
	problem := func(err error) { v.report.inGroup(logName, r.Group, err) }
	sentinel, err := readSentinel(db, r.Group)
	if err != nil {
		problem(err)
	}
	r.SentinelIndex = sentinel.index
	marker, hasMarker, err := readMarker(db, r.Group)
	if err != nil {
		problem(err)
	}
	r.MarkerIndex = marker.Index
	if pending, found, err := readPending(db, r.Group); err != nil {
		problem(err)
	} else if found {
		r.PendingInstall = pending.applied
	}
	known := map[uint64]uint64{} // terms at the marker and the sentinel
	if sentinel.index != 0 {
		known[sentinel.index] = sentinel.term
	}
	if err := v.checkEntries(db, r, sentinel.term, marker.Index, known); err != nil {
		return err
	}
	if _, err := readStable(db, r.Group); err != nil {
		problem(err)
	}
	if stateKnown {
		if err := logMeetsState(r.Group, r.FirstIndex, sentinel, r.DurableApplied); err != nil {
			problem(err)
		}
	}
	if !hasMarker {
		return nil
	}
	if stateKnown && marker.Index > r.DurableApplied {
		problem(fmt.Errorf("%w: snapshot at index %d, state is durable up to %d", ErrLogGap, marker.Index, r.DurableApplied))
	}
	if term, ok := known[marker.Index]; !ok || term != marker.Term {
		problem(fmt.Errorf("%w: log %d to %d contradicts the snapshot at index %d term %d (found %t, term %d)", ErrCorrupt, r.FirstIndex,
			r.LastIndex, marker.Index, marker.Term, ok, term))
	}
	return nil
}

// checkEntries walks the entries; term is the one before the first. It notes the term at index note.
func (v *verifier) checkEntries(db *pebble.DB, r *GroupReport, term, note uint64, known map[uint64]uint64) error {
	problem := func(err error) { v.report.inGroup(logName, r.Group, err) }
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: groupKey(kindEntry, r.Group), UpperBound: groupEnd(kindEntry, r.Group)})
	if err != nil {
		problem(err)
		return nil
	}
	var entry raft.Log
	for ok := it.First(); ok; ok = it.Next() {
		if r.LogEntries%1024 == 0 && v.ctx.Err() != nil {
			return errors.Join(v.ctx.Err(), it.Close())
		}
		if len(it.Key()) != entryKeyBytes {
			problem(fmt.Errorf("%w: key %x has %d bytes, want %d", ErrCorrupt, it.Key(), len(it.Key()), entryKeyBytes))
			continue
		}
		index := indexOf(it.Key())
		if r.LogEntries == 0 {
			r.FirstIndex = index
		} else if index != r.LastIndex+1 {
			problem(fmt.Errorf("%w: entry %d follows %d", ErrLogGap, index, r.LastIndex))
		}
		r.LastIndex = index
		r.LogEntries++
		value, err := it.ValueAndErr()
		if err == nil {
			err = decodeEntry(r.Group, index, value, &entry)
		} else {
			err = fmt.Errorf("%w: log of group %d, entry %d: %w", ErrCorrupt, r.Group, index, err)
		}
		if err != nil {
			problem(err)
			continue
		}
		if entry.Term < term {
			problem(fmt.Errorf("%w: entry %d has term %d after term %d", ErrCorrupt, index, entry.Term, term))
		}
		term = entry.Term
		if index == note {
			known[index] = term
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		problem(fmt.Errorf("%w: %w", ErrCorrupt, err))
	}
	return nil
}
