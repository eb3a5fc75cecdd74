package host

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// ErrSendWindow is what the send gate returns when the admission was applied too long ago. Nothing is sent.
var ErrSendWindow = errors.New("host: the send window has passed")

// ErrDeposed is what the send gate returns when the term that admitted the attempt is over. Nothing is sent.
var ErrDeposed = errors.New("host: the term that admitted this attempt is over")

// Evidence of outcomes that the runtime itself decides.
const (
	// RuleSendGate: an admitted attempt that was not sent. Its statement is StatementBeforeOwnership.
	RuleSendGate = "SEND_GATE"
	// RuleRecovery: an attempt of a process that is gone or silent.
	RuleRecovery = "RECOVERY"
	// RuleSendOverdue: a request that did not return in time; its adapter may still report.
	RuleSendOverdue = "SEND_OVERDUE"

	StatementBeforeOwnership = "BEFORE_OWNERSHIP"
	StatementNone            = "NONE"
)

// admitted acts on an admission of this process: it is sent through the claim's connection, or reported as not sent. Each admission comes
// here once, so each is sent at most once.
func (h *Host) admitted(e *shard.Effect, at time.Duration) {
	key := attemptKey{e.Ref, e.Attempt}
	if h.flight[key] != nil {
		return
	}
	it := h.work[e.Ref]
	if it == nil || it.claim == nil || it.claim.admit.Attempt != e.Attempt || it.claim.term != e.Owner.Term {
		h.unclaimed(key, e)
		return
	}
	c := it.claim
	c.item, it.claim = nil, nil
	delete(h.work, e.Ref)
	c.target.claimed--
	h.flight[key] = c
	c.applied = at
	timeout := c.carried.dest.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	if err := c.gate(); err != nil {
		h.notSent(c, err)
		return
	}
	c.state = claimSending
	c.expires = h.mono + timeout + sendGrace
	h.opt.Observer.Sent(c.target.lane.name, h.stamp.Sub(c.due))
	h.sends.Go(func() { c.send(timeout) })
}

// unclaimed settles an admission of this process that nothing here will send: the claim was given up or the term is over.
func (h *Host) unclaimed(key attemptKey, e *shard.Effect) {
	cause, err := NotSentNoClaim, error(nil)
	if e.Owner.Term != h.term.Load() {
		cause, err = NotSentDeposed, ErrDeposed
	}
	if it := h.work[e.Ref]; it != nil && it.claim == nil {
		h.forgetItem(it)
	}
	c := &claim{host: h, state: claimReturned, term: e.Owner.Term}
	c.admit = shard.Admit{ID: e.Ref.ID, Generation: e.Ref.Generation, Attempt: e.Attempt}
	c.outcome = h.gateOutcome(cause, err)
	h.flight[key] = c
	var name LaneName
	if l := h.lanes[e.Lane]; l != nil {
		name = l.name
	}
	h.opt.Observer.NotSent(name, cause)
	h.enqueue(c, c.outcome)
}

// gate is the send gate: checked right before the first byte, on the goroutine that would write it.
func (c *claim) gate() error {
	h := c.host
	if h.term.Load() != c.term || h.opt.StillLeads != nil && !h.opt.StillLeads(c.term) {
		return ErrDeposed
	}
	if mono, _ := h.opt.Stamper.clock.Read(); mono-c.applied > SendWindow {
		return ErrSendWindow
	}
	return nil
}

// send makes the request, on its own goroutine.
func (c *claim) send(timeout time.Duration) {
	h := c.host
	ctx, cancel := context.WithTimeout(h.base, timeout)
	c.outcome = c.conn.Send(ctx, &c.delivery, c.gate)
	cancel()
	c.conn.Release()
	c.conn = nil
	h.inbox.put(message{returned: c})
}

// sent takes a request that has returned: its permits are free, its outcome goes to the log.
func (h *Host) sent(c *claim) {
	c.state = claimReturned
	c.delivery = Delivery{}
	h.letGo(c)
	side, disposition := c.outcome.SideEffect, c.outcome.Disposition
	if !policy.LegalOutcome(side, disposition) {
		side, disposition = policy.Unknown, policy.AdapterBug // as the log will take it (R175)
	}
	h.opt.Observer.Returned(c.target.lane.name, side, disposition)
	if c.overdue && side == policy.Unknown {
		h.retire(c) // that is what the log has already
		return
	}
	h.charge(c, side, disposition)
	h.enqueue(c, c.outcome)
}

// charge counts an outcome against its lane until the state has it, so that a target that fails fast is not sent more than its threshold.
func (h *Host) charge(c *claim, side policy.SideEffect, disposition policy.Disposition) {
	c.target.lane.unsettled++
	_, c.effect = policy.EffectOf(side, disposition)
	switch c.effect {
	case policy.CircuitFailure:
		c.target.failing++
	case policy.CircuitThrottle:
		c.target.throttle++
	}
}

func (h *Host) discharge(c *claim) {
	if c.target == nil || c.state != claimReturned {
		return
	}
	c.target.lane.unsettled--
	switch c.effect {
	case policy.CircuitFailure:
		c.target.failing--
	case policy.CircuitThrottle:
		c.target.throttle--
	}
	if l := c.target.lane; h.lanes[l.id] == l {
		if c.effect != policy.CircuitSuccess || c.target.circuit.ConsecutiveFailures > 0 {
			h.reloadLane(l.id)
		}
		h.pokeLane(l)
	}
}

// notSent reports an admitted attempt that the gate stopped before it was handed to its connection.
func (h *Host) notSent(c *claim, err error) {
	cause := NotSentWindow
	if errors.Is(err, ErrDeposed) {
		cause = NotSentDeposed
	}
	h.opt.Observer.NotSent(c.target.lane.name, cause)
	c.outcome = h.gateOutcome(cause, err)
	c.state = claimReturned
	h.letGo(c)
	h.charge(c, c.outcome.SideEffect, c.outcome.Disposition)
	h.enqueue(c, c.outcome)
}

func (h *Host) gateOutcome(cause NotSentCause, err error) shard.Outcome {
	o := shard.Outcome{SideEffect: policy.NotPublished, Disposition: policy.Fenced, Evidence: shard.Evidence{
		Rule: RuleSendGate, Statement: StatementBeforeOwnership, ErrorClass: string(cause), At: h.stamp,
	}}
	if err != nil {
		o.Evidence.Detail = plain(err)
	}
	return o
}

// watchFlight records UNKNOWN for requests that did not return in time. The waiter is freed, the permit is not: it belongs to the request
// until that really ends (R197).
func (h *Host) watchFlight() {
	if len(h.flight) == 0 || h.mono < h.timers.watch {
		return
	}
	h.timers.watch = h.mono + time.Second
	for _, c := range h.flight {
		if c.state != claimSending || c.overdue || h.mono < c.expires {
			continue
		}
		c.overdue = true
		h.enqueue(c, shard.Outcome{SideEffect: policy.Unknown, Disposition: policy.LaneUnavailable, Evidence: shard.Evidence{
			Rule: RuleSendOverdue, Statement: StatementNone, ErrorClass: RuleSendOverdue, At: h.stamp,
			Detail: "the request did not return after its timeout",
		}})
	}
}

// plain makes an error's text fit for the log, which holds UTF-8 only: an attempt whose evidence could not be written would never be settled.
func plain(err error) string { return strings.ToValidUTF8(err.Error(), "?") }
