package policy

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var counts = []uint64{0, 1, 2, 3, 4, 10, 11, 12, 13, 31, 32, 62, 63, 64, 1023, 1024, 1 << 31, 1<<63 - 1, 1 << 63, 1<<64 - 2, 1<<64 - 1}

// TestBackoffVectors pins the wait for attempt counts from 0 to the integer maximum (R011, R012, R013): the wait before jitter at every
// count, and what NextRetry makes of it. Its budget is too small for the largest counts, which are exhausted; a lane-level settlement at
// the same count waits as at the first.
func TestBackoffVectors(t *testing.T) {
	policies := []struct {
		name string
		r    Retry
	}{
		{"default", DefaultRetry()},
		{"equal", Retry{InitialBackoff: time.Second, MaxBackoff: time.Hour, Multiplier: 2, Jitter: JitterEqual}},
		{"none", Retry{InitialBackoff: time.Second, MaxBackoff: time.Hour, Multiplier: 2, Jitter: JitterNone}},
		{"none-x10", Retry{InitialBackoff: 7 * time.Millisecond, MaxBackoff: 30 * 24 * time.Hour, Multiplier: 10, Jitter: JitterNone}},
		{"constant", Retry{InitialBackoff: time.Second, MaxBackoff: time.Hour, Multiplier: 1, Jitter: JitterNone}},
		{"endless", Retry{InitialBackoff: 1, MaxBackoff: math.MaxInt64, Multiplier: math.MaxUint32, Jitter: JitterNone}},
		{"zero", Retry{MaxBackoff: time.Hour, Multiplier: 2}},
		{"no-cap", Retry{InitialBackoff: time.Second, Multiplier: 2, Jitter: JitterNone}},
		{"schedule", Retry{Schedule: []time.Duration{5 * time.Second, 5 * time.Minute, 0, 30 * time.Minute}, MaxBackoff: time.Hour}},
	}
	var lines []string
	for _, p := range policies {
		p.r.MaxAttempts = math.MaxUint32
		for _, n := range counts {
			in := RetryInput{Now: 1000, Counted: n, Key: JitterKey{Message: [16]byte{1, 2, 3}, Generation: 1, Attempt: n}}
			before := "-"
			if len(p.r.Schedule) == 0 {
				before = backoff(p.r, n).String()
			}
			got := "exhausted"
			if d := NextRetry(p.r, in); !d.Exhausted {
				got = fmt.Sprintf("%s %s", d.Delay, d.Reason)
			}
			in.LaneLevel = true
			lane := NextRetry(p.r, in)
			lines = append(lines, fmt.Sprintf("%-9s %20d wait %-22s %-26s lane-level %s %s", p.name, n, before, got, lane.Delay, lane.Reason))
		}
	}
	golden(t, "backoff", lines)
}

// TestRetryAfterVectors pins how a header and the policy's own wait combine: a floor, honoured up to the cap, jitter only above it. The
// adapter saturates what no Duration holds (9223372037 s is one second too many) at the largest.
func TestRetryAfterVectors(t *testing.T) {
	policies := []struct {
		name string
		r    Retry
	}{
		{"default", DefaultRetry()},
		{"none, max 1m", Retry{MaxAttempts: 8, InitialBackoff: time.Second, MaxBackoff: time.Minute, Multiplier: 2, Jitter: JitterNone}},
		{"zero", Retry{MaxAttempts: 8, MaxBackoff: time.Hour, Multiplier: 2}},
		{"no-cap", Retry{MaxAttempts: 8, Multiplier: 2}},
		{"schedule 10s", Retry{MaxAttempts: 8, MaxBackoff: time.Hour, Schedule: []time.Duration{10 * time.Second}}},
		{"schedule 2h", Retry{MaxAttempts: 8, MaxBackoff: time.Hour, Schedule: []time.Duration{2 * time.Hour}}},
	}
	afters := []time.Duration{
		-5, 0, 1, time.Second, 10 * time.Second, 90 * time.Second, time.Hour - 1, time.Hour, time.Hour + 1, 90 * time.Minute, 3 * time.Hour,
		9223372036 * time.Second, math.MaxInt64,
	}
	var lines []string
	for _, p := range policies {
		for _, lane := range []bool{false, true} {
			for _, after := range afters {
				in := RetryInput{Now: 1, Counted: 3, LaneLevel: lane, RetryAfter: after, HasRetryAfter: true, Key: JitterKey{Attempt: 3}}
				d := NextRetry(p.r, in)
				lines = append(lines, fmt.Sprintf("%-13s lane=%-5v after %-27s %s %s", p.name, lane, after, d.Delay, d.Reason))
			}
		}
	}
	golden(t, "retry_after", lines)
}

// TestNextRetryProperties: never early, never negative, never above the cap, the same on repetition (invariants 31, 32).
func TestNextRetryProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := retries().Draw(t, "policy")
		if ps := r.Validate(); len(ps) > 0 {
			t.Fatalf("generator made an invalid policy: %v", ps)
		}
		in := RetryInput{
			Now: Time(rapid.Int64().Draw(t, "now")), Counted: rapid.Uint64().Draw(t, "counted"), LaneLevel: rapid.Bool().Draw(t, "lane"),
			RetryAfter: time.Duration(rapid.Int64().Draw(t, "after")), HasRetryAfter: rapid.Bool().Draw(t, "has"), Key: keys().Draw(t, "key"),
		}
		d := NextRetry(r, in)
		if d != NextRetry(r, in) {
			t.Fatal("two answers to one question")
		}
		if want := !in.LaneLevel && in.Counted >= uint64(r.MaxAttempts); d.Exhausted != want {
			t.Fatalf("exhausted=%v, want %v", d.Exhausted, want)
		}
		if d.Exhausted {
			if d != (RetryDecision{Exhausted: true}) {
				t.Fatalf("an exhausted budget with a time: %+v", d)
			}
			return
		}
		checkRetryDecision(t, r, in, d)
	})
}

// checkRetryDecision holds a decision to its bounds and its reason to the truth.
func checkRetryDecision(t *rapid.T, r Retry, in RetryInput, d RetryDecision) {
	t.Helper()
	limit := r.MaxBackoff
	for _, s := range r.Schedule {
		limit = max(limit, s)
	}
	if d.Delay < 0 || d.Delay > limit || d.At < in.Now {
		t.Fatalf("delay %s outside [0, %s], or at %d before now", d.Delay, limit, d.At)
	}
	if d.At != in.Now.Add(d.Delay) {
		t.Fatalf("at %d is not now %d and %s", d.At, in.Now, d.Delay)
	}
	own := in
	own.HasRetryAfter = false
	without := NextRetry(r, own)
	switch {
	case !in.HasRetryAfter || in.RetryAfter <= without.Delay:
		if d != without {
			t.Fatalf("Retry-After %s changed %+v into %+v", in.RetryAfter, without, d)
		}
	case in.RetryAfter <= r.MaxBackoff:
		if d.Reason != ReasonRetryAfter || d.Delay < in.RetryAfter {
			t.Fatalf("Retry-After %s gave %+v", in.RetryAfter, d)
		}
	default:
		if d.Reason != ReasonRetryAfterCapped || d.Delay != max(without.Delay, r.MaxBackoff) {
			t.Fatalf("Retry-After %s above max_backoff %s gave %+v", in.RetryAfter, r.MaxBackoff, d)
		}
	}
}

// TestNextRetryIsTotal: whatever a policy holds, valid or not, the arithmetic neither panics nor goes back in time.
func TestNextRetryIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := RetryInput{
			Now: Time(rapid.Int64().Draw(t, "now")), Counted: rapid.Uint64().Draw(t, "counted"), LaneLevel: true,
			RetryAfter: time.Duration(rapid.Int64().Draw(t, "after")), HasRetryAfter: rapid.Bool().Draw(t, "has"), Key: keys().Draw(t, "key"),
		}
		if d := NextRetry(wild().Draw(t, "policy"), in); d.Exhausted || d.Delay < 0 || d.At < in.Now {
			t.Fatalf("%+v", d)
		}
	})
}

// TestBackoffMonotone: without jitter the wait never shrinks as the count grows, and it stops at the cap.
func TestBackoffMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := retries().Draw(t, "policy")
		a := rapid.Uint64().Draw(t, "a")
		b := rapid.Uint64Range(a, math.MaxUint64).Draw(t, "b")
		if backoff(r, a) > backoff(r, b) || backoff(r, b) > r.MaxBackoff {
			t.Fatalf("%s for %d, %s for %d, cap %s", backoff(r, a), a, backoff(r, b), b, r.MaxBackoff)
		}
		if r.InitialBackoff == 0 && backoff(r, b) != 0 {
			t.Fatal("zero did not stay zero")
		}
	})
}

// TestZeroStaysZero: no count, jitter or lane-level settlement turns an immediate retry into a wait (R012).
func TestZeroStaysZero(t *testing.T) {
	for _, j := range []Jitter{JitterFull, JitterEqual, JitterNone} {
		for _, n := range counts {
			for _, lane := range []bool{false, true} {
				r := Retry{MaxAttempts: math.MaxUint32, MaxBackoff: time.Hour, Multiplier: 2, Jitter: j}
				d := NextRetry(r, RetryInput{Now: 7, Counted: n, LaneLevel: lane, Key: JitterKey{Attempt: n}})
				if !d.Exhausted && (d.Delay != 0 || d.At != 7) {
					t.Errorf("jitter %d, count %d, lane-level %v: waits %s", j, n, lane, d.Delay)
				}
			}
		}
	}
}

// TestLaneLevelNeverExhausts: an outage neither uses up a budget nor inflates the wait (R178).
func TestLaneLevelNeverExhausts(t *testing.T) {
	for _, n := range counts {
		d := NextRetry(DefaultRetry(), RetryInput{Counted: n, LaneLevel: true, Key: JitterKey{Attempt: n}})
		if d.Exhausted || d.Reason != ReasonLane || d.Delay > time.Second {
			t.Errorf("lane-level settlement at count %d: %+v", n, d)
		}
	}
	r := Retry{MaxAttempts: 1, Schedule: []time.Duration{5, 50}}
	if d := NextRetry(r, RetryInput{Now: 1, Counted: 9, LaneLevel: true}); d != (RetryDecision{At: 6, Delay: 5, Reason: ReasonLane}) {
		t.Errorf("with a schedule: %+v", d)
	}
}

// TestBudgetEnds: the settlement that uses the last of the budget is exhausted, and none before it (R027).
func TestBudgetEnds(t *testing.T) {
	for _, attempts := range []uint32{0, 1, 2, 8, math.MaxUint32} {
		r := Retry{MaxAttempts: attempts, Multiplier: 1}
		for _, n := range []uint64{uint64(attempts), uint64(attempts) + 1, math.MaxUint64} {
			if d := NextRetry(r, RetryInput{Counted: n}); !d.Exhausted {
				t.Errorf("max_attempts %d: not exhausted at %d", attempts, n)
			}
		}
		if attempts > 0 {
			if d := NextRetry(r, RetryInput{Counted: uint64(attempts) - 1}); d.Exhausted {
				t.Errorf("max_attempts %d: exhausted one too early", attempts)
			}
		}
	}
}

// TestRetryValidate: every problem at once, in a fixed order, each naming its field; both ends of every bound.
func TestRetryValidate(t *testing.T) {
	with := func(f func(*Retry)) Retry { r := DefaultRetry(); f(&r); return r }
	for _, c := range []struct {
		name string
		r    Retry
		want string
	}{
		{"defaults", DefaultRetry(), ""},
		{"everything", Retry{InitialBackoff: 2, MaxBackoff: 1, Jitter: 9, Schedule: []time.Duration{1, -1, MaxBackoffLimit + 1}},
			"retry.max_attempts retry.initial_backoff retry.multiplier retry.jitter retry.schedule[1] retry.schedule[2] retry.lifetime"},
		{"least", Retry{MaxAttempts: 1, Multiplier: 1, Lifetime: 1}, ""},
		{"most", Retry{
			MaxAttempts: MaxAttemptsLimit, InitialBackoff: MaxBackoffLimit, MaxBackoff: MaxBackoffLimit, Multiplier: MaxMultiplier, Jitter: JitterNone,
			Schedule: make([]time.Duration, MaxSchedule), Lifetime: MaxLifetime,
		}, ""},
		{"attempts", with(func(r *Retry) { r.MaxAttempts = MaxAttemptsLimit + 1 }), "retry.max_attempts"},
		{"max_backoff", with(func(r *Retry) { r.MaxBackoff = MaxBackoffLimit + 1 }), "retry.max_backoff"},
		{"negative max_backoff", with(func(r *Retry) { r.InitialBackoff, r.MaxBackoff = -2, -1 }), "retry.max_backoff retry.initial_backoff"},
		{"negative initial", with(func(r *Retry) { r.InitialBackoff = -1 }), "retry.initial_backoff"},
		{"multiplier", with(func(r *Retry) { r.Multiplier = MaxMultiplier + 1 }), "retry.multiplier"},
		{"long schedule", with(func(r *Retry) { r.Schedule = make([]time.Duration, MaxSchedule+1) }), "retry.schedule"},
		{"lifetime", with(func(r *Retry) { r.Lifetime = MaxLifetime + 1 }), "retry.lifetime"},
		{"negative lifetime", with(func(r *Retry) { r.Lifetime = -1 }), "retry.lifetime"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fields(c.r.Validate()); got != c.want {
				t.Errorf("problems %q, want %q", got, c.want)
			}
		})
	}
	if ps := with(func(r *Retry) { r.MaxAttempts = 0 }).Validate(); len(ps) != 1 || ps[0].Reason != "must be from 1 to 1000000" {
		t.Errorf("the reason does not name the limit: %v", ps)
	}
}

func TestRetryReasonNames(t *testing.T) {
	want := []string{
		"RETRY_REASON_UNSPECIFIED", "BACKOFF", "SCHEDULE", "RETRY_AFTER", "RETRY_AFTER_CAPPED", "LANE", "UNCERTAIN_RETRY", "OPERATOR",
		"RETRY_REASON_UNSPECIFIED",
	}
	for i, name := range want {
		if got := RetryReason(i).String(); got != name {
			t.Errorf("reason %d is %q, want %q", i, got, name)
		}
	}
}
