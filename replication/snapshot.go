package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
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

// Persist flushes the state unless that happened since. The marker itself is written when Raft closes the sink. An install waits from here
// until takeSnapshot is over: Raft would note this snapshot as its newest behind the install's back (248).
func (s *marker) Persist(sink raft.SnapshotSink) error {
	k, ok := sink.(*markerSink)
	if !ok {
		return fmt.Errorf("raft handed over a sink of type %T", sink)
	}
	if err := k.owner.takeTurn(s.ctx); err != nil {
		return err
	}
	k.own = true
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

// snapshots is the raft.SnapshotStore of one group. It holds one marker and no data: what is sent to a peer is made when it is asked for.
type snapshots struct {
	store *storage.Store
	group uint32
	state *storage.State
	index markerIndex
	ctx   context.Context // ends when the group stops
	turn  chan struct{}   // holds a token while a snapshot is written down or a state installed
	own   atomic.Bool     // the token is that of a snapshot
	taken sync.Mutex      // one takeSnapshot at a time
	stale atomic.Bool     // Raft remembers an end of the log that an install has replaced; the supervisor restarts it
}

// markerIndex reads the index of the stored marker, 0 without one.
type markerIndex struct{ log *storage.RaftLog }

// Load gives the index.
func (i markerIndex) Load() uint64 { return i.log.SnapshotIndex() }

// openSnapshots reads the marker and refuses one that the durable state has not reached. A state that an earlier run of the group received
// and did not install is dropped: a leader that still has to send it does so again.
func openSnapshots(store *storage.Store, group uint32, state *storage.State) (*snapshots, error) {
	log, err := store.RaftLog(group)
	if err != nil {
		return nil, err
	}
	s := &snapshots{store: store, group: group, state: state, index: markerIndex{log}, ctx: context.Background(), turn: make(chan struct{}, 1)}
	if err := store.DropInstall(group); err != nil {
		return nil, fmt.Errorf("drop a state that was not installed: %w", err)
	}
	m, ok, err := store.LoadSnapshotMarker(group)
	if err != nil {
		return nil, fmt.Errorf("load snapshot marker: %w", err)
	}
	if durable := state.DurableApplied(); ok && m.Index > durable {
		return nil, fmt.Errorf("%w: marker at index %d, state durable up to %d", ErrSnapshotNewer, m.Index, durable)
	}
	return s, nil
}

// takeTurn waits until no snapshot is being written down and no state installed.
func (s *snapshots) takeTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		s.own.Store(true)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endTurn gives back the turn that Persist took, if it came to that.
func (s *snapshots) endTurn() {
	if s.own.Swap(false) {
		<-s.turn
	}
}

// Create is called by Raft to take a snapshot, and, by an install from a peer, to receive one. Which it is shows in what follows: Persist,
// or Write.
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
	return []*raft.SnapshotMeta{metaOf(markerID(m), m)}, nil
}

func metaOf(id string, m storage.SnapshotMarker) *raft.SnapshotMeta {
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: id, Index: m.Index, Term: m.Term,
		Configuration:      raft.DecodeConfiguration(m.Configuration),
		ConfigurationIndex: m.ConfigurationIndex,
	}
}

// receivedSuffix tells the id of a received snapshot from that of a stored marker with the same index.
const receivedSuffix = "-received"

func markerID(m storage.SnapshotMarker) string { return fmt.Sprintf("%d-%d", m.Term, m.Index) }

// Open gives the stream that goes to a peer: the stored marker with the state as it is now, which may be ahead of the marker. The receiver
// learns the state's own applied index with it. For a snapshot that was just received it gives an empty stream, since the state is here.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if strings.HasSuffix(id, receivedSuffix) {
		m, _, ok := s.store.PendingInstall(s.group)
		if !ok || markerID(m)+receivedSuffix != id {
			return nil, nil, fmt.Errorf("snapshot %s of group %d: %w", id, s.group, ErrSnapshotStreaming)
		}
		return metaOf(id, m), io.NopCloser(strings.NewReader("")), nil
	}
	m, ok, err := s.store.LoadSnapshotMarker(s.group)
	if err != nil {
		return nil, nil, fmt.Errorf("load snapshot marker: %w", err)
	}
	if !ok || markerID(m) != id {
		return nil, nil, s.outdated(id)
	}
	out, err := s.send(m)
	if err != nil {
		return nil, nil, err
	}
	meta := metaOf(id, m)
	meta.Size = out.Size()
	return meta, out, nil
}

// outdated makes Raft ask again for the newest.
func (s *snapshots) outdated(id string) error {
	return fmt.Errorf("snapshot %s of group %d is no longer the newest", id, s.group)
}

// send begins a stream of the state, and holds the log that follows a marker.
func (s *snapshots) send(m storage.SnapshotMarker) (*sending, error) {
	release, ok := s.index.log.Hold(m.Index)
	if !ok {
		return nil, s.outdated(markerID(m))
	}
	e, err := s.store.Export(s.ctx, s.group, nil)
	if err == nil && e.Applied() < m.Index {
		err = fmt.Errorf("%w: state of group %d is at %d, its snapshot at %d", ErrSnapshotStreaming, s.group, e.Applied(), m.Index)
		err = errors.Join(err, e.Close())
	}
	if err != nil {
		release()
		return nil, err
	}
	return &sending{Export: e, ctx: s.ctx, release: release}, nil
}

// followTime is how long the log behind a state that was sent stays for its receiver, which takes the state in and then the log. A state may be
// larger, and the group busier, than what TrailingEntries allow for.
const followTime = time.Minute

// sending ends a stream when the group stops, and lets the log behind it go: at once where it was not read to its end, else when its receiver
// has had the time to follow.
type sending struct {
	*storage.Export
	ctx     context.Context
	release func()
	read    atomic.Int64
}

// Close is part of io.Closer.
func (s *sending) Close() error {
	if s.read.Load() == s.Size() {
		time.AfterFunc(followTime, s.release)
	} else {
		s.release()
	}
	return s.Export.Close()
}

// Read is part of io.Reader.
func (s *sending) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.Export.Read(p)
	s.read.Add(int64(n))
	return n, err
}

// receiveWait is how long a state from a peer waits while others are being received. The sender waits with it.
const receiveWait = 5 * time.Second

// markerSink stores its marker when it is closed, or, if a state was written to it, the intent to install that.
type markerSink struct {
	owner    *snapshots
	marker   storage.SnapshotMarker
	own      bool // a snapshot of this replica; set by Persist
	receiver *storage.Receiver
	ended    bool
}

// Write takes the state that a peer sends.
func (k *markerSink) Write(p []byte) (int, error) {
	if k.receiver == nil {
		ctx, cancel := context.WithTimeout(k.owner.ctx, receiveWait)
		defer cancel()
		var err error
		if k.receiver, err = k.owner.store.Receive(ctx, k.owner.group); err != nil {
			return 0, err
		}
	}
	return k.receiver.Write(p)
}

// ID names the snapshot to Open and in Raft's log lines.
func (k *markerSink) ID() string {
	if k.receiver != nil {
		return markerID(k.marker) + receivedSuffix
	}
	return markerID(k.marker)
}

// Cancel drops the marker and what was received.
func (k *markerSink) Cancel() error {
	k.ended = true
	if k.receiver != nil {
		k.receiver.Abort()
	}
	return nil
}

// Close stores the marker or the intent, once. A marker only for an index that is durable; an intent only for a state that came whole.
func (k *markerSink) Close() error {
	if k.ended {
		return nil
	}
	k.ended = true
	switch {
	case k.receiver != nil:
		return k.receiver.Complete(k.marker)
	case !k.own:
		return fmt.Errorf("%w: nothing was received for the snapshot at index %d", ErrSnapshotStreaming, k.marker.Index)
	}
	if durable := k.owner.state.DurableApplied(); k.marker.Index > durable {
		return fmt.Errorf("%w: marker at index %d, state durable up to %d", ErrSnapshotNewer, k.marker.Index, durable)
	}
	return k.owner.store.SaveSnapshotMarker(k.owner.group, k.marker)
}

// install puts the received state in the place of the group's. Raft's main goroutine waits meanwhile, so that log and state change together
// for it. If it fails, state and log are as before, unless the store itself has failed.
func (m *fsm) install() error {
	pending, _, ok := m.store.PendingInstall(m.snaps.group)
	if !ok {
		return fmt.Errorf("%w: no state was received", ErrSnapshotStreaming)
	}
	select {
	case m.snaps.turn <- struct{}{}:
		defer func() { <-m.snaps.turn }()
	case <-m.ctx.Done():
		return m.ctx.Err()
	}
	stale, err := m.snaps.endsWrong(pending)
	if err != nil {
		return err
	}
	applied, err := m.store.Install(m.snaps.group)
	if err != nil {
		return err
	}
	m.logBytes, m.logCount = 0, 0
	m.jumped(applied, raft.DecodeConfiguration(pending.Configuration), pending.ConfigurationIndex)
	if stale {
		m.snaps.stale.Store(true)
		m.onTerm() // wakes the supervisor
	}
	return nil
}

// endsWrong tells whether the log ends exactly at the snapshot with an entry of another term. Raft answers for the end of its log from
// memory, and an install does not correct that: the leader would be told the wrong term and send the state again, for ever.
func (s *snapshots) endsWrong(m storage.SnapshotMarker) (bool, error) {
	log := s.index.log
	last, err := log.LastIndex()
	if err != nil || last != m.Index {
		return false, err
	}
	var entry raft.Log
	if err := log.GetLog(last, &entry); err != nil {
		return false, fmt.Errorf("read the end of the log: %w", err)
	}
	return entry.Term != m.Term, nil
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
	g.snaps.taken.Lock()
	defer g.snaps.taken.Unlock()
	defer g.snaps.endTurn()
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
