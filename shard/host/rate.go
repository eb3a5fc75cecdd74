package host

import "time"

// rateBurst is how far ahead of its even spacing a lane may run: 50 ms worth of its rate, nothing for a lane slower than that. It lets one
// pass of the loop claim what fell due since the last one.
const rateBurst = 50 * time.Millisecond

// rateLimit spaces claims evenly, in integer time. The zero value does not limit.
type rateLimit struct {
	interval time.Duration
	next     time.Duration // mono time at which the next claim would be exactly on pace
}

// limitRate is the pace of one of spread slots that share perSecond; rounded so that the whole is never exceeded.
func limitRate(perSecond, spread uint32) time.Duration {
	if perSecond == 0 {
		return 0
	}
	per := uint64(perSecond)
	return time.Duration((uint64(time.Second)*uint64(max(spread, 1)) + per - 1) / per)
}

func (r *rateLimit) set(interval time.Duration) { r.interval = interval }

// ready is the time from which one more claim may be made.
func (r *rateLimit) ready() time.Duration {
	if r.interval == 0 {
		return 0
	}
	if r.interval >= rateBurst {
		return r.next
	}
	return r.next - rateBurst
}

func (r *rateLimit) take(now time.Duration) {
	if r.interval > 0 {
		r.next = max(r.next, now) + r.interval
	}
}

// giveBack returns the token of a claim that came to nothing.
func (r *rateLimit) giveBack() {
	if r.interval > 0 {
		r.next -= r.interval
	}
}
