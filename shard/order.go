package shard

import (
	"crypto/sha256"
	"fmt"
)

// Ordering keys (DESIGN 4, invariant 42). Of the generations of one lane that share an ordering key, only the head has an entry in the due
// index; the others wait in the order index, sorted by (deliver_at, position). An admitted head stays the head until it is terminal.

// orderHash shortens an ordering key to a fixed part of a key. Equal keys meet; that different ones do would take a SHA-256 collision.
func orderHash(key string) (h [16]byte) {
	full := sha256.Sum256([]byte(key))
	copy(h[:], full[:])
	return h
}

// orderHead is who holds an ordering key. afterUnknown says that an earlier holder was given up while it might still take effect.
type orderHead struct {
	ref          Ref
	afterUnknown bool
}

func (t *tx) loadOrderHead(m *Message) (*orderHead, error) {
	b, ok, err := t.st.Get(orderHeadKey(m))
	if err != nil || !ok {
		return nil, err
	}
	return decodeOrderHead(b)
}

func decodeOrderHead(b []byte) (*orderHead, error) {
	d := openRecord("order head", b)
	h := &orderHead{}
	d.fixed(h.ref.ID[:])
	h.ref.Generation = d.u32()
	h.afterUnknown = d.bool()
	return h, d.finish()
}

func (t *tx) saveOrderHead(m *Message, h *orderHead) error {
	e := newRecord(40)
	e.raw(h.ref.ID[:])
	e.u32(h.ref.Generation)
	e.bool(h.afterUnknown)
	return t.st.Set(orderHeadKey(m), e.b)
}

// enterOrder queues a new generation under its key and tells whether it is the head. It takes the place of a head that comes later
// in order and was never admitted.
func (t *tx) enterOrder(m *Message, g *Generation) (head bool, err error) {
	if err := t.st.Set(orderKey(m, g), idTail(m.ID)); err != nil {
		return false, err
	}
	h, err := t.loadOrderHead(m)
	if err != nil {
		return false, err
	}
	if h == nil {
		h = &orderHead{}
	} else {
		old, err := t.generation(h.ref)
		if err != nil {
			return false, err
		}
		if old == nil {
			return false, fmt.Errorf("%w: order head %s-%d is missing", ErrCorrupt, h.ref.ID, h.ref.Generation)
		}
		if old.Attempts > 0 || !g.before(old) {
			return false, nil
		}
		if err := t.stepBack(h.ref.ID, old); err != nil {
			return false, err
		}
	}
	h.ref = Ref{m.ID, g.Number}
	g.OrderHead = true
	g.OrderAfterUnknown = h.afterUnknown
	return true, t.saveOrderHead(m, h)
}

// before is the order of generations under one key: (deliver_at, position).
func (g *Generation) before(o *Generation) bool {
	if g.DeliverAt != o.DeliverAt {
		return g.DeliverAt < o.DeliverAt
	}
	if g.CreatedIndex != o.CreatedIndex {
		return g.CreatedIndex < o.CreatedIndex
	}
	return g.CreatedOrdinal < o.CreatedOrdinal
}

// stepBack takes a head that was never admitted back into the queue. It keeps its work.
func (t *tx) stepBack(id MessageID, g *Generation) error {
	if err := t.st.Delete(dueKey(g, id.Local())); err != nil {
		return err
	}
	t.emit(Effect{Kind: EffectWorkGone, Ref: Ref{id, g.Number}, Lane: g.Lane, Target: g.Target})
	g.OrderHead = false
	return t.saveGeneration(id, g)
}

// leaveOrder is called when an ordered generation became terminal: it leaves the queue, and if it was the head the next one follows.
func (t *tx) leaveOrder(id MessageID, g *Generation) error {
	m, err := t.message(id)
	if err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("%w: message %s is missing", ErrCorrupt, id)
	}
	if err := t.st.Delete(orderKey(m, g)); err != nil {
		return err
	}
	if !g.OrderHead {
		return nil
	}
	g.OrderHead = false
	h, err := t.loadOrderHead(m)
	if err != nil {
		return err
	}
	unsafe := h != nil && h.afterUnknown || g.OpenUnknown > 0 && g.State == StateDeadLettered
	return t.promote(m, unsafe)
}

// promote makes the first of the queue the head, or forgets the key when nobody waits.
func (t *tx) promote(m *Message, afterUnknown bool) error {
	var next MessageID
	var number uint32
	prefix := orderPrefix(m)
	err := t.st.Scan(prefix, after(prefix), false, func(k, v []byte) (bool, error) {
		k = k[min(len(prefix)+8+8+4, len(k)):]
		if len(k) != 20 {
			return false, fmt.Errorf("%w: order key of %d bytes", ErrCorrupt, len(k))
		}
		var err error
		next, err = idFromTail(k[:16], v)
		number = be32(k[16:])
		return false, err
	})
	if err != nil {
		return err
	}
	if next.IsZero() {
		return t.st.Delete(orderHeadKey(m))
	}
	ref := Ref{next, number}
	g, err := t.generation(ref)
	if err != nil {
		return err
	}
	if g == nil || g.State.Terminal() {
		return fmt.Errorf("%w: %s-%d waits in order but is not pending", ErrCorrupt, next, number)
	}
	g.OrderHead = true
	g.OrderAfterUnknown = afterUnknown
	if err := t.setDue(next, g, nil); err != nil {
		return err
	}
	if err := t.saveGeneration(next, g); err != nil {
		return err
	}
	return t.saveOrderHead(m, &orderHead{ref: ref, afterUnknown: afterUnknown})
}
