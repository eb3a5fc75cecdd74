package policy

import (
	"fmt"
	"time"
)

// Circuit holds a target's circuit thresholds. Live: the newest installed version counts, for messages pinned to older ones too.
type Circuit struct {
	FailureThreshold  uint32        // consecutive lane-level failures or unknowns that open it; 1 to 10000
	OpenFor           time.Duration // the first time in a row; MinOpenFor to MaxOpenForLimit
	MaxOpenFor        time.Duration // cap of the doubling, and of a throttle; OpenFor to MaxOpenForLimit
	HalfOpenSuccesses uint32        // trials in a row that close it; 1 to 1000
	TrialTimeout      time.Duration // a trial without an outcome counts as failed after it, or after its own timeout if that is longer; 1s to 1h
}

// Bounds of the time a circuit stays open without being tried.
const (
	MinOpenFor      = 10 * time.Millisecond
	MaxOpenForLimit = 24 * time.Hour
)

// DefaultCircuit is DESIGN 7.
func DefaultCircuit() Circuit {
	return Circuit{FailureThreshold: 5, OpenFor: 30 * time.Second, MaxOpenFor: 10 * time.Minute, HalfOpenSuccesses: 3, TrialTimeout: time.Minute}
}

// Validate returns every problem, in the order of the fields.
func (c Circuit) Validate() []Problem {
	var ps []Problem
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			ps = append(ps, Problem{"circuit." + field, fmt.Sprintf(format, args...)})
		}
	}
	check(c.FailureThreshold >= 1 && c.FailureThreshold <= 10_000, "failure_threshold", "must be from 1 to 10000")
	check(c.OpenFor >= MinOpenFor && c.OpenFor <= MaxOpenForLimit, "open_for", "must be from %s to %s", time.Duration(MinOpenFor), time.Duration(MaxOpenForLimit))
	check(c.MaxOpenFor >= c.OpenFor && c.MaxOpenFor <= MaxOpenForLimit, "max_open_for", "must be from open_for, %s, to %s", c.OpenFor, time.Duration(MaxOpenForLimit))
	check(c.HalfOpenSuccesses >= 1 && c.HalfOpenSuccesses <= 1000, "half_open_successes", "must be from 1 to 1000")
	check(c.TrialTimeout >= time.Second && c.TrialTimeout <= time.Hour, "trial_timeout", "must be from 1s to 1h")
	return ps
}

// OpenDuration is how long a circuit stays open the n-th time in a row: OpenFor, doubling up to MaxOpenFor. n counts from 1; 0 is as 1. The
// doubling stops at the cap, so that no count overflows.
func OpenDuration(c Circuit, openings uint32) time.Duration {
	limit := max(c.MaxOpenFor, 0)
	d := min(max(c.OpenFor, 0), limit)
	for i := uint32(1); i < openings && d < limit && d > 0; i++ {
		d = product(d, 2, limit)
	}
	return d
}
