package replication

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// supervise is the group's own goroutine for leadership, for restarting Raft when a transfer is stuck, and for stopping after a failure.
// Raft's channel keeps only the newest change, so each event leads to a fresh look at role and term.
func (g *Group) supervise() {
	defer g.goroutines.Done()
	timer := time.NewTimer(nudgeEvery)
	defer timer.Stop()
	look := time.NewTimer(followerTimeout)
	defer look.Stop()
	for {
		select {
		case <-g.current().LeaderCh():
		case <-g.poke:
		case <-timer.C:
		case <-look.C:
			look.Reset(g.watchLeader())
			continue
		case <-g.stop:
			g.depose()
			return
		}
		if g.failure.Load() != nil {
			g.shutAfterFailure()
			<-g.stop
			return
		}
		if again := g.reconcile(); again {
			timer.Reset(nudgeEvery)
		} else {
			timer.Stop()
		}
	}
}

// wakeSupervisor makes the supervisor look again. Never blocks.
func (g *Group) wakeSupervisor() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// reconcile brings the announced leadership in line with Raft's. True asks to be called again soon without an event.
func (g *Group) reconcile() (again bool) {
	if g.snaps.stale.Swap(false) {
		g.restart("its log ended where the installed snapshot does, in another term")
		return true
	}
	term, leading := leadership(g.current().Raft)
	if led := g.led.Load(); led != nil && (!leading || term != led.term) {
		g.depose()
	}
	if !leading {
		g.proposer.stuckSince.Store(0)
		return false
	}
	if g.led.Load() == nil {
		if g.fsm.term.Load() == term {
			g.lead(term)
		} else {
			g.nudge(term) // the leader-start entry, again if it got lost
			again = true
		}
	} else {
		g.openGate() // a transfer may have failed
	}
	if since := g.proposer.stuckSince.Load(); since != 0 {
		if time.Duration(g.now()-since) > transferStuck {
			g.restart("leadership transfer never ended")
			return true
		}
		g.nudge(term) // find out whether it still refuses
		again = true
	}
	return again
}

// leadership reads role and term as one: Raft changes the term only after it left the leader role.
func leadership(r *raft.Raft) (term uint64, leading bool) {
	for {
		term = r.CurrentTerm()
		leading = r.State() == raft.Leader
		if r.CurrentTerm() == term {
			return term, leading
		}
	}
}

// nudge asks for an empty entry, unless entries are under way already and will tell as much. Within a term it keeps a pace of its own,
// because a refused entry wakes the supervisor at once.
func (g *Group) nudge(term uint64) {
	now := g.now()
	if g.nudged.term == term && time.Duration(now-g.nudged.at) < nudgeEvery {
		return
	}
	if len(g.proposer.free) == MaxEntriesInFlight {
		g.nudged.term, g.nudged.at = term, now
		g.queue.nudge()
	}
}

func (g *Group) lead(term uint64) {
	g.setPace(heartbeatTimeout, electionTimeout)
	g.led.Store(&led{term: term, since: time.Now()})
	g.openGate()
	g.events.notify()
	g.opts.Machine.Led(term)
}

// depose takes back the leadership last announced, if any.
func (g *Group) depose() {
	if g.led.Swap(nil) == nil {
		return
	}
	g.closeGate(ErrNotLeader, false)
	g.opts.Machine.Deposed()
}

// openGate lets proposals in, unless leadership is on its way elsewhere.
func (g *Group) openGate() {
	g.gate.Lock()
	defer g.gate.Unlock()
	if !g.transferring {
		g.queue.accept()
	}
}

// closeGate keeps proposals out and answers those that wait.
func (g *Group) closeGate(err error, final bool) {
	g.gate.Lock()
	waiting := g.queue.refuse(err, final)
	g.gate.Unlock()
	waiting.answer()
}

// restart replaces an instance of Raft that has refused proposals for too long with a transfer that never ends (696), or that remembers a log
// which an install has replaced. Entries under way are answered first: in the first state Raft refuses each at once, in the second there are none.
func (g *Group) restart(why string) {
	g.logger.Warn("restarting raft", "why", why)
	g.depose()
	patience := time.NewTimer(2 * electionTimeout)
	defer patience.Stop()
	late := make(chan struct{})
	stopTimer := make(chan struct{})
	defer close(stopTimer)
	go func() {
		select {
		case <-patience.C:
			close(late)
		case <-stopTimer:
		}
	}()
	held, ok := g.proposer.drain(late, g.stop)
	if !ok {
		if !g.stopping() {
			g.fail(fmt.Errorf("%w: raft neither answers nor accepts proposals", ErrFailed))
		}
		return
	}
	defer g.proposer.giveBack(held)
	select {
	case <-g.current().shutdown():
	case <-g.stop:
		return
	}
	g.instanceGate.Lock()
	defer g.instanceGate.Unlock()
	if g.stopping() {
		return // Close has taken the instance that it will end
	}
	g.proposer.stuckSince.Store(0)
	g.restarts.Add(1)
	if err := g.startInstance(); err != nil {
		g.fail(fmt.Errorf("%w: %w", ErrFailed, err))
	}
}

// fail stops the group for good; the supervisor does the work. Called at most a few times; the first cause stays.
func (g *Group) fail(cause error) {
	g.failure.CompareAndSwap(nil, &cause)
	g.events.notify()
	g.wakeSupervisor()
}

// shutAfterFailure refuses everything, ends Raft so that another replica may lead, answers who waits, and reports.
func (g *Group) shutAfterFailure() {
	cause := *g.failure.Load()
	g.logger.Error("replication group stopped", "error", cause, "applied", g.index.index.Load())
	g.closeGate(cause, true)
	g.depose()
	g.index.end(cause)
	g.proposer.end()
	g.proposer.linger() // as in close: what Raft has taken it answers now or, once shut down, never (498)
	select {
	case <-g.current().shutdown():
		g.proposer.abandon(cause)
	case <-g.stop: // Close does the rest
	}
	if g.opts.OnFailure != nil {
		g.opts.OnFailure(cause)
	}
}
