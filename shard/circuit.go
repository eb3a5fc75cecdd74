package shard

import (
	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
)

// circuitOutcome is what one settled attempt does to its target's circuit (C.7). Only the half-open trial's own outcome moves a
// circuit that is not closed: answers to requests sent before it opened say nothing about now. An explicit throttle always counts.
func (t *tx) circuitOutcome(l *LaneRecord, target TargetID, a *Attempt, o *Outcome) error {
	_, effect := policy.EffectOf(o.SideEffect, o.Disposition)
	rec, err := l.targetRecord(target)
	if err != nil {
		return err
	}
	c := &rec.Circuit
	// A trial admitted before the circuit last changed belongs to an earlier half-open time: it was given up as overdue.
	trialOpen := a.Trial && c.Phase == lane.CircuitHalfOpen && c.TrialInFlight && a.AdmittedAt >= rec.ChangedAt
	if c.Phase != lane.CircuitClosed && !trialOpen && effect != policy.CircuitThrottle {
		return nil
	}
	if effect == policy.CircuitFailure || effect == policy.CircuitThrottle {
		rec.LastError, rec.LastDetail = o.Evidence.ErrorClass, o.Evidence.Detail
		if rec.LastError == "" {
			rec.LastError = o.Evidence.Rule
		}
	}
	switch effect {
	case policy.CircuitSuccess:
		return t.circuitEvent(l, target, lane.EventSuccess, 0)
	case policy.CircuitAnswered:
		return t.circuitEvent(l, target, lane.EventAnswered, 0)
	case policy.CircuitFailure:
		return t.circuitEvent(l, target, lane.EventFailure, 0)
	case policy.CircuitThrottle:
		return t.circuitEvent(l, target, lane.EventThrottle, t.throttleUntil(o))
	}
	if trialOpen {
		return t.circuitEvent(l, target, lane.EventTrialAbandoned, 0)
	}
	return nil
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
