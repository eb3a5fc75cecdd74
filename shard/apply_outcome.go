package shard

import (
	"unicode/utf8"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
)

// recordOutcome settles an attempt, exactly once. What comes for an attempt that is settled already is evidence (DESIGN 4).
func (t *tx) recordOutcome(c *RecordOutcome) (Result, error) {
	ref := Ref{c.ID, c.Generation}
	g, a, rej, err := t.find(ref, c.Attempt)
	if err != nil || rej != nil {
		return Result{Rejected: rej}, err
	}
	o := legalised(c.Outcome)
	if a.Settled {
		return t.lateOutcome(ref, g, a, &o)
	}
	a.Settled, a.Outcome, a.OutcomeAt, a.OutcomeIndex, a.SideEffect = true, o, t.now, t.e.Index, o.SideEffect
	if err := t.st.Delete(openAttemptKey(ref.ID.Local(), ref.Generation, a.Number)); err != nil {
		return Result{}, err
	}
	l, err := t.lane(g.Lane)
	if err != nil {
		return Result{}, err
	}
	l.Counts.OpenAttempts--
	g.OpenInFlight--
	if err := t.circuitOutcome(l, g.Target, a, &o); err != nil {
		return Result{}, err
	}
	t.emit(Effect{
		Kind: EffectSettled, Ref: ref, Lane: g.Lane, Target: g.Target, Attempt: a.Number, SideEffect: o.SideEffect,
		Disposition: o.Disposition, First: true,
	})
	if err := t.decide(ref, g, a, &o); err != nil {
		return Result{}, err
	}
	if err := t.saveAttempt(ref, a); err != nil {
		return Result{}, err
	}
	return Result{Ref: ref, Attempt: a.Number, State: g.State}, t.saveGeneration(ref.ID, g)
}

// find loads a generation and one of its attempts; a rejection says which is missing.
func (t *tx) find(ref Ref, number uint32) (*Generation, *Attempt, *Rejection, error) {
	g, err := t.generation(ref)
	if err != nil {
		return nil, nil, nil, err
	}
	if g == nil {
		return nil, nil, ErrMessageNotFound.with("generation", "%s-%d", ref.ID, ref.Generation), nil
	}
	a, err := t.attempt(ref, number)
	if err != nil {
		return nil, nil, nil, err
	}
	if a == nil {
		return nil, nil, ErrStale.with("attempt", "%d was never admitted", number), nil
	}
	return g, a, nil, nil
}

// legalised turns an outcome that contradicts itself into what it can be trusted for: nothing (R175).
func legalised(o Outcome) Outcome {
	if !policy.LegalOutcome(o.SideEffect, o.Disposition) {
		o.Evidence.Detail = cut("illegal outcome " + o.SideEffect.String() + " " + o.Disposition.String() + ": " + o.Evidence.Detail)
		o.SideEffect, o.Disposition = policy.Unknown, policy.AdapterBug
		o.Evidence.Rule, o.Evidence.Statement = "ADAPTER_ILLEGAL_OUTCOME", "NONE"
	}
	o.Evidence.Detail = cut(o.Evidence.Detail)
	return o
}

// cut bounds a text for people, without leaving half a character at its end: the record is shown in formats that refuse it.
func cut(s string) string {
	if len(s) <= MaxDetailBytes {
		return s
	}
	end := MaxDetailBytes
	for end > MaxDetailBytes-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// decide is what the initial outcome does to its generation.
func (t *tx) decide(ref Ref, g *Generation, a *Attempt, o *Outcome) error {
	if o.SideEffect != policy.Published {
		g.noteError(o.Evidence.ErrorClass, o.Evidence.Rule)
	}
	if g.State.Terminal() {
		return t.decideAfterEnd(g, a, o)
	}
	switch o.SideEffect {
	case policy.Published:
		a.Decision = StateDelivered.String()
		return t.terminate(ref.ID, g, StateDelivered, ReasonPublished)
	case policy.NotPublished:
		return t.notPublished(ref, g, a, o)
	default:
		return t.unknown(ref, g, a)
	}
}

// decideAfterEnd keeps the books of an attempt that was in flight when its generation ended. The decision stays; the flag only rises.
func (t *tx) decideAfterEnd(g *Generation, a *Attempt, o *Outcome) error {
	a.Decision = "ENDED " + g.State.String()
	switch o.SideEffect {
	case policy.Unknown:
		g.OpenUnknown++
		g.PossibleDuplicate = g.PossibleDuplicate || !a.DuplicateSafe
	case policy.Published:
		g.PossibleDuplicate = g.PossibleDuplicate || !a.DuplicateSafe || g.State != StateDelivered
	}
	return nil
}

func (g *Generation) noteError(class, rule string) {
	if class == "" {
		class = rule
	}
	if g.FirstErrorClass == "" {
		g.FirstErrorClass = class
	}
	g.LastErrorClass = class
}

// notPublished: the attempt certainly had no effect.
func (t *tx) notPublished(ref Ref, g *Generation, a *Attempt, o *Outcome) error {
	d, err := t.pinned(g)
	if err != nil {
		return err
	}
	budget := g.charge(o)
	switch {
	case g.OpenUnknown > 0 && budget == policy.BudgetTerminal:
		// DESIGN 4: a definite permanent failure while an earlier attempt is UNKNOWN applies when_exhausted.
		return t.uncertainExhausted(ref, g, a, d, "PERMANENT_FAILURE")
	case g.OpenUnknown > 0:
		return t.uncertainAgain(ref, g, a, d)
	case g.OpenInFlight > 0:
		a.Decision = "OTHER_ATTEMPT_IN_FLIGHT"
		return t.settleState(g)
	case budget == policy.BudgetTerminal:
		a.Decision = "DEAD_LETTER PERMANENT_FAILURE"
		return t.terminate(ref.ID, g, StateDeadLettered, ReasonPermanent)
	}
	return t.retryOrEnd(ref, g, a, d, o)
}

// charge books one definite settlement against the generation's budget, and says what it costs.
func (g *Generation) charge(o *Outcome) policy.Budget {
	budget, _ := policy.EffectOf(o.SideEffect, o.Disposition)
	if budget == policy.BudgetCounts {
		g.Counted = saturatingInc(g.Counted)
	}
	return budget
}

// retryOrEnd chooses between the next attempt and the end, for a generation with no open attempt.
func (t *tx) retryOrEnd(ref Ref, g *Generation, a *Attempt, d *Destination, o *Outcome) error {
	budget, _ := policy.EffectOf(o.SideEffect, o.Disposition)
	in := policy.RetryInput{
		Now: t.now, Counted: uint64(g.Counted), LaneLevel: budget == policy.BudgetNone, RetryAfter: o.RetryAfter, HasRetryAfter: o.HasRetryAfter,
		Key: policy.JitterKey{Message: ref.ID.Local(), Generation: uint64(g.Number), Attempt: uint64(a.Number)},
	}
	next := policy.NextRetry(d.Retry, in)
	l, err := t.lane(g.Lane)
	if err != nil {
		return err
	}
	switch {
	case next.Exhausted:
		a.Decision = "DEAD_LETTER EXHAUSTED"
		return t.terminate(ref.ID, g, StateDeadLettered, ReasonExhausted)
	case l.Gate == lane.GateClosed:
		a.Decision = "DEAD_LETTER LANE_CLOSED"
		return t.terminate(ref.ID, g, StateDeadLettered, ReasonLaneClosed)
	case t.now >= g.Deadline:
		a.Decision = "EXPIRE"
		return t.terminate(ref.ID, g, StateExpired, g.expiryReason())
	}
	a.Decision, a.NextAt = "RETRY "+next.Reason.String(), next.At
	if err := t.schedule(ref.ID, g, WorkRetry, next.At, next.Reason.String()); err != nil {
		return err
	}
	return t.settleState(g)
}

func (g *Generation) expiryReason() TerminalReason {
	if g.DeadlineByLifetime {
		return ReasonLifetime
	}
	return ReasonExpireAt
}

func saturatingInc(n uint32) uint32 {
	if n == 1<<32-1 {
		return n
	}
	return n + 1
}

// pinned is the destination version the generation was accepted under.
func (t *tx) pinned(g *Generation) (*Destination, error) {
	l, err := t.lane(g.Lane)
	if err != nil {
		return nil, err
	}
	return t.destination(l.Namespace, l.Destination, g.DestinationVersion)
}
