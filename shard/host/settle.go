package host

import (
	"fmt"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// settlement is one outcome on its way to the log. It is proposed until a verdict is seen, whoever leads: RecordOutcome is idempotent at
// apply, so a repeated one changes nothing.
type settlement struct {
	cmd   shard.RecordOutcome
	claim *claim // nil for an attempt of another process
}

// enqueue has an outcome of c proposed in this turn.
func (h *Host) enqueue(c *claim, o shard.Outcome) {
	s := &c.settle
	if s.claim != nil {
		s = &settlement{} // the first one, recorded as overdue, is in the log
	}
	s.claim = c
	s.cmd = shard.RecordOutcome{ID: c.admit.ID, Generation: c.admit.Generation, Attempt: c.admit.Attempt, Outcome: o}
	h.outbox = append(h.outbox, s)
}

// settle proposes everything that waits, as one vector or a few.
func (h *Host) settle() {
	if len(h.refused) > 0 && h.mono >= h.resettle {
		h.outbox = append(h.outbox, h.refused...)
		h.refused = nil
	}
	for len(h.outbox) > 0 {
		n := min(len(h.outbox), maxVector)
		batch := h.outbox[:n:n]
		h.outbox = h.outbox[n:]
		h.proposeOutcomes(batch)
	}
	h.outbox = nil
}

func (h *Host) proposeOutcomes(batch []*settlement) {
	cmds := make([]shard.Command, len(batch))
	for i, s := range batch {
		cmds[i] = &s.cmd
	}
	term := h.leading
	done := func(h *Host, results []shard.Result, err error) { h.outcomesDone(batch, term, results, err) }
	if err := h.propose(cmds, ClassEngine, done); err != nil {
		done(h, nil, err)
	}
}

// outcomesDone takes the verdicts. Any verdict ends a settlement, a refusal too: then the attempt was trimmed, or never admitted. Without
// one it is proposed again after a pause.
func (h *Host) outcomesDone(batch []*settlement, term uint64, results []shard.Result, err error) {
	if err == nil && len(results) != len(batch) {
		err = fmt.Errorf("host: %d results for %d outcomes", len(results), len(batch))
	}
	if err != nil {
		h.pause = min(max(2*h.pause, proposeFirst), proposeMost)
		h.resettle = h.mono + h.pause
		if h.leading != term {
			batch = ownOnly(batch)
		}
		h.refused = append(h.refused, batch...)
		return
	}
	h.pause = 0
	for i, s := range batch {
		h.sawClock(results[i].At)
		h.settled(s)
	}
}

func ownOnly(batch []*settlement) []*settlement {
	var own []*settlement
	for _, s := range batch {
		if s.claim != nil {
			own = append(own, s)
		}
	}
	return own
}

// settled ends a settlement, and its claim unless that is still sending or has something more to say.
func (h *Host) settled(s *settlement) {
	c := s.claim
	if c == nil || c.state != claimReturned || c.overdue && s == &c.settle {
		return
	}
	h.discharge(c)
	h.retire(c)
}

func (h *Host) retire(c *claim) { delete(h.flight, c.key()) }

// settledInState takes the effect of an attempt's initial outcome.
func (h *Host) settledInState(e *shard.Effect) {
	if !e.First {
		return
	}
	key := attemptKey{e.Ref, e.Attempt}
	h.recovery.settled(h, key)
	if l := h.lanes[e.Lane]; l != nil && e.SideEffect != policy.Published {
		h.reloadLane(e.Lane)
	}
}
