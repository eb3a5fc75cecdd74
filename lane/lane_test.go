package lane

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sealane/sealane/policy"
	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "write the tables anew")

func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	got := strings.Join(lines, "\n") + "\n"
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (review, then -rewrite):\n%s", path, got)
	}
}

// TestGateTable is every gate against every event: a closed gate never opens (invariant 29).
func TestGateTable(t *testing.T) {
	for _, c := range []struct {
		g    Gate
		ev   GateEvent
		want Gate
		err  error
	}{
		{GateOpen, GateEventPause, GatePaused, nil}, {GateOpen, GateEventResume, GateOpen, ErrAlreadyOpen}, {GateOpen, GateEventClose, GateClosed, nil},
		{GatePaused, GateEventPause, GatePaused, ErrAlreadyPaused}, {GatePaused, GateEventResume, GateOpen, nil}, {GatePaused, GateEventClose, GateClosed, nil},
		{GateClosed, GateEventPause, GateClosed, ErrClosed}, {GateClosed, GateEventResume, GateClosed, ErrClosed}, {GateClosed, GateEventClose, GateClosed, ErrClosed},
		{GateOpen, 0, GateOpen, ErrUnknownEvent}, {GatePaused, 99, GatePaused, ErrUnknownEvent},
	} {
		got, err := c.g.On(c.ev)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s on %d = %s, %v; want %s, %v", c.g, c.ev, got, err, c.want, c.err)
		}
	}
}

func TestReadinessTable(t *testing.T) {
	legal := map[[2]Readiness]bool{
		{Recovering, Ready}: true, {Recovering, Blocked}: true, {Ready, Blocked}: true, {Ready, Recovering}: true, {Blocked, Recovering}: true,
	}
	for from := Recovering; from <= Blocked+1; from++ {
		for to := Recovering; to <= Blocked; to++ {
			if from.May(to) != legal[[2]Readiness{from, to}] {
				t.Errorf("%s to %s: %v", from, to, from.May(to))
			}
		}
	}
}

var config = policy.Circuit{FailureThreshold: 2, OpenFor: 30 * time.Second, MaxOpenFor: 2 * time.Minute, HalfOpenSuccesses: 2, TrialTimeout: 10 * time.Second}

const start = policy.Time(1_000_000_000_000)

func describe(s CircuitState) string {
	at := func(x policy.Time) string {
		if x == 0 {
			return "-"
		}
		return x.Sub(start).String()
	}
	return fmt.Sprintf("%s failures=%d openings=%d trials=%d until=%s trial=%v/%s ramp=%d/%d %s", s.Phase, s.ConsecutiveFailures, s.Openings,
		s.TrialSuccesses, at(s.OpenUntil), s.TrialInFlight, at(s.TrialDeadline), s.RampSuccesses, s.RampLimit, s.Reason)
}

// TestCircuitTable is every state against every event, before and after the open time.
func TestCircuitTable(t *testing.T) {
	states := []struct {
		name string
		s    CircuitState
	}{
		{"closed", CircuitState{}},
		{"closed, one failure", CircuitState{ConsecutiveFailures: 1}},
		{"closed, ramping", CircuitState{RampLimit: 2, RampSuccesses: 1}},
		{"open", CircuitState{Phase: CircuitOpen, Openings: 1, OpenUntil: start.Add(30 * time.Second), Reason: ReasonFailures}},
		{"open for the third time", CircuitState{Phase: CircuitOpen, Openings: 3, OpenUntil: start.Add(2 * time.Minute), Reason: ReasonTrialFailed}},
		{"half-open", CircuitState{Phase: CircuitHalfOpen, Openings: 1}},
		{"half-open, trial", CircuitState{Phase: CircuitHalfOpen, Openings: 1, TrialInFlight: true, TrialDeadline: start.Add(10 * time.Second)}},
		{"half-open, last trial", CircuitState{Phase: CircuitHalfOpen, Openings: 2, TrialSuccesses: 1, TrialInFlight: true}},
	}
	names := []string{"none", "success", "answered", "failure", "throttle", "ready to try", "trial started", "trial abandoned"}
	var lines []string
	for _, st := range states {
		for ev := CircuitEvent(0); int(ev) < len(names); ev++ {
			for _, now := range []policy.Time{start, start.Add(30 * time.Second)} {
				next, changed := st.s.On(ev, config, now, now.Add(45*time.Second))
				lines = append(lines, fmt.Sprintf("%-24s %-16s +%-3s changed=%-5v %s", st.name, names[ev], now.Sub(start), changed, describe(next)))
			}
		}
	}
	golden(t, "circuit", lines)
}

// TestThrottleBounds: a pause without a time takes the first open time; a long one is bounded.
func TestThrottleBounds(t *testing.T) {
	for _, c := range []struct{ until, want policy.Time }{
		{0, start.Add(30 * time.Second)}, {start, start.Add(30 * time.Second)}, {start.Add(time.Second), start.Add(time.Second)},
		{policy.MaxTime, start.Add(2 * time.Minute)},
	} {
		s, _ := CircuitState{}.On(EventThrottle, config, start, c.until)
		if s.OpenUntil != c.want || s.Phase != CircuitOpen {
			t.Errorf("throttle until %d: open until %s", c.until, s.OpenUntil.Sub(start))
		}
	}
}

// TestCircuitNeverByTimerAlone: whatever happens, OPEN is left only by a readiness check after the open time, and admissions start only when
// closed or as the one trial (DESIGN 7).
func TestCircuitNeverByTimerAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s CircuitState
		now := start
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "step")))
			ev := CircuitEvent(rapid.IntRange(0, 8).Draw(t, "event"))
			next, changed := s.On(ev, config, now, now.Add(time.Duration(rapid.Int64Range(-1000, int64(time.Hour)).Draw(t, "until"))))
			if s.Phase == CircuitOpen && next.Phase != CircuitOpen && (ev != EventReadyToTry || now < s.OpenUntil) {
				t.Fatalf("left OPEN by event %d at %d, open until %d", ev, now, s.OpenUntil)
			}
			if s.Phase == CircuitOpen && next.Phase == CircuitClosed {
				t.Fatal("closed without a trial")
			}
			if changed != (s.Phase != next.Phase) {
				t.Fatal("changed does not tell the truth")
			}
			if next.OpenUntil > now.Add(config.MaxOpenFor) && next.OpenUntil != s.OpenUntil {
				t.Fatalf("open for longer than the longest time: %s", next.OpenUntil.Sub(now))
			}
			if next.Phase == CircuitOpen && (next.Allows(now) || next.InFlightLimit(32) != 0) || next.Phase == CircuitHalfOpen && next.TrialInFlight && next.Allows(now) {
				t.Fatalf("admits in %s", describe(next))
			}
			s = next
		}
	})
}

// TestRampDoubles: after closing, what may be in flight doubles with every full round of successes and then stops being limited.
func TestRampDoubles(t *testing.T) {
	s := CircuitState{Phase: CircuitHalfOpen, TrialSuccesses: 1, TrialInFlight: true}
	s, _ = s.On(EventSuccess, config, start, 0)
	var limits []uint32
	for last := uint32(0); s.InFlightLimit(64) < 64; s, _ = s.On(EventSuccess, config, start, 0) {
		if l := s.InFlightLimit(64); l != last {
			limits = append(limits, l)
			last = l
		}
	}
	if fmt.Sprint(limits) != "[2 4 8 16 32]" {
		t.Errorf("ramp %v", limits)
	}
	for range 1 << 18 {
		s, _ = s.On(EventSuccess, config, start, 0)
	}
	if s.RampLimit != 0 {
		t.Errorf("the ramp never ends: %d", s.RampLimit)
	}
}
