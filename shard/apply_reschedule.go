package shard

import "github.com/sealane/sealane/policy"

// reschedule supersedes the current generation with the next one, under the same pinned version. A repeated request id gives the first
// answer again, also when another reschedule came between (invariant 3).
func (t *tx) reschedule(c *Reschedule) (Result, error) {
	if rej := c.shape(); rej != nil {
		return Result{Rejected: rej}, nil
	}
	m, g, r, err := t.reversible(c.ID, 0)
	if err != nil || m == nil {
		return r, err
	}
	if first, err := t.rescheduledBy(c, m); err != nil || first != nil {
		return repeatedReschedule(c.ID, first), err
	}
	if c.Generation != 0 && c.Generation != m.Current {
		r.Rejected = ErrVersionConflict.with("generation", "%d is current", m.Current)
	}
	if r.Rejected != nil {
		return r, nil
	}
	if rej := checkWindow(t.now, c.DeliverAt, c.ExpireAt); rej != nil {
		return Result{Ref: r.Ref, State: g.State, Rejected: rej}, nil
	}
	d, err := t.pinned(g)
	if err != nil {
		return Result{}, err
	}
	next := t.newGeneration(m, d, g.Target, m.Current+1)
	next.Origin, next.OriginID = OriginReschedule, c.RequestID
	next.ExpireAt = g.ExpireAt
	t.window(next, d, c)
	if next.Deadline <= t.now || next.ExpireAt != 0 && next.ExpireAt <= next.DeliverAt {
		return Result{Ref: r.Ref, State: g.State, Rejected: ErrDeliveryWindow.with("expire_at", "the kept expire_at is not later than deliver_at")}, nil
	}
	if err := t.terminate(c.ID, g, StateSuperseded, ReasonRescheduled); err != nil {
		return Result{}, err
	}
	if err := t.saveGeneration(c.ID, g); err != nil {
		return Result{}, err
	}
	m.Current = next.Number
	m.Kept++
	if err := t.saveMessage(m); err != nil {
		return Result{}, err
	}
	return Result{Ref: Ref{c.ID, next.Number}, State: StateScheduled}, t.beginGeneration(m, next, nil)
}

// rescheduledBy finds the generation that a request made, among the newest RescheduleMemory ones; nil if there is none.
func (t *tx) rescheduledBy(c *Reschedule, m *Message) (*Generation, error) {
	if c.RequestID == "" {
		return nil, nil
	}
	for n := m.Current; n > 1 && m.Current-n < RescheduleMemory; n-- {
		g, err := t.generation(Ref{c.ID, n})
		if err != nil {
			return nil, err
		}
		if g != nil && g.Origin == OriginReschedule && g.OriginID == c.RequestID {
			return g, nil
		}
	}
	return nil, nil
}

func repeatedReschedule(id MessageID, g *Generation) Result {
	if g == nil {
		return Result{}
	}
	return Result{Ref: Ref{id, g.Number}, State: g.State, Index: g.CreatedIndex, Deduplicated: true}
}

// window sets the times of a rescheduled generation. Without a new expire_at the old one stays.
func (t *tx) window(g *Generation, d *Destination, c *Reschedule) {
	g.DeliverAt = max(c.DeliverAt, t.now)
	if c.ExpireAt != 0 {
		g.ExpireAt = c.ExpireAt
	}
	g.Deadline, g.DeadlineByLifetime = policy.GenerationDeadline(t.now, g.DeliverAt, g.ExpireAt, d.Retry.Lifetime)
}
