package shard

import "github.com/sealane/sealane/policy"

// The other direction of check.go: every index entry must have the record that explains it.

func (c *checker) explained(what string, ref Ref, fits func(g *Generation) bool) error {
	g, err := loadGeneration(c.r, ref.ID.Local(), ref.Generation)
	if err != nil {
		return err
	}
	if g == nil || !fits(g) {
		c.report("%s-%d: %s entry without a record that explains it", ref.ID, ref.Generation, what)
	}
	return nil
}

func (c *checker) dueIndex() error {
	return c.each(keyDue, func(k, v []byte) error {
		const lead = 1 + 4 + 4 + 8 + 8 + 4
		ref, err := refFromIndex(k[min(lead, len(k)):], v[:min(11, len(v))])
		if err != nil {
			return err
		}
		return c.explained("due", ref, func(g *Generation) bool {
			return g.waiting() && string(dueKey(g, ref.ID.Local())) == string(k) && len(v) == 12 && Work(v[11]) == g.Work
		})
	})
}

func (c *checker) deadlineIndex() error {
	return c.each(keyDeadline, func(k, v []byte) error {
		ref, err := refFromIndex(k[min(9, len(k)):], v)
		if err != nil {
			return err
		}
		return c.explained("deadline", ref, func(g *Generation) bool {
			return g.DeadlineArmed && !g.State.Terminal() && g.Deadline == timeFromOrdered(be64(k[1:]))
		})
	})
}

func (c *checker) openIndex() error {
	return c.each(keyOpenAttempt, func(k, v []byte) error {
		o, err := decodeOpenAttempt(k, v)
		if err != nil {
			return err
		}
		a, err := loadAttempt(c.r, o.Ref.ID.Local(), o.Ref.Generation, o.Attempt)
		if err != nil {
			return err
		}
		if a == nil || a.Settled || a.Owner != o.Owner || a.Deadline != o.Deadline {
			c.report("%s-%d: open attempt %d without a record that explains it", o.Ref.ID, o.Ref.Generation, o.Attempt)
		}
		return nil
	})
}

func (c *checker) uncertainIndex() error {
	var from []byte
	for {
		items, err := ScanUncertain(c.r, from, 1000)
		if err != nil || len(items) == 0 {
			return err
		}
		for _, it := range items {
			from = it.Cursor
			a, err := loadAttempt(c.r, it.Ref.ID.Local(), it.Ref.Generation, it.Attempt)
			if err != nil {
				return err
			}
			if a == nil || a.SideEffect != policy.Unknown || a.OutcomeAt != it.Since {
				c.report("%s-%d: uncertain attempt %d without a record that explains it", it.Ref.ID, it.Ref.Generation, it.Attempt)
			}
			if err := c.explained("uncertain", it.Ref, func(g *Generation) bool { return g.State == StateUncertain && g.Lane == it.Lane }); err != nil {
				return err
			}
		}
	}
}

func (c *checker) terminalIndex() error {
	return c.each(keyTerminal, func(k, v []byte) error {
		const lead = 1 + 4 + 1 + 8
		ref, err := refFromIndex(k[min(lead, len(k)):], v)
		if err != nil {
			return err
		}
		return c.explained("terminal", ref, func(g *Generation) bool { return string(terminalKey(g, ref.ID.Local())) == string(k) })
	})
}

func (c *checker) deadLetters() error {
	err := c.each(keyDeadLetterByTime, func(k, v []byte) error {
		ref, err := refFromIndex(k[min(9, len(k)):], v)
		if err != nil {
			return err
		}
		rec, err := GetDeadLetter(c.r, ref)
		if err != nil {
			return err
		}
		if rec == nil || rec.FailedAt != timeFromOrdered(be64(k[1:])) {
			c.report("%s-%d: dead letter listed without its record", ref.ID, ref.Generation)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.each(keyDeadLetter, func(_, v []byte) error {
		rec, err := decodeDeadLetter(v)
		if err != nil {
			return err
		}
		ref := Ref{rec.ID, rec.Generation}
		if err := c.has("dead letter listing", ref, deadLetterTimeKey(rec.FailedAt, rec.ID.Local(), rec.Generation), true); err != nil {
			return err
		}
		return c.explained("dead letter", ref, func(g *Generation) bool { return g.State == rec.State && g.TerminalReason == rec.Reason })
	})
}

// orderIndex checks that each ordering key with waiting generations has exactly one head, the first in order unless it was admitted, and
// that the key's record names it.
func (c *checker) orderIndex() error {
	var q orderQueue
	err := c.each(keyOrder, func(k, v []byte) error {
		const lead = 1 + 4 + 16
		if p := string(k[:min(lead, len(k))]); p != q.prefix {
			if err := c.queue(&q); err != nil {
				return err
			}
			q = orderQueue{prefix: p}
		}
		ref, err := refFromIndex(k[min(lead+8+8+4, len(k)):], v)
		if err != nil {
			return err
		}
		first := q.waiting == 0
		q.waiting++
		return c.explained("order", ref, func(g *Generation) bool {
			if g.OrderHead {
				q.heads++
				q.head, q.outOfTurn = ref, !first && g.Attempts == 0
			}
			return g.Ordered && !g.State.Terminal() && (g.OrderHead || g.Attempts == 0)
		})
	})
	if err != nil {
		return err
	}
	if err := c.queue(&q); err != nil {
		return err
	}
	return c.each(keyOrderHead, func(k, v []byte) error {
		h, err := decodeOrderHead(v)
		if err != nil {
			return err
		}
		return c.explained("order head", h.ref, func(g *Generation) bool { return g.OrderHead && !g.State.Terminal() })
	})
}

// orderQueue is what waits under one ordering key.
type orderQueue struct {
	prefix    string
	waiting   int
	heads     int
	head      Ref
	outOfTurn bool // the head is neither the first nor was it admitted
}

func (c *checker) queue(q *orderQueue) error {
	if q.prefix == "" {
		return nil
	}
	if q.heads != 1 || q.outOfTurn {
		c.report("ordering key %x has %d heads, out of turn=%v", q.prefix[1:], q.heads, q.outOfTurn)
	}
	b, ok, err := c.r.Get(append(newKey(keyOrderHead), q.prefix[1:]...))
	if err != nil {
		return err
	}
	if !ok {
		c.report("ordering key %x has %d waiting and no record of its head", q.prefix[1:], q.waiting)
		return nil
	}
	h, err := decodeOrderHead(b)
	if err == nil && h.ref != q.head {
		c.report("ordering key %x: the record names %s-%d, the head is %s-%d", q.prefix[1:], h.ref.ID, h.ref.Generation, q.head.ID, q.head.Generation)
	}
	return err
}

func (c *checker) dedup() error {
	return c.each(keyDedup, func(_, v []byte) error {
		id, _, err := decodeDedup(v)
		if err != nil {
			return err
		}
		return c.has("message of a dedup record", Ref{ID: id}, messageKey(id.Local()), true)
	})
}
