package shard

import (
	"time"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
)

func (e *encoder) circuit(c *lane.CircuitState) {
	e.byte(byte(c.Phase))
	e.u32(c.ConsecutiveFailures)
	e.u32(c.Openings)
	e.u32(c.TrialSuccesses)
	e.time(c.OpenUntil)
	e.bool(c.TrialInFlight)
	e.time(c.TrialDeadline)
	e.u32(c.RampLimit)
	e.u32(c.RampSuccesses)
	e.text(c.Reason)
}

func (d *decoder) circuit() lane.CircuitState {
	return lane.CircuitState{
		Phase: lane.CircuitPhase(d.byte()), ConsecutiveFailures: d.u32(), Openings: d.u32(), TrialSuccesses: d.u32(), OpenUntil: d.time(),
		TrialInFlight: d.bool(), TrialDeadline: d.time(), RampLimit: d.u32(), RampSuccesses: d.u32(), Reason: d.text(),
	}
}

func encodeLane(l *LaneRecord) []byte {
	e := newRecord(192)
	e.u32(uint32(l.ID))
	e.text(l.Namespace)
	e.text(l.Destination)
	e.u32(l.Slot)
	e.byte(byte(l.Gate))
	e.text(l.GateReason)
	e.text(l.GateActor)
	e.uint(l.ControlVersion)
	e.time(l.CreatedAt)
	e.uint(uint64(len(l.Targets)))
	for i := range l.Targets {
		t := &l.Targets[i]
		e.u32(uint32(t.ID))
		e.text(t.Key)
		e.circuit(&t.Circuit)
		e.text(t.LastError)
		e.text(t.LastDetail)
		e.time(t.ChangedAt)
	}
	c := &l.Counts
	e.uint(c.Scheduled)
	e.uint(c.InFlight)
	e.uint(c.Uncertain)
	for _, n := range c.Terminal {
		e.uint(n)
	}
	e.uint(c.OpenAttempts)
	e.uint(c.PendingBytes)
	return e.b
}

func decodeLane(b []byte) (*LaneRecord, error) {
	d := openRecord("lane", b)
	l := &LaneRecord{}
	l.ID = LaneID(d.u32())
	l.Namespace = d.text()
	l.Destination = d.text()
	l.Slot = d.u32()
	l.Gate = lane.Gate(d.byte())
	l.GateReason = d.text()
	l.GateActor = d.text()
	l.ControlVersion = d.uint()
	l.CreatedAt = d.time()
	if n := d.count(); n > 0 {
		l.Targets = make([]TargetRecord, n)
		for i := range l.Targets {
			l.Targets[i] = TargetRecord{
				ID: TargetID(d.u32()), Key: d.text(), Circuit: d.circuit(), LastError: d.text(), LastDetail: d.text(), ChangedAt: d.time(),
			}
		}
	}
	c := &l.Counts
	c.Scheduled = d.uint()
	c.InFlight = d.uint()
	c.Uncertain = d.uint()
	for i := range c.Terminal {
		c.Terminal[i] = d.uint()
	}
	c.OpenAttempts = d.uint()
	c.PendingBytes = d.uint()
	return l, d.finish()
}

func encodeDestination(v *Destination) []byte {
	e := newRecord(256 + len(v.Target))
	e.text(v.Namespace)
	e.text(v.Name)
	e.uint(v.Version)
	e.text(v.Adapter)
	e.bytes(v.Target)
	e.text(v.TargetKey)
	e.dur(v.Timeout)
	e.retry(&v.Retry)
	u := &v.Uncertainty
	e.byte(byte(u.OnUncertain))
	e.u32(u.MaxRetries)
	e.dur(u.ReceiverDedupWindow)
	e.bool(u.AcceptDuplicates)
	e.byte(byte(u.WhenExhausted))
	e.u32(v.Spread)
	e.u32(v.Limits.MaxInFlight)
	e.u32(v.Limits.RatePerSecond)
	e.uint(v.Limits.MaxPending)
	e.uint(v.Limits.MaxPendingBytes)
	e.uint(v.Limits.MaxBytesInFly)
	e.u32(v.Circuit.FailureThreshold)
	e.dur(v.Circuit.OpenFor)
	e.dur(v.Circuit.MaxOpenFor)
	e.u32(v.Circuit.HalfOpenSuccesses)
	e.dur(v.Circuit.TrialTimeout)
	e.dur(v.Retention)
	e.dur(v.DeadLetterRetention)
	e.dur(v.IdempotencyWindow)
	e.text(v.ExportTo)
	e.bool(v.Deleted)
	return e.b
}

func decodeDestination(b []byte) (*Destination, error) {
	d := openRecord("destination", b)
	v := &Destination{}
	v.Namespace = d.text()
	v.Name = d.text()
	v.Version = d.uint()
	v.Adapter = d.text()
	v.Target = d.bytes()
	v.TargetKey = d.text()
	v.Timeout = d.dur()
	v.Retry = d.retry()
	v.Uncertainty = policy.Uncertainty{
		OnUncertain: policy.OnUncertain(d.byte()), MaxRetries: d.u32(), ReceiverDedupWindow: d.dur(), AcceptDuplicates: d.bool(),
		WhenExhausted: policy.WhenExhausted(d.byte()),
	}
	v.Spread = d.u32()
	v.Limits = LaneLimits{MaxInFlight: d.u32(), RatePerSecond: d.u32(), MaxPending: d.uint(), MaxPendingBytes: d.uint(), MaxBytesInFly: d.uint()}
	v.Circuit = policy.Circuit{
		FailureThreshold: d.u32(), OpenFor: d.dur(), MaxOpenFor: d.dur(), HalfOpenSuccesses: d.u32(), TrialTimeout: d.dur(),
	}
	v.Retention = d.dur()
	v.DeadLetterRetention = d.dur()
	v.IdempotencyWindow = d.dur()
	v.ExportTo = d.text()
	v.Deleted = d.bool()
	return v, d.finish()
}

func (e *encoder) retry(r *policy.Retry) {
	e.u32(r.MaxAttempts)
	e.dur(r.InitialBackoff)
	e.dur(r.MaxBackoff)
	e.u32(r.Multiplier)
	e.byte(byte(r.Jitter))
	e.uint(uint64(len(r.Schedule)))
	for _, s := range r.Schedule {
		e.dur(s)
	}
	e.dur(r.Lifetime)
}

func (d *decoder) retry() policy.Retry {
	r := policy.Retry{MaxAttempts: d.u32(), InitialBackoff: d.dur(), MaxBackoff: d.dur(), Multiplier: d.u32(), Jitter: policy.Jitter(d.byte())}
	if n := d.count(); n > 0 {
		r.Schedule = make([]time.Duration, n)
		for i := range r.Schedule {
			r.Schedule[i] = d.dur()
		}
	}
	r.Lifetime = d.dur()
	return r
}

func encodeMeta(m *ShardMeta) []byte {
	e := newRecord(48)
	e.time(m.Clock)
	e.u32(uint32(m.NextLane))
	e.uint(m.Submitted)
	e.uint(m.Contradictions)
	return e.b
}

func decodeMeta(b []byte) (ShardMeta, error) {
	d := openRecord("meta", b)
	m := ShardMeta{Clock: d.time(), NextLane: LaneID(d.u32()), Submitted: d.uint(), Contradictions: d.uint()}
	return m, d.finish()
}
