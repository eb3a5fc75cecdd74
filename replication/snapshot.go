package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
)

// marker is a snapshot that holds no data: persisting it makes the state durable up to where it stood.
type marker struct {
	applied uint64
	store   *storage.Store
	state   *storage.State
	ctx     context.Context
}

// Persist flushes the state unless that happened since. The marker itself is written when Raft closes the sink.
func (s *marker) Persist(sink raft.SnapshotSink) error {
	if s.state.DurableApplied() < s.applied {
		if err := s.store.Flush(s.ctx); err != nil {
			return fmt.Errorf("flush state: %w", err)
		}
	}
	if durable := s.state.DurableApplied(); durable < s.applied {
		return fmt.Errorf("state is durable up to %d after a flush, want %d", durable, s.applied)
	}
	return sink.Close()
}

// Release is part of raft.FSMSnapshot; there is nothing to release.
func (s *marker) Release() {}

// snapshots is the raft.SnapshotStore of one group. It holds one marker and no data.
type snapshots struct {
	store *storage.Store
	group uint32
	state *storage.State
	index atomic.Uint64 // of the stored marker; 0 without one
}

// openSnapshots reads the marker and refuses one that the durable state has not reached.
func openSnapshots(store *storage.Store, group uint32, state *storage.State) (*snapshots, error) {
	s := &snapshots{store: store, group: group, state: state}
	m, ok, err := store.LoadSnapshotMarker(group)
	if err != nil {
		return nil, fmt.Errorf("load snapshot marker: %w", err)
	}
	if !ok {
		return s, nil
	}
	if durable := state.DurableApplied(); m.Index > durable {
		return nil, fmt.Errorf("%w: marker at index %d, state durable up to %d", ErrSnapshotNewer, m.Index, durable)
	}
	s.index.Store(m.Index)
	return s, nil
}

// Create is called by Raft to take a snapshot, and, by an install from a peer, to receive one.
func (s *snapshots) Create(_ raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &markerSink{owner: s, marker: storage.SnapshotMarker{
		Index: index, Term: term,
		Configuration:      raft.EncodeConfiguration(configuration),
		ConfigurationIndex: configurationIndex,
	}}, nil
}

// List gives the stored marker, if any.
func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	m, ok, err := s.store.LoadSnapshotMarker(s.group)
	if err != nil || !ok {
		return nil, err
	}
	return []*raft.SnapshotMeta{{
		Version: raft.SnapshotVersionMax, ID: markerID(m), Index: m.Index, Term: m.Term,
		Configuration:      raft.DecodeConfiguration(m.Configuration),
		ConfigurationIndex: m.ConfigurationIndex,
	}}, nil
}

// Open would give the data to send to a peer, or to restore from.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	return nil, nil, fmt.Errorf("snapshot %s of group %d: %w", id, s.group, ErrSnapshotStreaming)
}

func markerID(m storage.SnapshotMarker) string { return fmt.Sprintf("%d-%d", m.Term, m.Index) }

// markerSink stores its marker when it is closed.
type markerSink struct {
	owner  *snapshots
	marker storage.SnapshotMarker
	ended  bool
}

// Write refuses data: a peer is sending its state.
func (k *markerSink) Write(p []byte) (int, error) { return 0, ErrSnapshotStreaming }

// ID names the snapshot in Raft's log lines.
func (k *markerSink) ID() string { return markerID(k.marker) }

// Cancel drops the marker.
func (k *markerSink) Cancel() error {
	k.ended = true
	return nil
}

// Close stores the marker, once, and only for an index that is durable.
func (k *markerSink) Close() error {
	if k.ended {
		return nil
	}
	k.ended = true
	if durable := k.owner.state.DurableApplied(); k.marker.Index > durable {
		return fmt.Errorf("%w: marker at index %d, state durable up to %d", ErrSnapshotNewer, k.marker.Index, durable)
	}
	if err := k.owner.store.SaveSnapshotMarker(k.owner.group, k.marker); err != nil {
		return err
	}
	k.owner.index.Store(k.marker.Index)
	return nil
}

// Snapshot makes the state durable, writes the marker and truncates the log behind it, keeping Options.TrailingEntries. Nothing new
// since the last is not an error. Safe to call at any time; one runs at a time.
func (g *Group) Snapshot(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- g.takeSnapshot() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *Group) takeSnapshot() error {
	began := time.Now()
	err := g.current().Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		err = nil
	}
	if errors.Is(err, raft.ErrRaftShutdown) {
		err = fmt.Errorf("%w: %w", ErrStopped, err)
	}
	if err == nil {
		g.fsm.grown.Store(false)
	}
	g.opts.Observer.SnapshotTaken(g.snaps.index.Load(), time.Since(began), err)
	return err
}

// runSnapshots takes a snapshot when the log has grown, and again a while after a failed one.
func (g *Group) runSnapshots() {
	defer g.goroutines.Done()
	for {
		select {
		case <-g.grown:
		case <-g.stop:
			return
		}
		for {
			err := g.takeSnapshot()
			if err == nil || errors.Is(err, ErrStopped) || errors.Is(err, ErrFailed) {
				g.fsm.grown.Store(false) // taken, or a matter for the next instance of Raft
				break
			}
			pause := time.NewTimer(snapshotRetry)
			select {
			case <-pause.C:
			case <-g.stop:
				pause.Stop()
				return
			}
		}
	}
}
