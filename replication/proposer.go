package replication

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// applier is the part of raft.Raft that the proposer uses.
type applier interface {
	Apply(data []byte, timeout time.Duration) raft.ApplyFuture
}

// flight is one entry between packing and the answer to its callers. The group owns MaxEntriesInFlight of them, and they are the
// semaphore: who holds one may hand one entry to Raft.
type flight struct {
	items           []item
	barrier         *barrier
	mark            bool // the entry is a digest mark, and barrier is for those who asked for it
	commands, bytes int
	oldest          int64 // when the oldest of items was queued; 0 without items
	future          raft.ApplyFuture

	mu      sync.Mutex
	settled bool // callers have been answered, or there are none
}

// proposer packs what waits into entries, hands them to Raft and answers the callers. Two goroutines: pack and answer.
type proposer struct {
	queue  *queue
	raft   func() applier // the current instance; a restart replaces it
	nodeID string
	bootID uint64
	stamp  func() int64
	now    func() int64 // the group's monotonic clock, nanoseconds, never 0
	watch  Observer
	// refused is called when Raft says that a leadership transfer is in progress, so that the supervisor can find a stuck one (696).
	refused func()

	flights  [MaxEntriesInFlight]*flight
	free     chan *flight
	draining chan struct{} // holds one: the right to drain
	answers  chan *flight
	stopped  sync.Once
	stop     chan struct{}
	packed   chan struct{} // closed when pack has ended
	ended    chan struct{} // closed when answer has ended

	stuckSince atomic.Int64 // first of an unbroken row of transfer refusals; 0 if the last answer was none
	entries    atomic.Uint64
	commands   atomic.Uint64
}

func newProposer(q *queue, current func() applier, o Options, now func() int64, refused func()) *proposer {
	p := &proposer{
		queue: q, raft: current, nodeID: o.NodeID, bootID: o.BootID, stamp: o.Stamp, now: now, watch: o.Observer, refused: refused,
		free: make(chan *flight, MaxEntriesInFlight), draining: make(chan struct{}, 1), answers: make(chan *flight, MaxEntriesInFlight),
		stop: make(chan struct{}), packed: make(chan struct{}), ended: make(chan struct{}),
	}
	for i := range p.flights {
		p.flights[i] = &flight{settled: true}
		p.free <- p.flights[i]
	}
	return p
}

func (p *proposer) run() {
	go p.pack()
	go p.answer()
}

// pack never waits to fill an entry: as soon as there is work and a free flight, everything that fits goes.
func (p *proposer) pack() {
	defer close(p.packed)
	defer close(p.answers)
	for p.queue.wait(p.stop) {
		var f *flight
		select {
		case f = <-p.free:
		case <-p.stop:
			return
		}
		if !p.queue.take(f) {
			p.free <- f // refused meanwhile: what waited has been answered
			continue
		}
		p.handOver(f)
	}
}

// handOver encodes the entry and gives it to Raft, which takes it without blocking: its channel holds maxAppendEntries.
func (p *proposer) handOver(f *flight) {
	f.mu.Lock()
	f.settled = false
	f.mu.Unlock()
	data := make([]byte, 0, headerBytes+f.bytes)
	data = appendHeader(data, p.stamp(), p.nodeID, p.bootID)
	for i := range f.items {
		it := &f.items[i]
		if it.doneMany == nil {
			data = appendCommand(data, it.one)
			continue
		}
		for _, c := range it.many {
			data = appendCommand(data, c)
		}
	}
	if f.mark {
		data = appendDigest(data, digestVersion)
	}
	var waited time.Duration
	if f.oldest != 0 {
		waited = time.Duration(p.now() - f.oldest)
	}
	p.entries.Add(1)
	p.commands.Add(uint64(f.commands))
	p.watch.EntryProposed(f.commands, len(data), waited)
	f.future = p.raft().Apply(data, 0)
	p.answers <- f
}

// answer waits for the futures in the order of hand-over, which is the order in which Raft answers them. A future that Raft abandons at
// its shutdown (498) holds this goroutine for ever; close then answers its callers, at most one such goroutine per closed group.
func (p *proposer) answer() {
	defer close(p.ended)
	for f := range p.answers {
		err := f.future.Error()
		var results []any
		var index uint64
		if err == nil {
			index = f.future.Index()
			results, err = resultsOf(f.future.Response())
		} else {
			p.noteTransfer(err)
			err = fromRaft(err)
		}
		if err == nil {
			p.stuckSince.Store(0)
		}
		if p.settle(f, results, index, err) {
			p.recycle(f)
		}
	}
}

func (p *proposer) noteTransfer(err error) {
	if !errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		p.stuckSince.Store(0)
		return
	}
	p.stuckSince.CompareAndSwap(0, p.now())
	p.refused()
}

// settle answers the callers of f and returns true, unless they have been answered already. Who gets true owns f.
func (p *proposer) settle(f *flight, results []any, index uint64, err error) bool {
	f.mu.Lock()
	if f.settled {
		f.mu.Unlock()
		return false
	}
	f.settled = true
	items, open := f.items, f.barrier
	f.mu.Unlock()
	var took time.Duration
	if f.oldest != 0 {
		took = time.Duration(p.now() - f.oldest)
	}
	if open != nil {
		open.settle(index, err)
	}
	at := 0
	for i := range items {
		it := &items[i]
		n := it.commands()
		switch {
		case err != nil:
			it.fail(err)
		case it.doneMany != nil:
			it.doneMany(results[at:at+n:at+n], index, nil)
		default:
			it.done(results[at], index, nil)
		}
		at += n
	}
	p.watch.EntryAnswered(f.commands, took, err)
	return true
}

// recycle makes f usable again.
func (p *proposer) recycle(f *flight) {
	clear(f.items)
	f.items, f.barrier, f.mark, f.future = f.items[:0], nil, false, nil
	f.commands, f.bytes, f.oldest = 0, 0, 0
	p.free <- f
}

// drain takes every flight, so that nothing is between Raft and a caller, and nothing is handed over until they are given back. False,
// with none taken, when one of the channels is closed first. Two drains at once would each hold a part and wait for the other, so they
// take turns.
func (p *proposer) drain(cancelled, stopped <-chan struct{}) ([]*flight, bool) {
	select {
	case p.draining <- struct{}{}:
	case <-cancelled:
		return nil, false
	case <-stopped:
		return nil, false
	}
	defer func() { <-p.draining }()
	held := make([]*flight, 0, MaxEntriesInFlight)
	for range MaxEntriesInFlight {
		select {
		case f := <-p.free:
			held = append(held, f)
		case <-cancelled:
			p.giveBack(held)
			return nil, false
		case <-stopped:
			p.giveBack(held)
			return nil, false
		}
	}
	return held, true
}

func (p *proposer) giveBack(held []*flight) {
	for _, f := range held {
		p.free <- f
	}
}

// end stops pack and waits for it; what it handed over is still answered.
func (p *proposer) end() {
	p.stopped.Do(func() { close(p.stop) })
	<-p.packed
}

// linger gives the answerer answerGrace to end, after end.
func (p *proposer) linger() {
	grace := time.NewTimer(answerGrace)
	defer grace.Stop()
	select {
	case <-p.ended:
	case <-grace.C:
	}
}

// abandon answers every caller whom nobody else will, once Raft has ended and pack with it. Callers that the answerer can still reach
// get their own verdict first, within answerGrace.
func (p *proposer) abandon(cause error) {
	p.linger()
	for _, f := range p.flights {
		p.settle(f, nil, 0, maybeAccepted(cause))
	}
}
