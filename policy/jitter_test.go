package policy

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestJitterVectors pins the hash and its mapping, so that another implementation can be checked against them.
func TestJitterVectors(t *testing.T) {
	var all [16]byte
	for i := range all {
		all[i] = 0xff
	}
	var lines []string
	for _, k := range []JitterKey{
		{}, {Attempt: 1}, {Attempt: 2}, {Generation: 1}, {Generation: 1, Attempt: 1}, {Message: [16]byte{15: 1}}, {Message: [16]byte{1}},
		{Message: all, Generation: math.MaxUint64, Attempt: math.MaxUint64}, {Export: true}, {Generation: 1, Attempt: 1, Export: true},
	} {
		lines = append(lines, fmt.Sprintf("%x %x %x export=%-5v draw %016x full %d equal %d", k.Message, k.Generation, k.Attempt, k.Export, k.draw(),
			JitterFull.spread(time.Hour, k), JitterEqual.spread(time.Hour, k)))
	}
	golden(t, "jitter", lines)
}

// TestScaledIsExact compares the 128-bit mapping with whole numbers of any size: both ends are reached and nothing lies outside.
func TestScaledIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := durations(0, math.MaxInt64).Draw(t, "d")
		num := rapid.Uint64().Draw(t, "num")
		want := new(big.Int).Mul(big.NewInt(int64(d)), new(big.Int).SetUint64(num))
		want.Div(want, new(big.Int).SetUint64(math.MaxUint64))
		if got := scaled(d, num); got != time.Duration(want.Int64()) {
			t.Fatalf("scaled(%d, %d) = %d, want %s", d, num, got, want)
		}
	})
	for _, d := range []time.Duration{0, 1, 2, time.Hour, math.MaxInt64} {
		if lo, hi := scaled(d, 0), scaled(d, math.MaxUint64); lo != 0 || hi != d {
			t.Errorf("%d maps onto [%d, %d]", d, lo, hi)
		}
	}
}

// TestJitterRange: every kind stays in its range for every wait, and the same key gives the same wait.
func TestJitterRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, k := durations(0, math.MaxInt64).Draw(t, "wait"), keys().Draw(t, "key")
		for _, c := range []struct {
			j      Jitter
			lo, hi time.Duration
		}{{JitterFull, 0, d}, {JitterEqual, d / 2, d}, {JitterNone, d, d}} {
			got := c.j.spread(d, k)
			if got < c.lo || got > c.hi || got != c.j.spread(d, k) {
				t.Fatalf("jitter %d of %d gave %d", c.j, d, got)
			}
		}
	})
}

// TestJitterSpreads: keys that differ in one number fall evenly over the range. The keys are fixed, so the counts are too.
func TestJitterSpreads(t *testing.T) {
	const buckets, each = 16, 1000
	for name, key := range map[string]func(i uint64) JitterKey{
		"attempt":    func(i uint64) JitterKey { return JitterKey{Attempt: i} },
		"generation": func(i uint64) JitterKey { return JitterKey{Generation: i} },
		"message":    func(i uint64) JitterKey { return JitterKey{Message: [16]byte{14: byte(i >> 8), 15: byte(i)}} },
		"export":     func(i uint64) JitterKey { return JitterKey{Attempt: i, Export: true} },
	} {
		var n [buckets]int
		for i := range uint64(buckets * each) {
			n[min(JitterFull.spread(buckets*1000, key(i))/1000, buckets-1)]++
		}
		for b, got := range n {
			if got < each*85/100 || got > each*115/100 {
				t.Errorf("%s: %d of %d keys in bucket %d, want about %d", name, got, buckets*each, b, each)
			}
		}
	}
}
