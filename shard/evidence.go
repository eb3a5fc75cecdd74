package shard

import "github.com/sealane/sealane/policy"

// What a resolution changed, as the attempt's record says it.
const (
	effectResolved      = "RESOLVED"
	effectContradiction = "CONTRADICTION"
	effectBookkeeping   = "BOOKKEEPING"
	effectRetry         = "RETRY"       // an operator permitted one more attempt
	effectGivenUp       = "DEAD_LETTER" // an operator gave up
)

// lateOutcome takes an outcome for a settled attempt as evidence: an old leader's answer that came after the recovery UNKNOWN, or the
// same outcome proposed twice. An UNKNOWN says nothing new.
func (t *tx) lateOutcome(ref Ref, g *Generation, a *Attempt, o *Outcome) (Result, error) {
	res := Result{Ref: ref, Attempt: a.Number, State: g.State, Deduplicated: true}
	if o.SideEffect == policy.Unknown || o.SideEffect == a.SideEffect || *o == a.Outcome {
		return res, nil
	}
	r := Resolution{SideEffect: o.SideEffect, Evidence: o.Evidence, Reason: "late outcome of the sending process"}
	if a.has(&r) {
		return res, nil
	}
	if err := t.resolve(ref, g, a, r, o.Disposition); err != nil {
		return Result{}, err
	}
	res.State, res.Deduplicated = g.State, false
	return res, nil
}

// attachEvidence is evidence that some other party brought: a probe, a receipt, an operator.
func (t *tx) attachEvidence(c *AttachEvidence) (Result, error) {
	ref := Ref{c.ID, c.Generation}
	g, a, rej, err := t.find(ref, c.Attempt)
	if err != nil || rej != nil {
		return Result{Rejected: rej}, err
	}
	if !a.Settled {
		return Result{Ref: ref, Rejected: ErrAttemptNotUncertain.with("attempt", "%d is still in flight", a.Number)}, nil
	}
	if c.SideEffect != policy.Published && c.SideEffect != policy.NotPublished {
		return Result{Ref: ref, Rejected: ErrOutcomeIllegal.with("side_effect", "evidence says PUBLISHED or NOT_PUBLISHED")}, nil
	}
	r := Resolution{SideEffect: c.SideEffect, Evidence: c.Evidence, Override: c.Override, Actor: cut(c.Actor), Reason: cut(c.Reason)}
	r.Evidence.Detail = cut(r.Evidence.Detail)
	if a.has(&r) {
		return Result{Ref: ref, Attempt: a.Number, State: g.State, Deduplicated: true}, nil
	}
	if err := t.resolve(ref, g, a, r, policy.MessageRetriable); err != nil {
		return Result{}, err
	}
	return Result{Ref: ref, Attempt: a.Number, State: g.State}, nil
}

// resolve applies evidence about a settled attempt and saves both records. Disposition says how a NOT_PUBLISHED counts.
func (t *tx) resolve(ref Ref, g *Generation, a *Attempt, r Resolution, disposition policy.Disposition) error {
	was := a.SideEffect
	r.At, r.Index = t.now, t.e.Index
	switch {
	case was == r.SideEffect:
		r.Effect = effectBookkeeping
	case was == policy.Unknown:
		r.Effect = effectResolved
		if err := t.closeUnknown(ref, g, a, r.SideEffect); err != nil {
			return err
		}
	default:
		// PUBLISHED beats NOT_PUBLISHED however late; the other way round changes nothing (DESIGN 4).
		r.Effect = effectContradiction
		t.meta.Contradictions++
		t.emit(Effect{Kind: EffectContradiction, Ref: ref, Lane: g.Lane, Target: g.Target, Attempt: a.Number, SideEffect: r.SideEffect})
		if r.SideEffect == policy.Published {
			a.SideEffect = policy.Published
			g.PossibleDuplicate = g.PossibleDuplicate || g.Attempts > 1 || g.State.Terminal()
		}
	}
	a.keep(r)
	if err := t.afterEvidence(ref, g, a, r, disposition); err != nil {
		return err
	}
	if err := t.saveAttempt(ref, a); err != nil {
		return err
	}
	return t.saveGeneration(ref.ID, g)
}

// has tells whether the ledger holds this very evidence: the same proposal made twice says nothing new (invariant 3).
func (a *Attempt) has(r *Resolution) bool {
	for i := range a.Resolutions {
		k := &a.Resolutions[i]
		if k.SideEffect == r.SideEffect && k.Evidence == r.Evidence && k.Override == r.Override && k.Actor == r.Actor && k.Reason == r.Reason && k.OperationID == r.OperationID {
			return true
		}
	}
	return false
}

// keep adds to an attempt's ledger. What decided something is kept always, since the attempt's side effect rests on it: each can happen
// once. What repeats is kept up to MaxResolutions.
func (a *Attempt) keep(r Resolution) {
	decided := r.Effect == effectResolved || r.Effect == effectGivenUp || r.Effect == effectContradiction && r.SideEffect == policy.Published
	if decided || len(a.Resolutions) < MaxResolutions {
		a.Resolutions = append(a.Resolutions, r)
	}
}

// closeUnknown ends the open obligation of an attempt.
func (t *tx) closeUnknown(ref Ref, g *Generation, a *Attempt, to policy.SideEffect) error {
	a.SideEffect = to
	g.OpenUnknown--
	t.emit(Effect{Kind: EffectSettled, Ref: ref, Lane: g.Lane, Target: g.Target, Attempt: a.Number, SideEffect: to})
	if g.State.Terminal() {
		return nil
	}
	return t.st.Delete(uncertainKey(a.OutcomeAt, ref.ID.Local(), g.Number, a.Number))
}

// afterEvidence moves the generation where the evidence leads. A terminal one stays where it is (I6).
func (t *tx) afterEvidence(ref Ref, g *Generation, a *Attempt, r Resolution, disposition policy.Disposition) error {
	if r.Effect == effectBookkeeping || a.SideEffect != r.SideEffect {
		return nil
	}
	if g.State.Terminal() {
		if r.SideEffect == policy.Published && g.State != StateDelivered {
			g.PossibleDuplicate = true
		}
		return nil
	}
	if r.SideEffect == policy.Published {
		a.Decision = StateDelivered.String() + " EVIDENCE"
		return t.terminate(ref.ID, g, StateDelivered, ReasonEvidence)
	}
	o := Outcome{SideEffect: policy.NotPublished, Disposition: disposition, Evidence: r.Evidence}
	if g.Work != WorkNone && g.OpenUnknown > 0 && disposition != policy.MessagePermanent {
		g.charge(&o)
		return t.settleState(g) // the permitted retry stands as long as another attempt is unknown
	}
	return t.notPublished(ref, g, a, &o)
}
