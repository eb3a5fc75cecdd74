package shard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/shardtest"
)

// Tests that each speak of one invariant (docs/invariants.md). TestModel, TestReplicasAgree and TestTransitions speak of many at once.

// do runs script lines that must be accepted.
func do(t testing.TB, s *shardtest.Script, story ...string) {
	t.Helper()
	for _, line := range story {
		out, err := s.Do(line)
		if err != nil || out != "" && !strings.HasPrefix(out, "ok") {
			t.Fatalf("%q: %s%v", line, out, err)
		}
	}
}

// verdict runs a script line and returns its first line.
func verdict(t testing.TB, s *shardtest.Script, line string) string {
	t.Helper()
	out, err := s.Do(line)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	first, _, _ := strings.Cut(out, "\n")
	return first
}

// TestClockNeverFallsBack is invariant 5: whatever is stamped, the shard clock does not fall, and a deadline that closed stays closed.
func TestClockNeverFallsBack(t *testing.T) {
	s := shardtest.NewScript()
	do(t, s, "install d lifetime=1h", "submit a", "wait for=2h", "tick")
	last := policy.Time(0)
	for _, stamp := range []policy.Time{s.Now, s.Now.Add(-time.Hour), 0, -1, s.Now.Add(time.Second), shardtest.Start, s.Now} {
		s.Now = stamp
		results, _, err := s.Apply(&shard.Tick{})
		if err != nil {
			t.Fatalf("%v", err)
		}
		meta, err := shard.ReadMeta(s.State)
		if err != nil || meta.Clock < last || results[0].At != meta.Clock {
			t.Fatalf("stamped %d: the clock is %d, it was %d, the verdict says %d: %v", stamp, meta.Clock, last, results[0].At, err)
		}
		last = meta.Clock
		if v := verdict(t, s, "admit a"); !strings.HasPrefix(v, "STALE (deadline)") {
			t.Fatalf("stamped %d: %s", stamp, v)
		}
	}
}

// TestUnknownStays is invariant 18: no time, restart, leader or command but evidence moves an attempt out of UNKNOWN.
func TestUnknownStays(t *testing.T) {
	histories(t, 100, func(t fataler, src shardtest.Source) {
		traffic, s := shardtest.NewTraffic(src), shardtest.NewShard()
		for range 5 + src.IntN(20) {
			step(t, traffic, s)
		}
		before, err := shard.ScanUncertain(s.State, nil, 1000)
		if err != nil {
			t.Fatalf("%v", err)
		}
		for range 1 + src.IntN(25) {
			e, err := traffic.Next(s.State)
			if err != nil {
				t.Fatalf("%v", err)
			}
			var kept []shard.Command
			for _, c := range e.Commands {
				switch c := c.(type) {
				case *shard.AttachEvidence, *shard.RecordOutcome, *shard.Trim:
				case *shard.ControlStep:
					if c.Action != shard.ActionResolve || c.Verdict == shard.ResolveRetry {
						kept = append(kept, c)
					}
				default:
					kept = append(kept, c)
				}
			}
			e.Commands = kept
			s.Machine.Reset()
			apply(t, s.Machine, s.State, e)
		}
		for _, it := range before {
			v, err := shard.GetMessage(s.State, it.Ref.ID, false)
			if err != nil || v == nil {
				t.Fatalf("%s: %v %v", it.Ref.ID, v, err)
			}
			for _, g := range v.Generations {
				if g.Generation.Number == it.Ref.Generation && g.Attempts[it.Attempt-1].SideEffect != policy.Unknown {
					t.Fatalf("attempt %d of %s became %s without evidence", it.Attempt, it.Ref.ID, g.Attempts[it.Attempt-1].SideEffect)
				}
			}
		}
	})
}

// TestFirstOutcomeStays is invariant 19: the initial outcome is written once. A later one is evidence, whoever brings it.
func TestFirstOutcomeStays(t *testing.T) {
	for _, first := range []string{"published", "retriable", "unknown"} {
		for _, second := range []string{"published", "retriable", "permanent", "unknown", "illegal"} {
			s := shardtest.NewScript()
			do(t, s, "install d", "submit a", "admit a", "outcome a rule=FIRST is="+first)
			s.Owner = shard.Epoch{Node: "n9", Boot: 99, Term: 9}
			do(t, s, "outcome a rule=SECOND is="+second)
			v, err := shard.GetMessage(s.State, s.ID("a"), false)
			if err != nil {
				t.Fatalf("%v", err)
			}
			a := v.Generations[0].Attempts[0]
			if a.Outcome.Evidence.Rule != "FIRST" || a.Owner.Node != "n1" || a.OutcomeIndex != 4 {
				t.Errorf("%s, then %s: the initial outcome is %+v at %d by %s", first, second, a.Outcome, a.OutcomeIndex, a.Owner.Node)
			}
		}
	}
}

// TestPossibleDuplicate is invariant 21, case by case: what raises the flag and what does not.
func TestPossibleDuplicate(t *testing.T) {
	const unsafe, safe = "install d uncertain_retries=2", "install d uncertain_retries=2 dedup_window=1h"
	unknown := []string{"submit a", "admit a", "outcome a is=unknown"}
	for _, c := range []struct {
		name    string
		install string
		story   []string
		want    bool
	}{
		{"one unknown", unsafe, nil, false},
		{"a second request beside it", unsafe, []string{"wait for=1s", "admit a attempt=2"}, true},
		{"a second request the receiver tells apart", safe, []string{"wait for=1s", "admit a attempt=2", "outcome a attempt=2 is=published"}, false},
		{"an operator's retry, whatever the receiver promises", safe, []string{"control a op=o do=retry", "admit a attempt=2"}, true},
		{"a retry after evidence of absence", unsafe, []string{"evidence a is=retriable", "wait for=2s", "admit a attempt=2", "outcome a attempt=2 is=published"}, false},
		{"that evidence was wrong", unsafe, []string{"evidence a is=retriable", "wait for=2s", "admit a attempt=2", "outcome a attempt=2 is=published", "evidence a is=published rule=RECEIPT"}, true},
		{"given up", unsafe, []string{"control a op=o do=dead_letter"}, true},
		{"published after all", unsafe, []string{"evidence a is=published"}, false},
		{"not published after all, and cancelled", unsafe, []string{"evidence a is=retriable", "cancel a"}, false},
		{"cancelled, and published after all", unsafe, []string{"evidence a is=retriable", "cancel a", "evidence a is=published rule=RECEIPT"}, true},
	} {
		s := shardtest.NewScript()
		do(t, s, append(append([]string{c.install}, unknown...), c.story...)...)
		if g := current(t, s); g.PossibleDuplicate != c.want {
			t.Errorf("%s: possible_duplicate=%v, want %v", c.name, g.PossibleDuplicate, c.want)
		}
	}
}

// TestDeadLetterIsImmutable is invariant 22: the record is the same bytes as long as it is kept, whatever evidence comes.
func TestDeadLetterIsImmutable(t *testing.T) {
	records := map[string]*shard.DeadLetter{}
	changed := 0
	for seed := range uint64(60) {
		traffic, s := shardtest.NewTraffic(rand.New(rand.NewPCG(seed, 4))), shardtest.NewShard()
		clear(records)
		for range 50 {
			step(t, traffic, s)
			items, _, err := shard.ListDeadLetters(s.State, nil, 1000, nil)
			if err != nil {
				t.Fatalf("%v", err)
			}
			for _, it := range items {
				name := fmt.Sprint(it.Ref.ID, it.Ref.Generation)
				rec, err := shard.GetDeadLetter(s.State, it.Ref)
				if err != nil || rec == nil {
					t.Fatalf("%s: %v %v", name, rec, err)
				}
				g, err := shard.GetGeneration(s.State, it.Ref)
				if err != nil {
					t.Fatalf("%v", err)
				}
				if g.OpenUnknown != rec.OpenUnknown || g.PossibleDuplicate != rec.PossibleDuplicate {
					changed++ // the generation's books went on; the record did not
				}
				if old := records[name]; old != nil && !reflect.DeepEqual(old, rec) {
					t.Fatalf("the record changed from %+v to %+v", old, rec)
				}
				records[name] = rec
			}
		}
	}
	if changed == 0 {
		t.Error("no evidence ever came for a dead letter; the test proves nothing")
	}
}

// TestSmallerIndexWins is invariants 24 and 25: of an admission and what would revoke it, exactly the one with the smaller position takes
// effect, in one entry or in two.
func TestSmallerIndexWins(t *testing.T) {
	for _, rival := range []string{"cancel a", "reschedule a deliver=5h", "expire a"} {
		for _, together := range []bool{true, false} {
			for _, admitFirst := range []bool{true, false} {
				s := shardtest.NewScript()
				do(t, s, "install d lifetime=1h", "submit a")
				if rival == "expire a" {
					s.Advance(time.Hour - 1)
				}
				lines := []string{"admit a", rival}
				if !admitFirst {
					lines = []string{rival, "admit a"}
				}
				won := race(t, s, lines, together)
				want := [2]bool{true, false}
				if rival == "expire a" && admitFirst {
					want[1] = true // it closes the window; the attempt is not revoked
				}
				g := current(t, s)
				first, err := shard.GetGeneration(s.State, shard.Ref{ID: s.ID("a"), Generation: 1})
				if err != nil {
					t.Fatalf("%v", err)
				}
				if won != want || admitFirst != (first.Attempts == 1) || admitFirst != (g.State == shard.StateInFlight) {
					t.Errorf("%q together=%v: accepted %v, want %v; state %s, %d attempts", lines, together, won, want, g.State, first.Attempts)
				}
			}
		}
	}
}

// race runs two lines, each at the first time at which the other could still win.
func race(t *testing.T, s *shardtest.Script, lines []string, together bool) (won [2]bool) {
	t.Helper()
	if together && !strings.HasPrefix(lines[0], "expire") && !strings.HasPrefix(lines[1], "expire") {
		out, err := s.Batch(lines...)
		if err != nil {
			t.Fatalf("%v", err)
		}
		for i, v := range strings.SplitN(out, "\n", 3)[:2] {
			won[i] = strings.HasPrefix(v, "ok")
		}
		return won
	}
	for i, line := range lines {
		if line == "expire a" {
			s.Advance(1)
		}
		won[i] = strings.HasPrefix(verdict(t, s, line), "ok")
	}
	return won
}

// TestOperationTakesEffectOnce is invariant 26: one operation id has one effect, and its first answer; the id with another content is refused.
func TestOperationTakesEffectOnce(t *testing.T) {
	s := shardtest.NewShard()
	run := func(c *shard.ControlStep) shard.Result {
		t.Helper()
		results, _, err := s.Apply(c)
		if err != nil {
			t.Fatalf("%v", err)
		}
		return results[0]
	}
	if _, _, err := s.Apply(&shard.InstallDestination{Destination: shardtest.Destination("d")}, s.Submit("d", "x")); err != nil {
		t.Fatalf("%v", err)
	}
	pause := shard.ControlStep{OperationID: "op-1", Hash: [32]byte{1}, Action: shard.ActionPauseLane, Namespace: "default", Destination: "d"}
	resume := shard.ControlStep{OperationID: "op-2", Hash: [32]byte{2}, Action: shard.ActionResumeLane, Namespace: "default", Destination: "d"}
	first := run(&pause)
	if r := run(&resume); r.Rejected != nil {
		t.Fatal(r.Rejected)
	}
	again := run(&pause)
	if !again.Deduplicated || again.Index != first.Index || again.Rejected != nil {
		t.Errorf("repeated: %+v, first %+v", again, first)
	}
	if l, _, err := shard.LaneByName(s.State, "default", "d", 0); err != nil || l.Gate != 0 || l.ControlVersion != 2 {
		t.Errorf("the repeated pause took effect: %+v %v", l, err)
	}
	other := pause
	other.Hash = [32]byte{9}
	if r := run(&other); !errors.Is(r.Err(), shard.ErrOperationConflict) {
		t.Errorf("the same id for another operation: %+v", r)
	}
}

// TestControlVersion is invariant 30: it counts the control steps that took effect on a lane, and nothing else.
func TestControlVersion(t *testing.T) {
	s := shardtest.NewScript()
	do(t, s, "install d threshold=1", "submit a")
	version := func() uint64 {
		l, ok, err := shard.LaneByName(s.State, "default", "d", 0)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		return l.ControlVersion
	}
	for _, c := range []struct {
		line string
		adds uint64
	}{
		{"admit a", 0}, {"outcome a is=lane", 0}, {"event d is=connect_failed", 0}, {"control d op=1 do=pause", 1}, {"control d op=1 do=pause", 0},
		{"control d op=2 do=pause", 0}, {"submit b", 0}, {"control d op=3 do=reset", 1}, {"install d", 0}, {"control d op=4 do=resume", 1}, {"control d op=5 do=resume", 0},
	} {
		before := version()
		verdict(t, s, c.line)
		if got := version() - before; got != c.adds {
			t.Errorf("%q adds %d to the control version, want %d", c.line, got, c.adds)
		}
	}
}

// TestLaneTroubleNeverDeadLetters is invariant 38 and R178: an outage of any length uses up no budget. The lifetime ends it, as EXPIRED.
func TestLaneTroubleNeverDeadLetters(t *testing.T) {
	s := shardtest.NewScript()
	do(t, s, "install d max_attempts=2 lifetime=1h threshold=1000000", "submit a")
	for n := 1; ; n++ {
		g := current(t, s)
		if g.State.Terminal() {
			if g.State != shard.StateExpired || g.TerminalReason != shard.ReasonLifetime || g.Counted != 0 || n < 50 {
				t.Fatalf("after %d attempts: %s %s, counted %d", n, g.State, g.TerminalReason, g.Counted)
			}
			return
		}
		s.Now = max(s.Now, g.NextAt)
		if s.Now >= g.Deadline {
			do(t, s, "expire a")
			continue
		}
		do(t, s, fmt.Sprintf("admit a attempt=%d", n), fmt.Sprintf("outcome a attempt=%d is=%s retry_after=30s", n, []string{"lane", "throttled", "fenced"}[n%3]))
		do(t, s, fmt.Sprintf("control d op=%d do=reset", n)) // a throttle opens the circuit
	}
}

// TestRetriesStayInBudget is invariant 32: exactly max_attempts message-level settlements, then a dead letter, however many lane-level ones
// lie between.
func TestRetriesStayInBudget(t *testing.T) {
	for limit := 1; limit <= 4; limit++ {
		s := shardtest.NewScript()
		do(t, s, fmt.Sprintf("install d max_attempts=%d threshold=1000000", limit), "submit a")
		settled := 0
		for n := 1; !current(t, s).State.Terminal(); n++ {
			s.Now = max(s.Now, current(t, s).NextAt)
			is := []string{"retriable", "lane", "bug", "fenced"}[n%4]
			do(t, s, fmt.Sprintf("admit a attempt=%d", n), fmt.Sprintf("outcome a attempt=%d is=%s", n, is))
			if is == "retriable" || is == "bug" {
				settled++
			}
		}
		if g := current(t, s); g.TerminalReason != shard.ReasonExhausted || settled != limit || g.Counted != uint32(limit) {
			t.Errorf("max_attempts=%d: %s after %d settlements, counted %d", limit, g.TerminalReason, settled, g.Counted)
		}
	}
}

// TestLanesAreIndependent is invariant 39: leaving out everything that one destination met changes nothing that another one met.
func TestLanesAreIndependent(t *testing.T) {
	histories(t, 100, func(t fataler, src shardtest.Source) {
		traffic, whole, part := shardtest.NewTraffic(src), shardtest.NewShard(), shardtest.NewShard()
		gone := []string{"hold", "dedup", "twice", "brief"}[src.IntN(4)]
		operations := map[string]bool{}
		for range 1 + src.IntN(40) {
			e, err := traffic.Next(whole.State)
			if err != nil {
				t.Fatalf("%v", err)
			}
			less := *e
			less.Commands = nil
			for i, c := range e.Commands {
				if aboutSeveral(c, operations) {
					e.Commands[i], c = &shard.Tick{}, &shard.Tick{}
				}
				if of := destinationOf(t, whole.State, e.Commands[:i], c); of == gone {
					c = &shard.Tick{} // keeps the others' places in the vector
				}
				less.Commands = append(less.Commands, c)
			}
			apply(t, whole.Machine, whole.State, e)
			apply(t, part.Machine, part.State, &less)
			sameViews(t, whole.State, part.State, gone)
		}
	})
}

// aboutSeveral finds what cannot be attributed to one destination: a lane's number differs between the two shards, and an operation id that
// is used again may join two destinations.
func aboutSeveral(c shard.Command, operations map[string]bool) bool {
	switch c := c.(type) {
	case *shard.LaneEvent, *shard.Trim:
		return true
	case *shard.ControlStep:
		again := operations[c.OperationID]
		operations[c.OperationID] = true
		return again
	}
	return false
}

// destinationOf says which destination a command is about. A message may be made by an earlier command of the same entry.
func destinationOf(t fataler, r shard.Reader, earlier []shard.Command, c shard.Command) string {
	t.Helper()
	var id shard.MessageID
	switch c := c.(type) {
	case *shard.Submit:
		return c.Destination
	case *shard.InstallDestination:
		return c.Destination.Name
	case *shard.Admit:
		id = c.ID
	case *shard.RecordOutcome:
		id = c.ID
	case *shard.AttachEvidence:
		id = c.ID
	case *shard.Cancel:
		id = c.ID
	case *shard.Reschedule:
		id = c.ID
	case *shard.Expire:
		id = c.ID
	case *shard.ControlStep:
		if c.Action != shard.ActionResolve {
			return c.Destination
		}
		id = c.ID
	}
	v, err := shard.GetMessage(r, id, false)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if v != nil {
		return v.Message.Destination
	}
	for _, e := range earlier {
		if s, ok := e.(*shard.Submit); ok && s.ID == id {
			return s.Destination
		}
	}
	return ""
}

func sameViews(t fataler, whole, part shard.Reader, gone string) {
	t.Helper()
	lanes, err := shard.ScanLanes(whole, 0, 100)
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, l := range lanes {
		if l.Destination == gone {
			continue
		}
		items, _, err := shard.ListMessages(whole, l.ID, shard.StateUnspecified, nil, 1000)
		if err != nil {
			t.Fatalf("%v", err)
		}
		for _, it := range items {
			a, errA := shard.GetMessage(whole, it.Ref.ID, true)
			b, errB := shard.GetMessage(part, it.Ref.ID, true)
			if errA != nil || errB != nil || b == nil {
				t.Fatalf("%s: %v %v %v", it.Ref.ID, b, errA, errB)
			}
			b.Message.Lane = a.Message.Lane // lanes are numbered in the order of their first message
			for i := range min(len(a.Generations), len(b.Generations)) {
				b.Generations[i].Generation.Lane = a.Generations[i].Generation.Lane
				if d := b.Generations[i].DeadLetter; d != nil {
					d.Lane = a.Message.Lane
				}
			}
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("without %q, %s of %q is another:\n%+v\n%+v", gone, it.Ref.ID, l.Destination, a.Generations, b.Generations)
			}
		}
	}
}
