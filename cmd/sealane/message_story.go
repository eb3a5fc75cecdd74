package main

import (
	"fmt"
	"io"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// story tells what became of one message, from what the node answered. It adds no knowledge of its own: only words.
type story struct {
	w    io.Writer
	now  time.Time
	m    *sealanev1.Message
	addr string // what a command needs to reach the same node
}

func (s *story) line(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

func (s *story) tell() {
	m := s.m
	s.line("%s to %s (version %d)", m.GetId(), printable(m.GetDestination()), m.GetDestinationVersion())
	if t := m.GetTombstone(); t != nil {
		s.line("  removed    %s (%s%s); the payload is gone, this record stays", at(t.GetRemovedAt()), t.GetReason(), by(t.GetActor()))
	}
	s.line("  state      %s: %s", m.GetState(), stateMeans[m.GetState()])
	if why := reasonMeans[m.GetReason()]; why != "" {
		s.line("  why        %s: %s", m.GetReason(), why)
	}
	if m.GetPossibleDuplicate() {
		s.line("  duplicate  possible: an attempt may have taken effect beside what is listed here")
	}
	s.line("  accepted   %s at %s, %s%s", at(m.GetAcceptedAt()), m.GetAcceptedPosition(), size(m.GetPayloadSize()), prefixed(", ", printable(m.GetContentType())))
	if k := m.GetIdempotencyKey(); k != "" {
		s.line("  key        %s", printable(k))
	}
	if k := m.GetOrderingKey(); k != "" {
		s.line("  order      one after the other under %s", printable(k))
	}
	for _, g := range m.GetGenerations() {
		s.generation(g)
	}
	s.line("")
	s.next()
	s.safe()
}

func (s *story) generation(g *sealanev1.Generation) {
	s.line("")
	s.line("Generation %d, %s%s, %s", g.GetNumber(), originMeans[g.GetOrigin()], prefixed(" ", printable(g.GetOriginId())), s.attempts(g))
	if d := g.GetDeliverAt(); d != nil && d.AsTime().After(g.GetCreatedAt().AsTime()) {
		s.line("  not before %s", at(d))
	}
	if g.GetOrderAfterUnknown() {
		s.line("  a message ahead of it under the same key was given up while one of its attempts was unknown")
	}
	for _, t := range g.GetAttempts() {
		s.attempt(t)
	}
	if e := g.GetEndedAt(); e != nil {
		s.line("  ended      %s at %s: %s (%s%s)", at(e), g.GetEndedPosition(), g.GetState(), g.GetReason(), by(g.GetGivenUpBy()))
	}
}

func (s *story) attempts(g *sealanev1.Generation) string {
	n := g.GetAttemptsAdmitted()
	if n == 0 {
		return "no attempt"
	}
	text := number(n) + " attempt"
	if n > 1 {
		text += "s"
	}
	if g.GetState() != sealanev1.GenerationState_DELIVERED {
		text += fmt.Sprintf(", %d counted towards the budget", g.GetAttemptsCounted())
	}
	return text
}

func (s *story) attempt(t *sealanev1.Attempt) {
	o := t.GetOutcome()
	if o == nil {
		s.line("  attempt %d  in flight since %s (admitted at %s); its answer is due by %s", t.GetNumber(), at(t.GetAdmittedAt()), t.GetAdmittedPosition(), at(t.GetDeadline()))
		return
	}
	e := o.GetEvidence()
	took := o.GetRecordedAt().AsTime().Sub(t.GetAdmittedAt().AsTime())
	s.line("  attempt %d  %s, %s", t.GetNumber(), o.GetSideEffect(), outcomeMeans(t))
	s.line("    admitted %s at %s%s, settled after %s at %s", at(t.GetAdmittedAt()), t.GetAdmittedPosition(), workMeans[t.GetWork()], span(took), o.GetPosition())
	s.line("    evidence %s", evidence(e))
	if d := printable(e.GetDetail()); d != "" {
		s.line("    detail   %s", d)
	}
	if r := o.GetRetryAfter(); r != nil {
		s.line("    asked    to wait %s", span(r.AsDuration()))
	}
	s.line("    decision %s%s", or(t.GetDecision(), "-"), prefixed(", next attempt ", timeOr(t)))
	for _, r := range t.GetResolutions() {
		s.resolution(r)
	}
}

// outcomeMeans says what an outcome is about, and whether later evidence changed it.
func outcomeMeans(t *sealanev1.Attempt) string {
	o := t.GetOutcome()
	text := dispositionMeans[o.GetDisposition()]
	if o.GetSideEffect() == sealanev1.SideEffect_UNKNOWN {
		text = "nobody could tell whether the receiver has it"
	}
	if t.GetSideEffect() != o.GetSideEffect() {
		text += "; by later evidence " + t.GetSideEffect().String()
	}
	return text
}

func timeOr(t *sealanev1.Attempt) string {
	if t.GetNextAttemptAt() == nil {
		return ""
	}
	return at(t.GetNextAttemptAt())
}

// evidence says in one line what proves an outcome, and which rule read it.
func evidence(e *sealanev1.Evidence) string {
	text := or(e.GetStatement(), "NONE")
	if e.GetStatus() != 0 {
		text += fmt.Sprintf(", status %d", e.GetStatus())
	}
	if e.GetErrorClass() != "" {
		text += ", " + e.GetErrorClass()
	}
	text += ", by rule " + or(e.GetRule(), "-")
	if e.GetRemoteAddress() != "" {
		text += fmt.Sprintf(", %d bytes written to %s", e.GetBytesWritten(), e.GetRemoteAddress())
	}
	return printable(text)
}

func (s *story) resolution(r *sealanev1.Resolution) {
	kind := "evidence"
	if r.GetOverride() {
		kind = "override"
	}
	s.line("    later    %s: %s%s, %s at %s", at(r.GetRecordedAt()), r.GetSideEffect(), by(printable(r.GetActor())), kind, r.GetPosition())
	if r.GetReason() != "" {
		s.line("             reason: %s", printable(r.GetReason()))
	}
	if d := r.GetEvidence().GetDetail(); d != "" {
		s.line("             seen: %s", printable(d))
	}
}

// current is the newest generation that is kept; nil where the message was removed.
func (s *story) current() *sealanev1.Generation {
	if gs := s.m.GetGenerations(); len(gs) > 0 {
		return gs[len(gs)-1]
	}
	return nil
}

// next says what happens by itself, and why then.
func (s *story) next() {
	g := s.current()
	switch {
	case g == nil || terminal(s.m.GetState()):
		s.line("Next: nothing; the message has ended.")
	case g.GetAttemptsInFlight() > 0:
		s.line("Next: the answer to the attempt in flight decides.")
	case g.GetNextAttemptAt() != nil:
		s.line("Next: %s %s (%s), because of %s.", workNext[g.GetNextWork()], at(g.GetNextAttemptAt()), from(g.GetNextAttemptAt(), s.now), nextMeans[g.GetNextAttemptReason()])
		s.line("      Sent when its lane can: `sealane lane get %s%s` says whether it can.", printable(s.m.GetDestination()), s.addr)
	case s.m.GetState() == sealanev1.GenerationState_UNCERTAIN:
		s.line("Next: nothing by itself. It stays as it is until evidence comes or an operator decides; time decides nothing.")
	default:
		s.line("Next: no attempt is planned.")
	}
	if g != nil && !terminal(s.m.GetState()) && g.GetDeadline() != nil {
		s.line("      No attempt begins after %s (%s).", at(g.GetDeadline()), deadlineMeans[g.GetDeadlineReason()])
	}
}

// safe says what an operator can do without risk, and what not.
func (s *story) safe() {
	id, addr := s.m.GetId(), s.addr
	switch state := s.m.GetState(); state {
	case sealanev1.GenerationState_SCHEDULED, sealanev1.GenerationState_RETRY_WAIT:
		s.line("Safe: cancel or reschedule it: no request with it has been accepted by the receiver.")
		s.line("      sealane message cancel %s%s", id, addr)
	case sealanev1.GenerationState_IN_FLIGHT:
		s.line("Safe: wait. A cancel comes too late, and submitting it again could deliver it twice.")
	case sealanev1.GenerationState_UNCERTAIN:
		s.line("Safe: look for webhook-id %s-%d at the receiver, then tell Sealane what you saw:", id, s.m.GetGeneration())
		for _, n := range s.unknown() {
			s.line("      sealane uncertain resolve %s --attempt %d --verdict published --reason \"...\"%s", id, n, addr)
		}
		s.line("      or with --verdict not-published, if it is not there")
		s.line("Not safe without looking: --verdict retry, or a new submit. The receiver could get it twice.")
	case sealanev1.GenerationState_DELIVERED:
		s.line("Safe: nothing needs to be done.")
	default:
		if s.m.GetPossibleDuplicate() || s.mayHaveIt() {
			s.line("Not safe without looking: submitting it again. The receiver may have it already; look for webhook-id %s-%d.", id, s.m.GetGeneration())
			return
		}
		s.line("Safe: submitting it again as a new message. Every attempt is known not to have been accepted.")
	}
}

// unknown lists the attempts of the current generation that nobody can tell about.
func (s *story) unknown() (numbers []uint32) {
	for _, t := range s.current().GetAttempts() {
		if t.GetSideEffect() == sealanev1.SideEffect_UNKNOWN {
			numbers = append(numbers, t.GetNumber())
		}
	}
	return numbers
}

// mayHaveIt tells whether any attempt of any generation was published or is unknown.
func (s *story) mayHaveIt() bool {
	for _, g := range s.m.GetGenerations() {
		for _, t := range g.GetAttempts() {
			if t.GetSideEffect() != sealanev1.SideEffect_NOT_PUBLISHED {
				return true
			}
		}
	}
	return s.m.GetTrimmedUnknownAttempts() > 0
}

func by(actor string) string { return prefixed(", by ", actor) }

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
