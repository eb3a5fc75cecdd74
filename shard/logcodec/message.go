package logcodec

import (
	logv1 "github.com/sealane/sealane/api/gen/sealane/log/v1"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

func stamp(ns int64) policy.Time { return policy.Time(ns) }

func submitToLog(c *shard.Submit) *logv1.Submit {
	m := &logv1.Submit{
		Id: c.ID[:], Namespace: c.Namespace, Destination: c.Destination, Slot: c.Slot, OrderingKey: c.OrderingKey,
		IdempotencyKey: c.IdempotencyKey, ContentType: c.ContentType, TraceParent: c.TraceParent, Payload: c.Payload,
		PayloadHash: c.PayloadHash[:], DeliverAt: int64(c.DeliverAt), ExpireAt: int64(c.ExpireAt), SubmitBy: int64(c.SubmitBy),
	}
	if len(c.Attributes) > 0 {
		m.Attributes = make([]*logv1.Attribute, len(c.Attributes))
		for i, a := range c.Attributes {
			m.Attributes[i] = &logv1.Attribute{Name: a.Name, Value: a.Value}
		}
	}
	return m
}

func submitFromLog(m *logv1.Submit) (*shard.Submit, error) {
	id, err := idOf(m, m.Id)
	if err != nil {
		return nil, err
	}
	hash, err := hashOf(m.PayloadHash)
	if err != nil {
		return nil, err
	}
	c := &shard.Submit{
		ID: id, Namespace: m.Namespace, Destination: m.Destination, Slot: m.Slot, OrderingKey: m.OrderingKey,
		IdempotencyKey: m.IdempotencyKey, ContentType: m.ContentType, TraceParent: m.TraceParent, Payload: m.Payload,
		PayloadHash: hash, DeliverAt: stamp(m.DeliverAt), ExpireAt: stamp(m.ExpireAt), SubmitBy: stamp(m.SubmitBy),
	}
	if len(m.Attributes) > 0 {
		c.Attributes = make([]shard.Attribute, len(m.Attributes))
		for i, a := range m.Attributes {
			if err := known(a); err != nil {
				return nil, err
			}
			c.Attributes[i] = shard.Attribute{Name: a.Name, Value: a.Value}
		}
	}
	return c, nil
}

func rescheduleFromLog(m *logv1.Reschedule) (*shard.Reschedule, error) {
	id, err := idOf(m, m.Id)
	return &shard.Reschedule{
		ID: id, Generation: m.Generation, DeliverAt: stamp(m.DeliverAt), ExpireAt: stamp(m.ExpireAt), RequestID: m.RequestId,
	}, err
}

func admitFromLog(m *logv1.Admit) (*shard.Admit, error) {
	id, err := idOf(m, m.Id)
	if err != nil {
		return nil, err
	}
	hash, err := hashOf(m.RequestHash)
	return &shard.Admit{ID: id, Generation: m.Generation, Attempt: m.Attempt, RequestHash: hash}, err
}

func recordOutcomeFromLog(m *logv1.RecordOutcome) (*shard.RecordOutcome, error) {
	id, err := idOf(m, m.Id)
	if err != nil {
		return nil, err
	}
	o, err := outcomeFromLog(m.Outcome)
	return &shard.RecordOutcome{ID: id, Generation: m.Generation, Attempt: m.Attempt, Outcome: o}, err
}

func outcomeToLog(o *shard.Outcome) *logv1.Outcome {
	return &logv1.Outcome{
		SideEffect: logv1.SideEffect(o.SideEffect), Disposition: logv1.Disposition(o.Disposition), RetryAfter: int64(o.RetryAfter),
		HasRetryAfter: o.HasRetryAfter, Evidence: evidenceToLog(&o.Evidence),
	}
}

func outcomeFromLog(m *logv1.Outcome) (shard.Outcome, error) {
	if m == nil {
		return shard.Outcome{}, nil
	}
	o := shard.Outcome{
		SideEffect: policy.SideEffect(m.SideEffect), Disposition: policy.Disposition(m.Disposition), RetryAfter: duration(m.RetryAfter),
		HasRetryAfter: m.HasRetryAfter,
	}
	if err := known(m, m.SideEffect, m.Disposition); err != nil {
		return o, err
	}
	var err error
	o.Evidence, err = evidenceFromLog(m.Evidence)
	return o, err
}

func evidenceToLog(e *shard.Evidence) *logv1.Evidence {
	return &logv1.Evidence{
		Rule: e.Rule, Statement: e.Statement, ErrorClass: e.ErrorClass, Detail: e.Detail, Status: e.Status, RemoteAddr: e.RemoteAddr,
		BytesWritten: e.BytesWritten, At: int64(e.At),
	}
}

func evidenceFromLog(m *logv1.Evidence) (shard.Evidence, error) {
	if m == nil {
		return shard.Evidence{}, nil
	}
	return shard.Evidence{
		Rule: m.Rule, Statement: m.Statement, ErrorClass: m.ErrorClass, Detail: m.Detail, Status: m.Status, RemoteAddr: m.RemoteAddr,
		BytesWritten: m.BytesWritten, At: stamp(m.At),
	}, known(m)
}

func evidenceCommandToLog(c *shard.AttachEvidence) *logv1.AttachEvidence {
	return &logv1.AttachEvidence{
		Id: c.ID[:], Generation: c.Generation, Attempt: c.Attempt, SideEffect: logv1.SideEffect(c.SideEffect),
		Evidence: evidenceToLog(&c.Evidence), Override: c.Override, Actor: c.Actor, Reason: c.Reason,
	}
}

func evidenceCommandFromLog(m *logv1.AttachEvidence) (*shard.AttachEvidence, error) {
	id, err := idOf(m, m.Id)
	if err != nil {
		return nil, err
	}
	if err := known(m, m.SideEffect); err != nil {
		return nil, err
	}
	e, err := evidenceFromLog(m.Evidence)
	return &shard.AttachEvidence{
		ID: id, Generation: m.Generation, Attempt: m.Attempt, SideEffect: policy.SideEffect(m.SideEffect), Evidence: e, Override: m.Override,
		Actor: m.Actor, Reason: m.Reason,
	}, err
}

func controlToLog(c *shard.ControlStep) *logv1.ControlStep {
	m := &logv1.ControlStep{
		OperationId: c.OperationID, Hash: c.Hash[:], Actor: c.Actor, Reason: c.Reason, Action: logv1.ControlAction(c.Action),
		Namespace: c.Namespace, Destination: c.Destination, Slot: c.Slot, Generation: c.Generation, Attempt: c.Attempt,
		Verdict: logv1.ResolveVerdict(c.Verdict), Evidence: c.Evidence,
	}
	if !c.ID.IsZero() {
		m.Id = c.ID[:]
	}
	return m
}

func controlFromLog(m *logv1.ControlStep) (*shard.ControlStep, error) {
	if err := known(m, m.Action, m.Verdict); err != nil {
		return nil, err
	}
	hash, err := hashOf(m.Hash)
	if err != nil {
		return nil, err
	}
	c := &shard.ControlStep{
		OperationID: m.OperationId, Hash: hash, Actor: m.Actor, Reason: m.Reason, Action: shard.ControlAction(m.Action),
		Namespace: m.Namespace, Destination: m.Destination, Slot: m.Slot, Generation: m.Generation, Attempt: m.Attempt,
		Verdict: shard.ResolveVerdict(m.Verdict), Evidence: m.Evidence,
	}
	if len(m.Id) > 0 {
		c.ID, err = idOf(m, m.Id)
	}
	return c, err
}
