package shard

import (
	"fmt"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
)

// admit is the point of no return (R171): it consumes the attempt number and records what will be sent, if every precondition still
// holds at this position (B.6). Otherwise the claim is stale: nothing changes and no attempt is used.
func (t *tx) admit(c *Admit) (Result, error) {
	ref := Ref{c.ID, c.Generation}
	g, err := t.generation(ref)
	if err != nil {
		return Result{}, err
	}
	if g == nil {
		return Result{Rejected: ErrStale.with("generation", "%s-%d is not here", c.ID, c.Generation)}, nil
	}
	l, err := t.lane(g.Lane)
	if err != nil {
		return Result{}, err
	}
	d, err := t.destination(l.Namespace, l.Destination, g.DestinationVersion)
	if err != nil {
		return Result{}, err
	}
	target, err := l.targetRecord(g.Target)
	if err != nil {
		return Result{}, err
	}
	circuit := &target.Circuit
	if rej := t.checkAdmit(c, g, l, circuit); rej != nil {
		return Result{Ref: ref, Attempt: c.Attempt, Rejected: rej, State: g.State}, nil
	}
	if g.Work == WorkUncertainRetry && dedupClosed(t.now, g, d) {
		if err := t.dedupWindowClosed(ref, g, d); err != nil {
			return Result{}, err
		}
		stale := ErrStale.with("dedup_window", "the retry could no longer end inside it")
		return Result{Ref: ref, Attempt: c.Attempt, Rejected: stale, State: g.State}, nil
	}
	return t.admitNow(c, ref, g, d, circuit)
}

// checkAdmit reads only replicated state and stamped time.
func (t *tx) checkAdmit(c *Admit, g *Generation, l *LaneRecord, circuit *lane.CircuitState) *Rejection {
	switch {
	case g.State.Terminal():
		return ErrStale.with("state", "%s", g.State)
	case g.Work == WorkNone:
		return ErrStale.with("work", "none")
	case c.Attempt != g.Attempts+1:
		return ErrStale.with("attempt", "%d, the next is %d", c.Attempt, g.Attempts+1)
	case !g.waiting():
		return ErrStale.with("order", "another generation holds the ordering key")
	case g.NextAt > t.now:
		return ErrStale.with("due", "not before %d", g.NextAt)
	case g.Deadline <= t.now:
		return ErrStale.with("deadline", "passed")
	case l.Gate != lane.GateOpen:
		return ErrStale.with("gate", "%s", l.Gate)
	case !circuit.Allows(t.now):
		return ErrStale.with("circuit", "%s", circuit.Phase)
	}
	return nil
}

// dedupClosed tells whether a permitted retry can no longer end inside the window in which the receiver promises to tell it apart.
func dedupClosed(now policy.Time, g *Generation, d *Destination) bool {
	w := d.Uncertainty.ReceiverDedupWindow
	return w > 0 && now.Add(d.Timeout) > g.FirstAdmittedAt.Add(w)
}

func (t *tx) dedupWindowClosed(ref Ref, g *Generation, d *Destination) error {
	if err := t.clearWork(ref.ID, g); err != nil {
		return err
	}
	if policy.WhenUncertainExhausted(d.Uncertainty) == policy.GiveUpUncertain {
		if err := t.giveUp(ref, g, ReasonUncertaintyGiveUp, "policy"); err != nil {
			return err
		}
	}
	return t.saveGeneration(ref.ID, g)
}

func (t *tx) admitNow(c *Admit, ref Ref, g *Generation, d *Destination, circuit *lane.CircuitState) (Result, error) {
	l, err := t.lane(g.Lane)
	if err != nil {
		return Result{}, err
	}
	a := &Attempt{
		Number: c.Attempt, AdmittedAt: t.now, AdmittedIndex: t.e.Index, Owner: t.e.Owner, RequestHash: c.RequestHash,
		Deadline: t.now.Add(d.Timeout), Work: g.Work, Trial: circuit.Phase == lane.CircuitHalfOpen,
		DuplicateSafe: g.Work == WorkUncertainRetry && d.Uncertainty.ReceiverDedupWindow > 0,
	}
	if a.Trial {
		if err := t.circuitEvent(l, g.Target, lane.EventTrialStarted, a.Deadline); err != nil {
			return Result{}, err
		}
	}
	if err := t.st.Delete(dueKey(g, ref.ID.Local())); err != nil {
		return Result{}, err
	}
	if g.Work == WorkUncertainRetry || g.Work == WorkOperatorRetry {
		g.UncertainRetries++
	}
	// A second request while an earlier one may have taken effect is a possible duplicate, unless the receiver promised to drop it.
	if g.OpenUnknown > 0 && !a.DuplicateSafe {
		g.PossibleDuplicate = true
	}
	g.Work, g.NextAt, g.NextReason = WorkNone, 0, ""
	g.Attempts++
	g.OpenInFlight++
	if g.FirstAdmittedAt == 0 {
		g.FirstAdmittedAt = t.now
	}
	l.Counts.OpenAttempts++
	if err := t.settleState(g); err != nil {
		return Result{}, err
	}
	open := OpenAttempt{Ref: ref, Attempt: a.Number, Lane: g.Lane, Target: g.Target, Owner: a.Owner, Deadline: a.Deadline, Trial: a.Trial}
	if err := t.st.Set(openAttemptKey(ref.ID.Local(), ref.Generation, a.Number), encodeOpenAttempt(&open)); err != nil {
		return Result{}, err
	}
	if err := t.saveAttempt(ref, a); err != nil {
		return Result{}, err
	}
	t.emit(Effect{Kind: EffectAdmitted, Ref: ref, Lane: g.Lane, Target: g.Target, Attempt: a.Number, Due: a.Deadline})
	return Result{Ref: ref, Attempt: a.Number, State: g.State}, t.saveGeneration(ref.ID, g)
}

// OpenAttempt is an admitted attempt without an outcome, as the index of open attempts holds it.
type OpenAttempt struct {
	Ref      Ref
	Attempt  uint32
	Lane     LaneID
	Target   TargetID
	Owner    Epoch
	Deadline policy.Time
	Trial    bool
	Cursor   OpenCursor
}

func encodeOpenAttempt(o *OpenAttempt) []byte {
	e := encoder{b: idTail(o.Ref.ID)}
	e.u32(uint32(o.Lane))
	e.u32(uint32(o.Target))
	e.epoch(o.Owner)
	e.time(o.Deadline)
	e.bool(o.Trial)
	return e.b
}

func decodeOpenAttempt(key, value []byte) (OpenAttempt, error) {
	var o OpenAttempt
	if len(key) != 1+16+4+4 || len(value) < 11 {
		return o, fmt.Errorf("%w: open attempt entry of %d and %d bytes", ErrCorrupt, len(key), len(value))
	}
	id, err := idFromTail(key[1:17], value)
	if err != nil {
		return o, err
	}
	d := decoder{b: value[11:], what: "open attempt"}
	o = OpenAttempt{
		Ref: Ref{id, be32(key[17:])}, Attempt: be32(key[21:]), Lane: LaneID(d.u32()), Target: TargetID(d.u32()), Owner: d.epoch(),
		Deadline: d.time(), Trial: d.bool(), Cursor: OpenCursor(append([]byte(nil), key...)),
	}
	return o, d.finish()
}
