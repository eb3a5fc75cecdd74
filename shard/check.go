package shard

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/sealane/sealane/policy"
)

// Digest hashes the whole state in key order. Two replicas at the same applied index have the same digest (I1).
func Digest(r Reader) ([32]byte, error) {
	h := sha256.New()
	var n [8]byte
	err := r.Scan(nil, nil, false, func(k, v []byte) (bool, error) {
		binary.BigEndian.PutUint32(n[:4], uint32(len(k)))
		binary.BigEndian.PutUint32(n[4:], uint32(len(v)))
		h.Write(n[:])
		h.Write(k)
		h.Write(v)
		return true, nil
	})
	var d [32]byte
	h.Sum(d[:0])
	return d, err
}

// Check recounts a shard's state from its records and compares it with every counter and index (I8). It returns what does not agree, in
// a fixed order; an empty list means that the books balance. Memory grows with the number of lanes, not of messages.
func Check(r Reader) ([]string, error) {
	c := &checker{r: r, lanes: map[LaneID]*LaneCounts{}}
	steps := []func() error{c.generations, c.messages, c.dueIndex, c.deadlineIndex, c.openIndex, c.uncertainIndex, c.terminalIndex, c.deadLetters, c.orderIndex, c.dedup, c.compareLanes}
	for _, step := range steps {
		if err := step(); err != nil {
			return c.problems, err
		}
	}
	return c.problems, nil
}

// maxProblems bounds the report; a state this broken needs no longer list.
const maxProblems = 1000

type checker struct {
	r        Reader
	problems []string
	lanes    map[LaneID]*LaneCounts
}

func (c *checker) report(format string, args ...any) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

func (c *checker) counts(l LaneID) *LaneCounts {
	if c.lanes[l] == nil {
		c.lanes[l] = &LaneCounts{}
	}
	return c.lanes[l]
}

func (c *checker) each(kind byte, fn func(k, v []byte) error) error {
	return c.r.Scan(newKey(kind), newKey(kind+1), false, func(k, v []byte) (bool, error) { return true, fn(k, v) })
}

func (c *checker) has(what string, ref Ref, key []byte, want bool) error {
	_, ok, err := c.r.Get(key)
	if err == nil && ok != want {
		c.report("%s-%d: %s entry present=%v, want %v", ref.ID, ref.Generation, what, ok, want)
	}
	return err
}

// generations walks every generation, recounts its attempts, and looks for the index entries it must and must not have.
func (c *checker) generations() error {
	return c.each(keyGeneration, func(k, v []byte) error {
		g, err := decodeGeneration(v)
		if err != nil {
			return err
		}
		if len(k) != 1+16+4 {
			return fmt.Errorf("%w: generation key of %d bytes", ErrCorrupt, len(k))
		}
		var local LocalID
		copy(local[:], k[1:17])
		b, ok, err := c.r.Get(messageKey(local))
		if err != nil {
			return err
		}
		if !ok {
			c.report("generation %x-%d has no message", local, g.Number)
			return nil
		}
		m, err := decodeMessage(b)
		if err != nil {
			return err
		}
		return c.generation(m, g)
	})
}

func (c *checker) generation(m *Message, g *Generation) error {
	ref := Ref{m.ID, g.Number}
	n := c.counts(g.Lane)
	n.enter(g.State)
	if !g.State.Terminal() {
		n.PendingBytes += g.PayloadBytes
		if g.Number != m.Current {
			c.report("%s-%d is %s but generation %d is current", m.ID, g.Number, g.State, m.Current)
		}
	}
	if err := c.attempts(ref, g, n); err != nil {
		return err
	}
	id := m.ID.Local()
	if g.Work != WorkNone && g.State.Terminal() {
		c.report("%s-%d is %s and has work", m.ID, g.Number, g.State)
	}
	if g.waiting() {
		if err := c.has("due", ref, dueKey(g, id), true); err != nil {
			return err
		}
	}
	if err := c.has("deadline", ref, deadlineKey(g.Deadline, id, g.Number), g.DeadlineArmed); err != nil {
		return err
	}
	if g.Ordered {
		if err := c.has("order", ref, orderKey(m, g), !g.State.Terminal()); err != nil {
			return err
		}
	}
	if g.State.Terminal() {
		if err := c.has("terminal", ref, terminalKey(g, id), true); err != nil {
			return err
		}
	}
	dead := g.State == StateDeadLettered || g.State == StateExpired
	return c.has("dead letter", ref, deadLetterKey(id, g.Number), dead)
}

func (c *checker) attempts(ref Ref, g *Generation, n *LaneCounts) error {
	var unknown, open, number uint32
	id := ref.ID.Local()
	for number = 1; number <= g.Attempts; number++ {
		a, err := loadAttempt(c.r, id, g.Number, number)
		if err != nil {
			return err
		}
		if a == nil {
			c.report("%s-%d: attempt %d of %d is missing", ref.ID, g.Number, number, g.Attempts)
			break // the number may be the damage; the recount below tells the rest
		}
		if !a.Settled {
			open++
		}
		inbox := a.Settled && a.SideEffect == policy.Unknown
		if inbox {
			unknown++
		}
		if err := c.has("open attempt", ref, openAttemptKey(id, g.Number, number), !a.Settled); err != nil {
			return err
		}
		if a.Settled {
			if err := c.has("uncertain", ref, uncertainKey(a.OutcomeAt, id, g.Number, number), inbox && !g.State.Terminal()); err != nil {
				return err
			}
		}
	}
	n.OpenAttempts += uint64(open)
	if unknown != g.OpenUnknown || open != g.OpenInFlight {
		c.report("%s-%d: counts %d unknown, %d in flight; recount %d, %d", ref.ID, g.Number, g.OpenUnknown, g.OpenInFlight, unknown, open)
	}
	if want := c.stateOf(g); !g.State.Terminal() && g.State != want {
		c.report("%s-%d: is %s, its attempts say %s", ref.ID, g.Number, g.State, want)
	}
	return c.has("attempt past the last", ref, attemptKey(id, g.Number, g.Attempts+1), false)
}

func (c *checker) stateOf(g *Generation) GenerationState {
	switch {
	case g.OpenUnknown > 0:
		return StateUncertain
	case g.OpenInFlight > 0:
		return StateInFlight
	case g.Attempts > 0:
		return StateRetryWait
	}
	return StateScheduled
}

// messages checks that every message has its payload, its listing entry and its generations.
func (c *checker) messages() error {
	return c.each(keyMessage, func(_, v []byte) error {
		m, err := decodeMessage(v)
		if err != nil {
			return err
		}
		ref := Ref{m.ID, m.Current}
		id := m.ID.Local()
		p, ok, err := c.r.Get(payloadKey(id))
		if err != nil {
			return err
		}
		if !ok || uint64(len(p)) != m.PayloadBytes || sha256.Sum256(p) != m.PayloadHash {
			c.report("%s: payload is missing or not what was accepted", m.ID)
		}
		if err := c.has("lane message", ref, laneMessageKey(m.Lane, id), true); err != nil {
			return err
		}
		if err := c.has("generation", ref, generationKey(id, m.Current), true); err != nil {
			return err
		}
		var kept uint32
		prefix := generationPrefix(id)
		err = c.r.Scan(prefix, after(prefix), false, func(_, _ []byte) (bool, error) {
			kept++
			return true, nil
		})
		if err != nil {
			return err
		}
		if kept != m.Kept {
			c.report("%s: keeps %d generations, recount %d", m.ID, m.Kept, kept)
		}
		return nil
	})
}

// compareLanes compares the recount with each lane's counters.
func (c *checker) compareLanes() error {
	err := c.each(keyLane, func(_, v []byte) error {
		l, err := decodeLane(v)
		if err != nil {
			return err
		}
		want := c.counts(l.ID)
		if l.Counts != *want {
			c.report("lane %d (%s/%s slot %d): counts %+v, recount %+v", l.ID, l.Namespace, l.Destination, l.Slot, l.Counts, *want)
		}
		delete(c.lanes, l.ID)
		return c.has("lane name", Ref{}, laneNameKey(l.Namespace, l.Destination, l.Slot), true)
	})
	left := make([]LaneID, 0, len(c.lanes))
	for id := range c.lanes { //nolint:maprange // sorted below
		left = append(left, id)
	}
	sort.Slice(left, func(i, j int) bool { return left[i] < left[j] })
	for _, id := range left {
		if *c.lanes[id] != (LaneCounts{}) {
			c.report("lane %d has generations but no record", id)
		}
	}
	return err
}
