package shard

import (
	"fmt"

	"github.com/sealane/sealane/policy"
)

// trim removes generations of one lane and state that ended at or before the leader's bound (DESIGN 8, retention). The leader chooses only
// what may be removed; what is not terminal, still has an attempt in flight, or is the last trace of a remembered idempotency key stays.
func (t *tx) trim(c *Trim) (Result, error) {
	if !c.State.Terminal() || c.Lane == 0 || c.Lane >= t.meta.NextLane {
		return Result{Rejected: ErrLaneNotFound.with("lane", "%d, state %s", c.Lane, c.State)}, nil
	}
	refs, err := t.trimmable(c)
	if err != nil {
		return Result{}, err
	}
	var r Result
	for _, ref := range refs {
		if r.Removed >= min(c.Max, MaxTrim) {
			break
		}
		removed, err := t.trimOne(ref)
		if err != nil {
			return Result{}, err
		}
		if removed {
			r.Removed++
		}
	}
	return r, nil
}

func (t *tx) trimmable(c *Trim) ([]Ref, error) {
	var refs []Ref
	prefix := terminalPrefix(c.Lane, c.State)
	upper := keyBuilder(append([]byte(nil), prefix...)).time(c.Before.Add(1))
	err := t.st.Scan(prefix, upper, false, func(k, v []byte) (bool, error) {
		ref, err := refFromIndex(k[min(len(prefix)+8, len(k)):], v)
		refs = append(refs, ref)
		return len(refs) < MaxTrimScan, err
	})
	return refs, err
}

func (t *tx) trimOne(ref Ref) (bool, error) {
	g, err := t.generation(ref)
	if err != nil {
		return false, err
	}
	m, err := t.message(ref.ID)
	if err != nil {
		return false, err
	}
	if g == nil || m == nil || !g.State.Terminal() {
		return false, fmt.Errorf("%w: %s-%d is in the terminal index", ErrCorrupt, ref.ID, ref.Generation)
	}
	if g.OpenInFlight > 0 {
		return false, nil
	}
	last := m.Kept == 1
	if !last && g.Number == m.Current {
		return false, nil // the newest answers for the message; it goes last
	}
	if last {
		kept, err := t.forget(m)
		if err != nil || kept {
			return false, err
		}
	}
	if err := t.removeGeneration(m, g); err != nil {
		return false, err
	}
	m.Kept--
	m.TrimmedUnknown += g.OpenUnknown
	if !last {
		return true, t.saveMessage(m)
	}
	return true, t.removeMessage(m)
}

// forget drops the message's idempotency record if its window has passed, and says whether the message must be kept for it.
func (t *tx) forget(m *Message) (kept bool, err error) {
	if m.IdempotencyKey == "" {
		return false, nil
	}
	key := dedupKey(m.Namespace, m.Destination, m.OrderingKey, m.IdempotencyKey)
	b, ok, err := t.st.Get(key)
	if err != nil || !ok {
		return false, err
	}
	id, until, err := decodeDedup(b)
	if err != nil {
		return false, err
	}
	if id != m.ID {
		return false, nil // the key was used again after its window
	}
	if t.now <= until {
		return true, nil
	}
	return false, t.st.Delete(key)
}

func (t *tx) removeGeneration(m *Message, g *Generation) error {
	id := m.ID.Local()
	for n := uint32(1); n <= g.Attempts; n++ {
		if err := t.st.Delete(attemptKey(id, g.Number, n)); err != nil {
			return err
		}
	}
	if g.State == StateDeadLettered || g.State == StateExpired {
		if err := t.st.Delete(deadLetterKey(id, g.Number)); err != nil {
			return err
		}
		if err := t.st.Delete(deadLetterTimeKey(g.TerminalAt, id, g.Number)); err != nil {
			return err
		}
	}
	if err := t.st.Delete(terminalKey(g, id)); err != nil {
		return err
	}
	if err := t.st.Delete(generationKey(id, g.Number)); err != nil {
		return err
	}
	l, err := t.lane(g.Lane)
	if err != nil {
		return err
	}
	return l.Counts.leave(g.State)
}

func (t *tx) removeMessage(m *Message) error {
	id := m.ID.Local()
	for _, k := range [][]byte{messageKey(id), payloadKey(id), laneMessageKey(m.Lane, id)} {
		if err := t.st.Delete(k); err != nil {
			return err
		}
	}
	if m.TrimmedUnknown == 0 {
		return nil
	}
	stone := Tombstone{ID: m.ID, Reason: "RETENTION", At: t.now, UnknownAttempts: m.TrimmedUnknown}
	return t.st.Set(tombstoneKey(id), encodeTombstone(&stone))
}

// Tombstone is what stays of a removed message that needs an explanation.
type Tombstone struct {
	ID              MessageID
	Reason          string // RETENTION, PURGE
	Actor           string
	At              policy.Time
	UnknownAttempts uint32 // attempts that were still UNKNOWN
}

func encodeTombstone(s *Tombstone) []byte {
	e := newRecord(64)
	e.raw(s.ID[:])
	e.text(s.Reason)
	e.text(s.Actor)
	e.time(s.At)
	e.u32(s.UnknownAttempts)
	return e.b
}

func decodeTombstone(b []byte) (*Tombstone, error) {
	d := openRecord("tombstone", b)
	s := &Tombstone{}
	d.fixed(s.ID[:])
	s.Reason, s.Actor, s.At, s.UnknownAttempts = d.text(), d.text(), d.time(), d.u32()
	return s, d.finish()
}
