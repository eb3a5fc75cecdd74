package lane

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sealane/sealane/policy"
	"pgregory.net/rapid"
)

var config = policy.Circuit{FailureThreshold: 2, OpenFor: 30 * time.Second, MaxOpenFor: 2 * time.Minute, HalfOpenSuccesses: 2, TrialTimeout: 10 * time.Second}

const start = policy.Time(1_000_000_000_000)

func after(d time.Duration) policy.Time { return start.Add(d) }

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

// TestCircuitTable is every state against every event, before and after the open time. "ignored" is what the state does not take.
func TestCircuitTable(t *testing.T) {
	trial := CircuitState{Phase: CircuitHalfOpen, Openings: 1, TrialInFlight: true, TrialDeadline: after(10 * time.Second), Reason: ReasonFailures}
	last := trial
	last.Openings, last.TrialSuccesses = 2, 1
	states := []struct {
		name string
		s    CircuitState
	}{
		{"closed", CircuitState{}},
		{"closed, one failure", CircuitState{ConsecutiveFailures: 1}},
		{"closed, ramping", CircuitState{RampLimit: 2, RampSuccesses: 1}},
		{"closed, ramp ends", CircuitState{RampLimit: rampEnd / 2, RampSuccesses: rampEnd/2 - 1}},
		{"open", CircuitState{Phase: CircuitOpen, Openings: 1, OpenUntil: after(30 * time.Second), Reason: ReasonFailures}},
		{"open for the third time", CircuitState{Phase: CircuitOpen, Openings: 3, OpenUntil: after(2 * time.Minute), Reason: ReasonTrialFailed}},
		{"half-open", CircuitState{Phase: CircuitHalfOpen, Openings: 1, Reason: ReasonFailures}},
		{"half-open, trial", trial},
		{"half-open, last trial", last},
		{"no such phase", CircuitState{Phase: 7}},
	}
	var lines []string
	for _, st := range states {
		for ev := CircuitEvent(0); ev <= EventTrialAbandoned+1; ev++ {
			for _, now := range []policy.Time{start, after(30 * time.Second)} {
				next, changed := st.s.On(ev, config, now, now.Add(45*time.Second))
				said := describe(next)
				if !st.s.Takes(ev, now) {
					if next != st.s || changed {
						t.Errorf("%s does not take %s, and became %s", st.name, ev, said)
					}
					said = "ignored"
				}
				lines = append(lines, fmt.Sprintf("%-24s %-16s +%-3s changed=%-5v %s", st.name, ev, now.Sub(start), changed, said))
			}
		}
	}
	golden(t, "circuit", lines)
}

// TestHeeds is which outcomes are heard, in every phase: attempts from before and after the last change, trials and others.
func TestHeeds(t *testing.T) {
	const before, changed = start - 1, start
	for _, c := range []struct {
		name          string
		s             CircuitState
		trial         bool
		admitted      policy.Time
		heeds, always bool
	}{
		{"closed, admitted since", CircuitState{}, false, start, true, true},
		{"closed, from before it opened", CircuitState{}, false, before, false, true},
		{"closed, an old trial", CircuitState{}, true, before, false, true},
		{"open", CircuitState{Phase: CircuitOpen}, false, before, false, true},
		{"open, an old trial", CircuitState{Phase: CircuitOpen}, true, before, false, true},
		{"open, at the same instant", CircuitState{Phase: CircuitOpen}, true, start, false, true},
		{"half-open, its trial", CircuitState{Phase: CircuitHalfOpen, TrialInFlight: true}, true, start, true, true},
		{"half-open, the trial of an earlier time", CircuitState{Phase: CircuitHalfOpen, TrialInFlight: true}, true, before, false, true},
		{"half-open, from before it opened", CircuitState{Phase: CircuitHalfOpen, TrialInFlight: true}, false, before, false, true},
		{"half-open, no trial out", CircuitState{Phase: CircuitHalfOpen}, true, start, false, true},
		{"no such phase", CircuitState{Phase: 7}, true, start, false, true},
	} {
		for _, ev := range []CircuitEvent{EventSuccess, EventAnswered, EventFailure, EventTrialAbandoned} {
			if got := c.s.Heeds(ev, c.trial, c.admitted, changed); got != c.heeds {
				t.Errorf("%s: heeds %s: %v", c.name, ev, got)
			}
		}
		if got := c.s.Heeds(EventThrottle, c.trial, c.admitted, changed); got != c.always {
			t.Errorf("%s: heeds a throttle: %v", c.name, got)
		}
	}
}

// target is a circuit with what its owner remembers beside it: when it last changed.
type target struct {
	s       CircuitState
	changed policy.Time
}

func (x *target) on(ev CircuitEvent, now, until policy.Time) {
	var changed bool
	if x.s, changed = x.s.On(ev, config, now, until); changed {
		x.changed = now
	}
}

// outcome feeds what an attempt came to, as an owner does.
func (x *target) outcome(ev CircuitEvent, trial bool, admitted, now policy.Time) {
	if x.s.Heeds(ev, trial, admitted, x.changed) {
		x.on(ev, now, 0)
	}
}

// TestLateOutcomes: thirty requests hang while the circuit opens, is tried and closes. Their timeouts neither lengthen the open time, nor
// fail the trial, nor open the circuit again; a late success does not close it.
func TestLateOutcomes(t *testing.T) {
	x := &target{changed: start}
	x.outcome(EventFailure, false, after(1), after(time.Second))
	x.outcome(EventFailure, false, after(1), after(time.Second))
	opened := x.s
	if opened.Phase != CircuitOpen || opened.OpenUntil != after(31*time.Second) {
		t.Fatalf("two failures: %s", describe(opened))
	}
	late := func(now policy.Time) {
		t.Helper()
		was := x.s
		for _, ev := range []CircuitEvent{EventSuccess, EventAnswered, EventFailure, EventTrialAbandoned} {
			for range 30 {
				x.outcome(ev, false, after(1), now)
			}
		}
		if x.s != was {
			t.Fatalf("late outcomes made %s of %s", describe(x.s), describe(was))
		}
	}
	late(after(2 * time.Second))
	x.on(EventReadyToTry, after(31*time.Second), 0)
	late(after(31 * time.Second))
	for i := range config.HalfOpenSuccesses {
		at := after(32*time.Second + time.Duration(i)*time.Second)
		x.on(EventTrialStarted, at, 0)
		late(at)
		x.outcome(EventSuccess, true, at, at.Add(time.Millisecond))
	}
	if x.s.Phase != CircuitClosed {
		t.Fatalf("trials left %s", describe(x.s))
	}
	late(after(40 * time.Second))
	x.outcome(EventFailure, false, after(36*time.Second), after(41*time.Second))
	if x.s.ConsecutiveFailures != 1 {
		t.Errorf("a failure of a request made since is not counted: %s", describe(x.s))
	}
}

// TestAnOverdueTrialIsNotHeard: a trial that was given up answers in the next half-open time, where another trial is out.
func TestAnOverdueTrialIsNotHeard(t *testing.T) {
	x := &target{s: CircuitState{Phase: CircuitHalfOpen, Openings: 1}, changed: start}
	x.on(EventTrialStarted, start, 0)
	x.on(EventFailure, after(10*time.Second), 0) // overdue
	x.on(EventReadyToTry, after(70*time.Second), 0)
	x.on(EventTrialStarted, after(71*time.Second), 0)
	was := x.s
	x.outcome(EventSuccess, true, start, after(72*time.Second))
	x.outcome(EventFailure, true, start, after(72*time.Second))
	if was.Phase != CircuitHalfOpen || x.s != was {
		t.Errorf("%s became %s", describe(was), describe(x.s))
	}
}

// TestOpeningsGrow: each failed trial opens for longer, up to the cap, and a throttle between does not count as one; closing forgets it.
func TestOpeningsGrow(t *testing.T) {
	s := CircuitState{ConsecutiveFailures: 1}
	now := start
	var waits []time.Duration
	for range 5 {
		s, _ = s.On(EventFailure, config, now, 0)
		waits = append(waits, s.OpenUntil.Sub(now))
		now = s.OpenUntil
		s, _ = s.On(EventReadyToTry, config, now, 0)
	}
	if want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 2 * time.Minute, 2 * time.Minute}; !slices.Equal(waits, want) {
		t.Errorf("open for %v, want %v", waits, want)
	}
	s, _ = s.On(EventThrottle, config, now, now.Add(time.Second))
	if s.Openings != 5 || s.OpenUntil != now.Add(time.Second) || s.Reason != ReasonThrottled {
		t.Errorf("throttled trial: %s", describe(s))
	}
	now = s.OpenUntil
	s, _ = s.On(EventReadyToTry, config, now, 0)
	for range config.HalfOpenSuccesses {
		s, _ = s.On(EventTrialStarted, config, now, 0)
		s, _ = s.On(EventAnswered, config, now, 0)
	}
	if s != (CircuitState{RampLimit: rampStart}) {
		t.Errorf("closed: %s", describe(s))
	}
}

// TestCountersSaturate: no count wraps, whatever the thresholds.
func TestCountersSaturate(t *testing.T) {
	never := config
	never.FailureThreshold = math.MaxUint32
	s, _ := CircuitState{ConsecutiveFailures: math.MaxUint32 - 2}.On(EventFailure, never, start, 0)
	if s.Phase != CircuitClosed || s.ConsecutiveFailures != math.MaxUint32-1 {
		t.Errorf("%s", describe(s))
	}
	s, _ = CircuitState{Phase: CircuitClosed, ConsecutiveFailures: math.MaxUint32}.On(EventFailure, config, start, 0)
	if s.Phase != CircuitOpen || s.ConsecutiveFailures != math.MaxUint32 {
		t.Errorf("%s", describe(s))
	}
	s, _ = CircuitState{Phase: CircuitHalfOpen, Openings: math.MaxUint32}.On(EventFailure, config, start, 0)
	if s.Openings != math.MaxUint32 || s.OpenUntil != after(config.MaxOpenFor) {
		t.Errorf("%s", describe(s))
	}
	s, _ = CircuitState{Phase: CircuitHalfOpen}.On(EventFailure, config, policy.MaxTime-1, 0)
	if s.OpenUntil != policy.MaxTime {
		t.Errorf("%s", describe(s))
	}
}

// TestThrottleBounds: a pause without a time takes the first open time; a long one is bounded; an open circuit is never shortened.
func TestThrottleBounds(t *testing.T) {
	for _, c := range []struct{ until, want policy.Time }{
		{0, after(30 * time.Second)}, {start, after(30 * time.Second)}, {after(1), after(1)}, {after(2 * time.Minute), after(2 * time.Minute)},
		{after(2*time.Minute + 1), after(2 * time.Minute)}, {policy.MaxTime, after(2 * time.Minute)},
	} {
		s, changed := CircuitState{}.On(EventThrottle, config, start, c.until)
		if s.OpenUntil != c.want || s.Phase != CircuitOpen || !changed {
			t.Errorf("throttle until %d: %s", c.until, describe(s))
		}
	}
	open := CircuitState{Phase: CircuitOpen, Openings: 2, OpenUntil: after(time.Minute), Reason: ReasonTrialFailed}
	if s, _ := open.On(EventThrottle, config, start, after(time.Second)); s != open {
		t.Errorf("a short throttle changed %s into %s", describe(open), describe(s))
	}
	if s, changed := open.On(EventThrottle, config, start, after(90*time.Second)); s.OpenUntil != after(90*time.Second) || changed || s.Reason != ReasonTrialFailed {
		t.Errorf("a long throttle: %s", describe(s))
	}
}

// TestTrialDeadline: the configured time, or the attempt's own timeout if that is later.
func TestTrialDeadline(t *testing.T) {
	for _, c := range []struct{ until, want policy.Time }{
		{0, after(10 * time.Second)}, {after(time.Second), after(10 * time.Second)}, {after(time.Minute), after(time.Minute)}, {policy.MaxTime, policy.MaxTime},
	} {
		if s, _ := (CircuitState{Phase: CircuitHalfOpen}).On(EventTrialStarted, config, start, c.until); s.TrialDeadline != c.want || !s.TrialInFlight {
			t.Errorf("attempt until %d: %s", c.until, describe(s))
		}
	}
}

// TestCircuitProperties: whatever happens, OPEN is left only by a readiness check after the open time, nothing is admitted but when closed or
// as the one trial, the state stays in bounds, and On agrees with Takes (DESIGN 7).
func TestCircuitProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s CircuitState
		now := start
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "step")))
			ev := CircuitEvent(rapid.IntRange(0, 8).Draw(t, "event"))
			next, changed := s.On(ev, config, now, now.Add(time.Duration(rapid.Int64Range(-1000, int64(time.Hour)).Draw(t, "until"))))
			checkStep(t, s, next, ev, now, changed)
			s = next
		}
	})
}

func checkStep(t *rapid.T, s, next CircuitState, ev CircuitEvent, now policy.Time, changed bool) {
	t.Helper()
	switch {
	case changed != (s.Phase != next.Phase):
		t.Fatal("changed does not tell the truth")
	case !s.Takes(ev, now) && next != s:
		t.Fatalf("%s is not taken by %s, which became %s", ev, describe(s), describe(next))
	case s.Phase == CircuitOpen && next.Phase != CircuitOpen && (ev != EventReadyToTry || now < s.OpenUntil || next.Phase != CircuitHalfOpen):
		t.Fatalf("left OPEN by %s at %d, open until %d, for %s", ev, now, s.OpenUntil, next.Phase)
	case next.Phase == CircuitClosed && s.Phase == CircuitHalfOpen && (!s.TrialInFlight || s.TrialSuccesses+1 != config.HalfOpenSuccesses):
		t.Fatalf("closed from %s", describe(s))
	case next.OpenUntil > now.Add(config.MaxOpenFor) && next.OpenUntil != s.OpenUntil:
		t.Fatalf("open for longer than the longest time: %s", next.OpenUntil.Sub(now))
	case next.Phase == CircuitOpen && next.OpenUntil < s.OpenUntil && s.Phase == CircuitOpen:
		t.Fatal("the open time became shorter")
	}
	admits, limit := next.Allows(now), next.InFlightLimit(32)
	switch {
	case next.Phase == CircuitOpen && (admits || limit != 0), next.Phase == CircuitHalfOpen && (admits == next.TrialInFlight || limit != 1):
		t.Fatalf("admits %v, %d in flight, in %s", admits, limit, describe(next))
	case next.Phase == CircuitClosed && (!admits || limit < 1 || limit > 32 || next.ConsecutiveFailures >= config.FailureThreshold):
		t.Fatalf("admits %v, %d in flight, in %s", admits, limit, describe(next))
	case next.TrialInFlight && (next.Phase != CircuitHalfOpen || next.TrialDeadline == 0), next.RampLimit != 0 && next.Phase != CircuitClosed:
		t.Fatalf("left over: %s", describe(next))
	}
}

// TestRampDoubles: after closing, what may be in flight doubles with every full round of answers and then stops being limited.
func TestRampDoubles(t *testing.T) {
	for _, ev := range []CircuitEvent{EventSuccess, EventAnswered} {
		s := CircuitState{Phase: CircuitHalfOpen, TrialSuccesses: 1, TrialInFlight: true}
		s, _ = s.On(ev, config, start, 0)
		var limits []uint32
		answers := 0
		for last := uint32(0); s.InFlightLimit(64) < 64; s, _ = s.On(ev, config, start, 0) {
			if l := s.InFlightLimit(64); l != last {
				limits = append(limits, l)
				last = l
			}
			answers++
		}
		if fmt.Sprint(limits) != "[2 4 8 16 32]" || answers != 2+4+8+16+32 {
			t.Errorf("ramp of %s: %v in %d answers", ev, limits, answers)
		}
		for range 1 << 17 {
			s, _ = s.On(ev, config, start, 0)
		}
		if s != (CircuitState{}) {
			t.Errorf("the ramp never ends: %s", describe(s))
		}
	}
}

func TestInFlightLimit(t *testing.T) {
	for _, c := range []struct {
		s           CircuitState
		limit, want uint32
	}{
		{CircuitState{}, 32, 32}, {CircuitState{}, 0, 0}, {CircuitState{RampLimit: 4}, 32, 4}, {CircuitState{RampLimit: 64}, 32, 32},
		{CircuitState{Phase: CircuitOpen}, 32, 0}, {CircuitState{Phase: CircuitHalfOpen}, 32, 1}, {CircuitState{Phase: CircuitHalfOpen}, 0, 0},
		{CircuitState{Phase: 7}, 32, 0},
	} {
		if got := c.s.InFlightLimit(c.limit); got != c.want {
			t.Errorf("%s with %d: %d, want %d", describe(c.s), c.limit, got, c.want)
		}
	}
	if (CircuitState{Phase: 7}).Allows(start) {
		t.Error("an unknown phase admits")
	}
}
