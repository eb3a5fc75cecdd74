package shard

import (
	"fmt"
	"slices"

	"github.com/sealane/sealane/policy"
)

// Idempotency (DESIGN 3). A key is remembered for the destination's window on the shard clock and until its message is terminal,
// whichever is later. That is decided from the record and the message's state, never from whether a clean-up has run (R155).

func (t *tx) remember(c *Submit, until policy.Time) error {
	e := newRecord(48)
	e.raw(c.ID[:])
	e.time(until)
	return t.st.Set(dedupKey(c.Namespace, c.Destination, c.OrderingKey, c.IdempotencyKey), e.b)
}

func decodeDedup(b []byte) (id MessageID, until policy.Time, err error) {
	d := openRecord("dedup", b)
	d.fixed(id[:])
	until = d.time()
	return id, until, d.finish()
}

// deduplicate answers a submit whose key is remembered.
func (t *tx) deduplicate(c *Submit) (r Result, done bool, err error) {
	b, ok, err := t.st.Get(dedupKey(c.Namespace, c.Destination, c.OrderingKey, c.IdempotencyKey))
	if err != nil || !ok {
		return Result{}, false, err
	}
	id, until, err := decodeDedup(b)
	if err != nil {
		return Result{}, false, err
	}
	m, err := t.message(id)
	if err != nil {
		return Result{}, false, err
	}
	if m == nil {
		return Result{}, false, fmt.Errorf("%w: dedup record of %s without its message", ErrCorrupt, id)
	}
	g, err := t.current(m)
	if err != nil {
		return Result{}, false, err
	}
	if g.State.Terminal() && t.now > until {
		return Result{}, false, nil
	}
	r, err = t.repeat(c, m)
	return r, true, err
}

// repeatedID answers a submit whose id exists: the same command proposed twice, or a caller that reused an id.
func (t *tx) repeatedID(c *Submit) (r Result, done bool, err error) {
	if !t.m.owns(c.ID) {
		return Result{Rejected: ErrMessageIDConflict.with("message_id", "%s was made for shard %d of another place", c.ID, c.ID.Shard())}, true, nil
	}
	b, ok, err := t.st.Get(messageKey(c.ID.Local()))
	if err != nil || !ok {
		return Result{}, false, err
	}
	m, err := decodeMessage(b)
	if err != nil {
		return Result{}, false, err
	}
	if m.ID != c.ID || m.IdempotencyKey != c.IdempotencyKey || m.Namespace != c.Namespace || m.Destination != c.Destination || difference(c, m) != "" {
		return Result{Rejected: ErrMessageIDConflict.with("message_id", "%s exists", c.ID)}, true, nil
	}
	r, err = t.repeat(c, m)
	return r, true, err
}

// repeat gives the first answer again, or names the field that differs.
func (t *tx) repeat(c *Submit, m *Message) (Result, error) {
	if field := difference(c, m); field != "" {
		return Result{Rejected: ErrIdempotencyConflict.with(field, "the key was first used for %s with another %s", m.ID, field)}, nil
	}
	g, err := t.current(m)
	if err != nil {
		return Result{}, err
	}
	return Result{Ref: Ref{m.ID, 1}, Index: m.AcceptedIndex, Deduplicated: true, State: g.State}, nil
}

// difference names the first field of a submit that is not what the message was accepted with, "" if they are the same.
// The trace context may differ: a retry is a new span.
func difference(c *Submit, m *Message) string {
	switch {
	case c.PayloadHash != m.PayloadHash || uint64(len(c.Payload)) != m.PayloadBytes:
		return "payload"
	case c.ContentType != m.ContentType:
		return "content_type"
	case !slices.Equal(c.Attributes, m.Attributes):
		return "attributes"
	case c.DeliverAt != m.DeliverAt:
		return "deliver_at"
	case c.ExpireAt != m.ExpireAt:
		return "expire_at"
	case c.OrderingKey != m.OrderingKey:
		return "ordering_key"
	}
	return ""
}

// current loads a message's current generation, which exists as long as the message does.
func (t *tx) current(m *Message) (*Generation, error) {
	g, err := t.generation(Ref{m.ID, m.Current})
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, fmt.Errorf("%w: generation %d of %s is missing", ErrCorrupt, m.Current, m.ID)
	}
	return g, nil
}
