package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// ErrNotLeading is returned by queries of the runtime while this process does not lead the shard. Ask the leader.
var ErrNotLeading = errors.New("host: this process does not lead the shard")

// ErrClosed is returned after Close.
var ErrClosed = errors.New("host: closed")

// ErrStillSending is returned by Close when requests did not return in time after their contexts were cancelled; their goroutines are
// left to the adapter.
var ErrStillSending = errors.New("host: requests are still running")

// Host runs one shard's deliveries while this process leads it. Make one with New, feed it with Lead, Depose and Effects, end it with Close.
// All methods are safe for concurrent use; Lead, Depose and Effects must be called in the order in which things happened.
type Host struct {
	opt    Options
	inbox  inbox
	term   atomic.Uint64 // the term that may send, 0 when not leading
	listen atomic.Bool   // whether work effects are wanted
	base   context.Context
	stop   context.CancelFunc
	done   chan struct{} // the loop has ended
	sends  sync.WaitGroup
	dials  sync.WaitGroup
	closer sync.Once
	result error // of Close

	// Everything below belongs to the loop.
	mono       time.Duration
	stamp      policy.Time
	clockOpen  bool
	leading    uint64 // term, 0 when not leading
	draining   bool
	failed     error
	shardClock policy.Time // as last seen in results

	lanes    map[shard.LaneID]*laneState
	byName   map[destinationName][]*laneState
	carriers map[versionName]*carried
	fair     *lane.Fair
	fairIDs  map[lane.ID]*target
	nextFair lane.ID
	work     map[shard.Ref]*item
	windowed int
	held     int
	seq      uint64
	wakes    wakeHeap
	poked    []*target
	reload   []*laneState
	again    bool // another turn at once

	admitAfter time.Duration // no admissions before, after the log refused some
	admitPause time.Duration

	flight   map[attemptKey]*claim
	sending  int // claims that hold a connection
	outbox   []*settlement
	refused  []*settlement // to be proposed again at resettle
	resettle time.Duration
	pause    time.Duration // between the last two tries
	events   []*laneEvent

	dialing      int
	dialingFresh int
	waitingDial  []*target

	recovery recovery
	timers   timers
	drains   []*drain
}

type destinationName struct{ namespace, name string }

type versionName struct {
	destinationName
	version uint64
}

type laneTarget struct {
	lane   shard.LaneID
	target shard.TargetID
}

type attemptKey struct {
	ref     shard.Ref
	attempt uint32
}

// New validates the options and starts the loop, not leading.
func New(o Options) (*Host, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	h := &Host{opt: o, done: make(chan struct{}), flight: map[attemptKey]*claim{}, carriers: map[versionName]*carried{}}
	h.inbox.wake = make(chan struct{}, 1)
	h.base, h.stop = context.WithCancel(context.Background())
	h.forget()
	go h.run()
	return h, nil
}

// Lead tells the Host that this process leads the shard in term, and that everything up to the start of the term is applied. It recovers
// what earlier leaders left open, finds the lanes with work, and begins to deliver. It returns at once.
func (h *Host) Lead(term uint64) {
	h.listen.Store(true)
	h.term.Store(term)
	h.inbox.put(message{call: func() { h.lead(term) }})
}

// Depose tells the Host that the leadership is over. From this call on no request begins. Claims are released; requests in flight continue, and
// their outcomes are offered to the log until it gives a verdict. It returns at once.
func (h *Host) Depose() {
	h.term.Store(0)
	h.listen.Store(false)
	h.inbox.put(message{call: h.depose})
}

// Effects takes the effects of one applied entry, in the order of entries, after its state is committed. It is called on every replica and
// never blocks. The slice belongs to the Host afterwards.
func (h *Host) Effects(effects []shard.Effect) {
	if !h.listen.Load() {
		effects = h.mine(effects)
	}
	if len(effects) == 0 {
		return
	}
	mono, _ := h.opt.Stamper.clock.Read()
	h.inbox.putEffects(effects, mono, h.opt.MaxQueued)
}

// mine keeps what a process that does not lead must still hear: admissions of its own, and outcomes of what it may have in flight.
func (h *Host) mine(effects []shard.Effect) []shard.Effect {
	var own []shard.Effect
	for i := range effects {
		e := &effects[i]
		switch {
		case e.Kind == shard.EffectAdmitted && h.isMine(e.Owner), e.Kind == shard.EffectSettled && e.First:
			own = append(own, *e)
		}
	}
	return own
}

func (h *Host) isMine(o shard.Epoch) bool { return o.Boot == h.opt.Boot && o.Node == h.opt.Node }

// Drained reports what a Drain left behind.
type Drained struct {
	InFlight  int // requests still running
	Unsettled int // outcomes the log gave no verdict on yet
}

// Drain stops admitting and waits until nothing is in flight and every outcome is settled, or ctx ends; its error is then wrapped. Only the
// exit of a process drains (DESIGN 4); it is not undone.
func (h *Host) Drain(ctx context.Context) (Drained, error) {
	d := &drain{done: make(chan Drained, 1)}
	if !h.inbox.put(message{call: func() { h.draining = true; h.drains = append(h.drains, d) }}) {
		return Drained{}, ErrClosed
	}
	select {
	case left := <-d.done:
		return left, nil
	case <-h.done:
		return Drained{}, ErrClosed
	case <-ctx.Done():
	}
	var left Drained
	if err := h.ask(context.WithoutCancel(ctx), func() { left = h.unfinished() }); err != nil {
		return Drained{}, err
	}
	return left, fmt.Errorf("host: drain: %d in flight, %d unsettled: %w", left.InFlight, left.Unsettled, ctx.Err())
}

type drain struct{ done chan Drained }

// unfinished counts what a drain waits for.
func (h *Host) unfinished() Drained {
	d := Drained{InFlight: h.sending}
	for _, c := range h.flight {
		if c.state == claimReturned {
			d.Unsettled++
		}
	}
	return d
}

func (h *Host) checkDrains() {
	if len(h.drains) == 0 || h.sending > 0 || len(h.flight) > 0 {
		return
	}
	for _, d := range h.drains {
		d.done <- Drained{}
	}
	h.drains = nil
}

// ask runs fn on the loop and waits for it.
func (h *Host) ask(ctx context.Context, fn func()) error {
	done := make(chan struct{})
	if !h.inbox.put(message{call: func() { fn(); close(done) }}) {
		return ErrClosed
	}
	select {
	case <-done:
		return nil
	case <-h.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close stops the loop and every request in flight; what they would have told is lost to this process and will be recovered as UNKNOWN, so
// Drain first. It returns the error that made the Host fail, if any.
func (h *Host) Close() error {
	h.closer.Do(func() {
		h.term.Store(0)
		h.listen.Store(false)
		h.inbox.close()
		h.stop()
		<-h.done
		h.result = h.failed
		ended := make(chan struct{})
		go func() { h.sends.Wait(); h.dials.Wait(); close(ended) }()
		limit := time.NewTimer(closeWait)
		defer limit.Stop()
		select {
		case <-ended:
		case <-limit.C:
			h.result = errors.Join(h.result, ErrStillSending)
		}
		for _, c := range h.carriers {
			c.target.Close()
		}
	})
	return h.result
}

// fail stops claiming for good: the state could not be read, so nothing can be decided.
func (h *Host) fail(err error) {
	if err == nil || h.failed != nil {
		return
	}
	h.failed = err
	h.term.Store(0)
	h.depose()
	if h.opt.Failed != nil {
		h.opt.Failed(err)
	}
}
