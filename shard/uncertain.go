package shard

import "github.com/sealane/sealane/policy"

// unknown: bytes may have reached the receiver and nothing says what became of them. Only evidence or a named operator moves the attempt
// from here; the pinned policy may permit one more attempt beside it (P3, R176).
func (t *tx) unknown(ref Ref, g *Generation, a *Attempt) error {
	d, err := t.pinned(g)
	if err != nil {
		return err
	}
	g.OpenUnknown++
	e := encoder{b: idTail(ref.ID)}
	e.u32(uint32(g.Lane))
	if err := t.st.Set(uncertainKey(t.now, ref.ID.Local(), g.Number, a.Number), e.b); err != nil {
		return err
	}
	// Saved before the policy is asked: if it gives up, the inbox is cleared from the attempts as they are stored.
	if err := t.saveAttempt(ref, a); err != nil {
		return err
	}
	return t.uncertainAgain(ref, g, a, d)
}

// uncertainAgain asks the pinned policy what to do about a generation with an UNKNOWN attempt.
func (t *tx) uncertainAgain(ref Ref, g *Generation, a *Attempt, d *Destination) error {
	if g.OpenInFlight > 0 {
		a.Decision = "OTHER_ATTEMPT_IN_FLIGHT"
		return t.settleState(g)
	}
	dec := policy.AfterUnknown(d.Uncertainty, d.Retry, policy.UnknownInput{
		Now: t.now, FirstAdmittedAt: g.FirstAdmittedAt, Deadline: g.Deadline, Timeout: d.Timeout, RetriesUsed: g.UncertainRetries,
		Attempts: uint64(g.budgetUsed()), Ordered: g.Ordered,
		Key: policy.JitterKey{Message: ref.ID.Local(), Generation: uint64(g.Number), Attempt: uint64(a.Number)},
	})
	switch dec.Action {
	case policy.RetryUncertain:
		a.Decision, a.NextAt = "UNCERTAIN_RETRY "+dec.Reason, dec.At
		if err := t.schedule(ref.ID, g, WorkUncertainRetry, dec.At, policy.ReasonUncertainRetry.String()); err != nil {
			return err
		}
	case policy.GiveUpUncertain:
		a.Decision = "DEAD_LETTER UNCERTAINTY_GIVEN_UP " + dec.Reason
		return t.giveUp(ref, g, ReasonUncertaintyGiveUp, "policy")
	default:
		if t.now >= g.Deadline && policy.WhenUncertainExhausted(d.Uncertainty) == policy.GiveUpUncertain {
			// The window closed while the attempt was in flight: what Expire would have applied is applied now.
			return t.uncertainExhausted(ref, g, a, d, policy.WhyDeadline)
		}
		a.Decision = "HOLD " + dec.Reason
		if err := t.clearWork(ref.ID, g); err != nil {
			return err
		}
	}
	return t.settleState(g)
}

// budgetUsed is what of max_attempts is gone: settlements that count, and attempts nobody knows the outcome of. Lane-level settlements keep their
// numbers for the audit but use up nothing (R178).
func (g *Generation) budgetUsed() uint32 { return g.Counted + g.OpenUnknown }

// uncertainExhausted applies when_exhausted: nothing more is tried while an attempt is UNKNOWN.
func (t *tx) uncertainExhausted(ref Ref, g *Generation, a *Attempt, d *Destination, why string) error {
	if g.OpenInFlight == 0 && policy.WhenUncertainExhausted(d.Uncertainty) == policy.GiveUpUncertain {
		a.Decision = "DEAD_LETTER UNCERTAINTY_GIVEN_UP " + why
		return t.giveUp(ref, g, ReasonUncertaintyGiveUp, "policy")
	}
	a.Decision = "HOLD " + why
	if err := t.clearWork(ref.ID, g); err != nil {
		return err
	}
	return t.settleState(g)
}

// giveUp dead-letters an uncertain generation: it may have been delivered, and the record says so.
func (t *tx) giveUp(ref Ref, g *Generation, why TerminalReason, by string) error {
	g.PossibleDuplicate = true
	g.GivenUpBy = by
	return t.terminate(ref.ID, g, StateDeadLettered, why)
}
