package shardtest

import (
	"bytes"
	"slices"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// What clients ask for: submit, cancel, reschedule.

// deduplicated is what expectSubmit calls the answer to a repetition.
const deduplicated = "deduplicated"

// submit judges the verdict completely: dedup, validation, quota, in this order (DESIGN 3), and one message per key inside its window.
func (m *Model) submit(e *shard.Entry, ordinal uint32, c *shard.Submit, r shard.Result) {
	want, first := m.expectSubmit(c)
	got := ""
	switch {
	case r.Rejected != nil:
		got = string(r.Rejected.Reason)
	case r.Deduplicated:
		got = deduplicated
	}
	if got != want {
		m.fail("submit of %s: %q, want %q (DESIGN 3)", c.ID, got, want)
		return
	}
	if got == deduplicated {
		if r.Ref != (shard.Ref{ID: first, Generation: 1}) || r.Index != m.messages[first].index {
			m.fail("submit of %s: deduplicated to %s-%d at %d, first was %s (3)", c.ID, r.Ref.ID, r.Ref.Generation, r.Index, first)
		}
		return
	}
	if got != "" {
		return
	}
	d := m.newest(c.Namespace, c.Destination)
	msg := &modelMessage{submit: c, lane: modelLane{c.Namespace, c.Destination, c.Slot}, index: e.Index, until: m.clock.Add(d.IdempotencyWindow)}
	m.addGeneration(msg, d, c.DeliverAt, c.ExpireAt, e.Index, ordinal)
	m.messages[c.ID] = msg
	m.order = append(slices.DeleteFunc(m.order, func(id shard.MessageID) bool { return id == c.ID }), c.ID)
	if c.IdempotencyKey != "" {
		m.keys[keyOf(c)] = c.ID
	}
}

func keyOf(c *shard.Submit) modelKey {
	return modelKey{c.Namespace, c.Destination, c.OrderingKey, c.IdempotencyKey}
}

func (m *Model) addGeneration(msg *modelMessage, d *shard.Destination, deliverAt, expireAt policy.Time, index uint64, ordinal uint32) *modelGeneration {
	g := &modelGeneration{
		number: uint32(len(msg.gens)) + 1, pinned: d, deliverAt: max(deliverAt, m.clock), expireAt: expireAt, index: index, ordinal: ordinal,
		state: shard.StateScheduled, touched: true,
	}
	g.deadline = g.deliverAt.Add(max(d.Retry.Lifetime, 0))
	if expireAt != 0 {
		g.deadline = min(g.deadline, expireAt)
	}
	msg.gens = append(msg.gens, g)
	return g
}

func (m *Model) expectSubmit(c *shard.Submit) (want string, first shard.MessageID) {
	if overLimits(c) {
		return "INVALID_ARGUMENT", first
	}
	if id, ok := m.keys[keyOf(c)]; c.IdempotencyKey != "" && ok && m.remembers(id) {
		if !sameContent(c, m.messages[id].submit) {
			return "IDEMPOTENCY_CONFLICT", id
		}
		return deduplicated, id
	}
	if c.ID.Shard() != ShardNumber || c.ID.Incarnation() != Incarnation {
		return "MESSAGE_ID_CONFLICT", first
	}
	if msg := m.messages[c.ID]; msg != nil && !msg.removed {
		if keyOf(c) != keyOf(msg.submit) || !sameContent(c, msg.submit) {
			return "MESSAGE_ID_CONFLICT", first
		}
		return deduplicated, c.ID
	}
	d := m.newest(c.Namespace, c.Destination)
	switch {
	case c.SubmitBy != 0 && m.clock > c.SubmitBy:
		return "SUBMIT_BY_PASSED", first
	case d == nil || d.Deleted:
		return "DESTINATION_NOT_FOUND", first
	case c.OrderingKey != "" && d.Uncertainty.OnUncertain == policy.UncertainRetry && d.Uncertainty.ReceiverDedupWindow == 0:
		return "ORDERING_KEY_NOT_SUPPORTED", first
	case !m.windowIsLegal(c.DeliverAt, c.ExpireAt):
		return "INVALID_DELIVERY_WINDOW", first
	}
	messages, size := m.pending(modelLane{c.Namespace, c.Destination, c.Slot})
	if full := d.Limits.MaxPending; full != 0 && uint64(messages) >= full {
		return "LANE_BACKLOG_FULL", first
	}
	if full := d.Limits.MaxPendingBytes; full != 0 && size+uint64(len(c.Payload)) > full {
		return "LANE_BACKLOG_FULL", first
	}
	return "", first
}

func overLimits(c *shard.Submit) bool {
	total := 0
	for _, a := range c.Attributes {
		total += len(a.Name) + len(a.Value)
	}
	names, keys := max(len(c.Namespace), len(c.Destination)), max(len(c.OrderingKey), len(c.IdempotencyKey))
	return names > shard.MaxDestinationName || keys > shard.MaxKeyBytes || len(c.ContentType) > shard.MaxContentTypeBytes ||
		len(c.TraceParent) > shard.MaxTraceParentBytes || len(c.Payload) > shard.MaxPayloadBytes ||
		len(c.Attributes) > shard.MaxAttributes || total > shard.MaxAttributeBytes
}

func (m *Model) windowIsLegal(deliverAt, expireAt policy.Time) bool {
	if deliverAt > m.clock.Add(shard.MaxHorizon) {
		return false
	}
	return expireAt == 0 || expireAt > m.clock && expireAt > deliverAt && expireAt <= m.clock.Add(shard.MaxExpiry)
}

// remembers tells whether a key's message still answers for it: inside the window, or not terminal, whichever is longer.
func (m *Model) remembers(id shard.MessageID) bool {
	msg := m.messages[id]
	return !msg.removed && (!msg.current().state.Terminal() || m.clock <= msg.until)
}

func sameContent(a, b *shard.Submit) bool {
	return bytes.Equal(a.Payload, b.Payload) && a.ContentType == b.ContentType && slices.Equal(a.Attributes, b.Attributes) &&
		a.DeliverAt == b.DeliverAt && a.ExpireAt == b.ExpireAt && a.OrderingKey == b.OrderingKey
}

// reversible says whether cancel or reschedule must win now: nothing admitted is open, and the generation has not ended.
func (g *modelGeneration) reversible() bool {
	unknown, inFlight := g.open()
	return !g.state.Terminal() && unknown == 0 && inFlight == 0
}

func (m *Model) cancel(c *shard.Cancel, r shard.Result) {
	msg, _ := m.find(c.ID, 0)
	if msg == nil {
		m.mustReject("cancel", r)
		return
	}
	g := msg.current()
	may := g.reversible() && (c.Generation == 0 || c.Generation == g.number)
	if may != (r.Rejected == nil) {
		m.fail("cancel of %s-%d in %s: rejected %v (24, 25)", c.ID, g.number, g.state, r.Rejected)
		return
	}
	if may {
		g.state, g.touched = shard.StateCancelled, true
	}
}

func (m *Model) reschedule(e *shard.Entry, ordinal uint32, c *shard.Reschedule, r shard.Result) {
	msg, _ := m.find(c.ID, 0)
	if msg == nil {
		m.mustReject("reschedule", r)
		return
	}
	for _, g := range msg.gens {
		if c.RequestID != "" && g.request == c.RequestID && !g.removed {
			if !r.Deduplicated || r.Ref.Generation != g.number {
				m.fail("reschedule %q of %s made generation %d already, answer %+v (3)", c.RequestID, c.ID, g.number, r)
			}
			return
		}
	}
	g := msg.current()
	if r.Rejected != nil {
		return
	}
	if !g.reversible() || c.Generation != 0 && c.Generation != g.number {
		m.fail("reschedule of %s-%d in %s was accepted (24, 25)", c.ID, g.number, g.state)
	}
	if r.Deduplicated || r.Ref.Generation != g.number+1 {
		m.fail("reschedule of %s-%d: answer %+v", c.ID, g.number, r)
		return
	}
	expireAt := c.ExpireAt
	if expireAt == 0 {
		expireAt = g.expireAt
	}
	g.state, g.touched = shard.StateSuperseded, true
	next := m.addGeneration(msg, g.pinned, c.DeliverAt, expireAt, e.Index, ordinal)
	next.request = c.RequestID
}

func (m *Model) mustReject(what string, r shard.Result) {
	if r.Rejected == nil {
		m.fail("%s of a message that is not there was accepted: %+v", what, r)
	}
}
