package replication

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
)

// Group is one replica of a Raft group. All methods are safe for concurrent use.
type Group struct {
	opts   Options
	logger *slog.Logger
	log    *storage.RaftLog
	state  *storage.State
	snaps  *snapshots
	fsm    *fsm
	index  appliedIndex
	queue  *queue

	// verdicts is a pool of *verdict. Not shared by groups: a channel made in one synctest bubble must not turn up in another.
	verdicts sync.Pool

	proposer *proposer
	instance atomic.Pointer[instance]
	epoch    time.Time

	led      atomic.Pointer[led]   // the leadership announced by Led; nil between Deposed and Led
	failure  atomic.Pointer[error] // why the group stopped by itself
	restarts atomic.Uint64
	events   leadershipEvents

	transfers, failedTransfers atomic.Uint64
	nudged                     struct { // the last empty entry asked for; the supervisor's own
		term uint64
		at   int64
	}

	changing sync.Mutex // held by the one who changes the configuration

	gate         sync.Mutex // makes transferring and the queue's refusal one
	transferring bool

	instanceGate sync.Mutex // keeps a restart from beginning an instance that Close would not see

	poke       chan struct{} // wakes the supervisor
	grown      chan struct{} // wakes the snapshotter
	stop       chan struct{}
	stopFlush  context.CancelFunc
	goroutines sync.WaitGroup // supervisor and snapshotter
	closing    sync.Once
	closed     chan struct{}
	closeErr   error
}

// led is one leadership of this replica.
type led struct {
	term  uint64
	since time.Time
}

// NewGroup opens the group's log and state and starts taking part. Errors: ErrOptions, ErrSnapshotNewer, ErrStateAhead, and those
// of storage; in every case nothing is left running.
func NewGroup(o Options) (*Group, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	g := &Group{
		opts: o, logger: o.Logger.With("group", o.Group), epoch: time.Now(), queue: newQueue(),
		poke: make(chan struct{}, 1), grown: make(chan struct{}, 1), stop: make(chan struct{}), closed: make(chan struct{}),
	}
	if err := g.open(); err != nil {
		return nil, fmt.Errorf("group %d: %w", o.Group, err)
	}
	g.proposer = newProposer(g.queue, func() applier { return g.current().Raft }, o, g.now, g.wakeSupervisor)
	if err := g.start(); err != nil {
		return nil, fmt.Errorf("group %d: %w", o.Group, err)
	}
	return g, nil
}

// open reads what the group has on disk and checks that its parts belong together.
func (g *Group) open() error {
	o := &g.opts
	var err error
	g.state = o.Store.State(o.Group)
	if g.log, err = o.Store.RaftLog(o.Group); err != nil {
		return err
	}
	applied, err := g.state.Applied()
	if err != nil {
		return fmt.Errorf("read the applied index: %w", err)
	}
	if g.snaps, err = openSnapshots(o.Store, o.Group, g.state); err != nil {
		return err
	}
	flushing, cancel := context.WithCancel(context.Background())
	g.stopFlush = cancel
	g.snaps.ctx = flushing
	g.index.index.Store(applied)
	g.fsm = &fsm{
		machine: o.Machine, state: g.state, store: o.Store, snaps: g.snaps, ctx: flushing, watch: o.Observer, index: &g.index,
		onTerm: g.wakeSupervisor, onFail: g.fail, onGrow: g.wakeSnapshotter,
		applied: applied, maxBytes: o.SnapshotBytes, maxCount: o.SnapshotEntries,
	}
	g.fsm.digests.open()
	if err := g.knownConfiguration(); err != nil {
		return err
	}
	return g.bootstrap()
}

// knownConfiguration reads the configuration of the snapshot marker. The entries behind it follow when Raft hands them over.
func (g *Group) knownConfiguration() error {
	m, ok, err := g.opts.Store.LoadSnapshotMarker(g.opts.Group)
	if err != nil {
		return fmt.Errorf("load snapshot marker: %w", err)
	}
	if ok {
		g.fsm.members.set(raft.DecodeConfiguration(m.Configuration), m.ConfigurationIndex)
	}
	return nil
}

// start begins Raft and the group's own goroutines.
func (g *Group) start() error {
	if err := g.startInstance(); err != nil {
		g.stopFlush()
		return err
	}
	if err := g.checkStateAhead(); err != nil {
		g.stopFlush()
		<-g.current().shutdown()
		return err
	}
	g.proposer.run()
	g.goroutines.Add(3)
	go g.supervise()
	go g.runSnapshots()
	go g.runDigests(g.fsm.ctx)
	return nil
}

// checkStateAhead finds a log that lost its tail. With several voters a state may be ahead of the own log, since an installed state
// brings its own applied index; with one voter nobody else has the missing entries, and new ones would take their indexes.
func (g *Group) checkStateAhead() error {
	applied := g.index.index.Load()
	if last := max(g.current().LastIndex(), g.snaps.index.Load()); applied > last && g.soleVoter() {
		return fmt.Errorf("%w: applied index %d, last log index %d", ErrStateAhead, applied, last)
	}
	return nil
}

// Close stops the group: nothing new is accepted, what was not yet handed to Raft is answered with ErrStopped, what is under way may
// finish within ctx and is failed as maybe accepted after it. It waits for every callback. One goroutine stays behind if Raft abandoned an
// entry, as it may when it is stopped under a hanging machine (498). An error means that Raft itself did not
// end within ctx; the store must then not be closed in an orderly way. Further calls wait for the first and return the same.
func (g *Group) Close(ctx context.Context) error {
	g.closing.Do(func() {
		g.closeErr = g.close(ctx)
		close(g.closed)
	})
	<-g.closed
	return g.closeErr
}

func (g *Group) close(ctx context.Context) error {
	g.closeGate(ErrStopped, true)
	g.proposer.drain(ctx.Done(), g.current().ended) // whether it succeeds shows in abandon
	g.instanceGate.Lock()
	close(g.stop)
	g.instanceGate.Unlock()
	g.stopFlush()
	g.proposer.end()
	g.proposer.linger() // a sound Raft answers what is under way at once; shut down now it would abandon it (498)
	ended := g.current().shutdown()
	var err error
	select {
	case <-ended:
	default:
		select {
		case <-ended:
		case <-ctx.Done():
			err = fmt.Errorf("group %d: raft is still shutting down: %w", g.opts.Group, ctx.Err())
		}
	}
	g.proposer.abandon(ErrStopped)
	g.index.end(ErrStopped)
	g.goroutines.Wait()
	if err == nil {
		g.fsm.digests.drop()
	}
	return err
}

func (g *Group) stopping() bool {
	select {
	case <-g.stop:
		return true
	default:
		return false
	}
}

// now is the group's monotonic clock in nanoseconds; it starts at 1, since 0 stands for "never".
func (g *Group) now() int64 { return int64(time.Since(g.epoch)) + 1 }

func (g *Group) wakeSnapshotter() {
	select {
	case g.grown <- struct{}{}:
	default:
	}
}

// Applied is the newest index whose effects are visible in the state.
func (g *Group) Applied() uint64 { return g.index.index.Load() }

// WaitApplied returns once index is applied and visible in the state on this replica. Errors: the context's, ErrStopped, ErrFailed.
func (g *Group) WaitApplied(ctx context.Context, index uint64) error { return g.index.wait(ctx, index) }

// ReadBarrier returns once the state holds everything that was acknowledged anywhere before the call: it waits until an entry packed
// after the call is committed and applied here. Readers that wait at the same time share one entry, with the commands that go then, if
// any. Errors: ErrBarrier wrapping the cause, the context's.
func (g *Group) ReadBarrier(ctx context.Context) error {
	_, err := g.ReadIndex(ctx)
	return err
}

// ReadIndex is ReadBarrier for a reader elsewhere: everything acknowledged anywhere before the call is at or below the index it gives, and a
// replica that has applied that index may answer the read. The leader itself has applied it. Errors as ReadBarrier.
func (g *Group) ReadIndex(ctx context.Context) (uint64, error) {
	b, err := g.queue.join()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrBarrier, err)
	}
	select {
	case <-b.done:
		if b.err != nil {
			return 0, fmt.Errorf("%w: %w", ErrBarrier, b.err)
		}
		return b.index, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
