package host

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sealane/sealane/shard"
)

var (
	errNotLeader = errors.New("test log: not the leader")
	errBusy      = errors.New("test log: queue full")
	errMaybe     = errors.New("test log: nobody knows")
)

// fate is what the log does with one proposal.
type fate uint8

const (
	fateApply     fate = iota
	fateRefuse         // not accepted, told at once
	fateLose           // not applied, and the caller is told maybe
	fateMaybe          // applied, and the caller is told maybe
	fateLateError      // not accepted, told later
)

// testLog is an agreed log with the real machine behind it, shared by the hosts of one shard.
type testLog struct {
	t     testing.TB
	store *memStore

	mu      sync.Mutex
	queue   []queued
	wake    chan struct{}
	stopped chan struct{}
	ended   chan struct{}
	machine *shard.Machine
	index   uint64
	nodes   []*testNode
	leader  *testNode
	term    uint64
	entries int
	delay   func() time.Duration                         // before an entry is applied
	decide  func(cmds []shard.Command, c Class) fate     // nil: apply
	hold    func(effects []shard.Effect) time.Duration   // between commit and effects
	applied func(e *shard.Entry, results []shard.Result) // under mu
}

type queued struct {
	node *testNode
	cmds []shard.Command
	fate fate
	done func([]shard.Result, error)
}

func newTestLog(t testing.TB) *testLog {
	l := &testLog{
		t: t, store: &memStore{}, wake: make(chan struct{}, 1), stopped: make(chan struct{}), ended: make(chan struct{}),
		machine: shard.NewMachine(1, 7),
	}
	go l.run()
	return l
}

func (l *testLog) stop() {
	close(l.stopped)
	<-l.ended
}

// nodeLog is the log as one node sees it.
type nodeLog struct {
	l *testLog
	n *testNode
}

func (n nodeLog) NotAccepted(err error) bool {
	return errors.Is(err, errNotLeader) || errors.Is(err, errBusy)
}

func (n nodeLog) Propose(cmds []shard.Command, c Class, done func([]shard.Result, error)) error {
	l := n.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leader != n.n {
		return errNotLeader
	}
	f := fateApply
	if l.decide != nil {
		f = l.decide(cmds, c)
	}
	if f == fateRefuse {
		return errBusy
	}
	l.queue = append(l.queue, queued{n.n, cmds, f, done})
	l.rouse()
	return nil
}

func (l *testLog) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// do applies commands as a client would and returns their results.
func (l *testLog) do(cmds ...shard.Command) []shard.Result {
	l.t.Helper()
	type answer struct {
		r   []shard.Result
		err error
	}
	c := make(chan answer, 1)
	l.mu.Lock()
	l.queue = append(l.queue, queued{l.leader, cmds, fateApply, func(r []shard.Result, err error) { c <- answer{r, err} }})
	l.mu.Unlock()
	l.rouse()
	a := <-c
	if a.err != nil {
		l.t.Fatalf("test log: %v", a.err)
	}
	return a.r
}

func (l *testLog) run() {
	defer close(l.ended)
	for {
		select {
		case <-l.stopped:
			return
		case <-l.wake:
		}
		for {
			l.mu.Lock()
			batch := l.queue
			l.queue = nil
			delay := l.delay
			l.mu.Unlock()
			if len(batch) == 0 {
				break
			}
			if delay != nil {
				if d := delay(); d > 0 {
					<-time.After(d)
				}
			}
			l.apply(batch)
		}
	}
}

// apply runs what waits as one entry per proposing node, in order.
func (l *testLog) apply(batch []queued) {
	for len(batch) > 0 {
		n := 1
		for n < len(batch) && batch[n].node == batch[0].node {
			n++
		}
		l.applyEntry(batch[:n])
		batch = batch[n:]
	}
}

func (l *testLog) applyEntry(batch []queued) {
	l.mu.Lock()
	e := &shard.Entry{}
	node := batch[0].node
	for _, q := range batch {
		if q.fate == fateApply || q.fate == fateMaybe {
			e.Commands = append(e.Commands, q.cmds...)
		}
	}
	lost := node != l.leader // its leadership ended while this waited
	var results []shard.Result
	var effects []shard.Effect
	if !lost && len(e.Commands) > 0 {
		l.index++
		l.entries++
		e.Index, e.Stamp, e.Owner = l.index, node.stamper.Stamp(), shard.Epoch{Node: node.name, Boot: node.boot, Term: l.term}
		var err error
		l.store.mu.Lock()
		results, effects, err = l.machine.ApplyEntry(raw{l.store}, e)
		l.store.mu.Unlock()
		if err != nil {
			l.t.Errorf("apply: %v", err)
		}
		if l.applied != nil {
			l.applied(e, results)
		}
	}
	hold, nodes := l.hold, append([]*testNode(nil), l.nodes...)
	l.mu.Unlock()
	if hold != nil {
		if d := hold(effects); d > 0 {
			<-time.After(d)
		}
	}
	for _, n := range nodes {
		if n.host != nil {
			n.host.Effects(append([]shard.Effect(nil), effects...))
		}
	}
	for _, q := range batch {
		switch {
		case q.fate == fateLateError:
			q.done(nil, errBusy)
		case lost || q.fate == fateLose:
			q.done(nil, errMaybe)
		default:
			mine := results[:len(q.cmds):len(q.cmds)]
			results = results[len(q.cmds):]
			if q.fate == fateMaybe {
				q.done(nil, errMaybe)
			} else {
				q.done(mine, nil)
			}
		}
	}
}

// lead moves the leadership.
func (l *testLog) lead(n *testNode) {
	l.mu.Lock()
	old := l.leader
	l.leader = n
	l.term++
	term := l.term
	l.mu.Unlock()
	if old != nil && old.host != nil {
		old.host.Depose()
	}
	if n != nil {
		n.host.Lead(term)
	}
}
