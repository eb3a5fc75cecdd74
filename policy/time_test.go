package policy

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// saturated is what a sum or difference comes to when it stops at the ends of 64 bits.
func saturated(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() > 0:
		return math.MaxInt64
	}
	return math.MinInt64
}

// TestTimeSaturates compares with whole numbers of any size: arithmetic never wraps.
func TestTimeSaturates(t *testing.T) {
	edges := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}
	number := rapid.OneOf(rapid.SampledFrom(edges), rapid.Int64())
	check := func(t rapid.TB, a, b int64) {
		t.Helper()
		x, y := big.NewInt(a), big.NewInt(b)
		if got, want := Time(a).Add(time.Duration(b)), saturated(new(big.Int).Add(x, y)); got != Time(want) {
			t.Fatalf("%d.Add(%d) = %d, want %d", a, b, got, want)
		}
		if got, want := Time(a).Sub(Time(b)), saturated(new(big.Int).Sub(x, y)); got != time.Duration(want) {
			t.Fatalf("%d.Sub(%d) = %d, want %d", a, b, got, want)
		}
	}
	for _, a := range edges {
		for _, b := range edges {
			check(t, a, b)
		}
	}
	rapid.Check(t, func(t *rapid.T) { check(t, number.Draw(t, "a"), number.Draw(t, "b")) })
}

func TestGenerationDeadline(t *testing.T) {
	for _, c := range []struct {
		name                      string
		accepted, deliver, expire Time
		life                      time.Duration
		want                      Time
		byLifetime                bool
	}{
		{"lifetime from acceptance", 100, 0, 0, 50, 150, true},
		{"a far deliver_at does not eat the lifetime", 100, 500, 0, 50, 550, true},
		{"a past deliver_at does not shorten it", 100, 20, 0, 50, 150, true},
		{"expire_at first", 100, 0, 120, 50, 120, false},
		{"at the same instant the client's word is the reason", 100, 0, 150, 50, 150, false},
		{"lifetime first", 100, 0, 151, 50, 150, true},
		{"expire_at already past", 100, 0, 99, 50, 99, false},
		{"expire_at before deliver_at", 100, 500, 200, 50, 200, false},
		{"saturates", 100, 0, 0, math.MaxInt64, MaxTime, true},
		{"saturates beside expire_at", 100, 0, MaxTime, math.MaxInt64, MaxTime, false},
		{"a negative lifetime is none", 100, 0, 0, -1, 100, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			at, by := GenerationDeadline(c.accepted, c.deliver, c.expire, c.life)
			if at != c.want || by != c.byLifetime {
				t.Errorf("%d, %v; want %d, %v", at, by, c.want, c.byLifetime)
			}
		})
	}
}
