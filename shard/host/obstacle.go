package host

import (
	"time"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// Why says why a lane is not sending. The set is closed.
type Why string

// Reasons, in the order in which they are looked for.
const (
	WhySending     Why = "SENDING"     // it is: nothing holds it up
	WhyNotLeading  Why = "NOT_LEADING" // another process leads the shard
	WhyFailed      Why = "FAILED"      // the shard's state could not be read
	WhyDraining    Why = "DRAINING"
	WhyClosed      Why = "CLOSED"
	WhyPaused      Why = "PAUSED"
	WhyNothingDue  Why = "NOTHING_DUE"
	WhyOrder       Why = "ORDER_WAIT"       // all that waits is behind the heads of its ordering keys
	WhyRecovering  Why = "RECOVERING"       // attempts of an earlier leader are being read
	WhyClock       Why = "CLOCK_GATE"       // this node's wall clock is not trusted
	WhyCircuitOpen Why = "CIRCUIT_OPEN"     // until its time has passed and the readiness check succeeds
	WhyTrial       Why = "TRIAL"            // half open, and its one trial is under way
	WhyBlocked     Why = "BLOCKED"          // what the destination pins or needs is not so; see the reason
	WhyConnecting  Why = "CONNECTING"       // a connection is being made, or will be after a pause
	WhyMaxInFlight Why = "AT_MAX_IN_FLIGHT" // requests, bytes or outcomes without a verdict are at their limit
	WhyRate        Why = "RATE_LIMITED"
	WhyLogBusy     Why = "LOG_BUSY" // the log refused admissions; they are proposed again after a pause
)

// obstacle finds what keeps a target from one more claim. at is when to look again; never means that some event will ask for it.
func (h *Host) obstacle(t *target) (why Why, at time.Duration) {
	l := t.lane
	switch l.gate {
	case lane.GateClosed:
		return WhyClosed, never
	case lane.GatePaused:
		return WhyPaused, never
	}
	due := t.win.next()
	if due == policy.MaxTime {
		return WhyNothingDue, never
	}
	if due > h.stamp {
		return WhyNothingDue, h.when(due)
	}
	switch t.circuit.Phase {
	case lane.CircuitOpen:
		return h.openObstacle(t)
	case lane.CircuitHalfOpen:
		if why, at := h.trialObstacle(t); why != WhySending {
			return why, at
		}
	default:
		if t.throttle > 0 || t.failing > 0 && t.circuit.ConsecutiveFailures+uint32(t.failing) >= max(l.circuit.FailureThreshold, 1) {
			return WhyCircuitOpen, never // it will be as soon as these outcomes are applied
		}
		if t.inFlight >= int(t.circuit.InFlightLimit(uint32(l.max))) {
			return WhyMaxInFlight, never
		}
	}
	if why, at := t.dialObstacle(h.mono); why != WhySending {
		return why, at
	}
	return h.permitObstacle(l)
}

// when is the mono time at which the stamp can have reached a time, and not before the next millisecond.
func (h *Host) when(t policy.Time) time.Duration {
	wait := h.opt.Stamper.wait(t)
	if wait > time.Duration(1)<<60 {
		return never
	}
	return h.mono + max(wait, time.Millisecond)
}

func (h *Host) permitObstacle(l *laneState) (Why, time.Duration) {
	if l.inFlight+l.open >= l.max || l.inFlight+l.unsettled+l.open >= 2*l.max {
		return WhyMaxInFlight, never
	}
	if l.maxBytes > 0 && l.inFlight > 0 && l.bytes >= l.maxBytes {
		return WhyMaxInFlight, never
	}
	if at := l.rate.ready(); at > h.mono {
		return WhyRate, at
	}
	return WhySending, never
}

// openObstacle: nothing is claimed while the circuit is open. Once its time has passed, one connection is made to see whether the target is
// there, and the log is told (DESIGN 7: never by a timer alone).
func (h *Host) openObstacle(t *target) (Why, time.Duration) {
	switch {
	case h.stamp < t.circuit.OpenUntil:
		return WhyCircuitOpen, h.when(t.circuit.OpenUntil)
	case t.event || t.dialing > 0:
		return WhyCircuitOpen, never
	case len(t.ready) > 0:
		h.laneEvent(t, shard.LaneReadyToTry, "", "")
		return WhyCircuitOpen, never
	case t.notBefore > h.mono:
		return WhyCircuitOpen, t.notBefore
	}
	h.dialFor(t)
	return WhyCircuitOpen, never
}

// trialObstacle: one trial at a time, and a trial that does not come back is reported when its deadline has passed.
func (h *Host) trialObstacle(t *target) (Why, time.Duration) {
	switch {
	case t.trial != nil || t.event:
		return WhyTrial, never
	case !t.circuit.TrialInFlight:
		return WhySending, never
	case h.stamp >= t.circuit.TrialDeadline:
		h.laneEvent(t, shard.LaneTrialOverdue, "TRIAL_OVERDUE", "no outcome of the trial before its deadline")
		return WhyTrial, never
	}
	return WhyTrial, h.when(t.circuit.TrialDeadline)
}

// laneEvent has one event of a target proposed in this turn.
func (h *Host) laneEvent(t *target, kind shard.LaneEventKind, class, detail string) {
	t.event = true
	h.events = append(h.events, &laneEvent{t, shard.LaneEvent{
		Lane: t.lane.id, Target: t.id, Event: kind, ErrorClass: class, Detail: detail,
	}})
}

type laneEvent struct {
	target *target
	cmd    shard.LaneEvent
}

// proposeEvents tells the log what happened to targets. One event per target is in the log at a time; one that is not accepted is not
// repeated as such: what caused it is looked at again after a pause.
func (h *Host) proposeEvents() {
	for len(h.events) > 0 && h.leading != 0 {
		n := min(len(h.events), maxVector)
		batch := h.events[:n:n]
		h.events = h.events[n:]
		cmds := make([]shard.Command, n)
		for i, e := range batch {
			cmds[i] = &e.cmd
		}
		term := h.leading
		done := func(h *Host, _ []shard.Result, err error) {
			if h.leading == term {
				h.eventsDone(batch, err)
			}
		}
		if err := h.propose(cmds, ClassEngine, done); err != nil {
			done(h, nil, err)
		}
	}
}

func (h *Host) eventsDone(batch []*laneEvent, err error) {
	for _, e := range batch {
		t := e.target
		t.event = false
		if err != nil {
			t.notBefore = max(t.notBefore, h.mono+connectFirst)
		}
		h.reloadLane(t.lane.id)
		h.poke(t)
	}
	h.again = true
}

// proposal is a vector of commands in the log and what to do with its answer.
type proposal struct {
	done func(h *Host, results []shard.Result, err error)
}

// propose hands a vector to the log; the answer comes back through the inbox. An error means that done will not be called.
func (h *Host) propose(cmds []shard.Command, class Class, done func(h *Host, results []shard.Result, err error)) error {
	p := &proposal{done: done}
	return h.opt.Log.Propose(cmds, class, func(results []shard.Result, err error) {
		h.inbox.put(message{verdict: p, results: results, err: err})
	})
}
