package shardtest

import (
	"slices"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// What must be true of the state after every entry.

func (m *Model) compare(r shard.Reader) error {
	for _, id := range m.order {
		msg := m.messages[id]
		if msg.removed {
			continue
		}
		v, err := shard.GetMessage(r, id, false)
		if err != nil {
			return err
		}
		if v == nil {
			if err := m.removedMessage(r, id, msg); err != nil {
				return err
			}
			continue
		}
		m.removedGenerations(id, msg, v)
		for _, gv := range v.Generations {
			m.generation(msg, msg.gens[gv.Generation.Number-1], gv)
		}
	}
	for _, id := range m.order {
		if msg := m.messages[id]; !msg.removed {
			m.heads(msg)
		}
	}
	return nil
}

// removedMessage: retention takes only what ended, is settled and holds no key; what was still unknown leaves a tombstone with its count.
func (m *Model) removedMessage(r shard.Reader, id shard.MessageID, msg *modelMessage) error {
	var unknown uint32
	for _, g := range msg.gens {
		u, inFlight := g.open()
		unknown += uint32(u)
		if !m.trims || !g.state.Terminal() || inFlight > 0 {
			m.fail("%s-%d in %s with %d in flight was removed (I12)", id, g.number, g.state, inFlight)
		}
	}
	if key := keyOf(msg.submit); key.idempotency != "" && m.keys[key] == id {
		if m.clock <= msg.until {
			m.fail("%s was removed while its key is remembered", id)
		}
		delete(m.keys, key)
	}
	msg.removed = true
	stone, err := shard.GetTombstone(r, id)
	if err != nil {
		return err
	}
	if (stone != nil) != (unknown > 0) || stone != nil && stone.UnknownAttempts != unknown {
		m.fail("%s was removed with %d unknown attempts, tombstone %+v", id, unknown, stone)
	}
	return nil
}

func (m *Model) removedGenerations(id shard.MessageID, msg *modelMessage, v *shard.MessageView) {
	for _, g := range msg.gens {
		there := slices.ContainsFunc(v.Generations, func(gv shard.GenerationView) bool { return gv.Generation.Number == g.number })
		if there || g.removed {
			continue
		}
		if !m.trims || !g.state.Terminal() || g == msg.current() {
			m.fail("%s-%d in %s is gone (I12)", id, g.number, g.state)
		}
		g.removed = true
	}
}

func (m *Model) generation(msg *modelMessage, g *modelGeneration, v shard.GenerationView) {
	got, id := v.Generation, msg.submit.ID
	if got.State != g.state {
		m.fail("%s-%d is %s, its commands left it %s", id, g.number, got.State, g.state)
	}
	if got.DeliverAt != g.deliverAt || got.Deadline != g.deadline || got.DestinationVersion != g.pinned.Version {
		m.fail("%s-%d: window [%d, %d) of version %d, want [%d, %d) of %d", id, g.number, got.DeliverAt, got.Deadline, got.DestinationVersion, g.deliverAt, g.deadline, g.pinned.Version)
	}
	if got.Counted != g.charged {
		m.fail("%s-%d counts %d settlements, want %d (32)", id, g.number, got.Counted, g.charged)
	}
	if len(v.Attempts) != len(g.attempts) || int(got.Attempts) != len(g.attempts) {
		m.fail("%s-%d has %d attempts and says %d, %d were admitted (9, 10)", id, g.number, len(v.Attempts), got.Attempts, len(g.attempts))
		return
	}
	for i, a := range v.Attempts {
		m.attempt(msg, g, g.attempts[i], i, a)
	}
	m.stateAgrees(msg, g, v)
	m.onlyForward(msg, g, v)
	g.last, g.touched = got, false
}

// attempt compares the ledger with what is known: an UNKNOWN that no evidence was given for is still UNKNOWN (18), an outcome stays (19).
func (m *Model) attempt(msg *modelMessage, g *modelGeneration, want *modelAttempt, i int, a *shard.Attempt) {
	id := msg.submit.ID
	if a.Number != uint32(i)+1 || a.AdmittedAt != want.at {
		m.fail("%s-%d: attempt %d admitted at %d is recorded as %d at %d (9)", id, g.number, i+1, want.at, a.Number, a.AdmittedAt)
	}
	if a.Settled != want.settled || a.SideEffect != want.effect {
		m.fail("%s-%d attempt %d is settled=%v %s, want %v %s (18, 19, 20)", id, g.number, a.Number, a.Settled, a.SideEffect, want.settled, want.effect)
	}
	if len(a.Resolutions) > shard.MaxResolutions+3 {
		m.fail("%s-%d attempt %d keeps %d resolutions", id, g.number, a.Number, len(a.Resolutions))
	}
	if want.beside != nil || i == 0 {
		m.permitted(msg, g, want, a)
		want.beside = nil
	}
	if a.Settled && a.NextAt != 0 && a.NextAt < a.OutcomeAt {
		m.fail("%s-%d attempt %d: next one at %d, before its outcome (31)", id, g.number, a.Number, a.NextAt)
	}
}

// permitted is P4: what a second request may rest on.
func (m *Model) permitted(msg *modelMessage, g *modelGeneration, want *modelAttempt, a *shard.Attempt) {
	id, u := msg.submit.ID, g.pinned.Uncertainty
	unknown := slices.Contains(want.beside, policy.Unknown)
	switch {
	case slices.Contains(want.beside, policy.Published) || slices.Contains(want.beside, policy.SideEffectUnspecified):
		m.fail("%s-%d attempt %d was admitted after a published or beside an open one (P4)", id, g.number, a.Number)
	case (a.Work == shard.WorkInitial) != (a.Number == 1):
		m.fail("%s-%d attempt %d is of work %d", id, g.number, a.Number, a.Work)
	case a.Work == shard.WorkRetry && unknown:
		m.fail("%s-%d attempt %d: an ordinary retry beside an unknown attempt (P4, 16)", id, g.number, a.Number)
	case want.used >= g.pinned.Retry.MaxAttempts:
		m.fail("%s-%d attempt %d was admitted with %d of %d used (32)", id, g.number, a.Number, want.used, g.pinned.Retry.MaxAttempts)
	case a.Work == shard.WorkUncertainRetry && u.OnUncertain != policy.UncertainRetry:
		m.fail("%s-%d attempt %d: a retry its policy does not permit (P4)", id, g.number, a.Number)
	case a.Work == shard.WorkOperatorRetry:
		if g.granted--; g.granted < 0 {
			m.fail("%s-%d attempt %d: a retry nobody ordered (P4)", id, g.number, a.Number)
		}
		g.granted = 0 // a later order replaces an earlier one that was not used
	}
	if window := u.ReceiverDedupWindow; a.DuplicateSafe && (a.Work != shard.WorkUncertainRetry || window == 0 || a.Deadline > g.attempts[0].at.Add(window)) {
		m.fail("%s-%d attempt %d is called safe, but may end outside the receiver's window (21)", id, g.number, a.Number)
	}
}

// stateAgrees is invariants 15 to 17, 21, 24 and 38: the state is what the attempts say.
func (m *Model) stateAgrees(msg *modelMessage, g *modelGeneration, v shard.GenerationView) {
	var published, notPublished, unknown, inFlight, unsafeEffects int
	for _, a := range v.Attempts {
		switch {
		case !a.Settled:
			inFlight++
		case a.SideEffect == policy.Published:
			published++
		case a.SideEffect == policy.NotPublished:
			notPublished++
		case a.SideEffect == policy.Unknown:
			unknown++
		}
		if (!a.Settled || a.SideEffect != policy.NotPublished) && !a.DuplicateSafe {
			unsafeEffects++
		}
	}
	got := v.Generation
	ok := true
	switch got.State {
	case shard.StateScheduled:
		ok = len(v.Attempts) == 0
	case shard.StateInFlight:
		ok = inFlight == 1 && unknown == 0 && published == 0
	case shard.StateRetryWait:
		ok = notPublished == len(v.Attempts) && notPublished > 0
	case shard.StateUncertain:
		ok = unknown > 0 && published == 0
	case shard.StateDelivered:
		ok = published > 0
	case shard.StateCancelled, shard.StateSuperseded, shard.StateExpired:
		ok = unknown == 0 && inFlight == 0
	case shard.StateDeadLettered:
		ok = m.deadForAReason(g, got, unknown)
	}
	if !ok {
		m.fail("%s-%d is %s %s with %d published, %d not, %d unknown, %d in flight (15, 16, 17, 24, 38)", msg.submit.ID, g.number, got.State, got.TerminalReason, published, notPublished, unknown, inFlight)
	}
	if !got.PossibleDuplicate && unsafeEffects > 1 {
		m.fail("%s-%d: %d attempts may have taken effect, and possible_duplicate is false (21)", msg.submit.ID, g.number, unsafeEffects)
	}
}

// deadForAReason is invariant 38. Lane-level trouble is never one: it charges nothing and is not permanent.
func (m *Model) deadForAReason(g *modelGeneration, got *shard.Generation, unknown int) bool {
	switch got.TerminalReason {
	case shard.ReasonPermanent:
		return g.permanent
	case shard.ReasonExhausted:
		return g.charged >= g.pinned.Retry.MaxAttempts
	case shard.ReasonUncertaintyGiveUp:
		return got.PossibleDuplicate && g.pinned.Uncertainty.WhenExhausted == policy.ExhaustedDeadLetter
	case shard.ReasonOperatorGiveUp:
		return got.PossibleDuplicate && got.GivenUpBy != ""
	}
	return false
}

// onlyForward is invariant 22: what ended stays as it ended, and the duplicate flag only rises.
func (m *Model) onlyForward(msg *modelMessage, g *modelGeneration, v shard.GenerationView) {
	was, got := g.last, v.Generation
	if was == nil {
		return
	}
	if was.PossibleDuplicate && !got.PossibleDuplicate {
		m.fail("%s-%d: possible_duplicate fell (22)", msg.submit.ID, g.number)
	}
	if was.State.Terminal() && (got.State != was.State || got.TerminalReason != was.TerminalReason || got.TerminalAt != was.TerminalAt || got.TerminalIndex != was.TerminalIndex) {
		m.fail("%s-%d moved from %s to %s after its end (22)", msg.submit.ID, g.number, was.State, got.State)
	}
	if (got.State == shard.StateDeadLettered || got.State == shard.StateExpired) != (v.DeadLetter != nil) {
		m.fail("%s-%d in %s: dead letter record %v", msg.submit.ID, g.number, got.State, v.DeadLetter != nil)
	}
}

// heads is the other half of invariant 42: of the pending generations of a key exactly one is the head: the admitted one, else the first.
func (m *Model) heads(msg *modelMessage) {
	same := m.sameKey(msg)
	if len(same) == 0 {
		return
	}
	first := slices.MinFunc(same, func(a, b *modelGeneration) int {
		if (len(a.attempts) > 0) != (len(b.attempts) > 0) {
			if len(a.attempts) > 0 {
				return -1
			}
			return 1
		}
		if a.before(b) {
			return -1
		}
		return 1
	})
	for _, g := range same {
		if g.last.OrderHead != (g == first) {
			m.fail("ordering key %q: generation made at %d.%d is head=%v, want %v (42)", msg.submit.OrderingKey, g.index, g.ordinal, g.last.OrderHead, g == first)
		}
	}
}
