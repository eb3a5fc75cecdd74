package server

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// maxHistory bounds the history of a message in an answer; the newest lines are kept.
const maxHistory = 1000

// messageOf converts all that a shard knows of a message.
func messageOf(v *shard.MessageView, number uint16, withPayload bool) *sealanev1.Message {
	m := v.Message
	out := &sealanev1.Message{
		Id: m.ID.String(), Namespace: m.Namespace, Destination: m.Destination, Slot: m.Slot, OrderingKey: m.OrderingKey,
		IdempotencyKey: m.IdempotencyKey, ContentType: m.ContentType, Traceparent: m.TraceParent, PayloadSize: uint32(m.PayloadBytes),
		PayloadSha256: hex.EncodeToString(m.PayloadHash[:]), DeliverAt: timestamp(m.DeliverAt), ExpireAt: timestamp(m.ExpireAt),
		AcceptedAt: timestamp(m.AcceptedAt), AcceptedPosition: positionText(number, m.AcceptedIndex), Generation: m.Current,
		TrimmedUnknownAttempts: m.TrimmedUnknown,
	}
	if len(m.Attributes) > 0 {
		out.Attributes = make(map[string]string, len(m.Attributes))
		for _, a := range m.Attributes {
			out.Attributes[a.Name] = a.Value
		}
	}
	if withPayload {
		out.Payload = v.Payload
	}
	for i := range v.Generations {
		g := generationOf(&v.Generations[i], number)
		out.Generations = append(out.Generations, g)
		out.PossibleDuplicate = out.PossibleDuplicate || g.PossibleDuplicate
		if g.Number == m.Current {
			out.State, out.Reason, out.DestinationVersion = g.State, g.Reason, g.DestinationVersion
		}
	}
	out.History = historyOf(v, number)
	return out
}

func generationOf(v *shard.GenerationView, number uint16) *sealanev1.Generation {
	g := v.Generation
	out := &sealanev1.Generation{
		Number: g.Number, State: sealanev1.GenerationState_Value(g.State), Reason: sealanev1.TerminalReason_Value(g.TerminalReason),
		DestinationVersion: uint32(g.DestinationVersion), Origin: originOf(g.Origin), OriginId: g.OriginID, CreatedAt: timestamp(g.CreatedAt),
		CreatedPosition: positionText(number, g.CreatedIndex), DeliverAt: timestamp(g.DeliverAt), ExpireAt: timestamp(g.ExpireAt),
		Deadline: timestamp(g.Deadline), DeadlineReason: sealanev1.DeadlineReason_EXPIRE_AT, AttemptsAdmitted: g.Attempts,
		AttemptsCounted: g.Counted, UncertainRetries: g.UncertainRetries, AttemptsUnknown: g.OpenUnknown, AttemptsInFlight: g.OpenInFlight,
		PossibleDuplicate: g.PossibleDuplicate, OrderAfterUnknown: g.OrderAfterUnknown, OrderHead: g.OrderHead,
		FirstAdmittedAt: timestamp(g.FirstAdmittedAt), EndedAt: timestamp(g.TerminalAt), EndedPosition: positionText(number, g.TerminalIndex),
		FirstErrorClass: g.FirstErrorClass, LastErrorClass: g.LastErrorClass,
	}
	if g.DeadlineByLifetime {
		out.DeadlineReason = sealanev1.DeadlineReason_LIFETIME
	}
	if g.TerminalReason == shard.ReasonOperatorGiveUp {
		out.GivenUpBy = g.GivenUpBy
	}
	if g.Work != shard.WorkNone && !g.State.Terminal() {
		out.NextWork = sealanev1.Work_Value(g.Work)
		out.NextAttemptAt = timestamp(g.NextAt)
		out.NextAttemptReason = nextReasonOf(g.NextReason)
	}
	for _, a := range v.Attempts {
		out.Attempts = append(out.Attempts, attemptOf(a, number))
	}
	return out
}

func originOf(s string) sealanev1.GenerationOrigin_Value {
	return sealanev1.GenerationOrigin_Value(sealanev1.GenerationOrigin_Value_value[s])
}

// nextReasonOf maps the shard's word; what a submit or a reschedule planned is the client's deliver_at.
func nextReasonOf(s string) sealanev1.NextAttemptReason_Value {
	if v, ok := sealanev1.NextAttemptReason_Value_value[s]; ok {
		return sealanev1.NextAttemptReason_Value(v)
	}
	return sealanev1.NextAttemptReason_DELIVER_AT
}

func attemptOf(a *shard.Attempt, number uint16) *sealanev1.Attempt {
	out := &sealanev1.Attempt{
		Number: a.Number, AdmittedAt: timestamp(a.AdmittedAt), AdmittedPosition: positionText(number, a.AdmittedIndex),
		Owner:         &sealanev1.OwnerEpoch{Node: a.Owner.Node, BootId: fmt.Sprintf("%016x", a.Owner.Boot), Term: a.Owner.Term},
		RequestSha256: hex.EncodeToString(a.RequestHash[:]), Deadline: timestamp(a.Deadline), Work: sealanev1.Work_Value(a.Work),
		HalfOpenTrial: a.Trial, DuplicateSafe: a.DuplicateSafe, SideEffect: sealanev1.SideEffect_Value(a.SideEffect), Decision: a.Decision,
		NextAttemptAt: timestamp(a.NextAt),
	}
	if a.Settled {
		out.Outcome = outcomeOf(a, number)
	}
	for i := range a.Resolutions {
		r := &a.Resolutions[i]
		out.Resolutions = append(out.Resolutions, &sealanev1.Resolution{
			SideEffect: sealanev1.SideEffect_Value(r.SideEffect), Evidence: evidenceOf(&r.Evidence), Override: r.Override, Actor: r.Actor,
			Reason: r.Reason, OperationId: r.OperationID, RecordedAt: timestamp(r.At), Position: positionText(number, r.Index),
			Effect: r.Effect,
		})
	}
	return out
}

func outcomeOf(a *shard.Attempt, number uint16) *sealanev1.Outcome {
	o := &sealanev1.Outcome{
		SideEffect: sealanev1.SideEffect_Value(a.Outcome.SideEffect), Disposition: sealanev1.Disposition_Value(a.Outcome.Disposition),
		Evidence: evidenceOf(&a.Outcome.Evidence), RecordedAt: timestamp(a.OutcomeAt), Position: positionText(number, a.OutcomeIndex),
	}
	if a.Outcome.HasRetryAfter {
		o.RetryAfter = durationpb.New(max(a.Outcome.RetryAfter, 0))
	}
	return o
}

func evidenceOf(e *shard.Evidence) *sealanev1.Evidence {
	return &sealanev1.Evidence{
		Rule: e.Rule, Statement: e.Statement, Status: e.Status, ErrorClass: e.ErrorClass, Detail: e.Detail, RemoteAddress: e.RemoteAddr,
		BytesWritten: e.BytesWritten, ObservedAt: timestamp(e.At),
	}
}

// line is one line of a history before it is cut and converted. Lines of one entry keep the order of what they speak of.
type line struct {
	at         policy.Time
	index      uint64
	rank       int
	event      sealanev1.HistoryEvent_Value
	generation uint32
	attempt    uint32
	detail     string
	actor      string
	operation  string
}

// historyOf tells what happened, from the records: each decision with the position that ordered it, oldest first.
func historyOf(v *shard.MessageView, number uint16) []*sealanev1.HistoryEntry {
	var lines []line
	add := func(l line) {
		l.rank = len(lines)
		lines = append(lines, l)
	}
	add(line{
		at: v.Message.AcceptedAt, index: v.Message.AcceptedIndex, event: sealanev1.HistoryEvent_ACCEPTED, generation: 1,
		detail: fmt.Sprintf("%d bytes for %s", v.Message.PayloadBytes, v.Message.Destination),
	})
	for i := range v.Generations {
		generationLines(&v.Generations[i], add)
	}
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.rank, b.rank))
	})
	lines = lines[max(0, len(lines)-maxHistory):]
	out := make([]*sealanev1.HistoryEntry, len(lines))
	for i, l := range lines {
		out[i] = &sealanev1.HistoryEntry{
			At: timestamp(l.at), Position: positionText(number, l.index), Event: l.event, Generation: l.generation, Attempt: l.attempt,
			Detail: l.detail, Actor: l.actor, OperationId: l.operation,
		}
	}
	return out
}

func generationLines(v *shard.GenerationView, add func(line)) {
	g := v.Generation
	if g.Number > 1 {
		add(line{
			at: g.CreatedAt, index: g.CreatedIndex, event: sealanev1.HistoryEvent_GENERATION_CREATED, generation: g.Number, detail: g.Origin,
		})
	}
	for _, a := range v.Attempts {
		add(line{
			at: a.AdmittedAt, index: a.AdmittedIndex, event: sealanev1.HistoryEvent_ADMITTED, generation: g.Number, attempt: a.Number,
			detail: admissionText(g, a),
		})
		if a.Settled {
			add(line{
				at: a.OutcomeAt, index: a.OutcomeIndex, event: sealanev1.HistoryEvent_OUTCOME, generation: g.Number, attempt: a.Number,
				detail: outcomeText(a),
			})
		}
		for i := range a.Resolutions {
			r := &a.Resolutions[i]
			add(line{
				at: r.At, index: r.Index, event: sealanev1.HistoryEvent_EVIDENCE, generation: g.Number, attempt: a.Number,
				detail: resolutionText(r), actor: r.Actor, operation: r.OperationID,
			})
		}
	}
	if g.State.Terminal() {
		l := line{
			at: g.TerminalAt, index: g.TerminalIndex, event: sealanev1.HistoryEvent_ENDED, generation: g.Number,
			detail: g.State.String() + " " + g.TerminalReason.String(),
		}
		switch g.TerminalReason {
		case shard.ReasonOperatorGiveUp:
			l.actor = g.GivenUpBy
		case shard.ReasonCancelled: // the shard keeps the client's reason there
			if g.GivenUpBy != "" {
				l.detail += ": " + g.GivenUpBy
			}
		}
		add(l)
	}
}

func admissionText(g *shard.Generation, a *shard.Attempt) string {
	s := fmt.Sprintf("%s by %s under version %d", sealanev1.Work_Value(a.Work), a.Owner.Node, g.DestinationVersion)
	if a.Trial {
		s += ", trial of a half-open circuit"
	}
	if a.DuplicateSafe {
		s += ", inside the receiver's dedup window"
	}
	return s
}

func outcomeText(a *shard.Attempt) string {
	e := &a.Outcome.Evidence
	s := fmt.Sprintf("%s %s by %s", a.Outcome.SideEffect, a.Outcome.Disposition, e.Rule)
	if e.Status != 0 {
		s += fmt.Sprintf(", status %d", e.Status)
	}
	if a.Decision != "" {
		s += ": " + a.Decision
	}
	if a.NextAt != 0 {
		s += " at " + time.Unix(0, int64(a.NextAt)).UTC().Format(time.RFC3339Nano)
	}
	return s
}

func resolutionText(r *shard.Resolution) string {
	s := fmt.Sprintf("%s %s by %s", r.SideEffect, r.Effect, r.Evidence.Rule)
	if r.Override {
		s += ", override"
	}
	if r.Reason != "" {
		s += ": " + r.Reason
	}
	return s
}

// tombstoneMessage is what is left of a removed message.
func tombstoneMessage(t *shard.Tombstone) *sealanev1.Message {
	return &sealanev1.Message{
		Id: t.ID.String(),
		Tombstone: &sealanev1.Tombstone{
			RemovedAt: timestamp(t.At), Reason: t.Reason, Actor: t.Actor, AttemptsUnknown: t.UnknownAttempts,
		},
	}
}

// summaryOf is one line of a listing.
func summaryOf(v *shard.MessageView) *sealanev1.MessageSummary {
	m := v.Message
	out := &sealanev1.MessageSummary{
		Id: m.ID.String(), Destination: m.Destination, Slot: m.Slot, Generation: m.Current, AcceptedAt: timestamp(m.AcceptedAt),
		PayloadSize: uint32(m.PayloadBytes), OrderingKey: m.OrderingKey,
	}
	for i := range v.Generations {
		g := v.Generations[i].Generation
		out.PossibleDuplicate = out.PossibleDuplicate || g.PossibleDuplicate
		if g.Number != m.Current {
			continue
		}
		out.State, out.Reason = sealanev1.GenerationState_Value(g.State), sealanev1.TerminalReason_Value(g.TerminalReason)
		out.DestinationVersion, out.Attempts, out.LastErrorClass = uint32(g.DestinationVersion), g.Attempts, g.LastErrorClass
		out.DeliverAt, out.EndedAt = timestamp(g.DeliverAt), timestamp(g.TerminalAt)
		if g.Work != shard.WorkNone && !g.State.Terminal() {
			out.NextAttemptAt = timestamp(g.NextAt)
		}
	}
	return out
}
