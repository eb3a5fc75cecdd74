package shard

import (
	"fmt"

	"github.com/sealane/sealane/policy"
)

// Origins of a generation, and why its first send is due when it is.
const (
	OriginSubmit     = "SUBMIT"
	OriginReschedule = "RESCHEDULE"
	OriginReplay     = "REPLAY"
	nextSubmitted    = "DELIVER_AT"
)

// beginGeneration puts a new generation into the state: its work, its deadline, its counters. The caller has filled in everything but these.
func (t *tx) beginGeneration(m *Message, g *Generation, sub *Submit) error {
	l, err := t.lane(g.Lane)
	if err != nil {
		return err
	}
	l.Counts.Scheduled++
	l.Counts.PendingBytes += g.PayloadBytes
	g.State = StateScheduled
	g.Work = WorkInitial
	g.NextAt = g.DeliverAt
	g.NextReason = nextSubmitted
	g.DeadlineArmed = true
	if err := t.st.Set(deadlineKey(g.Deadline, m.ID.Local(), g.Number), idTail(m.ID)); err != nil {
		return err
	}
	ref := Ref{m.ID, g.Number}
	t.emit(Effect{Kind: EffectDeadline, Ref: ref, Lane: g.Lane, Due: g.Deadline})
	head := true
	if g.Ordered {
		if head, err = t.enterOrder(m, g); err != nil {
			return err
		}
	}
	if head {
		if err := t.setDue(m.ID, g, sub); err != nil {
			return err
		}
	}
	return t.saveGeneration(m.ID, g)
}

// setDue makes the generation's work visible to the leader. The generation must have Work, NextAt and NextReason set.
func (t *tx) setDue(id MessageID, g *Generation, sub *Submit) error {
	if err := t.st.Set(dueKey(g, id.Local()), append(idTail(id), byte(g.Work))); err != nil {
		return err
	}
	t.emit(Effect{Kind: EffectWork, Ref: Ref{id, g.Number}, Lane: g.Lane, Target: g.Target, Due: g.NextAt, Attempt: g.Attempts + 1, Submit: sub})
	return nil
}

// waiting tells whether an entry of the due index exists for the generation.
func (g *Generation) waiting() bool { return g.Work != WorkNone && (!g.Ordered || g.OrderHead) }

// clearWork takes the generation's work back, if it has any.
func (t *tx) clearWork(id MessageID, g *Generation) error {
	if g.Work == WorkNone {
		return nil
	}
	if g.waiting() {
		if err := t.st.Delete(dueKey(g, id.Local())); err != nil {
			return err
		}
		t.emit(Effect{Kind: EffectWorkGone, Ref: Ref{id, g.Number}, Lane: g.Lane, Target: g.Target})
	}
	g.Work = WorkNone
	g.NextAt = 0
	g.NextReason = ""
	return nil
}

// schedule gives the generation work at a later time, in place of any it has.
func (t *tx) schedule(id MessageID, g *Generation, w Work, at policy.Time, reason string) error {
	if err := t.clearWork(id, g); err != nil {
		return err
	}
	g.Work, g.NextAt, g.NextReason = w, at, reason
	return t.setDue(id, g, nil)
}

// move changes the state of a generation that is not terminal to one that is not terminal, and keeps the counters.
func (t *tx) move(g *Generation, to GenerationState) error {
	if g.State.Terminal() || to.Terminal() {
		return fmt.Errorf("%w: move from %s to %s", ErrCorrupt, g.State, to)
	}
	l, err := t.lane(g.Lane)
	if err != nil {
		return err
	}
	if err := l.Counts.leave(g.State); err != nil {
		return err
	}
	l.Counts.enter(to)
	g.State = to
	return nil
}

// settleState chooses the state of a generation that is not terminal from its open attempts and its work (B.2: any UNKNOWN attempt keeps
// it UNCERTAIN whatever else is scheduled).
func (t *tx) settleState(g *Generation) error {
	switch {
	case g.OpenUnknown > 0:
		return t.move(g, StateUncertain)
	case g.OpenInFlight > 0:
		return t.move(g, StateInFlight)
	case g.Attempts > 0:
		return t.move(g, StateRetryWait)
	}
	return t.move(g, StateScheduled)
}

// terminate ends a generation. From here on it never moves again; later evidence only keeps the books (I6).
func (t *tx) terminate(id MessageID, g *Generation, to GenerationState, why TerminalReason) error {
	if !to.Terminal() || g.State.Terminal() {
		return fmt.Errorf("%w: end %s as %s", ErrCorrupt, g.State, to)
	}
	if err := t.clearWork(id, g); err != nil {
		return err
	}
	if g.DeadlineArmed {
		if err := t.st.Delete(deadlineKey(g.Deadline, id.Local(), g.Number)); err != nil {
			return err
		}
		g.DeadlineArmed = false
	}
	l, err := t.lane(g.Lane)
	if err != nil {
		return err
	}
	if err := l.Counts.leave(g.State); err != nil {
		return err
	}
	l.Counts.enter(to)
	l.Counts.PendingBytes -= g.PayloadBytes
	if g.OpenUnknown > 0 {
		if err := t.clearInbox(id, g); err != nil {
			return err
		}
	}
	g.State, g.TerminalReason, g.TerminalAt, g.TerminalIndex = to, why, t.now, t.e.Index
	if to == StateDeadLettered && (g.OpenUnknown > 0 || g.OpenInFlight > 0) {
		g.PossibleDuplicate = true
	}
	if err := t.st.Set(terminalKey(g, id.Local()), idTail(id)); err != nil {
		return err
	}
	if to == StateDeadLettered || to == StateExpired {
		if err := t.recordDeadLetter(id, g); err != nil {
			return err
		}
	}
	t.emit(Effect{Kind: EffectTerminal, Ref: Ref{id, g.Number}, Lane: g.Lane, Target: g.Target, State: to, Reason: why})
	if g.Ordered {
		return t.leaveOrder(id, g)
	}
	return nil
}

// recordDeadLetter writes the immutable decision core of a dead letter or expired generation (DESIGN 8).
func (t *tx) recordDeadLetter(id MessageID, g *Generation) error {
	retries := g.Counted
	if retries > 0 {
		retries--
	}
	rec := &DeadLetter{
		ID: id, Generation: g.Number, State: g.State, Reason: g.TerminalReason, Lane: g.Lane, DestinationVersion: g.DestinationVersion,
		FailedAt: t.now, FailedIndex: t.e.Index, Attempts: g.Attempts, RetryCount: retries, FirstErrorClass: g.FirstErrorClass,
		LastErrorClass: g.LastErrorClass, OpenUnknown: g.OpenUnknown, PossibleDuplicate: g.PossibleDuplicate, Export: ExportNotConfigured,
	}
	if err := t.st.Set(deadLetterKey(id.Local(), g.Number), encodeDeadLetter(rec)); err != nil {
		return err
	}
	e := encoder{b: idTail(id)}
	e.u32(uint32(g.Lane))
	e.byte(byte(g.State))
	e.byte(byte(g.TerminalReason))
	return t.st.Set(deadLetterTimeKey(t.now, id.Local(), g.Number), e.b)
}

// ExportNotConfigured is the export state of a dead letter whose destination names no export.
const ExportNotConfigured = "NOT_CONFIGURED"

// clearInbox takes a generation's UNKNOWN attempts off the list of what waits for a decision. The attempts themselves stay UNKNOWN.
func (t *tx) clearInbox(id MessageID, g *Generation) error {
	for n := uint32(1); n <= g.Attempts; n++ {
		a, err := t.attempt(Ref{id, g.Number}, n)
		if err != nil {
			return err
		}
		if a == nil {
			return fmt.Errorf("%w: attempt %d of %s-%d is missing", ErrCorrupt, n, id, g.Number)
		}
		if a.Settled && a.SideEffect == policy.Unknown {
			if err := t.st.Delete(uncertainKey(a.OutcomeAt, id.Local(), g.Number, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *LaneCounts) cell(s GenerationState) *uint64 {
	switch s {
	case StateScheduled, StateRetryWait:
		return &c.Scheduled
	case StateInFlight:
		return &c.InFlight
	case StateUncertain:
		return &c.Uncertain
	default:
		return &c.Terminal[s-StateDelivered]
	}
}

func (c *LaneCounts) enter(s GenerationState) { *c.cell(s)++ }

func (c *LaneCounts) leave(s GenerationState) error {
	n := c.cell(s)
	if *n == 0 {
		return fmt.Errorf("%w: counter of %s would fall below zero", ErrCorrupt, s)
	}
	*n--
	return nil
}
