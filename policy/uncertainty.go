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

// Bounds of an uncertainty policy, which Validate holds it to.
const (
	MaxUncertainRetries = 1000
	MaxDedupWindow      = 366 * 24 * time.Hour
)

// Uncertainty is a destination's rule for outcomes nobody knows (DESIGN 5, R180). Pinned with a message. The zero value holds.
type Uncertainty struct {
	OnUncertain         OnUncertain
	MaxRetries          uint32        // 1 to MaxUncertainRetries with retry, 0 with hold
	ReceiverDedupWindow time.Duration // the receiver promises to drop a repeated key inside it, counted from the first admission; 0: no promise
	AcceptDuplicates    bool          // a second delivery is acceptable
	WhenExhausted       WhenExhausted
}

// Validate returns every problem, in a fixed order: choices first, then what retry needs or hold must not set.
func (u Uncertainty) Validate() []Problem {
	var ps []Problem
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			ps = append(ps, Problem{"uncertainty." + field, fmt.Sprintf(format, args...)})
		}
	}
	window := u.ReceiverDedupWindow
	check(u.OnUncertain <= UncertainRetry, "on_uncertain", "must be hold or retry")
	check(u.WhenExhausted <= ExhaustedDeadLetter, "when_exhausted", "must be hold or dead_letter")
	check(window >= 0 && window <= MaxDedupWindow, "receiver_dedup_window", "must be from 0s to %s", time.Duration(MaxDedupWindow))
	switch u.OnUncertain {
	case UncertainRetry:
		check(u.MaxRetries >= 1 && u.MaxRetries <= MaxUncertainRetries, "max_retries", "must be from 1 to %d with on_uncertain: retry", MaxUncertainRetries)
		check(u.AcceptDuplicates != (window != 0), "on_uncertain", "retry needs exactly one of receiver_dedup_window and accept_duplicates")
	case UncertainHold:
		check(u.MaxRetries == 0, "max_retries", "must be 0 with on_uncertain: hold")
		check(window <= 0, "receiver_dedup_window", "must not be set with on_uncertain: hold")
		check(!u.AcceptDuplicates, "accept_duplicates", "must not be set with on_uncertain: hold")
	}
	return ps
}

// ValidateTogether returns what each policy alone cannot see: uncertain retries that the attempt budget would never let happen (R180), and
// a dedup window in which no second attempt could end. Timeout is how long one attempt may take, 0 where it is not known.
func ValidateTogether(r Retry, u Uncertainty, timeout time.Duration) []Problem {
	if u.OnUncertain != UncertainRetry {
		return nil
	}
	var ps []Problem
	if u.MaxRetries >= r.MaxAttempts {
		ps = append(ps, Problem{"uncertainty.max_retries", fmt.Sprintf("must be less than retry.max_attempts, %d", r.MaxAttempts)})
	}
	if w := u.ReceiverDedupWindow; w > 0 && w <= timeout {
		ps = append(ps, Problem{"uncertainty.receiver_dedup_window", fmt.Sprintf("must be longer than the timeout of one attempt, %s", timeout)})
	}
	return ps
}

// UnknownInput is a generation with an UNKNOWN attempt and none in flight.
type UnknownInput struct {
	Now             Time
	FirstAdmittedAt Time          // where the receiver's dedup window starts
	Deadline        Time          // of the generation, always set
	Timeout         time.Duration // how long one attempt may take; negative counts as 0
	RetriesUsed     uint32        // uncertain retries admitted so far
	Attempts        uint64        // attempts admitted so far
	Ordered         bool          // the message has an ordering key
	Key             JitterKey     // of the attempt that was settled
}

// UncertainAction is what to do next.
type UncertainAction uint8

// Actions.
const (
	HoldUncertain   UncertainAction = 0 // wait for evidence or an operator
	RetryUncertain  UncertainAction = 1 // one more attempt beside the open one
	GiveUpUncertain UncertainAction = 2 // dead-letter, with possible_duplicate
)

// Why an uncertainty is held, retried or given up. The attempt's record keeps it; this is all there is.
const (
	WhyHoldPolicy        = "HOLD_POLICY"          // on_uncertain is hold
	WhyRetryPermitted    = "RETRY_PERMITTED"      // the policy allows one more
	WhyRetriesUsed       = "RETRIES_USED"         // max_retries were made
	WhyDedupWindowClosed = "DEDUP_WINDOW_CLOSED"  // a retry could no longer end inside the receiver's window
	WhyAttemptsUsed      = "ATTEMPTS_USED"        // retry.max_attempts were admitted
	WhyDeadline          = "DEADLINE"             // a retry would be due at or after the generation's deadline
	WhyOrderingNeeds     = "ORDERING_NEEDS_DEDUP" // an ordering key without receiver dedup
)

// UncertainDecision is the policy's answer. At and DuplicateSafe are set with RetryUncertain only.
type UncertainDecision struct {
	Action        UncertainAction
	At            Time
	DuplicateSafe bool // the receiver promised to tell the repetition apart
	Reason        string
}

// AfterUnknown asks what may follow an UNKNOWN (DESIGN 5). A retry waits as after as many definite failures as there were uncertain retries,
// this one included. Under receiver dedup it must end inside the window, counted from the first admission; only then is it duplicate-safe.
// The total of attempts stays within MaxAttempts in any case, and a retry due at or after the deadline is none.
//
// The answer holds for At: who admits the attempt later than that asks about the window and the deadline again.
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
	next := NextRetry(r, RetryInput{Now: in.Now, Counted: uint64(in.RetriesUsed) + 1, Key: in.Key})
	switch {
	case next.Exhausted: // only where the caller counted fewer attempts than uncertain retries
		return stop(WhyAttemptsUsed)
	case next.At >= in.Deadline:
		return stop(WhyDeadline)
	case safe && next.At.Add(max(in.Timeout, 0)) > in.FirstAdmittedAt.Add(u.ReceiverDedupWindow):
		return stop(WhyDedupWindowClosed)
	}
	return UncertainDecision{Action: RetryUncertain, At: next.At, DuplicateSafe: safe, Reason: WhyRetryPermitted}
}

// WhenUncertainExhausted is what remains when nothing more is permitted: an uncertainty is held or given up, never relabelled (P3).
func WhenUncertainExhausted(u Uncertainty) UncertainAction {
	if u.WhenExhausted == ExhaustedDeadLetter {
		return GiveUpUncertain
	}
	return HoldUncertain
}
