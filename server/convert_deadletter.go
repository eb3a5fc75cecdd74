package server

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// deadLetterOf converts the record of a failed generation with what moves on beside it.
func deadLetterOf(m *shard.Message, g *shard.GenerationView, d *shard.DeadLetter, number uint16, withAttempts bool) *sealanev1.DeadLetter {
	out := &sealanev1.DeadLetter{
		MessageId: m.ID.String(), Generation: d.Generation, Namespace: m.Namespace, Destination: m.Destination,
		DestinationVersion: uint32(d.DestinationVersion), Slot: m.Slot, Shard: uint32(number), State: sealanev1.GenerationState_Value(d.State),
		Reason: sealanev1.TerminalReason_Value(d.Reason), FirstErrorClass: d.FirstErrorClass, LastErrorClass: d.LastErrorClass,
		FailedAt: timestamp(d.FailedAt), FailedPosition: positionText(number, d.FailedIndex), AcceptedAt: timestamp(m.AcceptedAt),
		AttemptCount: d.Attempts, RetryCount: d.RetryCount, AttemptsUnknown: g.Generation.OpenUnknown,
		PossibleDuplicate: d.PossibleDuplicate || g.Generation.PossibleDuplicate, ReplayedAs: d.ReplayedAs, OrderingKey: m.OrderingKey,
		PayloadSize: uint32(m.PayloadBytes),
		Export:      &sealanev1.DeadLetterExport{State: sealanev1.ExportState_Value(sealanev1.ExportState_Value_value[d.Export])},
	}
	if withAttempts {
		for _, a := range g.Attempts {
			out.Attempts = append(out.Attempts, attemptOf(a, number))
		}
	}
	return out
}

// uncertainOf is one row of the inbox: what is known about an attempt of which nobody can tell whether the receiver has it, and what an
// operator may do about it.
func uncertainOf(v *view, mv *shard.MessageView, g *shard.GenerationView, a *shard.Attempt) (*sealanev1.UncertainAttempt, error) {
	m, gen := mv.Message, g.Generation
	out := &sealanev1.UncertainAttempt{
		MessageId: m.ID.String(), Generation: gen.Number, Attempt: a.Number, Namespace: m.Namespace, Destination: m.Destination,
		DestinationVersion: uint32(gen.DestinationVersion), Slot: m.Slot, Shard: uint32(v.sh.shard), Since: timestamp(a.OutcomeAt),
		Age: durationpb.New(max(v.now.Sub(a.OutcomeAt), 0)), Cause: causeOf(a), Ledger: attemptOf(a, v.sh.shard),
		GenerationState: sealanev1.GenerationState_Value(gen.State), Known: knownAbout(gen, a),
	}
	if gen.Work != shard.WorkNone && !gen.State.Terminal() {
		out.NextAttemptAt = timestamp(gen.NextAt)
	}
	if gen.OrderHead {
		out.HoldsOrderingKey = m.OrderingKey
	}
	actions, err := actionsFor(v, m, gen)
	out.Actions = actions
	return out, err
}

func causeOf(a *shard.Attempt) string {
	if a.Outcome.Evidence.ErrorClass != "" {
		return a.Outcome.Evidence.ErrorClass
	}
	return a.Outcome.Evidence.Rule
}

// knownAbout says what the evidence shows, one sentence each.
func knownAbout(g *shard.Generation, a *shard.Attempt) []string {
	e := &a.Outcome.Evidence
	var out []string
	if e.BytesWritten > 0 {
		out = append(out, fmt.Sprintf("%d bytes of the request were handed to the network.", e.BytesWritten))
	}
	switch {
	case e.Status != 0:
		out = append(out, fmt.Sprintf("The answer had status %d, which does not say whether the message was accepted.", e.Status))
	case e.Rule == "RECOVERY":
		out = append(out, "The process that sent it ended before it recorded an outcome; the request may or may not have left it.")
	default:
		out = append(out, "No complete answer was received.")
	}
	if e.RemoteAddr != "" {
		out = append(out, "The receiver was "+e.RemoteAddr+".")
	}
	if e.Detail != "" {
		out = append(out, "The sender noted: "+e.Detail)
	}
	if g.OpenUnknown > 1 {
		out = append(out, fmt.Sprintf("%d attempts of this generation are unknown.", g.OpenUnknown))
	}
	if g.OpenInFlight > 0 {
		out = append(out, "Another attempt is in flight.")
	}
	if g.Work != shard.WorkNone && !g.State.Terminal() {
		out = append(out, "It is sent again at "+time.Unix(0, int64(g.NextAt)).UTC().Format(time.RFC3339)+" ("+g.NextReason+").")
	} else if a.Decision != "" {
		out = append(out, "Nothing is sent again by itself: "+a.Decision+".")
	}
	return out
}

// actionsFor tells for each verdict whether the shard would take it now. It mirrors the checks the shard makes at apply.
func actionsFor(v *view, m *shard.Message, g *shard.Generation) ([]*sealanev1.SafeAction, error) {
	d, known, err := shard.GetDestination(v.state, m.Namespace, m.Destination, g.DestinationVersion)
	if err != nil {
		return nil, err
	}
	l, _, err := shard.GetLane(v.state, g.Lane)
	if err != nil {
		return nil, err
	}
	retry := &sealanev1.SafeAction{Verdict: sealanev1.ResolveVerdict_RETRY, DuplicatePossible: true}
	safe := d.Uncertainty.ReceiverDedupWindow > 0 && v.now.Add(d.Timeout) <= g.FirstAdmittedAt.Add(d.Uncertainty.ReceiverDedupWindow)
	switch {
	case g.State.Terminal():
		retry.Explanation = "The generation has ended " + g.State.String() + "."
	case g.OpenInFlight > 0:
		retry.Explanation = "Another attempt is in flight."
	case g.Deadline <= v.now:
		retry.Explanation = "The admission window has closed."
	case l.Gate == lane.GateClosed:
		retry.Explanation = "The lane is closed."
	case known && g.Attempts >= d.Retry.MaxAttempts:
		retry.Explanation = fmt.Sprintf("All %d attempts that the policy allows are used.", d.Retry.MaxAttempts)
	case safe:
		retry.Allowed, retry.DuplicatePossible = true, false
		retry.Explanation = "Sends once more. The receiver promises to treat a repeated webhook-id as one, and the window is open."
	default:
		retry.Allowed = true
		retry.Explanation = "Sends once more. If the receiver has the message already, it gets it twice."
	}
	giveUp := &sealanev1.SafeAction{Verdict: sealanev1.ResolveVerdict_DEAD_LETTER, Allowed: true,
		Explanation: "Ends the generation as a dead letter that is marked as a possible duplicate. The attempt stays unknown in the ledger."}
	switch {
	case g.State.Terminal():
		giveUp.Allowed, giveUp.Explanation = false, "The generation has ended "+g.State.String()+"."
	case g.OpenInFlight > 0:
		giveUp.Allowed, giveUp.Explanation = false, "Another attempt is in flight."
	}
	return []*sealanev1.SafeAction{
		{Verdict: sealanev1.ResolveVerdict_PUBLISHED, Allowed: true, Override: true,
			Explanation: "Right if the receiver's own records show the message. Ends the generation DELIVERED."},
		{Verdict: sealanev1.ResolveVerdict_NOT_PUBLISHED, Allowed: true, Override: true, DuplicatePossible: true,
			Explanation: notPublishedText(g, v.now)},
		retry, giveUp,
	}, nil
}

func notPublishedText(g *shard.Generation, clock policy.Time) string {
	s := "Right if the receiver's own records show that it never arrived. It is then sent again as the retry policy says; if that is wrong, the " +
		"receiver gets it twice."
	if g.Deadline <= clock {
		s = "Right if the receiver's own records show that it never arrived. The admission window has closed, so it expires."
	}
	return s
}
