package shard

import "github.com/sealane/sealane/policy"

// expire closes the admission window of a generation whose deadline has passed on the shard clock. What was admitted is not revoked: its
// outcome decides. UNCERTAIN is never rewritten to EXPIRED; its unadmitted work goes, and when_exhausted applies (DESIGN 4).
func (t *tx) expire(c *Expire) (Result, error) {
	ref := Ref{c.ID, c.Generation}
	g, err := t.generation(ref)
	if err != nil {
		return Result{}, err
	}
	switch {
	case g == nil:
		return Result{Rejected: ErrMessageNotFound.with("generation", "%s-%d", c.ID, c.Generation)}, nil
	case g.State.Terminal():
		return Result{Ref: ref, State: g.State, Rejected: ErrAlreadyTerminal.with("state", "%s", g.State)}, nil
	case g.Deadline > t.now:
		return Result{Ref: ref, State: g.State, Rejected: ErrStale.with("deadline", "not before %d", g.Deadline)}, nil
	}
	if g.DeadlineArmed {
		if err := t.st.Delete(deadlineKey(g.Deadline, ref.ID.Local(), g.Number)); err != nil {
			return Result{}, err
		}
		g.DeadlineArmed = false
	}
	if err := t.deadlinePassed(ref, g); err != nil {
		return Result{}, err
	}
	return Result{Ref: ref, State: g.State}, t.saveGeneration(ref.ID, g)
}

func (t *tx) deadlinePassed(ref Ref, g *Generation) error {
	if g.OpenUnknown == 0 && g.OpenInFlight == 0 {
		return t.terminate(ref.ID, g, StateExpired, g.expiryReason())
	}
	if err := t.clearWork(ref.ID, g); err != nil {
		return err
	}
	if g.OpenInFlight > 0 {
		return nil
	}
	d, err := t.pinned(g)
	if err != nil {
		return err
	}
	if policy.WhenUncertainExhausted(d.Uncertainty) == policy.GiveUpUncertain {
		return t.giveUp(ref, g, ReasonUncertaintyGiveUp, "policy")
	}
	return nil
}
