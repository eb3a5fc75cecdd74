package policy

import (
	"fmt"
	"time"
)

// OnUncertain is what the policy permits while an attempt is UNKNOWN.
type OnUncertain uint8

// Choices. Numbers are part of the state and log formats.
const (
	UncertainHold  OnUncertain = 0
	UncertainRetry OnUncertain = 1
)

// WhenExhausted is what becomes of an uncertain generation for which nothing more is permitted.
type WhenExhausted uint8

// Choices. Numbers are part of the state and log formats.
const (
	ExhaustedHold       WhenExhausted = 0
	ExhaustedDeadLetter WhenExhausted = 1
)

// MaxUncertainRetries and MaxDedupWindow bound an uncertainty policy.
const (
	MaxUncertainRetries = 1000
	MaxDedupWindow      = 366 * 24 * time.Hour
)

// Uncertainty is a destination's rule for outcomes nobody knows (DESIGN 5). The zero value holds.
type Uncertainty struct {
	OnUncertain         OnUncertain
	MaxRetries          uint32        // uncertain retries, with retry
	ReceiverDedupWindow time.Duration // the receiver promises to drop a repeated key inside it, counted from the first admission
	AcceptDuplicates    bool          // a second delivery is acceptable
	WhenExhausted       WhenExhausted
}

// Validate returns every problem, in the order of the fields.
func (u Uncertainty) Validate() []Problem {
	var ps []Problem
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			ps = append(ps, Problem{"uncertainty." + field, fmt.Sprintf(format, args...)})
		}
	}
	check(u.OnUncertain <= UncertainRetry, "on_uncertain", "must be hold or retry")
	check(u.ReceiverDedupWindow >= 0 && u.ReceiverDedupWindow <= MaxDedupWindow, "receiver_dedup_window", "must be from 0s to %s", time.Duration(MaxDedupWindow))
	if u.OnUncertain == UncertainRetry {
		check(u.MaxRetries >= 1 && u.MaxRetries <= MaxUncertainRetries, "max_retries", "must be from 1 to %d with retry", MaxUncertainRetries)
		check(u.AcceptDuplicates != (u.ReceiverDedupWindow > 0), "on_uncertain", "retry needs exactly one of receiver_dedup_window and accept_duplicates")
	} else {
		check(u.MaxRetries == 0, "max_retries", "must be 0 with hold")
		check(!u.AcceptDuplicates, "accept_duplicates", "must not be set with hold")
	}
	check(u.WhenExhausted <= ExhaustedDeadLetter, "when_exhausted", "must be hold or dead_letter")
	return ps
}

// UnknownInput is a generation with an UNKNOWN attempt and none in flight.
type UnknownInput struct {
	Now             Time
	FirstAdmittedAt Time
	Deadline        Time
	Timeout         time.Duration // how long one attempt may take
	RetriesUsed     uint32        // uncertain retries admitted so far
	Attempts        uint64        // attempts admitted so far
	Ordered         bool
	Key             JitterKey
}

// UncertainAction is what to do next.
type UncertainAction uint8

// Actions.
const (
	HoldUncertain   UncertainAction = 0
	RetryUncertain  UncertainAction = 1
	GiveUpUncertain UncertainAction = 2
)

// Why an uncertainty is held, retried or given up. The attempt's record keeps it.
const (
	WhyHoldPolicy        = "HOLD_POLICY"
	WhyRetryPermitted    = "RETRY_PERMITTED"
	WhyRetriesUsed       = "RETRIES_USED"
	WhyDedupWindowClosed = "DEDUP_WINDOW_CLOSED"
	WhyAttemptsUsed      = "ATTEMPTS_USED"
	WhyDeadline          = "DEADLINE"
	WhyOrderingNeeds     = "ORDERING_NEEDS_DEDUP"
)

// UncertainDecision is the policy's answer.
type UncertainDecision struct {
	Action        UncertainAction
	At            Time
	DuplicateSafe bool // the receiver will tell the repetition apart
	Reason        string
}

// AfterUnknown asks what may follow an UNKNOWN. A retry under receiver dedup must end inside the window, counted from the first admission;
// only then is it duplicate-safe. The total of attempts stays below MaxAttempts in any case, and a retry due at or after the deadline is none.
func AfterUnknown(u Uncertainty, r Retry, in UnknownInput) UncertainDecision {
	if u.OnUncertain != UncertainRetry {
		return UncertainDecision{Action: HoldUncertain, Reason: WhyHoldPolicy}
	}
	stop := func(why string) UncertainDecision {
		return UncertainDecision{Action: WhenUncertainExhausted(u), Reason: why}
	}
	safe := u.ReceiverDedupWindow > 0
	switch {
	case in.Ordered && !safe:
		return stop(WhyOrderingNeeds)
	case in.RetriesUsed >= u.MaxRetries:
		return stop(WhyRetriesUsed)
	case in.Attempts >= uint64(r.MaxAttempts):
		return stop(WhyAttemptsUsed)
	}
	next := NextRetry(r, RetryInput{Now: in.Now, Counted: uint64(in.RetriesUsed) + 1, Key: in.Key, LaneLevel: false})
	if next.Exhausted {
		return stop(WhyAttemptsUsed)
	}
	if next.At >= in.Deadline {
		return stop(WhyDeadline)
	}
	if safe && next.At.Add(max(in.Timeout, 0)) > in.FirstAdmittedAt.Add(u.ReceiverDedupWindow) {
		return stop(WhyDedupWindowClosed)
	}
	return UncertainDecision{Action: RetryUncertain, At: next.At, DuplicateSafe: safe, Reason: WhyRetryPermitted}
}

// WhenUncertainExhausted is what remains when nothing more is permitted: an uncertainty is held or given up, never relabelled.
func WhenUncertainExhausted(u Uncertainty) UncertainAction {
	if u.WhenExhausted == ExhaustedDeadLetter {
		return GiveUpUncertain
	}
	return HoldUncertain
}
