package host

import (
	"math"
	"time"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

const never = time.Duration(math.MaxInt64)

// run is the loop. It owns everything a Host knows.
func (h *Host) run() {
	defer close(h.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var spare []message
	for {
		select {
		case <-h.base.Done():
			h.end()
			return
		case <-h.inbox.wake:
		case <-timer.C:
		}
		spare = h.turn(spare)
		for h.again {
			select {
			case <-h.base.Done():
				h.again = false
				h.inbox.rouse()
			default:
				spare = h.turn(spare)
			}
		}
		if d := h.sleep(); d < never {
			timer.Reset(d)
		}
	}
}

// end lets go of every connection that no sending goroutine holds. The inbox is closed by now.
func (h *Host) end() {
	h.depose()
	messages, _, _ := h.inbox.take(nil)
	for i := range messages {
		if messages[i].call != nil || messages[i].returned != nil {
			h.handle(&messages[i])
		}
	}
}

// turn gives every class of work its bounded share, in the order of what must not wait: what happened, outcomes, expiry, claims, retention
// (R208).
func (h *Host) turn(spare []message) []message {
	h.again = false
	h.readClock()
	messages, missed, deadline := h.inbox.take(spare)
	for i := range messages {
		h.handle(&messages[i])
		messages[i] = message{}
	}
	h.missed(missed, deadline)
	h.settle()
	if h.leading != 0 {
		h.reloadLanes()
		h.recover()
		h.expire()
		h.wakeTargets()
		h.claimPass()
		h.proposeEvents()
		h.trim()
		h.tick()
	}
	h.watchFlight()
	h.sweep()
	h.checkDrains()
	return messages
}

func (h *Host) readClock() {
	was := h.clockOpen
	h.mono, h.stamp, h.clockOpen = h.opt.Stamper.now()
	if h.clockOpen != was {
		h.again = true // what waited for the gate is looked at again
	}
}

func (h *Host) handle(m *message) {
	switch {
	case m.effects != nil:
		for i := range m.effects {
			h.effect(&m.effects[i], m.at)
		}
	case m.returned != nil:
		h.sent(m.returned)
	case m.verdict != nil:
		m.verdict.done(h, m.results, m.err)
	case m.call != nil:
		m.call()
	}
}

func (h *Host) effect(e *shard.Effect, at time.Duration) {
	switch e.Kind {
	case shard.EffectAdmitted:
		if h.isMine(e.Owner) {
			h.admitted(e, at)
		}
		return
	case shard.EffectSettled:
		h.settledInState(e)
		return
	}
	if h.leading == 0 {
		return
	}
	switch e.Kind {
	case shard.EffectWork:
		h.workArrived(e)
	case shard.EffectWorkGone:
		h.workGone(e.Ref)
	case shard.EffectDeadline:
		h.timers.deadline = min(h.timers.deadline, e.Due)
	case shard.EffectLane:
		h.reloadLane(e.Lane)
	case shard.EffectInstalled:
		h.installed(destinationName{e.Namespace, e.Destination})
	}
}

// missed makes up for effects that the inbox could not hold.
func (h *Host) missed(work unseen, deadline policy.Time) {
	if h.leading == 0 {
		return
	}
	if deadline != 0 {
		h.timers.deadline = min(h.timers.deadline, deadline)
	}
	for k, due := range work {
		if t := h.target(k.lane, k.target); t != nil {
			t.win.miss(due)
			h.poke(t)
		}
	}
}

// lead starts a term: everything is rebuilt from state.
func (h *Host) lead(term uint64) {
	if h.failed != nil || h.term.Load() != term {
		return
	}
	h.depose() // a term that was never ended, if any
	meta, err := shard.ReadMeta(h.opt.Store.Reader())
	if err != nil {
		h.fail(err)
		return
	}
	h.opt.Stamper.Anchor(meta.Clock)
	h.readClock()
	h.leading, h.shardClock = term, meta.Clock
	h.recovery.start()
	h.timers.start(h)
}

// depose lets go of everything reversible. What is in flight stays.
func (h *Host) depose() {
	for _, it := range h.work {
		if it.claim != nil {
			h.releaseClaim(it.claim)
		}
	}
	for _, l := range h.lanes {
		for _, t := range l.targets {
			if t != nil {
				t.releaseReady()
			}
		}
	}
	h.leading = 0
	h.forget()
	h.outbox, h.refused = ownOnly(h.outbox), ownOnly(h.refused)
}

// forget drops all that is rebuilt from state by the next lead. Requests in flight are charged to lanes that no longer count.
func (h *Host) forget() {
	h.lanes = map[shard.LaneID]*laneState{}
	h.byName = map[destinationName][]*laneState{}
	h.fair = lane.NewFair(fairQuantum)
	h.fairIDs = map[lane.ID]*target{}
	h.work = map[shard.Ref]*item{}
	h.windowed, h.held = 0, 0
	h.wakes = nil
	h.poked, h.reload, h.events, h.waitingDial = nil, nil, nil, nil
	h.recovery = recovery{}
	h.timers = timers{deadline: policy.MaxTime}
}

// sleep is how long until something is due.
func (h *Host) sleep() time.Duration {
	at := never
	if h.leading != 0 {
		at = min(h.wakes.next(), h.recovery.next(h), h.timers.next(h), h.mono+clockSample)
		if h.admitAfter > h.mono {
			at = min(at, h.admitAfter)
		}
	}
	if len(h.refused) > 0 {
		at = min(at, h.resettle)
	}
	if len(h.flight) > 0 {
		at = min(at, h.timers.watch)
	}
	if len(h.lanes) > 0 || len(h.carriers) > 0 {
		at = min(at, h.timers.sweep)
	}
	if at == never {
		return never
	}
	return max(at-h.mono, 0)
}
