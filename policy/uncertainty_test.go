package policy

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	holds      = Uncertainty{}
	duplicates = Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 2, AcceptDuplicates: true}
	dedup      = Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 2, ReceiverDedupWindow: 100}
)

func givesUp(u Uncertainty) Uncertainty { u.WhenExhausted = ExhaustedDeadLetter; return u }

// TestAfterUnknown is the rule of DESIGN 5, each way out and both sides of each bound.
func TestAfterUnknown(t *testing.T) {
	r := Retry{MaxAttempts: 5, InitialBackoff: 10, MaxBackoff: 1000, Multiplier: 2, Jitter: JitterNone}
	with := func(f func(*UnknownInput)) UnknownInput {
		in := UnknownInput{Now: 1000, FirstAdmittedAt: 990, Deadline: 5000, Timeout: 20, Attempts: 1}
		f(&in)
		return in
	}
	base := with(func(*UnknownInput) {})
	again := func(at Time, safe bool) UncertainDecision {
		return UncertainDecision{Action: RetryUncertain, At: at, DuplicateSafe: safe, Reason: WhyRetryPermitted}
	}
	hold := func(why string) UncertainDecision { return UncertainDecision{Action: HoldUncertain, Reason: why} }
	give := func(why string) UncertainDecision { return UncertainDecision{Action: GiveUpUncertain, Reason: why} }
	for _, c := range []struct {
		name string
		u    Uncertainty
		in   UnknownInput
		want UncertainDecision
	}{
		{"hold is the default", holds, base, hold(WhyHoldPolicy)},
		{"hold even when it would give up", givesUp(holds), base, hold(WhyHoldPolicy)},
		{"an unknown choice holds", Uncertainty{OnUncertain: 9, MaxRetries: 5, AcceptDuplicates: true}, base, hold(WhyHoldPolicy)},
		{"permitted", duplicates, base, again(1010, false)},
		{"the second waits longer", duplicates, with(func(in *UnknownInput) { in.RetriesUsed = 1 }), again(1020, false)},
		{"safe inside the window", dedup, base, again(1010, true)},
		{"must end inside the window", dedup, with(func(in *UnknownInput) { in.Timeout = 81 }), hold(WhyDedupWindowClosed)},
		{"ends exactly with it", dedup, with(func(in *UnknownInput) { in.Timeout = 80 }), again(1010, true)},
		{"window closed, gives up", givesUp(dedup), with(func(in *UnknownInput) { in.Timeout = 81 }), give(WhyDedupWindowClosed)},
		{"an endless timeout", dedup, with(func(in *UnknownInput) { in.Timeout = 1<<63 - 1 }), hold(WhyDedupWindowClosed)},
		{"never admitted: no window", dedup, with(func(in *UnknownInput) { in.FirstAdmittedAt = 0 }), hold(WhyDedupWindowClosed)},
		{"a negative timeout is none", dedup, with(func(in *UnknownInput) { in.FirstAdmittedAt, in.Timeout = 910, -50 }), again(1010, true)},
		{"the last retry", duplicates, with(func(in *UnknownInput) { in.RetriesUsed, in.Attempts = 1, 4 }), again(1020, false)},
		{"retries used", duplicates, with(func(in *UnknownInput) { in.RetriesUsed = 2 }), hold(WhyRetriesUsed)},
		{"retries used, gives up", givesUp(duplicates), with(func(in *UnknownInput) { in.RetriesUsed = 2 }), give(WhyRetriesUsed)},
		{"total used", duplicates, with(func(in *UnknownInput) { in.Attempts = 5 }), hold(WhyAttemptsUsed)},
		{"total used, gives up", givesUp(duplicates), with(func(in *UnknownInput) { in.Attempts = 6 }), give(WhyAttemptsUsed)},
		{"more retries than attempts", Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 99, AcceptDuplicates: true},
			with(func(in *UnknownInput) { in.RetriesUsed = 4 }), hold(WhyAttemptsUsed)},
		{"due at the deadline", duplicates, with(func(in *UnknownInput) { in.Deadline = 1010 }), hold(WhyDeadline)},
		{"due just before it", duplicates, with(func(in *UnknownInput) { in.Deadline = 1011 }), again(1010, false)},
		{"deadline, gives up", givesUp(duplicates), with(func(in *UnknownInput) { in.Deadline = 1000 }), give(WhyDeadline)},
		{"order needs dedup", duplicates, with(func(in *UnknownInput) { in.Ordered = true }), hold(WhyOrderingNeeds)},
		{"order with dedup", dedup, with(func(in *UnknownInput) { in.Ordered = true }), again(1010, true)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := AfterUnknown(c.u, r, c.in); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// plus adds without bounds.
func plus(a, b int64) *big.Int { return new(big.Int).Add(big.NewInt(a), big.NewInt(b)) }

// TestAfterUnknownProperties: a permitted retry satisfies every condition at once, whatever the numbers; what is not permitted ends as
// when_exhausted says; the reason is from the closed list.
func TestAfterUnknownProperties(t *testing.T) {
	small := func(t *rapid.T, name string) int64 {
		return rapid.OneOf(rapid.Int64Range(0, 3000), rapid.Int64()).Draw(t, name)
	}
	reasons := map[string]bool{
		WhyHoldPolicy: true, WhyRetryPermitted: true, WhyRetriesUsed: true, WhyDedupWindowClosed: true, WhyAttemptsUsed: true, WhyDeadline: true, WhyOrderingNeeds: true,
	}
	rapid.Check(t, func(t *rapid.T) {
		u := Uncertainty{
			OnUncertain: OnUncertain(rapid.IntRange(0, 1).Draw(t, "on")), MaxRetries: rapid.Uint32Range(0, 5).Draw(t, "retries"),
			ReceiverDedupWindow: time.Duration(small(t, "window")), AcceptDuplicates: rapid.Bool().Draw(t, "accept"),
			WhenExhausted: WhenExhausted(rapid.IntRange(0, 1).Draw(t, "exhausted")),
		}
		r := Retry{MaxAttempts: rapid.Uint32Range(0, 6).Draw(t, "attempts"), InitialBackoff: 10, MaxBackoff: 200, Multiplier: 2, Jitter: JitterFull}
		in := UnknownInput{
			Now: Time(small(t, "now")), FirstAdmittedAt: Time(small(t, "first")), Deadline: Time(small(t, "deadline")), Timeout: time.Duration(small(t, "timeout")),
			RetriesUsed: rapid.Uint32Range(0, 6).Draw(t, "used"), Attempts: rapid.Uint64Range(0, 8).Draw(t, "admitted"), Ordered: rapid.Bool().Draw(t, "ordered"),
			Key: keys().Draw(t, "key"),
		}
		d := AfterUnknown(u, r, in)
		if d != AfterUnknown(u, r, in) || !reasons[d.Reason] {
			t.Fatalf("decision %+v", d)
		}
		if d.Action != RetryUncertain {
			want := WhenUncertainExhausted(u)
			if u.OnUncertain == UncertainHold {
				want = HoldUncertain
			}
			if d.Action != want || d.At != 0 || d.DuplicateSafe || d.Reason == WhyRetryPermitted {
				t.Fatalf("%+v, want action %d", d, want)
			}
			return
		}
		switch {
		case u.OnUncertain != UncertainRetry, d.Reason != WhyRetryPermitted, in.RetriesUsed >= u.MaxRetries, in.Attempts >= uint64(r.MaxAttempts):
			t.Fatalf("permitted against the policy: %+v", d)
		case d.At < in.Now, d.At >= in.Deadline:
			t.Fatalf("permitted at %d, now %d, deadline %d", d.At, in.Now, in.Deadline)
		case d.DuplicateSafe != (u.ReceiverDedupWindow > 0), in.Ordered && !d.DuplicateSafe:
			t.Fatalf("duplicate-safe %v, window %s, ordered %v", d.DuplicateSafe, u.ReceiverDedupWindow, in.Ordered)
		}
		end, closes := plus(int64(d.At), int64(max(in.Timeout, 0))), plus(int64(in.FirstAdmittedAt), int64(u.ReceiverDedupWindow))
		if d.DuplicateSafe && end.Cmp(closes) > 0 && closes.IsInt64() {
			t.Fatalf("ends at %s, the window closed at %s", end, closes)
		}
	})
}

func TestUncertaintyValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		u    Uncertainty
		want string
	}{
		{"hold", holds, ""},
		{"hold, then dead_letter", givesUp(holds), ""},
		{"retry, duplicates", Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 1, AcceptDuplicates: true}, ""},
		{"retry, window", Uncertainty{OnUncertain: UncertainRetry, MaxRetries: MaxUncertainRetries, ReceiverDedupWindow: MaxDedupWindow}, ""},
		{"neither", Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 1}, "uncertainty.on_uncertain"},
		{"both", Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 1, ReceiverDedupWindow: 1, AcceptDuplicates: true}, "uncertainty.on_uncertain"},
		{"no retries", Uncertainty{OnUncertain: UncertainRetry, AcceptDuplicates: true}, "uncertainty.max_retries"},
		{"too many", Uncertainty{OnUncertain: UncertainRetry, MaxRetries: MaxUncertainRetries + 1, AcceptDuplicates: true}, "uncertainty.max_retries"},
		{"window too long", Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 1, ReceiverDedupWindow: MaxDedupWindow + 1}, "uncertainty.receiver_dedup_window"},
		{"negative window", Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 1, ReceiverDedupWindow: -1}, "uncertainty.receiver_dedup_window"},
		{"hold with what retry needs", Uncertainty{MaxRetries: 1, ReceiverDedupWindow: 1, AcceptDuplicates: true},
			"uncertainty.max_retries uncertainty.receiver_dedup_window uncertainty.accept_duplicates"},
		{"unknown choices", Uncertainty{OnUncertain: 9, WhenExhausted: 7}, "uncertainty.on_uncertain uncertainty.when_exhausted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fields(c.u.Validate()); got != c.want {
				t.Errorf("problems %q, want %q", got, c.want)
			}
		})
	}
}

func TestValidateTogether(t *testing.T) {
	r := Retry{MaxAttempts: 3}
	for _, c := range []struct {
		name    string
		u       Uncertainty
		timeout time.Duration
		want    string
	}{
		{"hold", holds, 1000, ""},
		{"fits", duplicates, 1000, ""},
		{"as many retries as attempts", Uncertainty{OnUncertain: UncertainRetry, MaxRetries: 3, AcceptDuplicates: true}, 0, "uncertainty.max_retries"},
		{"window of one attempt", dedup, 100, "uncertainty.receiver_dedup_window"},
		{"a little longer", dedup, 99, ""},
		{"timeout not known", dedup, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fields(ValidateTogether(r, c.u, c.timeout)); got != c.want {
				t.Errorf("problems %q, want %q", got, c.want)
			}
		})
	}
}
