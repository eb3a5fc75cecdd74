package shardtest

import (
	"fmt"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// command reads the verbs that are commands of the log.
func (s *Script) command(verb string, a args) (shard.Command, error) {
	id := s.ids[a.first()]
	gen := uint32(a.num("gen", 1))
	attempt := uint32(a.num("attempt", 1))
	switch verb {
	case "submit":
		return s.submitCommand(a), nil
	case "admit":
		return &shard.Admit{ID: id, Generation: gen, Attempt: attempt, RequestHash: hashOf(a.first())}, nil
	case "outcome":
		o, err := outcome(a)
		return &shard.RecordOutcome{ID: id, Generation: gen, Attempt: attempt, Outcome: o}, err
	case "evidence":
		o, err := outcome(a)
		return &shard.AttachEvidence{ID: id, Generation: gen, Attempt: attempt, SideEffect: o.SideEffect, Evidence: o.Evidence, Actor: a.text("actor", ""), Override: a.has("override")}, err
	case "cancel":
		return &shard.Cancel{ID: id, Generation: uint32(a.num("gen", 0)), Reason: a.text("reason", "")}, nil
	case "reschedule":
		return &shard.Reschedule{ID: id, Generation: uint32(a.num("gen", 0)), DeliverAt: a.at("deliver"), ExpireAt: a.at("expire"), RequestID: a.text("request", "")}, nil
	case "expire":
		return &shard.Expire{ID: id, Generation: gen}, nil
	case "tick":
		return &shard.Tick{}, nil
	case "trim":
		return s.trimCommand(a)
	case "event":
		return s.laneEvent(a)
	case "control":
		return s.control(a)
	}
	return nil, fmt.Errorf("unknown verb %q", verb)
}

func (s *Script) install(a args) (string, error) {
	name := a.first()
	d := Destination(name)
	s.versions[name]++
	d.Version = a.num("version", s.versions[name])
	d.TargetKey = a.text("target", d.TargetKey)
	d.Retry.MaxAttempts = uint32(a.num("max_attempts", uint64(d.Retry.MaxAttempts)))
	d.Retry.InitialBackoff = a.dur("backoff", d.Retry.InitialBackoff)
	d.Retry.Jitter = policy.JitterNone
	d.Retry.Lifetime = a.dur("lifetime", d.Retry.Lifetime)
	d.Limits.MaxPending = a.num("max_pending", 0)
	d.Limits.MaxPendingBytes = a.num("max_bytes", 0)
	d.Deleted = a.has("deleted")
	d.Circuit.FailureThreshold = uint32(a.num("threshold", uint64(d.Circuit.FailureThreshold)))
	if a.has("uncertain_retries") {
		d.Uncertainty.OnUncertain = policy.UncertainRetry
		d.Uncertainty.MaxRetries = uint32(a.num("uncertain_retries", 1))
		d.Uncertainty.ReceiverDedupWindow = a.dur("dedup_window", 0)
		d.Uncertainty.AcceptDuplicates = d.Uncertainty.ReceiverDedupWindow == 0
	}
	if a.text("when_exhausted", "hold") == "dead_letter" {
		d.Uncertainty.WhenExhausted = policy.ExhaustedDeadLetter
	}
	return s.apply(&shard.InstallDestination{Destination: d})
}

func (s *Script) submit(a args) (string, error) { return s.apply(s.submitCommand(a)) }

// submitCommand makes a new id for a name the script has not used, and reuses the one it has, as a repeated command would.
func (s *Script) submitCommand(a args) *shard.Submit {
	name := a.first()
	c := s.Submit(a.text("to", "d"), a.text("payload", name))
	if a.has("as") {
		name = a.text("as", "")
	}
	if id, ok := s.ids[name]; ok {
		c.ID = id
	}
	s.ids[name] = c.ID
	s.names[c.ID] = name
	c.IdempotencyKey = a.text("key", "")
	c.OrderingKey = a.text("order", "")
	c.ContentType = a.text("type", "")
	c.DeliverAt = a.at("deliver")
	c.ExpireAt = a.at("expire")
	c.SubmitBy = a.at("by")
	if v := a.text("attr", ""); v != "" {
		c.Attributes = []shard.Attribute{{Name: "a", Value: v}}
	}
	return c
}

func outcome(a args) (shard.Outcome, error) {
	o := shard.Outcome{Evidence: shard.Evidence{Rule: a.text("rule", "TEST"), ErrorClass: a.text("class", ""), Status: uint32(a.num("status", 0))}}
	if a.has("retry_after") {
		o.HasRetryAfter, o.RetryAfter = true, a.dur("retry_after", 0)
	}
	set := func(s policy.SideEffect, d policy.Disposition) (shard.Outcome, error) {
		o.SideEffect, o.Disposition = s, d
		return o, nil
	}
	switch a.text("is", "") {
	case "published":
		return set(policy.Published, policy.OK)
	case "retriable":
		return set(policy.NotPublished, policy.MessageRetriable)
	case "permanent":
		return set(policy.NotPublished, policy.MessagePermanent)
	case "lane":
		return set(policy.NotPublished, policy.LaneUnavailable)
	case "throttled":
		return set(policy.NotPublished, policy.LaneThrottled)
	case "bug":
		return set(policy.NotPublished, policy.AdapterBug)
	case "fenced":
		return set(policy.NotPublished, policy.Fenced)
	case "unknown":
		return set(policy.Unknown, policy.MessageRetriable)
	case "illegal":
		return set(policy.Published, policy.MessagePermanent)
	}
	return o, fmt.Errorf("is=%q is no outcome", a.text("is", ""))
}

func (s *Script) laneOf(a args) (shard.LaneRecord, error) {
	l, ok, err := shard.LaneByName(s.State, "default", a.first(), 0)
	if err == nil && !ok {
		err = fmt.Errorf("lane %q is not there yet", a.first())
	}
	return l, err
}

func (s *Script) trimCommand(a args) (shard.Command, error) {
	l, err := s.laneOf(a)
	if err != nil {
		return nil, err
	}
	for st := shard.StateDelivered; st <= shard.StateSuperseded; st++ {
		if st.String() == a.text("state", "") {
			return &shard.Trim{Lane: l.ID, State: st, Before: s.Now.Add(-a.dur("older", 0)), Max: uint32(a.num("max", 100))}, nil
		}
	}
	return nil, fmt.Errorf("state=%q is not terminal", a.text("state", ""))
}

func (s *Script) laneEvent(a args) (shard.Command, error) {
	l, err := s.laneOf(a)
	if err != nil {
		return nil, err
	}
	kinds := map[string]shard.LaneEventKind{
		"connect_failed": shard.LaneConnectFailed, "ready": shard.LaneReadyToTry, "overdue": shard.LaneTrialOverdue,
	}
	return &shard.LaneEvent{Lane: l.ID, Target: shard.TargetID(a.num("target", 1)), Event: kinds[a.text("is", "")], ErrorClass: a.text("class", "")}, nil
}

func (s *Script) control(a args) (shard.Command, error) {
	c := &shard.ControlStep{
		OperationID: a.text("op", "op-1"), Actor: a.text("actor", "ada"), Reason: a.text("reason", "test"), Namespace: "default",
		Hash: hashOf(fmt.Sprint(a.d.CmdArgs)),
	}
	switch a.text("do", "") {
	case "pause":
		c.Action, c.Destination = shard.ActionPauseLane, a.first()
	case "resume":
		c.Action, c.Destination = shard.ActionResumeLane, a.first()
	case "reset":
		c.Action, c.Destination = shard.ActionResetCircuit, a.first()
	default:
		verdicts := map[string]shard.ResolveVerdict{
			"published": shard.ResolvePublished, "not_published": shard.ResolveNotPublished, "retry": shard.ResolveRetry, "dead_letter": shard.ResolveDeadLetter,
		}
		v, ok := verdicts[a.text("do", "")]
		if !ok {
			return nil, fmt.Errorf("do=%q is no action", a.text("do", ""))
		}
		c.Action, c.ID, c.Attempt, c.Verdict = shard.ActionResolve, s.ids[a.first()], uint32(a.num("attempt", 1)), v
	}
	return c, nil
}
