package shard

import "github.com/sealane/sealane/policy"

func (e *encoder) epoch(o Epoch) {
	e.text(o.Node)
	e.u64fixed(o.Boot)
	e.uint(o.Term)
}

func (d *decoder) epoch() Epoch {
	return Epoch{Node: d.text(), Boot: d.u64fixed(), Term: d.uint()}
}

func (e *encoder) evidence(v *Evidence) {
	e.text(v.Rule)
	e.text(v.Statement)
	e.text(v.ErrorClass)
	e.text(v.Detail)
	e.u32(v.Status)
	e.text(v.RemoteAddr)
	e.uint(v.BytesWritten)
	e.time(v.At)
}

func (d *decoder) evidence() Evidence {
	return Evidence{
		Rule: d.text(), Statement: d.text(), ErrorClass: d.text(), Detail: d.text(), Status: d.u32(),
		RemoteAddr: d.text(), BytesWritten: d.uint(), At: d.time(),
	}
}

func (e *encoder) outcome(o *Outcome) {
	e.byte(byte(o.SideEffect))
	e.byte(byte(o.Disposition))
	e.dur(o.RetryAfter)
	e.bool(o.HasRetryAfter)
	e.evidence(&o.Evidence)
}

func (d *decoder) outcome() Outcome {
	return Outcome{
		SideEffect: policy.SideEffect(d.byte()), Disposition: policy.Disposition(d.byte()),
		RetryAfter: d.dur(), HasRetryAfter: d.bool(), Evidence: d.evidence(),
	}
}

func encodeAttempt(a *Attempt) []byte {
	e := newRecord(224)
	e.u32(a.Number)
	e.time(a.AdmittedAt)
	e.uint(a.AdmittedIndex)
	e.epoch(a.Owner)
	e.raw(a.RequestHash[:])
	e.time(a.Deadline)
	e.byte(byte(a.Work))
	e.bool(a.Trial)
	e.bool(a.DuplicateSafe)
	e.bool(a.Settled)
	if a.Settled {
		e.outcome(&a.Outcome)
		e.time(a.OutcomeAt)
		e.uint(a.OutcomeIndex)
		e.text(a.Decision)
		e.time(a.NextAt)
	}
	e.byte(byte(a.SideEffect))
	e.uint(uint64(len(a.Resolutions)))
	for i := range a.Resolutions {
		r := &a.Resolutions[i]
		e.byte(byte(r.SideEffect))
		e.evidence(&r.Evidence)
		e.bool(r.Override)
		e.text(r.Actor)
		e.text(r.Reason)
		e.text(r.OperationID)
		e.time(r.At)
		e.uint(r.Index)
		e.text(r.Effect)
	}
	return e.b
}

func decodeAttempt(b []byte) (*Attempt, error) {
	d := openRecord("attempt", b)
	a := &Attempt{}
	a.Number = d.u32()
	a.AdmittedAt = d.time()
	a.AdmittedIndex = d.uint()
	a.Owner = d.epoch()
	d.fixed(a.RequestHash[:])
	a.Deadline = d.time()
	a.Work = Work(d.byte())
	a.Trial = d.bool()
	a.DuplicateSafe = d.bool()
	a.Settled = d.bool()
	if a.Settled {
		a.Outcome = d.outcome()
		a.OutcomeAt = d.time()
		a.OutcomeIndex = d.uint()
		a.Decision = d.text()
		a.NextAt = d.time()
	}
	a.SideEffect = policy.SideEffect(d.byte())
	if n := d.count(); n > 0 {
		a.Resolutions = make([]Resolution, n)
		for i := range a.Resolutions {
			a.Resolutions[i] = Resolution{
				SideEffect: policy.SideEffect(d.byte()), Evidence: d.evidence(), Override: d.bool(), Actor: d.text(), Reason: d.text(),
				OperationID: d.text(), At: d.time(), Index: d.uint(), Effect: d.text(),
			}
		}
	}
	return a, d.finish()
}

func encodeDeadLetter(l *DeadLetter) []byte {
	e := newRecord(128)
	e.raw(l.ID[:])
	e.u32(l.Generation)
	e.byte(byte(l.State))
	e.byte(byte(l.Reason))
	e.u32(uint32(l.Lane))
	e.uint(l.DestinationVersion)
	e.time(l.FailedAt)
	e.uint(l.FailedIndex)
	e.u32(l.Attempts)
	e.u32(l.RetryCount)
	e.text(l.FirstErrorClass)
	e.text(l.LastErrorClass)
	e.u32(l.OpenUnknown)
	e.bool(l.PossibleDuplicate)
	e.text(l.Export)
	e.u32(l.ReplayedAs)
	return e.b
}

func decodeDeadLetter(b []byte) (*DeadLetter, error) {
	d := openRecord("dead letter", b)
	l := &DeadLetter{}
	d.fixed(l.ID[:])
	l.Generation = d.u32()
	l.State = GenerationState(d.byte())
	l.Reason = TerminalReason(d.byte())
	l.Lane = LaneID(d.u32())
	l.DestinationVersion = d.uint()
	l.FailedAt = d.time()
	l.FailedIndex = d.uint()
	l.Attempts = d.u32()
	l.RetryCount = d.u32()
	l.FirstErrorClass = d.text()
	l.LastErrorClass = d.text()
	l.OpenUnknown = d.u32()
	l.PossibleDuplicate = d.bool()
	l.Export = d.text()
	l.ReplayedAs = d.u32()
	return l, d.finish()
}
