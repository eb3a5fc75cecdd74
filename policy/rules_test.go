package policy

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestOutcomeTable pins which pairs are legal and what each does (R175, C.7).
func TestOutcomeTable(t *testing.T) {
	budgets := []string{"-", "counts", "terminal"}
	circuits := []string{"success", "answered", "failure", "throttle", "-"}
	var lines []string
	for s := SideEffectUnspecified; s <= Unknown+1; s++ {
		for d := DispositionUnspecified; d <= AdapterBug+1; d++ {
			if !LegalOutcome(s, d) {
				lines = append(lines, fmt.Sprintf("%-24s %-24s illegal", s, d))
				continue
			}
			b, c := EffectOf(s, d)
			lines = append(lines, fmt.Sprintf("%-24s %-24s budget %-8s circuit %s", s, d, budgets[b], circuits[c]))
		}
	}
	golden(t, "outcomes", lines)
}

func TestSideEffectNames(t *testing.T) {
	for s := Published; s <= Unknown; s++ {
		if got, ok := ParseSideEffect(s.String()); !ok || got != s {
			t.Errorf("ParseSideEffect(%q) = %v, %v", s, got, ok)
		}
	}
	for _, bad := range []string{"", "published", "SIDE_EFFECT_UNSPECIFIED", "X"} {
		if _, ok := ParseSideEffect(bad); ok {
			t.Errorf("ParseSideEffect(%q) took it", bad)
		}
	}
}

// TestTimeSaturates: arithmetic never wraps.
func TestTimeSaturates(t *testing.T) {
	for _, c := range []struct {
		t    Time
		d    time.Duration
		want Time
	}{
		{0, 5, 5}, {MaxTime, 1, MaxTime}, {MaxTime - 1, 1, MaxTime}, {5, math.MaxInt64, MaxTime}, {minTime, -1, minTime}, {-5, math.MinInt64, minTime},
		{5, -6, -1}, {0, math.MinInt64, minTime},
	} {
		if got := c.t.Add(c.d); got != c.want {
			t.Errorf("%d.Add(%d) = %d, want %d", c.t, c.d, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := Time(rapid.Int64().Draw(t, "a")), Time(rapid.Int64().Draw(t, "b"))
		if d := a.Sub(b); (a > b) != (d > 0) || (a < b) != (d < 0) {
			t.Fatalf("%d.Sub(%d) = %d has the wrong sign", a, b, d)
		}
	})
}

func TestGenerationDeadline(t *testing.T) {
	for _, c := range []struct {
		accepted, deliver, expire Time
		life                      time.Duration
		want                      Time
		byLifetime                bool
	}{
		{100, 0, 0, 50, 150, true},
		{100, 500, 0, 50, 550, true}, // a far deliver_at does not eat the lifetime
		{100, 0, 120, 50, 120, false},
		{100, 0, 150, 50, 150, false}, // at the same instant the client's word is the reason
		{100, 0, 151, 50, 150, true},
		{100, 0, 0, math.MaxInt64, MaxTime, true},
		{100, 0, 0, -1, 100, true},
	} {
		at, by := GenerationDeadline(c.accepted, c.deliver, c.expire, c.life)
		if at != c.want || by != c.byLifetime {
			t.Errorf("GenerationDeadline(%d, %d, %d, %d) = %d, %v; want %d, %v", c.accepted, c.deliver, c.expire, c.life, at, by, c.want, c.byLifetime)
		}
	}
}

// TestAfterUnknown is the rule of DESIGN 5, one row for each way out.
func TestAfterUnknown(t *testing.T) {
	r := Retry{MaxAttempts: 5, InitialBackoff: 10, MaxBackoff: 1000, Multiplier: 2, Jitter: JitterNone}
	retry := Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 2, AcceptDuplicates: true}
	dedup := Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 2, ReceiverDedupWindow: 100}
	give := func(u Uncertainty) Uncertainty { u.WhenExhausted = ExhaustedDeadLetter; return u }
	base := UnknownInput{Now: 1000, FirstAdmittedAt: 990, Deadline: 5000, Timeout: 20, Attempts: 1}
	with := func(f func(*UnknownInput)) UnknownInput { in := base; f(&in); return in }
	for _, c := range []struct {
		name string
		u    Uncertainty
		in   UnknownInput
		want UncertainDecision
	}{
		{"hold is the default", Uncertainty{}, base, UncertainDecision{Reason: WhyHoldPolicy}},
		{"hold even when it would give up", give(Uncertainty{}), base, UncertainDecision{Reason: WhyHoldPolicy}},
		{"permitted", retry, base, UncertainDecision{Action: RetryUncertain, At: 1010, Reason: WhyRetryPermitted}},
		{"second waits longer", retry, with(func(in *UnknownInput) { in.RetriesUsed = 1 }), UncertainDecision{Action: RetryUncertain, At: 1020, Reason: WhyRetryPermitted}},
		{"safe inside the window", dedup, base, UncertainDecision{Action: RetryUncertain, At: 1010, DuplicateSafe: true, Reason: WhyRetryPermitted}},
		{"must end inside the window", dedup, with(func(in *UnknownInput) { in.Timeout = 81 }), UncertainDecision{Reason: WhyDedupWindowClosed}},
		{"ends exactly with it", dedup, with(func(in *UnknownInput) { in.Timeout = 80 }), UncertainDecision{Action: RetryUncertain, At: 1010, DuplicateSafe: true, Reason: WhyRetryPermitted}},
		{"retries used", retry, with(func(in *UnknownInput) { in.RetriesUsed = 2 }), UncertainDecision{Reason: WhyRetriesUsed}},
		{"retries used, gives up", give(retry), with(func(in *UnknownInput) { in.RetriesUsed = 2 }), UncertainDecision{Action: GiveUpUncertain, Reason: WhyRetriesUsed}},
		{"total used", retry, with(func(in *UnknownInput) { in.Attempts = 5 }), UncertainDecision{Reason: WhyAttemptsUsed}},
		{"deadline", retry, with(func(in *UnknownInput) { in.Deadline = 1010 }), UncertainDecision{Reason: WhyDeadline}},
		{"order needs dedup", retry, with(func(in *UnknownInput) { in.Ordered = true }), UncertainDecision{Reason: WhyOrderingNeeds}},
		{"order with dedup", dedup, with(func(in *UnknownInput) { in.Ordered = true }), UncertainDecision{Action: RetryUncertain, At: 1010, DuplicateSafe: true, Reason: WhyRetryPermitted}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := AfterUnknown(c.u, r, c.in); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestUncertaintyValidate(t *testing.T) {
	for _, c := range []struct {
		u    Uncertainty
		want int
	}{
		{Uncertainty{}, 0},
		{Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 1, AcceptDuplicates: true}, 0},
		{Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 1, ReceiverDedupWindow: 1}, 0},
		{Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 1}, 1},
		{Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 1, ReceiverDedupWindow: 1, AcceptDuplicates: true}, 1},
		{Uncertainty{OnUncertain: UncertainRetry, AcceptDuplicates: true}, 1},
		{Uncertainty{MaxRetries: 1, AcceptDuplicates: true, WhenExhausted: 7, ReceiverDedupWindow: -1}, 4},
		{Uncertainty{OnUncertain: 9}, 1},
	} {
		if got := c.u.Validate(); len(got) != c.want {
			t.Errorf("%+v: %d problems %v, want %d", c.u, len(got), got, c.want)
		}
	}
}

func TestOpenDuration(t *testing.T) {
	var lines []string
	for _, n := range []uint32{0, 1, 2, 3, 4, 5, 6, 7, 31, 32, 33, math.MaxUint32} {
		lines = append(lines, fmt.Sprintf("%10d %s", n, OpenDuration(DefaultCircuit(), n)))
	}
	golden(t, "open_duration", lines)
	if ps := DefaultCircuit().Validate(); len(ps) > 0 {
		t.Errorf("defaults are invalid: %v", ps)
	}
	if ps := (Circuit{}).Validate(); len(ps) != 4 {
		t.Errorf("an empty circuit has %d problems, want 4: %v", len(ps), ps)
	}
}
