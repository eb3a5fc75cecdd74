package shardtest

import (
	"fmt"
	"strings"

	"github.com/sealane/sealane/shard"
)

// show prints a message with all it has: generations, attempts, evidence.
func (s *Script) show(name string) (string, error) {
	v, err := shard.GetMessage(s.State, s.ids[name], false)
	if err != nil {
		return "", err
	}
	if v == nil {
		stone, err := shard.GetTombstone(s.State, s.ids[name])
		if err != nil || stone == nil {
			return "not found\n", err
		}
		return fmt.Sprintf("tombstone %s unknown=%d\n", stone.Reason, stone.UnknownAttempts), nil
	}
	var b strings.Builder
	for _, g := range v.Generations {
		s.generation(&b, name, g)
	}
	return b.String(), nil
}

func (s *Script) generation(b *strings.Builder, name string, v shard.GenerationView) {
	g := v.Generation
	fmt.Fprintf(b, "%s-%d %s", name, g.Number, g.State)
	if g.State.Terminal() {
		fmt.Fprintf(b, " %s at %s", g.TerminalReason, rel(g.TerminalAt))
	} else {
		fmt.Fprintf(b, " next %s %s, deadline %s", rel(g.NextAt), g.NextReason, rel(g.Deadline))
	}
	fmt.Fprintf(b, " attempts=%d counted=%d", g.Attempts, g.Counted)
	for _, f := range []struct {
		on   bool
		text string
	}{
		{g.OpenUnknown > 0, fmt.Sprintf("unknown=%d", g.OpenUnknown)}, {g.PossibleDuplicate, "possible_duplicate"},
		{g.OrderHead, "order_head"}, {g.OrderAfterUnknown, "order_after_unknown"}, {g.LastErrorClass != "", "last=" + g.LastErrorClass},
		{v.DeadLetter != nil, "dead_letter_record"},
	} {
		if f.on {
			b.WriteString(" " + f.text)
		}
	}
	b.WriteString("\n")
	for _, a := range v.Attempts {
		fmt.Fprintf(b, "  attempt %d %s", a.Number, a.SideEffect)
		if a.Settled {
			fmt.Fprintf(b, " rule=%s decision=%q", a.Outcome.Evidence.Rule, a.Decision)
		}
		if a.Trial {
			b.WriteString(" trial")
		}
		b.WriteString("\n")
		for _, r := range a.Resolutions {
			fmt.Fprintf(b, "    %s %s by %q override=%v\n", r.Effect, r.SideEffect, r.Actor, r.Override)
		}
	}
}

func (s *Script) showLane(name string) (string, error) {
	l, ok, err := shard.LaneByName(s.State, "default", name, 0)
	if err != nil || !ok {
		return "not found\n", err
	}
	var b strings.Builder
	c := l.Counts
	fmt.Fprintf(&b, "gate %s scheduled=%d in_flight=%d uncertain=%d open=%d bytes=%d terminal=%v\n", l.Gate, c.Scheduled, c.InFlight, c.Uncertain, c.OpenAttempts, c.PendingBytes, c.Terminal)
	for _, t := range l.Targets {
		fmt.Fprintf(&b, "target %d circuit %s failures=%d until %s trial=%v last=%q\n", t.ID, t.Circuit.Phase, t.Circuit.ConsecutiveFailures, rel(t.Circuit.OpenUntil), t.Circuit.TrialInFlight, t.LastError)
	}
	return b.String(), nil
}

func (s *Script) due(name string) (string, error) {
	l, ok, err := shard.LaneByName(s.State, "default", name, 0)
	if err != nil || !ok {
		return "not found\n", err
	}
	var b strings.Builder
	for _, t := range l.Targets {
		items, err := shard.ScanDue(s.State, l.ID, t.ID, nil, 1000)
		if err != nil {
			return "", err
		}
		for _, it := range items {
			fmt.Fprintf(&b, "target %d %s at %s\n", t.ID, s.ref(it.Ref), rel(it.Due))
		}
	}
	return b.String(), nil
}

func (s *Script) inbox() (string, error) {
	items, err := shard.ScanUncertain(s.State, nil, 1000)
	var b strings.Builder
	for _, it := range items {
		fmt.Fprintf(&b, "%s attempt %d since %s\n", s.ref(it.Ref), it.Attempt, rel(it.Since))
	}
	return b.String(), err
}

func (s *Script) deadLetters() (string, error) {
	items, _, err := shard.ListDeadLetters(s.State, nil, 1000, nil)
	var b strings.Builder
	for _, it := range items {
		fmt.Fprintf(&b, "%s %s %s at %s\n", s.ref(it.Ref), it.State, it.Reason, rel(it.At))
	}
	return b.String(), err
}
