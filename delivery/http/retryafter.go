package webhook

import (
	"net/http"
	"time"
)

// maxRetryAfter is where a Retry-After saturates: no policy honours more.
const maxRetryAfter = time.Duration(1<<63 - 1)

// parseRetryAfter reads the header by its grammar: digits, or one of the three dates. Anything else, a sign, a fraction, an exponent or a second
// header included, is as good as none: guessing could retry too early. A date is counted from the receiver's own Date where it sends one; a date in
// the past is zero.
func parseRetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	v := h["Retry-After"]
	if len(v) != 1 || v[0] == "" {
		return 0, false
	}
	if d, ok := parseSeconds(v[0]); ok {
		return d, true
	}
	at, err := http.ParseTime(v[0])
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // the receiver's own clock, so that its error does not matter
	}
	return max(at.Sub(now), 0), true
}

// parseSeconds reads a number of seconds of any length, saturating.
func parseSeconds(s string) (time.Duration, bool) {
	const most = maxRetryAfter / time.Second
	var d time.Duration
	full := false
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		digit := time.Duration(c - '0')
		if full = full || d > (most-digit)/10; !full {
			d = d*10 + digit
		}
	}
	if full {
		return maxRetryAfter, true
	}
	return d * time.Second, true
}
