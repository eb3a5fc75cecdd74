package policy

import (
	"math/bits"
	"time"
)

// Time is nanoseconds since the Unix epoch on a shard clock. Zero means unset; the arithmetic below treats it as any other number.
type Time int64

// MaxTime is later than every time: arithmetic saturates there.
const MaxTime = Time(1<<63 - 1)

const minTime = Time(-1 << 63)

// Add returns t+d, saturating at both ends instead of wrapping.
func (t Time) Add(d time.Duration) Time {
	sum := t + Time(d)
	switch {
	case d > 0 && sum < t:
		return MaxTime
	case d < 0 && sum > t:
		return minTime
	}
	return sum
}

// Sub returns t-u, saturating at both ends instead of wrapping.
func (t Time) Sub(u Time) time.Duration {
	diff := time.Duration(t - u)
	switch {
	case t >= u && diff < 0:
		return 1<<63 - 1
	case t < u && diff >= 0:
		return -1 << 63
	}
	return diff
}

// scaled returns d*num/(2^64-1), rounded down, for d >= 0: the whole range of num maps evenly onto [0, d]. The product has 128 bits.
func scaled(d time.Duration, num uint64) time.Duration {
	hi, lo := bits.Mul64(uint64(d), num)
	q, _ := bits.Div64(hi, lo, 1<<64-1)
	return time.Duration(q)
}

// product returns a*b, saturating at limit. All are non-negative.
func product(a time.Duration, b uint64, limit time.Duration) time.Duration {
	hi, lo := bits.Mul64(uint64(a), b)
	if hi != 0 || lo > uint64(limit) {
		return limit
	}
	return time.Duration(lo)
}
