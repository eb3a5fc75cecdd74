package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/host"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// versionsSearched bounds how many versions of a destination are looked through for the one that names a target.
const versionsSearched = 64

// laneOf joins a lane's record with what the leader's runtime knows of it.
func laneOf(ctx context.Context, v *view, l *shard.LaneRecord) (*sealanev1.Lane, error) {
	st, err := runtimeOf(ctx, v, l.ID)
	if err != nil {
		return nil, err
	}
	c := &l.Counts
	out := &sealanev1.Lane{
		Namespace: l.Namespace, Destination: l.Destination, Slot: l.Slot, Shard: uint32(v.sh.shard), Gate: gateOf(l.Gate),
		ControlVersion: l.ControlVersion, GateActor: l.GateActor, Pending: c.Pending(), Scheduled: c.Scheduled, InFlight: c.InFlight,
		Uncertain: c.Uncertain, PendingBytes: c.PendingBytes, OpenAttempts: c.OpenAttempts, CreatedAt: timestamp(l.CreatedAt),
		Kept: &sealanev1.LaneKept{
			Delivered: c.Terminal[0], DeadLettered: c.Terminal[1], Cancelled: c.Terminal[2], Expired: c.Terminal[3], Superseded: c.Terminal[4],
		},
		Hold: holdOf(st.Why),
	}
	if l.Gate != lane.GateOpen {
		out.GateReason = l.GateReason
	}
	d, known, err := shard.NewestDestination(v.state, l.Namespace, l.Destination)
	if err != nil {
		return nil, err
	}
	if known {
		out.Limits = shareOf(&d.Limits)
	}
	oldest := policy.MaxTime
	for i := range l.Targets {
		t, due, err := targetOf(v, l, &l.Targets[i], &st, d.Version)
		if err != nil {
			return nil, err
		}
		oldest = min(oldest, due)
		out.Targets = append(out.Targets, t)
		if known && l.Targets[i].Key == d.TargetKey {
			out.Readiness, out.Blocked = t.Readiness, t.Blocked
		}
	}
	if oldest < policy.MaxTime {
		out.OldestDueAt = timestamp(oldest)
	}
	out.HoldExplanation = holdText(out, v.now)
	return out, nil
}

// runtimeOf is what the leader's runtime knows of a lane. Where none could be asked, the lane is shown without.
func runtimeOf(ctx context.Context, v *view, id shard.LaneID) (host.LaneStatus, error) {
	if st, known := v.runtime[id]; known {
		return st, nil
	}
	if err := v.askRuntime(ctx, []shard.LaneID{id}); err != nil {
		return host.LaneStatus{}, err
	}
	return v.runtime[id], nil
}

// askRuntime asks for several lanes at once, here or at the node that leads. Only the end of the caller's context is an error.
func (v *view) askRuntime(ctx context.Context, ids []shard.LaneID) error {
	if v.runtime == nil {
		v.runtime = make(map[shard.LaneID]host.LaneStatus, len(ids))
	}
	if r := v.sh.replica.Load(); r != nil && r.leading() {
		for _, id := range ids {
			st, err := r.host.LaneStatus(ctx, id)
			switch {
			case err == nil:
			case errors.Is(err, host.ErrNotLeading) || errors.Is(err, host.ErrClosed):
				st = host.LaneStatus{Why: host.WhyNotLeading}
			default:
				st = host.LaneStatus{Why: host.WhyFailed}
			}
			v.runtime[id] = st
		}
		return ctx.Err()
	}
	for part := range slices.Chunk(ids, maxLaneStatuses) {
		answers := v.askLeader(ctx, part)
		for i, id := range part {
			st := host.LaneStatus{Why: host.WhyNotLeading}
			if i < len(answers) && json.Unmarshal(answers[i], &st) != nil {
				st = host.LaneStatus{Why: host.WhyFailed}
			}
			v.runtime[id] = st
		}
	}
	return ctx.Err()
}

// runtimeWait bounds the question for a runtime on another node: without the answer the lane is still shown.
const runtimeWait = time.Second

func (v *view) askLeader(ctx context.Context, ids []shard.LaneID) [][]byte {
	node := v.sh.ref.leader()
	if node == "" || node == v.sh.n.cfg.NodeID {
		return nil
	}
	l, err := v.sh.n.link(node)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeWait)
	defer cancel()
	m := &peerv1.LaneStatusRequest{Group: v.sh.ref.number}
	for _, id := range ids {
		m.Lanes = append(m.Lanes, uint64(id))
	}
	out, err := l.peer().LaneStatus(ctx, m)
	if err != nil {
		return nil
	}
	return out.GetStatuses()
}

func gateOf(g lane.Gate) sealanev1.Gate_Value {
	return sealanev1.Gate_Value(sealanev1.Gate_Value_value[g.String()])
}

func readinessOf(r lane.Readiness) sealanev1.Readiness_Value {
	return sealanev1.Readiness_Value(sealanev1.Readiness_Value_value[r.String()])
}

// holdOf maps the runtime's word; a test holds the two lists together.
func holdOf(w host.Why) sealanev1.SendHold_Value {
	return sealanev1.SendHold_Value(sealanev1.SendHold_Value_value[string(w)])
}

func shareOf(l *shard.LaneLimits) *sealanev1.LaneShare {
	return &sealanev1.LaneShare{
		MaxInFlight: l.MaxInFlight, RatePerSecond: l.RatePerSecond, MaxPending: l.MaxPending, MaxPendingBytes: l.MaxPendingBytes,
		MaxBytesInFlight: l.MaxBytesInFly,
	}
}

// targetOf converts one target; due is when its oldest work falls due, MaxTime without any.
func targetOf(v *view, l *shard.LaneRecord, t *shard.TargetRecord, st *host.LaneStatus, newest uint64) (*sealanev1.LaneTarget, policy.Time, error) {
	out := &sealanev1.LaneTarget{
		Description: describeTarget(t.Key), Circuit: circuitOf(t), Hold: sealanev1.SendHold_NOTHING_DUE, Readiness: sealanev1.Readiness_RECOVERING,
	}
	switch st.Why {
	case host.WhyNotLeading, host.WhyFailed:
		out.Readiness, out.Hold = sealanev1.Readiness_READINESS_UNSPECIFIED, holdOf(st.Why)
	case host.WhyPaused, host.WhyClosed, host.WhyRecovering:
		out.Hold = holdOf(st.Why)
	}
	for i := range st.Targets {
		s := &st.Targets[i]
		if s.Target != t.ID {
			continue
		}
		out.Readiness, out.Hold, out.InFlight = readinessOf(s.Readiness), holdOf(s.Why), uint32(s.InFlight)
		if s.BlockedReason != "" {
			out.Blocked = blockedOf(t, s.BlockedReason)
		}
	}
	due := policy.MaxTime
	items, err := shard.ScanDue(v.state, l.ID, t.ID, nil, 1)
	if err != nil {
		return nil, 0, err
	}
	if len(items) > 0 {
		due = items[0].Due
		out.OldestDueAt = timestamp(due)
	}
	out.DestinationVersion, err = versionOfTarget(v.state, l, t.Key, newest)
	return out, due, err
}

// blockedOf says why no connection can be had. The runtime's text begins with the class where the adapter gave one.
func blockedOf(t *shard.TargetRecord, why string) *sealanev1.BlockedReason {
	b := &sealanev1.BlockedReason{Class: t.LastError, Detail: why}
	if class, detail, ok := strings.Cut(why, ": "); ok && class != "" && class == strings.ToUpper(class) && !strings.Contains(class, " ") {
		b.Class, b.Detail = class, detail
	}
	return b
}

// versionOfTarget is the newest version that names a target, 0 where it is not among the last ones.
func versionOfTarget(r shard.Reader, l *shard.LaneRecord, key string, newest uint64) (uint32, error) {
	for version, looked := newest, 0; version > 0 && looked < versionsSearched; version, looked = version-1, looked+1 {
		d, ok, err := shard.GetDestination(r, l.Namespace, l.Destination, version)
		if err != nil {
			return 0, err
		}
		if ok && d.TargetKey == key {
			return uint32(version), nil
		}
	}
	return 0, nil
}

// describeTarget shows what a target is, without credentials and query. Its key is the adapter kind and what the adapter dials.
func describeTarget(key string) string {
	kind, rest, _ := strings.Cut(key, " ")
	address, _, _ := strings.Cut(rest, " ")
	if kind != adapterHTTP {
		return kind
	}
	u, err := url.Parse(address)
	if err != nil {
		return kind
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

func circuitOf(t *shard.TargetRecord) *sealanev1.Circuit {
	c := &t.Circuit
	return &sealanev1.Circuit{
		Phase:               sealanev1.CircuitPhase_Value(sealanev1.CircuitPhase_Value_value[c.Phase.String()]),
		ConsecutiveFailures: c.ConsecutiveFailures, Openings: c.Openings, OpenUntil: timestamp(c.OpenUntil), TrialSuccesses: c.TrialSuccesses,
		TrialInFlight: c.TrialInFlight, TrialDeadline: timestamp(c.TrialDeadline), RampLimit: c.RampLimit, Reason: c.Reason,
		LastErrorClass: t.LastError, LastErrorDetail: t.LastDetail, ChangedAt: timestamp(t.ChangedAt),
	}
}

// holdText says in a sentence why nothing is sent, with the numbers that matter.
func holdText(l *sealanev1.Lane, clock policy.Time) string {
	switch l.Hold {
	case sealanev1.SendHold_SENDING:
		return fmt.Sprintf("sending: %d in flight of %d", l.InFlight, l.GetLimits().GetMaxInFlight())
	case sealanev1.SendHold_PAUSED:
		return "paused by " + orNobody(l.GateActor) + because(l.GateReason)
	case sealanev1.SendHold_CLOSED:
		return "closed for ever by " + orNobody(l.GateActor) + because(l.GateReason)
	case sealanev1.SendHold_NOTHING_DUE:
		if at := l.OldestDueAt; at != nil {
			return "nothing is due before " + at.AsTime().UTC().Format(time.RFC3339) + in(at.AsTime(), clock)
		}
		return "nothing waits"
	case sealanev1.SendHold_CIRCUIT_OPEN, sealanev1.SendHold_TRIAL:
		return circuitText(l, clock)
	case sealanev1.SendHold_BLOCKED, sealanev1.SendHold_CONNECTING:
		return connectText(l)
	case sealanev1.SendHold_AT_MAX_IN_FLIGHT:
		return fmt.Sprintf("%d attempts wait for their answers, the limit is %d", l.OpenAttempts, l.GetLimits().GetMaxInFlight())
	case sealanev1.SendHold_RATE_LIMITED:
		return fmt.Sprintf("the limit of %d per second is reached", l.GetLimits().GetRatePerSecond())
	}
	return holdTexts[l.Hold]
}

// holdTexts are the causes that need no numbers.
var holdTexts = map[sealanev1.SendHold_Value]string{
	sealanev1.SendHold_NOT_LEADING: "another node leads the shard",
	sealanev1.SendHold_FAILED:      "the shard's state could not be read; the node's log says why",
	sealanev1.SendHold_DRAINING:    "the node is stopping",
	sealanev1.SendHold_ORDER_WAIT:  "all that waits is behind the heads of its ordering keys",
	sealanev1.SendHold_RECOVERING:  "attempts of an earlier leader are being settled",
	sealanev1.SendHold_CLOCK_GATE:  "the wall clock of the node made a step and is not trusted yet",
	sealanev1.SendHold_LOG_BUSY:    "the log refused admissions for lack of room",
}

func orNobody(s string) string {
	if s == "" {
		return "nobody on record"
	}
	return s
}

func because(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

func in(t time.Time, clock policy.Time) string {
	d := t.Sub(time.Unix(0, int64(clock))).Round(time.Second)
	if d <= 0 {
		return ""
	}
	return ", in " + d.String()
}

func circuitText(l *sealanev1.Lane, clock policy.Time) string {
	for _, t := range l.Targets {
		c := t.Circuit
		switch {
		case c.Phase == sealanev1.CircuitPhase_OPEN && c.OpenUntil != nil:
			return fmt.Sprintf("the circuit of %s is open (%s, last %s) until %s%s, then it is tried", t.Description, c.Reason, c.LastErrorClass,
				c.OpenUntil.AsTime().UTC().Format(time.RFC3339), in(c.OpenUntil.AsTime(), clock))
		case c.Phase == sealanev1.CircuitPhase_HALF_OPEN:
			return fmt.Sprintf("the circuit of %s is half-open: one message at a time, %d successes so far", t.Description, c.TrialSuccesses)
		}
	}
	return "the circuit is about to open: failures wait to be recorded"
}

func connectText(l *sealanev1.Lane) string {
	for _, t := range l.Targets {
		if t.Blocked != nil {
			return fmt.Sprintf("no connection to %s: %s %s", t.Description, t.Blocked.Class, t.Blocked.Detail)
		}
	}
	return "a connection is being made"
}
