package policy

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "write the golden vectors anew")

// golden compares lines with a file of testdata. The vectors pin the arithmetic: a change that moves one changes every replica's decisions.
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

var counts = []uint64{0, 1, 2, 3, 4, 10, 11, 12, 13, 31, 32, 62, 63, 64, 1023, 1024, 1 << 31, 1<<63 - 1, 1<<64 - 1}

// TestBackoffVectors pins the wait for attempt counts from 0 to the integer maximum (R011, R012).
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
		{"zero", Retry{MaxBackoff: time.Hour, Multiplier: 2}},
		{"no-cap", Retry{InitialBackoff: time.Second, Multiplier: 2, Jitter: JitterNone}},
		{"schedule", Retry{Schedule: []time.Duration{5 * time.Second, 5 * time.Minute, 0, 30 * time.Minute}, MaxBackoff: time.Hour}},
	}
	var lines []string
	for _, p := range policies {
		p.r.MaxAttempts = math.MaxUint32
		for _, n := range counts {
			in := RetryInput{Now: 1000, Counted: n, Key: JitterKey{Message: [16]byte{1, 2, 3}, Generation: 1, Attempt: n}}
			d := NextRetry(p.r, in)
			if d.Exhausted {
				lines = append(lines, fmt.Sprintf("%-9s %20d exhausted", p.name, n))
				continue
			}
			lines = append(lines, fmt.Sprintf("%-9s %20d %s %s", p.name, n, d.Delay, d.Reason))
		}
	}
	golden(t, "backoff", lines)
}

// TestRetryAfterVectors pins how a header and the policy's own wait combine: a floor, honoured up to the cap, jitter only above it.
func TestRetryAfterVectors(t *testing.T) {
	var lines []string
	for _, r := range []Retry{
		DefaultRetry(), {MaxAttempts: 8, InitialBackoff: time.Second, MaxBackoff: time.Minute, Multiplier: 2, Jitter: JitterNone},
		{MaxAttempts: 8, MaxBackoff: time.Hour, Schedule: []time.Duration{10 * time.Second}},
	} {
		for _, after := range []time.Duration{-5, 0, 1, time.Second, 90 * time.Second, time.Hour, 9223372036 * time.Second, math.MaxInt64} {
			d := NextRetry(r, RetryInput{Now: 1, Counted: 3, RetryAfter: after, HasRetryAfter: true, Key: JitterKey{Attempt: 3}})
			lines = append(lines, fmt.Sprintf("max %s schedule %v jitter %d after %s: %s %s", r.MaxBackoff, r.Schedule, r.Jitter, after, d.Delay, d.Reason))
		}
	}
	golden(t, "retry_after", lines)
}

func durations(lo, hi time.Duration) *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64Range(int64(lo), int64(hi)).Draw(t, "ns")) })
}

func retries() *rapid.Generator[Retry] {
	return rapid.Custom(func(t *rapid.T) Retry {
		r := Retry{
			MaxAttempts: rapid.Uint32Range(1, MaxAttemptsLimit).Draw(t, "attempts"), MaxBackoff: durations(0, MaxBackoffLimit).Draw(t, "max"),
			Multiplier: rapid.Uint32Range(1, MaxMultiplier).Draw(t, "multiplier"), Jitter: Jitter(rapid.IntRange(0, 2).Draw(t, "jitter")),
			Schedule: rapid.SliceOfN(durations(0, MaxBackoffLimit), 0, 5).Draw(t, "schedule"), Lifetime: durations(1, MaxLifetime).Draw(t, "lifetime"),
		}
		r.InitialBackoff = durations(0, r.MaxBackoff).Draw(t, "initial")
		return r
	})
}

// TestNextRetryProperties: never early, never negative, never above the cap, the same on repetition, zero stays zero (invariants 31, 32).
func TestNextRetryProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := retries().Draw(t, "policy")
		if ps := r.Validate(); len(ps) > 0 {
			t.Fatalf("generator made an invalid policy: %v", ps)
		}
		in := RetryInput{
			Now: Time(rapid.Int64().Draw(t, "now")), Counted: rapid.Uint64().Draw(t, "counted"), LaneLevel: rapid.Bool().Draw(t, "lane"),
			RetryAfter: time.Duration(rapid.Int64().Draw(t, "after")), HasRetryAfter: rapid.Bool().Draw(t, "has"),
			Key: JitterKey{Generation: rapid.Uint64().Draw(t, "generation"), Attempt: rapid.Uint64().Draw(t, "attempt")},
		}
		d := NextRetry(r, in)
		if d != NextRetry(r, in) {
			t.Fatal("two answers to one question")
		}
		if want := !in.LaneLevel && in.Counted >= uint64(r.MaxAttempts); d.Exhausted != want {
			t.Fatalf("exhausted=%v, want %v", d.Exhausted, want)
		}
		if d.Exhausted {
			return
		}
		limit := r.MaxBackoff
		for _, s := range r.Schedule {
			limit = max(limit, s)
		}
		if d.Delay < 0 || d.Delay > limit || d.At < in.Now {
			t.Fatalf("delay %s outside [0, %s], or at %d before now", d.Delay, limit, d.At)
		}
		if floor := min(in.RetryAfter, r.MaxBackoff); in.HasRetryAfter && d.Delay < floor {
			t.Fatalf("delay %s is earlier than Retry-After allows, %s", d.Delay, floor)
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

// TestJitterRange: full jitter reaches both ends' neighbourhoods and equal jitter keeps its half.
func TestJitterRange(t *testing.T) {
	var low, high bool
	for i := range uint64(2000) {
		k := JitterKey{Attempt: i}
		full := JitterFull.spread(1000, k)
		if equal := JitterEqual.spread(1000, k); equal < 500 || equal > 1000 {
			t.Fatalf("equal jitter of 1000 gave %d", equal)
		}
		low, high = low || full < 50, high || full > 950
	}
	if !low || !high {
		t.Error("full jitter does not cover its range")
	}
}

func TestLaneLevelNeverExhausts(t *testing.T) {
	d := NextRetry(DefaultRetry(), RetryInput{Counted: math.MaxUint64, LaneLevel: true})
	if d.Exhausted || d.Reason != ReasonLane || d.Delay > time.Second {
		t.Errorf("lane-level settlement: %+v", d)
	}
}

// TestValidateSaysEverything: every problem at once, each naming its field.
func TestValidateSaysEverything(t *testing.T) {
	bad := Retry{MaxAttempts: 0, InitialBackoff: 2, MaxBackoff: 1, Multiplier: 0, Jitter: 9, Schedule: []time.Duration{-1}, Lifetime: 0}
	var fields []string
	for _, p := range bad.Validate() {
		fields = append(fields, p.Field)
	}
	want := "retry.max_attempts retry.initial_backoff retry.multiplier retry.jitter retry.schedule[0] retry.lifetime"
	if got := strings.Join(fields, " "); got != want {
		t.Errorf("problems %q, want %q", got, want)
	}
	if ps := DefaultRetry().Validate(); len(ps) > 0 {
		t.Errorf("defaults are invalid: %v", ps)
	}
}
