package shard

import (
	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
)

// circuitOutcome is what one settled attempt does to its target's circuit (C.7), if it is about the circuit as it is now (lane.Heeds): slow
// answers to requests from before an outage neither close nor open it. An explicit throttle always counts.
func (t *tx) circuitOutcome(l *LaneRecord, target TargetID, a *Attempt, o *Outcome) error {
	rec, err := l.targetRecord(target)
	if err != nil {
		return err
	}
	ev, ok := circuitEventOf(o)
	if !ok {
		// Says nothing about the target; but a trial that ends so has ended.
		ev = lane.EventTrialAbandoned
	}
	if !rec.Circuit.Heeds(ev, a.Trial, a.AdmittedAt, rec.ChangedAt) {
		return nil
	}
	if ev == lane.EventFailure || ev == lane.EventThrottle {
		rec.LastError, rec.LastDetail = o.Evidence.ErrorClass, o.Evidence.Detail
		if rec.LastError == "" {
			rec.LastError = o.Evidence.Rule
		}
	}
	return t.circuitEvent(l, target, ev, t.throttleUntil(o))
}

// circuitEventOf is table C.7 from an outcome to an event; ok is false for an outcome that says nothing about the target.
func circuitEventOf(o *Outcome) (ev lane.CircuitEvent, ok bool) {
	switch _, effect := policy.EffectOf(o.SideEffect, o.Disposition); effect {
	case policy.CircuitSuccess:
		return lane.EventSuccess, true
	case policy.CircuitAnswered:
		return lane.EventAnswered, true
	case policy.CircuitFailure:
		return lane.EventFailure, true
	case policy.CircuitThrottle:
		return lane.EventThrottle, true
	}
	return 0, false
}

func (t *tx) throttleUntil(o *Outcome) policy.Time {
	if o.HasRetryAfter {
		return t.now.Add(o.RetryAfter)
	}
	return 0
}

// circuitEvent runs one event under the live thresholds and tells the leader if the phase changed.
func (t *tx) circuitEvent(l *LaneRecord, target TargetID, ev lane.CircuitEvent, throttleUntil policy.Time) error {
	cfg := policy.DefaultCircuit()
	d, err := t.newest(l.Namespace, l.Destination)
	if err != nil {
		return err
	}
	if d != nil {
		cfg = d.Circuit
	}
	rec, err := l.targetRecord(target)
	if err != nil {
		return err
	}
	before := rec.Circuit
	next, changed := rec.Circuit.On(ev, cfg, t.now, throttleUntil)
	rec.Circuit = next
	if changed {
		rec.ChangedAt = t.now
	}
	if changed || next.TrialInFlight != before.TrialInFlight || next.RampLimit != before.RampLimit || next.OpenUntil != before.OpenUntil {
		t.emit(Effect{Kind: EffectLane, Lane: l.ID, Target: target})
	}
	return nil
}

// laneEvent records what the runtime learned about a target without an attempt.
func (t *tx) laneEvent(c *LaneEvent) (Result, error) {
	if c.Lane == 0 || c.Lane >= t.meta.NextLane {
		return Result{Rejected: ErrLaneNotFound.with("lane", "%d", c.Lane)}, nil
	}
	l, err := t.lane(c.Lane)
	if err != nil {
		return Result{}, err
	}
	if c.Target == 0 || int(c.Target) > len(l.Targets) {
		return Result{Rejected: ErrLaneNotFound.with("target", "%d of lane %d", c.Target, c.Lane)}, nil
	}
	rec := &l.Targets[c.Target-1]
	switch c.Event {
	case LaneConnectFailed:
		rec.LastError, rec.LastDetail = cut(c.ErrorClass), cut(c.Detail)
		return Result{}, t.circuitEvent(l, c.Target, lane.EventFailure, 0)
	case LaneReadyToTry:
		return Result{}, t.circuitEvent(l, c.Target, lane.EventReadyToTry, 0)
	case LaneTrialOverdue:
		if !rec.Circuit.TrialInFlight || rec.Circuit.TrialDeadline > t.now {
			return Result{Rejected: ErrStale.with("trial", "none is overdue")}, nil
		}
		return Result{}, t.circuitEvent(l, c.Target, lane.EventFailure, 0)
	}
	return Result{Rejected: ErrNotSupported.with("event", "%d", c.Event)}, nil
}
