package shardtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// What leaders and operators write.

func (t *Traffic) admit(r shard.Reader) (shard.Command, error) {
	c := &shard.Admit{ID: t.someID(), Generation: uint32(1 + t.pick(2)), Attempt: uint32(1 + t.pick(3)), RequestHash: hashOf("request")}
	if t.one(8) {
		return c, nil
	}
	lanes, err := shard.ScanLanes(r, 0, 16)
	if err != nil || len(lanes) == 0 {
		return c, err
	}
	l := lanes[t.pick(len(lanes))]
	items, err := shard.ScanDue(r, l.ID, shard.TargetID(1+t.pick(len(l.Targets))), nil, 4)
	if err != nil || len(items) == 0 {
		return c, err
	}
	it := items[t.pick(len(items))]
	g, err := shard.GetGeneration(r, it.Ref)
	if err != nil {
		return nil, err
	}
	c.ID, c.Generation, c.Attempt = it.Ref.ID, it.Ref.Generation, g.Attempts+1
	if it.Due > t.now && !t.one(4) {
		t.now = it.Due // sooner or later its time comes
	}
	return c, nil
}

func (t *Traffic) outcome(r shard.Reader) (shard.Command, error) {
	c := &shard.RecordOutcome{ID: t.someID(), Generation: uint32(1 + t.pick(2)), Attempt: uint32(1 + t.pick(3)), Outcome: t.anyOutcome()}
	if t.one(5) {
		return c, nil // late, repeated, or of an attempt that never was
	}
	open, err := shard.ScanOpenAttempts(r, nil, 8)
	if err != nil || len(open) == 0 {
		return c, err
	}
	o := open[t.pick(len(open))]
	c.ID, c.Generation, c.Attempt = o.Ref.ID, o.Ref.Generation, o.Attempt
	return c, nil
}

func (t *Traffic) anyOutcome() shard.Outcome {
	o := shard.Outcome{
		SideEffect: policy.NotPublished, Disposition: policy.MessageRetriable,
		Evidence: shard.Evidence{Rule: "TEST", Statement: "NONE", ErrorClass: fmt.Sprint("CLASS_", t.pick(3)), Detail: strings.Repeat("ä", t.pick(200)), At: t.now},
	}
	switch t.pick(8) {
	case 0, 1:
		o.SideEffect, o.Disposition = policy.Published, policy.OK
	case 2, 3, 4:
		o.SideEffect = policy.Unknown
	case 6:
		o.Disposition = policy.Disposition(2 + t.pick(6))
	case 5:
		o.SideEffect, o.Disposition = policy.SideEffect(t.pick(5)), policy.Disposition(t.pick(9)) // often illegal
	}
	if t.one(3) {
		o.HasRetryAfter, o.RetryAfter = true, time.Duration(t.pick(200)-20)*time.Second
	}
	return o
}

// resolution is evidence or an operator's decision, mostly about an attempt that is UNKNOWN.
func (t *Traffic) resolution(r shard.Reader) (shard.Command, error) {
	ref, attempt := shard.Ref{ID: t.someID(), Generation: uint32(1 + t.pick(2))}, uint32(1+t.pick(3))
	items, err := shard.ScanUncertain(r, nil, 8)
	if err != nil {
		return nil, err
	}
	if len(items) > 0 && !t.one(4) {
		it := items[t.pick(len(items))]
		ref, attempt = it.Ref, it.Attempt
	}
	if t.one(2) {
		return &shard.AttachEvidence{
			ID: ref.ID, Generation: ref.Generation, Attempt: attempt, SideEffect: policy.SideEffect(1 + t.pick(3)),
			Evidence: shard.Evidence{Rule: "PROBE", Statement: "RECEIVER_STATEMENT"}, Override: t.one(2),
		}, nil
	}
	verdicts := []shard.ResolveVerdict{shard.ResolvePublished, shard.ResolveNotPublished, shard.ResolveRetry, shard.ResolveRetry, shard.ResolveDeadLetter}
	c := t.operation(shard.ActionResolve)
	c.ID, c.Generation, c.Attempt, c.Verdict, c.Evidence = ref.ID, ref.Generation, attempt, verdicts[t.pick(len(verdicts))], "seen in their log"
	return c, nil
}

// operation makes a new operation, and now and then reuses an id.
func (t *Traffic) operation(a shard.ControlAction) *shard.ControlStep {
	t.ops++
	id := t.ops
	if t.one(8) {
		id = 1 + t.pick(t.ops)
	}
	return &shard.ControlStep{
		OperationID: fmt.Sprint("op", id), Hash: hashOf(fmt.Sprint(a, id/2)), Actor: "ada", Reason: "test", Action: a, Namespace: "default",
	}
}

func (t *Traffic) expire(r shard.Reader) (shard.Command, error) {
	items, err := shard.ScanDeadlines(r, policy.MaxTime, 4)
	if err != nil || len(items) == 0 || t.one(5) {
		return &shard.Expire{ID: t.someID(), Generation: uint32(1 + t.pick(2))}, err
	}
	it := items[t.pick(len(items))]
	if it.At > t.now && t.one(3) {
		t.now = it.At
	}
	return &shard.Expire{ID: it.Ref.ID, Generation: it.Ref.Generation}, nil
}

// laneEvent mostly does what a circuit waits for: the readiness check once the open time is over, the trial's deadline.
func (t *Traffic) laneEvent(r shard.Reader) (shard.Command, error) {
	c := &shard.LaneEvent{Lane: shard.LaneID(1 + t.pick(5)), Target: shard.TargetID(1 + t.pick(2)), Event: shard.LaneEventKind(1 + t.pick(3)), ErrorClass: "DIAL", Detail: "refused"}
	lanes, err := shard.ScanLanes(r, 0, 16)
	if err != nil || t.one(4) {
		return c, err
	}
	for _, l := range lanes {
		for _, target := range l.Targets {
			switch circuit := target.Circuit; {
			case circuit.Phase == lane.CircuitOpen:
				c.Lane, c.Target, c.Event = l.ID, target.ID, shard.LaneReadyToTry
				t.now = max(t.now, circuit.OpenUntil)
			case circuit.TrialInFlight && t.one(2):
				c.Lane, c.Target, c.Event = l.ID, target.ID, shard.LaneTrialOverdue
				t.now = max(t.now, circuit.TrialDeadline)
			}
		}
	}
	return c, nil
}

func (t *Traffic) laneControl() shard.Command {
	a := []shard.ControlAction{shard.ActionPauseLane, shard.ActionResumeLane, shard.ActionResumeLane, shard.ActionResetCircuit}[t.pick(4)]
	c := t.operation(a)
	c.Destination, c.Slot = []string{"hold", "dedup", "twice", "brief"}[t.pick(4)], uint32(t.pick(2))
	return c
}

func (t *Traffic) trim() shard.Command {
	return &shard.Trim{
		Lane: shard.LaneID(1 + t.pick(6)), State: shard.GenerationState(5 + t.pick(5)), Before: t.now.Add(-time.Duration(t.pick(30)) * time.Second),
		Max: uint32(t.pick(4)),
	}
}

// install brings a version: the next one, with another target or other limits, or one that is there already.
func (t *Traffic) install() shard.Command {
	ds := Destinations()
	d := ds[t.pick(len(ds))]
	d.Version = t.versions[d.Name]
	if t.one(3) {
		return &shard.InstallDestination{Destination: d}
	}
	d.Version++
	t.versions[d.Name]++
	d.TargetKey = []string{d.TargetKey, "https://elsewhere"}[t.pick(2)]
	d.Retry.MaxAttempts = uint32(1 + t.pick(4))
	d.Deleted = t.one(8)
	return &shard.InstallDestination{Destination: d}
}
