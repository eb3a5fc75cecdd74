package policy

import (
	"fmt"
	"time"
)

// Bounds of a retry policy, which Validate holds it to.
const (
	MaxAttemptsLimit = 1_000_000
	MaxMultiplier    = 10
	MaxSchedule      = 100                 // waits in a schedule
	MaxBackoffLimit  = 30 * 24 * time.Hour // of max_backoff, and of each wait of a schedule
	MaxLifetime      = 366 * 24 * time.Hour
)

// Retry says when a definite, message-level failure is tried again (DESIGN 5). Pinned with a message.
//
// A schedule is kept to the nanosecond, whatever Jitter says: who writes the waits down wants those waits, and full jitter is the zero
// value, so that it cannot be told from no choice at all. MaxBackoff does not shorten a schedule; it still bounds Retry-After.
type Retry struct {
	MaxAttempts    uint32          // total, the first one included; 1 to MaxAttemptsLimit
	InitialBackoff time.Duration   // 0 to MaxBackoff
	MaxBackoff     time.Duration   // 0 to MaxBackoffLimit; cap of the exponential wait, its jitter and Retry-After included
	Multiplier     uint32          // whole number, 1 to MaxMultiplier
	Jitter         Jitter          // spread of the exponential backoff
	Schedule       []time.Duration // explicit waits in place of the backoff, at most MaxSchedule; the last repeats
	Lifetime       time.Duration   // more than 0, to MaxLifetime; from the later of acceptance and deliver_at
}

// DefaultRetry is what a destination gets that says nothing.
func DefaultRetry() Retry {
	return Retry{MaxAttempts: 8, InitialBackoff: time.Second, MaxBackoff: time.Hour, Multiplier: 2, Lifetime: 72 * time.Hour}
}

// Validate returns every problem, in the order of the fields.
func (r Retry) Validate() []Problem {
	var ps []Problem
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			ps = append(ps, Problem{"retry." + field, fmt.Sprintf(format, args...)})
		}
	}
	check(r.MaxAttempts >= 1 && r.MaxAttempts <= MaxAttemptsLimit, "max_attempts", "must be from 1 to %d", MaxAttemptsLimit)
	check(r.MaxBackoff >= 0 && r.MaxBackoff <= MaxBackoffLimit, "max_backoff", "must be from 0s to %s", time.Duration(MaxBackoffLimit))
	check(r.InitialBackoff >= 0 && r.InitialBackoff <= r.MaxBackoff, "initial_backoff", "must be from 0s to max_backoff, %s", r.MaxBackoff)
	check(r.Multiplier >= 1 && r.Multiplier <= MaxMultiplier, "multiplier", "must be from 1 to %d", MaxMultiplier)
	check(r.Jitter <= JitterNone, "jitter", "must be full, equal or none")
	check(len(r.Schedule) <= MaxSchedule, "schedule", "must have at most %d waits", MaxSchedule)
	for i, s := range r.Schedule {
		check(s >= 0 && s <= MaxBackoffLimit, fmt.Sprintf("schedule[%d]", i), "must be from 0s to %s", time.Duration(MaxBackoffLimit))
	}
	check(r.Lifetime > 0 && r.Lifetime <= MaxLifetime, "lifetime", "must be more than 0s and at most %s", time.Duration(MaxLifetime))
	return ps
}

// RetryReason says why the next attempt is due when it is. The record of the attempt keeps its name.
type RetryReason uint8

// Reasons. NextRetry gives the first five; the others belong to attempts that a rule or a person permitted.
const (
	ReasonBackoff          RetryReason = 1
	ReasonSchedule         RetryReason = 2
	ReasonRetryAfter       RetryReason = 3 // the header asked for more than the policy would wait, and got it
	ReasonRetryAfterCapped RetryReason = 4 // the header asked for more than max_backoff, and got that
	ReasonLane             RetryReason = 5 // a lane-level settlement: the wait does not grow with an outage
	ReasonUncertainRetry   RetryReason = 6
	ReasonOperator         RetryReason = 7
)

var retryReasonNames = [...]string{"RETRY_REASON_UNSPECIFIED", "BACKOFF", "SCHEDULE", "RETRY_AFTER", "RETRY_AFTER_CAPPED", "LANE", "UNCERTAIN_RETRY", "OPERATOR"}

func (r RetryReason) String() string {
	if int(r) < len(retryReasonNames) {
		return retryReasonNames[r]
	}
	return retryReasonNames[0]
}

// RetryInput is one settlement that may be tried again. No value of it makes NextRetry fail or wrap.
type RetryInput struct {
	Now           Time
	Counted       uint64        // settlements that count towards the budget, this one included if it does; saturated by the caller
	LaneLevel     bool          // this one does not count
	RetryAfter    time.Duration // as the receiver gave it, saturated by the adapter; negative is 0
	HasRetryAfter bool
	Key           JitterKey // of the attempt that was settled
}

// RetryDecision is when the next attempt is due, or that there is none. Where Exhausted, the rest is zero.
type RetryDecision struct {
	Exhausted bool
	At        Time          // Now plus Delay, saturating
	Delay     time.Duration // never negative
	Reason    RetryReason
}

// NextRetry decides what follows a definite failure (R011 to R013, R179). The budget is used up when Counted reaches MaxAttempts;
// lane-level settlements never use it up, and wait as after the first failure, so that an outage does not inflate a message's wait.
//
// The wait is the schedule's, or an exponential backoff whose exponent and product are capped before anything is raised; zero stays zero.
// Retry-After is a floor, honoured up to MaxBackoff: where the policy's own wait is shorter, that wait is laid on top of the floor as its
// jitter, within MaxBackoff, and never below. The result is never before Now and the same for the same input.
func NextRetry(r Retry, in RetryInput) RetryDecision {
	if !in.LaneLevel && in.Counted >= uint64(r.MaxAttempts) {
		return RetryDecision{Exhausted: true}
	}
	n := max(in.Counted, 1)
	if in.LaneLevel {
		n = 1
	}
	d := RetryDecision{Reason: ReasonBackoff}
	if len(r.Schedule) > 0 {
		d.Reason = ReasonSchedule
		d.Delay = max(r.Schedule[min(n, uint64(len(r.Schedule)))-1], 0)
	} else {
		d.Delay = r.Jitter.spread(backoff(r, n), in.Key)
	}
	if in.LaneLevel {
		d.Reason = ReasonLane
	}
	if in.HasRetryAfter {
		d.raise(r, max(in.RetryAfter, 0))
	}
	d.At = in.Now.Add(d.Delay)
	return d
}

// raise lifts a wait over a Retry-After. A wait that is long enough already stays as it is and keeps its reason.
func (d *RetryDecision) raise(r Retry, floor time.Duration) {
	if floor <= d.Delay {
		return
	}
	limit := max(r.MaxBackoff, 0)
	if floor > limit {
		d.Delay, d.Reason = max(d.Delay, limit), ReasonRetryAfterCapped
		return
	}
	d.Reason = ReasonRetryAfter
	above := min(d.Delay, limit-floor)
	if len(r.Schedule) > 0 || r.Jitter == JitterNone {
		above = 0
	}
	d.Delay = floor + above
}

// backoff is min(max, initial * multiplier^(n-1)), found without raising anything past the cap: it stops as soon as it is reached, so the
// number of steps is bounded by the cap and not by n.
func backoff(r Retry, n uint64) time.Duration {
	limit := max(r.MaxBackoff, 0)
	d := min(max(r.InitialBackoff, 0), limit)
	if r.Multiplier <= 1 || d == 0 {
		return d
	}
	for i := uint64(1); i < n && d < limit; i++ {
		d = product(d, uint64(r.Multiplier), limit)
	}
	return d
}
