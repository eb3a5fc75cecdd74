package policy

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestOpenDurationVectors: 30 s doubling to 10 min (DESIGN 7), and other settings, up to the largest count.
func TestOpenDurationVectors(t *testing.T) {
	var lines []string
	for _, c := range []struct {
		name string
		c    Circuit
	}{
		{"default", DefaultCircuit()},
		{"constant", Circuit{OpenFor: time.Minute, MaxOpenFor: time.Minute}},
		{"largest", Circuit{OpenFor: MinOpenFor, MaxOpenFor: MaxOpenForLimit}},
		{"endless", Circuit{OpenFor: 1, MaxOpenFor: math.MaxInt64}},
		{"no cap", Circuit{OpenFor: time.Second}},
	} {
		for _, n := range []uint32{0, 1, 2, 3, 4, 5, 6, 7, 31, 32, 33, math.MaxUint32} {
			lines = append(lines, fmt.Sprintf("%-8s %10d %s", c.name, n, OpenDuration(c.c, n)))
		}
	}
	golden(t, "open_duration", lines)
}

// TestOpenDurationProperties: within [0, MaxOpenFor], never shorter than the time before, for any settings.
func TestOpenDurationProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Circuit{OpenFor: time.Duration(rapid.Int64().Draw(t, "open")), MaxOpenFor: time.Duration(rapid.Int64().Draw(t, "max"))}
		n := rapid.Uint32Range(0, math.MaxUint32-1).Draw(t, "openings")
		a, b := OpenDuration(c, n), OpenDuration(c, n+1)
		if a < 0 || b < a || b > max(c.MaxOpenFor, 0) {
			t.Fatalf("%+v: %s, then %s", c, a, b)
		}
	})
}

func TestCircuitValidate(t *testing.T) {
	with := func(f func(*Circuit)) Circuit { c := DefaultCircuit(); f(&c); return c }
	for _, c := range []struct {
		name string
		c    Circuit
		want string
	}{
		{"defaults", DefaultCircuit(), ""},
		{"everything", Circuit{MaxOpenFor: -1}, "circuit.failure_threshold circuit.open_for circuit.max_open_for circuit.half_open_successes circuit.trial_timeout"},
		{"least", Circuit{FailureThreshold: 1, OpenFor: MinOpenFor, MaxOpenFor: MinOpenFor, HalfOpenSuccesses: 1, TrialTimeout: time.Second}, ""},
		{"most", Circuit{FailureThreshold: 10000, OpenFor: MaxOpenForLimit, MaxOpenFor: MaxOpenForLimit, HalfOpenSuccesses: 1000, TrialTimeout: time.Hour}, ""},
		{"threshold", with(func(c *Circuit) { c.FailureThreshold = 10001 }), "circuit.failure_threshold"},
		{"cap below the first time", with(func(c *Circuit) { c.MaxOpenFor = c.OpenFor - 1 }), "circuit.max_open_for"},
		{"cap", with(func(c *Circuit) { c.MaxOpenFor = MaxOpenForLimit + 1 }), "circuit.max_open_for"},
		{"successes", with(func(c *Circuit) { c.HalfOpenSuccesses = 1001 }), "circuit.half_open_successes"},
		{"trial", with(func(c *Circuit) { c.TrialTimeout = time.Hour + 1 }), "circuit.trial_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fields(c.c.Validate()); got != c.want {
				t.Errorf("problems %q, want %q", got, c.want)
			}
		})
	}
}
