package policy

import (
	"fmt"
	"time"
)

// Circuit are a lane's breaker thresholds. Live: the newest installed version counts.
type Circuit struct {
	FailureThreshold  uint32        // consecutive lane-level failures or unknowns that open it
	OpenFor           time.Duration // the first time
	MaxOpenFor        time.Duration // cap of the doubling, and of a throttle
	HalfOpenSuccesses uint32        // trials in a row that close it
	TrialTimeout      time.Duration // after which a trial without an outcome counts as failed
}

// MaxOpenForLimit bounds how long a circuit may stay open without being tried.
const MaxOpenForLimit = 24 * time.Hour

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
	check(c.OpenFor >= 10*time.Millisecond && c.OpenFor <= MaxOpenForLimit, "open_for", "must be from 10ms to %s", time.Duration(MaxOpenForLimit))
	check(c.MaxOpenFor >= c.OpenFor && c.MaxOpenFor <= MaxOpenForLimit, "max_open_for", "must be from open_for, %s, to %s", c.OpenFor, time.Duration(MaxOpenForLimit))
	check(c.HalfOpenSuccesses >= 1 && c.HalfOpenSuccesses <= 1000, "half_open_successes", "must be from 1 to 1000")
	check(c.TrialTimeout >= time.Second && c.TrialTimeout <= time.Hour, "trial_timeout", "must be from 1s to 1h")
	return ps
}

// OpenDuration is how long a circuit stays open the n-th time in a row, n from 1: OpenFor doubling up to MaxOpenFor.
func OpenDuration(c Circuit, openings uint32) time.Duration {
	limit := max(c.MaxOpenFor, 0)
	d := min(max(c.OpenFor, 0), limit)
	for i := uint32(1); i < openings && d < limit && d > 0; i++ {
		d = product(d, 2, limit)
	}
	return d
}
