package shardtest

import (
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// What the engine and operators do to attempts: admission, outcome, evidence, expiry, resolution.

// admit judges an accepted admission by what was known at that position. What permitted it is judged when the attempt's record is read.
func (m *Model) admit(c *shard.Admit, r shard.Result) {
	msg, g := m.find(c.ID, c.Generation)
	if r.Rejected != nil {
		if g != nil && r.Rejected.Field == "dedup_window" {
			g.state, g.touched = r.State, true
		}
		return
	}
	if g == nil || c.Generation == 0 {
		m.fail("admission for %s-%d, which is not there", c.ID, c.Generation)
		return
	}
	name := c.ID.String()
	unknown, inFlight := g.open()
	switch {
	case g != msg.current() || g.state.Terminal():
		m.fail("%s-%d was admitted in %s (22)", name, g.number, g.state)
	case c.Attempt != uint32(len(g.attempts))+1:
		m.fail("%s-%d: attempt %d after %d (9)", name, g.number, c.Attempt, len(g.attempts))
	case m.clock < g.deliverAt:
		m.fail("%s-%d was admitted %s before deliver_at (11)", name, g.number, g.deliverAt.Sub(m.clock))
	case m.clock >= g.deadline:
		m.fail("%s-%d was admitted %s after its deadline (11, 32)", name, g.number, m.clock.Sub(g.deadline))
	case !g.touched && g.last != nil && m.clock < g.last.NextAt:
		m.fail("%s-%d was admitted %s before it was due (11)", name, g.number, g.last.NextAt.Sub(m.clock))
	case m.paused[msg.lane]:
		m.fail("%s-%d was admitted on a paused lane (12)", name, g.number)
	case inFlight > 0:
		m.fail("%s-%d was admitted beside an attempt in flight", name, g.number)
	}
	m.orderOfAdmission(msg, g)
	a := &modelAttempt{at: m.clock, used: g.charged + uint32(unknown)}
	for _, earlier := range g.attempts {
		a.beside = append(a.beside, earlier.effect)
	}
	g.attempts = append(g.attempts, a)
	g.state, g.touched = r.State, true
}

// orderOfAdmission is invariant 42: nobody who comes earlier under the same key, and nobody who was admitted, may still be pending.
func (m *Model) orderOfAdmission(msg *modelMessage, g *modelGeneration) {
	for _, o := range m.sameKey(msg) {
		if o != g && (len(o.attempts) > 0 || o.before(g)) {
			m.fail("%s-%d was admitted before another of its ordering key ended (42)", msg.submit.ID, g.number)
		}
	}
}

// sameKey are the pending generations with the message's ordering key, in no order.
func (m *Model) sameKey(msg *modelMessage) []*modelGeneration {
	if msg.submit.OrderingKey == "" {
		return nil
	}
	var same []*modelGeneration
	for _, id := range m.order {
		o := m.messages[id]
		if !o.removed && o.lane == msg.lane && o.submit.OrderingKey == msg.submit.OrderingKey && !o.current().state.Terminal() {
			same = append(same, o.current())
		}
	}
	return same
}

func (g *modelGeneration) attempt(n uint32) *modelAttempt {
	if n == 0 || n > uint32(len(g.attempts)) {
		return nil
	}
	return g.attempts[n-1]
}

func (m *Model) outcome(c *shard.RecordOutcome, r shard.Result) {
	_, g := m.find(c.ID, c.Generation)
	if g == nil || c.Generation == 0 || g.attempt(c.Attempt) == nil {
		m.mustReject("outcome", r)
		return
	}
	if r.Rejected != nil {
		m.fail("outcome of %s-%d attempt %d was rejected: %v (45)", c.ID, c.Generation, c.Attempt, r.Rejected)
		return
	}
	effect, disposition := c.Outcome.SideEffect, c.Outcome.Disposition
	if !policy.LegalOutcome(effect, disposition) {
		effect, disposition = policy.Unknown, policy.AdapterBug
	}
	a := g.attempt(c.Attempt)
	if a.settled {
		if effect != policy.Unknown {
			m.learn(g, a, effect, disposition, r)
		}
		return
	}
	if !g.state.Terminal() && effect == policy.NotPublished {
		g.charge(disposition)
	}
	a.settled, a.effect = true, effect
	g.state, g.touched = r.State, true
}

// evidence is what AttachEvidence, a late outcome and an operator's word have in common.
func (m *Model) evidence(ref shard.Ref, number uint32, effect policy.SideEffect, disposition policy.Disposition, r shard.Result) {
	_, g := m.find(ref.ID, ref.Generation)
	if g == nil || g.attempt(number) == nil || !g.attempt(number).settled || effect != policy.Published && effect != policy.NotPublished {
		m.mustReject("evidence", r)
		return
	}
	if r.Rejected != nil {
		m.fail("evidence for %s-%d attempt %d was rejected: %v", ref.ID, ref.Generation, number, r.Rejected)
		return
	}
	m.learn(g, g.attempt(number), effect, disposition, r)
}

// learn applies evidence to a settled attempt: UNKNOWN becomes what it says, and PUBLISHED beats NOT_PUBLISHED.
func (m *Model) learn(g *modelGeneration, a *modelAttempt, effect policy.SideEffect, disposition policy.Disposition, r shard.Result) {
	was := a.effect
	if was == policy.Unknown || was == policy.NotPublished && effect == policy.Published {
		a.effect = effect
	}
	if was == policy.Unknown && effect == policy.NotPublished && !g.state.Terminal() {
		g.charge(disposition)
	}
	g.state, g.touched = r.State, true
}

// charge is C.7: what a definite settlement costs.
func (g *modelGeneration) charge(d policy.Disposition) {
	switch d {
	case policy.MessageRetriable, policy.AdapterBug:
		g.charged++
	case policy.MessagePermanent:
		g.permanent = true
	}
}

func (m *Model) expire(c *shard.Expire, r shard.Result) {
	_, g := m.find(c.ID, c.Generation)
	if g == nil || c.Generation == 0 {
		m.mustReject("expire", r)
		return
	}
	may := !g.state.Terminal() && g.deadline <= m.clock
	if may != (r.Rejected == nil) {
		m.fail("expire of %s-%d in %s, %s after its deadline: rejected %v (25)", c.ID, g.number, g.state, m.clock.Sub(g.deadline), r.Rejected)
		return
	}
	if !may {
		return
	}
	unknown, inFlight := g.open()
	if (r.State == shard.StateExpired) != (unknown == 0 && inFlight == 0) {
		m.fail("expire of %s-%d with %d unknown and %d in flight made it %s (17)", c.ID, g.number, unknown, inFlight, r.State)
	}
	g.state, g.touched = r.State, true
}

func (m *Model) control(c *shard.ControlStep, r shard.Result) {
	if first, ok := m.operations[c.OperationID]; ok {
		if first.hash != c.Hash {
			if r.Rejected == nil || r.Rejected.Reason != shard.ErrOperationConflict.Reason {
				m.fail("operation %q was reused for another: %+v (26)", c.OperationID, r)
			}
			return
		}
		f := first.result
		if r.Rejected != nil || !r.Deduplicated || r.Ref != f.Ref || r.Attempt != f.Attempt || r.State != f.State || r.Index != f.Index {
			m.fail("operation %q repeated: %+v, first %+v (26)", c.OperationID, r, f)
		}
		return
	}
	m.controlOnce(c, r)
	if r.Rejected == nil {
		m.operations[c.OperationID] = modelOperation{c.Hash, r}
	}
}

func (m *Model) controlOnce(c *shard.ControlStep, r shard.Result) {
	l := modelLane{c.Namespace, c.Destination, c.Slot}
	switch c.Action {
	case shard.ActionPauseLane, shard.ActionResumeLane:
		if r.Rejected == nil {
			pause := c.Action == shard.ActionPauseLane
			if m.paused[l] == pause {
				m.fail("lane %v was paused=%v before, and the step took effect", l, pause)
			}
			m.paused[l] = pause
		}
	case shard.ActionResolve:
		m.resolve(c, r)
	}
}

func (m *Model) resolve(c *shard.ControlStep, r shard.Result) {
	msg, g := m.find(c.ID, c.Generation)
	if g == nil || msg.submit.Namespace != c.Namespace || g.attempt(c.Attempt) == nil || !g.attempt(c.Attempt).settled || g.attempt(c.Attempt).effect != policy.Unknown {
		m.mustReject("resolve", r)
		return
	}
	ref := shard.Ref{ID: c.ID, Generation: g.number}
	switch c.Verdict {
	case shard.ResolvePublished:
		m.evidence(ref, c.Attempt, policy.Published, policy.OK, r)
	case shard.ResolveNotPublished:
		m.evidence(ref, c.Attempt, policy.NotPublished, policy.MessageRetriable, r)
	case shard.ResolveRetry:
		if r.Rejected == nil {
			g.granted++
			g.touched = true
		}
	case shard.ResolveDeadLetter:
		if r.Rejected == nil {
			g.state, g.touched = r.State, true
			if r.State != shard.StateDeadLettered {
				m.fail("giving up on %s-%d made it %s", c.ID, g.number, r.State)
			}
		}
	}
}
