package shard

import (
	"errors"
	"fmt"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
)

// controlStep applies one step of a control operation, once: the same operation id and hash gives the first result again, whatever
// happened since (R043); another hash is a conflict.
func (t *tx) controlStep(c *ControlStep) (Result, error) {
	if rej := c.shape(); rej != nil {
		return Result{Rejected: rej}, nil
	}
	first, known, rej, err := t.recalled(c)
	if err != nil || known || rej != nil {
		first.Rejected = orRejection(rej, first.Rejected)
		return first, err
	}
	r, err := t.controlAction(c)
	if err != nil || r.Rejected != nil {
		return r, err
	}
	e := newRecord(128)
	e.raw(c.Hash[:])
	e.raw(r.Ref.ID[:])
	e.u32(r.Ref.Generation)
	e.u32(r.Attempt)
	e.byte(byte(r.State))
	e.uint(t.e.Index)
	e.time(t.now)
	e.byte(byte(c.Action))
	e.text(cut(c.Actor))
	e.text(cut(c.Reason))
	return r, t.st.Set(operationKey(c.OperationID), e.b)
}

func orRejection(a, b *Rejection) *Rejection {
	if a != nil {
		return a
	}
	return b
}

// recalled looks the operation id up.
func (t *tx) recalled(c *ControlStep) (r Result, known bool, rej *Rejection, err error) {
	b, ok, err := t.st.Get(operationKey(c.OperationID))
	if err != nil || !ok {
		return Result{}, false, nil, err
	}
	d := openRecord("operation", b)
	var hash [32]byte
	d.fixed(hash[:])
	d.fixed(r.Ref.ID[:])
	r.Ref.Generation = d.u32()
	r.Attempt = d.u32()
	r.State = GenerationState(d.byte())
	r.Index = d.uint()
	r.Deduplicated = true
	if d.err != nil {
		return Result{}, false, nil, d.err
	}
	if hash != c.Hash {
		return Result{}, false, ErrOperationConflict.with("operation_id", "%q was first used for another operation", c.OperationID), nil
	}
	return r, true, nil, nil
}

func (t *tx) controlAction(c *ControlStep) (Result, error) {
	switch c.Action {
	case ActionPauseLane:
		return t.gate(c, lane.GateEventPause)
	case ActionResumeLane:
		return t.gate(c, lane.GateEventResume)
	case ActionResetCircuit:
		return t.resetCircuit(c)
	case ActionResolve:
		return t.resolveStep(c)
	}
	return Result{}, fmt.Errorf("%w: control action %d", ErrUnknownCommand, c.Action)
}

// controlledLane finds the lane a step names.
func (t *tx) controlledLane(c *ControlStep) (*LaneRecord, *Rejection, error) {
	id, ok, err := t.laneID(laneName{c.Namespace, c.Destination, c.Slot})
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, ErrLaneNotFound.with("lane", "%s slot %d", c.Destination, c.Slot), nil
	}
	l, err := t.lane(id)
	return l, nil, err
}

func (t *tx) gate(c *ControlStep, ev lane.GateEvent) (Result, error) {
	l, rej, err := t.controlledLane(c)
	if err != nil || rej != nil {
		return Result{Rejected: rej}, err
	}
	to, err := l.Gate.On(ev)
	if err != nil {
		return Result{Rejected: gateRejection(err, l)}, nil
	}
	l.Gate, l.GateActor, l.GateReason = to, cut(c.Actor), cut(c.Reason)
	l.ControlVersion++
	t.emit(Effect{Kind: EffectLane, Lane: l.ID})
	return Result{}, nil
}

func (t *tx) resetCircuit(c *ControlStep) (Result, error) {
	l, rej, err := t.controlledLane(c)
	if err != nil || rej != nil {
		return Result{Rejected: rej}, err
	}
	for i := range l.Targets {
		l.Targets[i].Circuit = lane.CircuitState{}
		l.Targets[i].ChangedAt = t.now
		t.emit(Effect{Kind: EffectLane, Lane: l.ID, Target: l.Targets[i].ID})
	}
	l.ControlVersion++
	return Result{}, nil
}

// resolveStep is an operator's decision about one UNKNOWN attempt (B.8). What nothing verifies is recorded as an override in their name.
func (t *tx) resolveStep(c *ControlStep) (Result, error) {
	m, err := t.message(c.ID)
	if err != nil {
		return Result{}, err
	}
	if m == nil || m.Namespace != c.Namespace {
		return Result{Rejected: ErrMessageNotFound.with("message_id", "%s", c.ID)}, nil
	}
	ref := Ref{c.ID, c.Generation}
	if ref.Generation == 0 {
		ref.Generation = m.Current
	}
	g, a, rej, err := t.find(ref, c.Attempt)
	if err != nil || rej != nil {
		return Result{Rejected: rej}, err
	}
	if !a.Settled || a.SideEffect != policy.Unknown {
		return Result{Ref: ref, Attempt: a.Number, State: g.State, Rejected: ErrAttemptNotUncertain.with("attempt", "%d is %s", a.Number, a.now())}, nil
	}
	switch c.Verdict {
	case ResolvePublished, ResolveNotPublished:
		return t.resolveByWord(c, ref, g, a)
	case ResolveRetry:
		return t.resolveRetry(c, ref, g, a)
	case ResolveDeadLetter:
		return t.resolveDeadLetter(c, ref, g, a)
	}
	return Result{Rejected: ErrNotSupported.with("verdict", "%d", c.Verdict)}, nil
}

func (a *Attempt) now() string {
	if !a.Settled {
		return "IN_FLIGHT"
	}
	return a.SideEffect.String()
}

func (t *tx) resolveByWord(c *ControlStep, ref Ref, g *Generation, a *Attempt) (Result, error) {
	r := operatorResolution(c)
	r.SideEffect = policy.Published
	if c.Verdict == ResolveNotPublished {
		r.SideEffect = policy.NotPublished
	}
	if err := t.resolve(ref, g, a, r, policy.MessageRetriable); err != nil {
		return Result{}, err
	}
	return Result{Ref: ref, Attempt: a.Number, State: g.State}, nil
}

func operatorResolution(c *ControlStep) Resolution {
	return Resolution{
		Evidence: Evidence{Rule: "OPERATOR", Statement: "OVERRIDE", Detail: cut(c.Evidence)}, Override: true, Actor: cut(c.Actor),
		Reason: cut(c.Reason), OperationID: c.OperationID,
	}
}

// resolveRetry permits one more attempt in the operator's name, accepting a duplicate. It may exceed the automatic uncertain budget, never
// the total.
func (t *tx) resolveRetry(c *ControlStep, ref Ref, g *Generation, a *Attempt) (Result, error) {
	d, err := t.pinned(g)
	if err != nil {
		return Result{}, err
	}
	l, err := t.lane(g.Lane)
	if err != nil {
		return Result{}, err
	}
	res := Result{Ref: ref, Attempt: a.Number, State: g.State}
	switch {
	case g.State.Terminal():
		res.Rejected = ErrAlreadyTerminal.with("state", "%s", g.State)
	case g.OpenInFlight > 0:
		res.Rejected = ErrTooLate.with("state", "another attempt is in flight")
	case g.Deadline <= t.now:
		res.Rejected = ErrTooLate.with("deadline", "passed")
	case l.Gate == lane.GateClosed:
		res.Rejected = ErrLaneClosed.with("destination", "%s slot %d", l.Destination, l.Slot)
	case g.budgetUsed() >= d.Retry.MaxAttempts:
		res.Rejected = ErrBudgetUsed.with("max_attempts", "%d of %d are used", g.budgetUsed(), d.Retry.MaxAttempts)
	}
	if res.Rejected != nil {
		return res, nil
	}
	t.noteDecision(a, c, effectRetry)
	if err := t.schedule(ref.ID, g, WorkOperatorRetry, t.now, policy.ReasonOperator.String()); err != nil {
		return Result{}, err
	}
	if err := t.saveAttempt(ref, a); err != nil {
		return Result{}, err
	}
	return res, t.saveGeneration(ref.ID, g)
}

func (t *tx) resolveDeadLetter(c *ControlStep, ref Ref, g *Generation, a *Attempt) (Result, error) {
	res := Result{Ref: ref, Attempt: a.Number, State: g.State}
	switch {
	case g.State.Terminal():
		res.Rejected = ErrAlreadyTerminal.with("state", "%s", g.State)
	case g.OpenInFlight > 0:
		res.Rejected = ErrTooLate.with("state", "another attempt is in flight")
	}
	if res.Rejected != nil {
		return res, nil
	}
	t.noteDecision(a, c, effectGivenUp)
	if err := t.saveAttempt(ref, a); err != nil {
		return Result{}, err
	}
	if err := t.giveUp(ref, g, ReasonOperatorGiveUp, cut(c.Actor)); err != nil {
		return Result{}, err
	}
	res.State = g.State
	return res, t.saveGeneration(ref.ID, g)
}

// noteDecision records an operator's decision that leaves the attempt UNKNOWN.
func (t *tx) noteDecision(a *Attempt, c *ControlStep, effect string) {
	r := operatorResolution(c)
	r.SideEffect, r.Effect, r.At, r.Index = policy.Unknown, effect, t.now, t.e.Index
	a.keep(r)
}

// gateRejection says in the shard's words why a gate did not move.
func gateRejection(err error, l *LaneRecord) *Rejection {
	why := ErrLaneClosed
	switch {
	case errors.Is(err, lane.ErrAlreadyOpen):
		why = ErrAlreadyOpen
	case errors.Is(err, lane.ErrAlreadyPaused):
		why = ErrAlreadyPaused
	}
	return why.with("lane", "%s slot %d is %s", l.Destination, l.Slot, l.Gate)
}
