package shard

// cancel ends a generation that nothing was admitted for, or whose admitted attempts certainly had no effect. Against an admission
// the smaller position wins (B.8).
func (t *tx) cancel(c *Cancel) (Result, error) {
	_, g, r, err := t.reversible(c.ID, c.Generation)
	if err != nil || r.Rejected != nil {
		return r, err
	}
	if err := t.terminate(c.ID, g, StateCancelled, ReasonCancelled); err != nil {
		return Result{}, err
	}
	g.GivenUpBy = cut(c.Reason)
	r.State = g.State
	return r, t.saveGeneration(c.ID, g)
}

// reversible loads the current generation of a message if cancel or reschedule may still act on it.
func (t *tx) reversible(id MessageID, number uint32) (*Message, *Generation, Result, error) {
	m, err := t.message(id)
	if err != nil {
		return nil, nil, Result{}, err
	}
	if m == nil {
		return nil, nil, Result{Rejected: ErrMessageNotFound.with("message_id", "%s", id)}, nil
	}
	g, err := t.current(m)
	if err != nil {
		return nil, nil, Result{}, err
	}
	r := Result{Ref: Ref{id, g.Number}, State: g.State}
	switch {
	case number != 0 && number != m.Current:
		r.Rejected = ErrVersionConflict.with("generation", "%d is current", m.Current)
	case g.OpenUnknown > 0 && !g.State.Terminal():
		r.Rejected = ErrTooLate.with("state", "UNCERTAIN: attempt outcome is not known")
	case g.OpenInFlight > 0 && !g.State.Terminal():
		r.Rejected = ErrTooLate.with("state", "an attempt is in flight")
	case g.State.Terminal():
		r.Rejected = ErrAlreadyTerminal.with("state", "%s", g.State)
	}
	return m, g, r, nil
}
