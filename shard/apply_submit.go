package shard

import (
	"time"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
)

// submit takes responsibility for a message, or says why not. The order is shape, dedup, validation, quota (DESIGN 3): a retry of what was
// accepted is never refused for a limit that was reached since.
func (t *tx) submit(c *Submit) (Result, error) {
	if rej := c.shape(); rej != nil {
		return Result{Rejected: rej}, nil
	}
	if c.IdempotencyKey != "" {
		if r, done, err := t.deduplicate(c); done || err != nil {
			return r, err
		}
	}
	if r, done, err := t.repeatedID(c); done || err != nil {
		return r, err
	}
	d, err := t.newest(c.Namespace, c.Destination)
	if err != nil {
		return Result{}, err
	}
	if rej := t.checkSubmit(c, d); rej != nil {
		return Result{Rejected: rej}, nil
	}
	name := laneName{c.Namespace, c.Destination, c.Slot}
	id, known, err := t.laneID(name)
	if err != nil {
		return Result{}, err
	}
	l := &LaneRecord{Destination: c.Destination, Slot: c.Slot} // as empty as a lane that is not there yet
	if known {
		if l, err = t.lane(id); err != nil {
			return Result{}, err
		}
	}
	if rej := checkRoom(l, d, c); rej != nil {
		return Result{Rejected: rej}, nil
	}
	if !known {
		if l, err = t.createLane(name); err != nil {
			return Result{}, err
		}
	}
	return t.accept(c, d, l)
}

// checkSubmit is what can be said without looking at the lane.
func (t *tx) checkSubmit(c *Submit, d *Destination) *Rejection {
	if c.SubmitBy != 0 && t.now > c.SubmitBy {
		return ErrSubmitByPassed.with("submit_by", "the shard clock has passed it by %s", t.now.Sub(c.SubmitBy))
	}
	if d == nil || d.Deleted {
		return ErrDestinationUnknown.with("destination", "%q has no installed version", c.Destination)
	}
	if c.OrderingKey != "" && d.Uncertainty.OnUncertain == policy.UncertainRetry && d.Uncertainty.ReceiverDedupWindow == 0 {
		return ErrOrderingKey.with("ordering_key", "the destination retries uncertain attempts without receiver dedup")
	}
	return checkWindow(t.now, c.DeliverAt, c.ExpireAt)
}

// checkWindow is R168 on stamped time: a past deliver_at means due now.
func checkWindow(now, deliverAt, expireAt policy.Time) *Rejection {
	if deliverAt > now.Add(MaxHorizon) {
		return ErrDeliveryWindow.with("deliver_at", "is more than %s ahead", time.Duration(MaxHorizon))
	}
	if expireAt == 0 {
		return nil
	}
	if expireAt <= max(now, deliverAt) {
		return ErrDeliveryWindow.with("expire_at", "is not later than deliver_at and the time of acceptance")
	}
	if expireAt > now.Add(MaxExpiry) {
		return ErrDeliveryWindow.with("expire_at", "is more than %s ahead", time.Duration(MaxExpiry))
	}
	return nil
}

func checkRoom(l *LaneRecord, d *Destination, c *Submit) *Rejection {
	if l.Gate == lane.GateClosed {
		return ErrLaneClosed.with("destination", "%s slot %d", l.Destination, l.Slot)
	}
	messages, bytes := d.Limits.MaxPending, d.Limits.MaxPendingBytes
	if messages == 0 {
		messages = DefaultLaneMessages
	}
	if bytes == 0 {
		bytes = DefaultLaneBytes
	}
	if l.Counts.Pending() >= messages {
		return ErrBacklogFull.with("destination", "%s holds its maximum of %d messages", l.Destination, messages)
	}
	if l.Counts.PendingBytes+uint64(len(c.Payload)) > bytes {
		return ErrBacklogFull.with("destination", "%s holds its maximum of %d payload bytes", l.Destination, bytes)
	}
	return nil
}

func (t *tx) createLane(n laneName) (*LaneRecord, error) {
	l := &LaneRecord{ID: t.meta.NextLane, Namespace: n.namespace, Destination: n.destination, Slot: n.slot, CreatedAt: t.now}
	t.meta.NextLane++
	e := newRecord(8)
	e.u32(uint32(l.ID))
	if err := t.st.Set(laneNameKey(n.namespace, n.destination, n.slot), e.b); err != nil {
		return nil, err
	}
	t.m.rememberLane(n, l.ID)
	t.keepLane(l)
	return l, nil
}

// target finds or numbers the target that a destination version points at.
func (t *tx) target(l *LaneRecord, key string) TargetID {
	for i := len(l.Targets) - 1; i >= 0; i-- {
		if l.Targets[i].Key == key {
			return l.Targets[i].ID
		}
	}
	id := TargetID(len(l.Targets) + 1)
	l.Targets = append(l.Targets, TargetRecord{ID: id, Key: key, ChangedAt: t.now})
	t.emit(Effect{Kind: EffectLane, Lane: l.ID, Target: id})
	return id
}

// accept writes the message, its payload, its first generation and what finds them.
func (t *tx) accept(c *Submit, d *Destination, l *LaneRecord) (Result, error) {
	id := c.ID.Local()
	m := &Message{
		ID: c.ID, Namespace: c.Namespace, Destination: c.Destination, Slot: c.Slot, Lane: l.ID, OrderingKey: c.OrderingKey,
		IdempotencyKey: c.IdempotencyKey, ContentType: c.ContentType, TraceParent: c.TraceParent, Attributes: c.Attributes,
		PayloadHash: c.PayloadHash, PayloadBytes: uint64(len(c.Payload)), DeliverAt: c.DeliverAt, ExpireAt: c.ExpireAt,
		AcceptedAt: t.now, AcceptedIndex: t.e.Index, Current: 1, Kept: 1,
	}
	g := t.newGeneration(m, d, t.target(l, d.TargetKey), 1)
	g.Origin = OriginSubmit
	if err := t.saveMessage(m); err != nil {
		return Result{}, err
	}
	if err := t.st.Set(payloadKey(id), c.Payload); err != nil {
		return Result{}, err
	}
	if err := t.st.Set(laneMessageKey(l.ID, id), idTail(c.ID)); err != nil {
		return Result{}, err
	}
	if c.IdempotencyKey != "" {
		if err := t.remember(c, t.now.Add(d.IdempotencyWindow)); err != nil {
			return Result{}, err
		}
	}
	t.meta.Submitted++
	return Result{Ref: Ref{c.ID, 1}, State: StateScheduled}, t.beginGeneration(m, g, c)
}

// newGeneration fills in what every origin has in common. A deliver_at in the past counts as the time of acceptance, so that generations
// with one ordering key keep the order of their positions.
func (t *tx) newGeneration(m *Message, d *Destination, target TargetID, number uint32) *Generation {
	g := &Generation{
		Number: number, Lane: m.Lane, Target: target, DestinationVersion: d.Version, CreatedAt: t.now, CreatedIndex: t.e.Index,
		CreatedOrdinal: t.ordinal, DeliverAt: max(m.DeliverAt, t.now), ExpireAt: m.ExpireAt, Ordered: m.OrderingKey != "",
		PayloadBytes: m.PayloadBytes,
	}
	g.Deadline, g.DeadlineByLifetime = policy.GenerationDeadline(t.now, g.DeliverAt, g.ExpireAt, d.Retry.Lifetime)
	return g
}
