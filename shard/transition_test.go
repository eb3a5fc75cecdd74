package shard_test

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/shardtest"
)

// The transition table. Each block of testdata/transition builds one situation of message "a" in destination "d" by commands, and lists what
// every command would do there: its verdict, and what it changes ("-": not one byte). testdata/moves is the other view: the only state changes
// there may be, written by hand from DESIGN 4. The test compares both ways: no row may make a move that is not listed, and every listed move
// must have a row.

// everyCommand lists all commands with the parameters that matter. {…} is filled in from the situation: the submit that made the message, its
// current generation, the attempt admitted last and the one after it.
//
// After a change of the table: go test ./shard -run TestTransitions -rewrite, and read the difference.
var everyCommand = []string{
	"{submit}",
	"submit a payload=other",
	"submit n",
	"cancel a",
	"cancel a gen={gen+1}",
	"reschedule a deliver=300h",
	"reschedule a deliver=300h gen={gen+1}",
	"install d version=1",
	"install d",
	"admit a{at} attempt={next}",
	"admit a{at} attempt={last}",
	"admit a gen={gen+1} attempt=1",
	"outcome a{at} attempt=1 is=published",
	"outcome a{at} attempt=1 is=retriable",
	"outcome a{at} attempt=1 is=permanent",
	"outcome a{at} attempt=1 is=lane",
	"outcome a{at} attempt=1 is=throttled",
	"outcome a{at} attempt=1 is=fenced",
	"outcome a{at} attempt=1 is=bug",
	"outcome a{at} attempt=1 is=unknown",
	"outcome a{at} attempt=1 is=illegal",
	"outcome a{at} attempt=2 is=published",
	"outcome a{at} attempt=2 is=retriable",
	"outcome a{at} attempt=2 is=permanent",
	"outcome a{at} attempt=2 is=unknown",
	"evidence a{at} attempt=1 is=published",
	"evidence a{at} attempt=1 is=retriable",
	"evidence a{at} attempt=1 is=unknown",
	"evidence a{at} attempt=2 is=published",
	"evidence a{at} attempt=2 is=retriable",
	"expire a{at}",
	"expire a gen={gen+1}",
	"event d is=connect_failed",
	"event d is=ready",
	"event d is=overdue",
	"control d op=new do=pause",
	"control d op=new do=resume",
	"control d op=new do=reset",
	"control a op=new attempt=1 do=published",
	"control a op=new attempt=1 do=not_published",
	"control a op=new attempt=1 do=retry",
	"control a op=new attempt=1 do=dead_letter",
	"control a op=new attempt=2 do=published",
	"control a op=new attempt=2 do=not_published",
	"control a op=new attempt=2 do=retry",
	"control a op=new attempt=2 do=dead_letter",
	"trim d state={terminal}",
	"tick",
}

// TestTransitions checks the table, and that its moves are exactly those of testdata/moves.
func TestTransitions(t *testing.T) {
	seen := map[string]bool{}
	situations := map[string]bool{}
	datadriven.Walk(t, "testdata/transition", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "situation" || len(d.CmdArgs) == 0 {
				d.Fatalf(t, "want: situation <name>")
			}
			s := situation{t: t, submit: "submit a", name: d.CmdArgs[0].Key, moves: seen}
			if situations[s.name] {
				d.Fatalf(t, "two situations are called %q", s.name)
			}
			situations[s.name] = true
			s.build(d.Input)
			return s.table()
		})
	})
	if !t.Failed() { // a block that fails ends its file, and the rows behind it were not seen
		compareMoves(t, seen)
	}
}

// TestTransitionSituations checks that no situation the design names is left out of the table.
func TestTransitionSituations(t *testing.T) {
	var all strings.Builder
	for _, f := range []string{"scheduled", "in_flight", "retry_wait", "uncertain", "terminal"} {
		b, err := os.ReadFile("testdata/transition/" + f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	for _, must := range []string{
		"unknown_message", "scheduled", "scheduled_later", "scheduled_overdue", "scheduled_behind_head", "scheduled_paused", "scheduled_open_circuit",
		"scheduled_half_open", "scheduled_trial_elsewhere", "in_flight", "in_flight_trial", "in_flight_overdue", "in_flight_paused", "retry_wait",
		"retry_wait_due", "retry_wait_overdue", "retry_wait_paused", "retry_wait_open_circuit", "uncertain_hold", "uncertain_dead_letter",
		"uncertain_retry", "uncertain_retry_dedup", "uncertain_retry_window_closed", "uncertain_operator_retry", "uncertain_in_flight",
		"uncertain_in_flight_overdue", "uncertain_two", "uncertain_overdue", "uncertain_budget_used", "uncertain_head", "uncertain_paused",
		"uncertain_open_circuit", "uncertain_half_open", "delivered", "delivered_in_flight", "delivered_unknown", "dead_permanent",
		"dead_exhausted", "dead_given_up", "cancelled", "cancelled_after_attempt", "expired", "superseded", "trimmed", "tombstone",
	} {
		if !strings.Contains(all.String(), "\nsituation "+must+"\n") && !strings.HasPrefix(all.String(), "situation "+must+"\n") {
			t.Errorf("the table has no situation %q", must)
		}
	}
}

// situation is one block of the table.
type situation struct {
	t      *testing.T
	name   string
	submit string // the line that made message a
	start  *shardtest.Script
	gen    *shard.Generation
	moves  map[string]bool
}

func (s *situation) build(input string) {
	s.t.Helper()
	s.start = shardtest.NewScript()
	for _, line := range append(strings.Split(strings.TrimSpace(input), "\n"), "tick") { // tick: the clock is where the situation left it
		if strings.HasPrefix(line, "submit a") {
			s.submit = line
		}
		out, err := s.start.Do(line)
		if err != nil || out != "" && !strings.HasPrefix(out, "ok") {
			s.t.Fatalf("%s: %q: %s%v", s.name, line, out, err)
		}
	}
	s.gen = current(s.t, s.start)
}

func current(t *testing.T, s *shardtest.Script) *shard.Generation {
	t.Helper()
	v, err := shard.GetMessage(s.State, s.ID("a"), false)
	if err != nil {
		t.Fatal(err)
	}
	if v == nil {
		return nil
	}
	return v.Generations[len(v.Generations)-1].Generation
}

func (s *situation) fill(line string) string {
	gen, last, terminal := uint32(1), uint32(0), shard.StateDelivered
	if s.gen != nil {
		gen, last = s.gen.Number, s.gen.Attempts
		if s.gen.State.Terminal() {
			terminal = s.gen.State
		}
	}
	at := ""
	if gen > 1 {
		at = fmt.Sprintf(" gen=%d", gen)
	}
	return strings.NewReplacer(
		"{submit}", s.submit, "{at}", at, "{gen+1}", fmt.Sprint(gen+1), "{last}", fmt.Sprint(last), "{next}", fmt.Sprint(last+1),
		"{terminal}", terminal.String(),
	).Replace(line)
}

// table runs every command. Neighbouring rows that differ only in the outcome or resolution, and not in what comes of it, are one row.
func (s *situation) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n", summary(s.gen), laneSummary(s.t, s.start))
	var last, lastEnd string
	flush := func() {
		if last != "" {
			fmt.Fprintf(&b, "%-61s | %s\n", last, lastEnd)
		}
	}
	for _, line := range everyCommand {
		line = s.fill(line)
		verdict, change := s.try(line)
		end := fmt.Sprintf("%-30s | %s", verdict, change)
		cut := strings.LastIndexByte(line, '=') + 1
		if param := line[:cut]; (strings.HasSuffix(param, " is=") || strings.HasSuffix(param, " do=")) && end == lastEnd && strings.HasPrefix(last, param) {
			last += "," + line[cut:]
			continue
		}
		flush()
		last, lastEnd = line, end
	}
	flush()
	return b.String()
}

// try runs one command on a copy, checks what holds for every command, and returns the row.
func (s *situation) try(line string) (verdict, change string) {
	s.t.Helper()
	c := s.start.Clone()
	out, err := c.Do(line)
	if err != nil {
		s.t.Fatalf("%s: %q: %v", s.name, line, err)
	}
	verdict, _, _ = strings.Cut(out, "\n")
	if strings.HasPrefix(verdict, "error:") {
		s.t.Fatalf("%s: %q: %s", s.name, line, verdict)
	}
	accepted := strings.HasPrefix(verdict, "ok")
	if !accepted && !c.State.Equal(s.start.State) && !strings.HasPrefix(verdict, "STALE (dedup_window)") {
		s.t.Errorf("%s: %q was rejected and changed the state", s.name, line)
	}
	if accepted {
		verdict = okWords(verdict)
	} else {
		verdict, _, _ = strings.Cut(verdict, ":")
	}
	return verdict, s.change(line, c)
}

// okWords leaves out of an accepted verdict what the third column says anyway.
func okWords(v string) string {
	words := []string{"ok"}
	for _, w := range strings.Fields(v) {
		if w == "deduplicated" || strings.HasPrefix(w, "removed=") {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

func (s *situation) change(line string, c *shardtest.Script) string {
	if c.State.Equal(s.start.State) {
		return "-"
	}
	var parts []string
	after := current(s.t, c)
	if x, y := summary(s.gen), summary(after); x != y {
		parts = append(parts, y)
		s.move(line, after, c)
	}
	if x, y := laneSummary(s.t, s.start), laneSummary(s.t, c); x != y {
		parts = append(parts, y)
	}
	if len(parts) == 0 {
		parts = append(parts, "(records only)")
	}
	return strings.Join(parts, "; ")
}

// move notes from which state to which the generation went, and by what.
func (s *situation) move(line string, after *shard.Generation, c *shardtest.Script) {
	from, to := "NONE", "NONE"
	if s.gen != nil {
		from = s.gen.State.String()
	}
	if after != nil {
		to = after.State.String()
	}
	if s.gen != nil && after != nil && s.gen.Number != after.Number {
		old, err := shard.GetGeneration(c.State, shard.Ref{ID: c.ID("a"), Generation: s.gen.Number})
		if err != nil || old == nil {
			s.t.Fatalf("%s: %q: the old generation is gone: %v", s.name, line, err)
		}
		to = old.State.String() + " + " + to
	}
	if from == to {
		return
	}
	s.moves[fmt.Sprintf("%s | %s | %s", from, verb(line), to)] = true
}

// verb names a command without its parameters, but with what decides: the outcome, the resolution.
func verb(line string) string {
	words := strings.Fields(line)
	for _, w := range words[1:] {
		if _, what, ok := strings.Cut(w, "is="); ok {
			return words[0] + " " + what
		}
		if _, what, ok := strings.Cut(w, "do="); ok {
			return words[0] + " " + what
		}
	}
	return words[0]
}

func summary(g *shard.Generation) string {
	if g == nil {
		return "no message"
	}
	s := fmt.Sprintf("a-%d %s", g.Number, g.State)
	if g.State.Terminal() {
		s += " " + g.TerminalReason.String()
	}
	if g.Work != shard.WorkNone {
		s += " " + [...]string{"", "initial", "retry", "uncertain-retry", "operator-retry"}[g.Work] + "@+" + g.NextAt.Sub(shardtest.Start).String()
	}
	for _, f := range []struct {
		on   bool
		text string
	}{
		{g.Attempts > 0, fmt.Sprintf("attempts=%d", g.Attempts)}, {g.Counted > 0, fmt.Sprintf("counted=%d", g.Counted)},
		{g.OpenInFlight > 0, "in-flight"}, {g.OpenUnknown > 0, fmt.Sprintf("unknown=%d", g.OpenUnknown)}, {g.PossibleDuplicate, "duplicate"},
		{g.OrderHead, "head"},
	} {
		if f.on {
			s += " " + f.text
		}
	}
	return s
}

func laneSummary(t *testing.T, s *shardtest.Script) string {
	t.Helper()
	l, ok, err := shard.LaneByName(s.State, "default", "d", 0)
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return "no lane"
	}
	out := "lane " + l.Gate.String()
	for _, target := range l.Targets {
		c := target.Circuit
		out += fmt.Sprintf(" %s", c.Phase)
		if c.ConsecutiveFailures > 0 {
			out += fmt.Sprintf(" failures=%d", c.ConsecutiveFailures)
		}
		if c.TrialSuccesses > 0 {
			out += fmt.Sprintf(" successes=%d", c.TrialSuccesses)
		}
		if c.TrialInFlight {
			out += " trial"
		}
	}
	return out
}

// compareMoves reads testdata/moves: one move a line, "from | command | to", # begins a comment.
func compareMoves(t *testing.T, seen map[string]bool) {
	t.Helper()
	b, err := os.ReadFile("testdata/moves")
	if err != nil {
		t.Fatal(err)
	}
	legal := map[string]bool{}
	for _, line := range strings.Split(string(b), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if parts := strings.Split(line, "|"); len(parts) == 3 {
			for _, v := range strings.Split(parts[1], ",") {
				legal[fmt.Sprintf("%s | %s | %s", strings.TrimSpace(parts[0]), strings.TrimSpace(v), strings.TrimSpace(parts[2]))] = true
			}
		} else if strings.TrimSpace(line) != "" {
			t.Fatalf("testdata/moves: %q", line)
		}
	}
	var wrong []string
	for m := range seen {
		if !legal[m] {
			wrong = append(wrong, "not in testdata/moves: "+m)
		}
	}
	for m := range legal {
		if !seen[m] {
			wrong = append(wrong, "no row makes this move: "+m)
		}
	}
	sort.Strings(wrong)
	for _, w := range slices.Compact(wrong) {
		t.Error(w)
	}
}
