package host

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sealane/sealane/shard"
)

// The relations between limits that other parts rely on.
func TestLimitRelations(t *testing.T) {
	for _, c := range []struct {
		what string
		ok   bool
	}{
		{"one vector fits one entry", maxVector <= shard.MaxEntryCommands},
		{"a page of expiries fits one vector", expiryPage <= maxVector},
		{"a step is told from drift at every sample", clockSample/driftShare*10 < MaxClockSkew},
		{"the wall is sampled often while it must be stable", clockSample*3 <= WallStable},
		{"the clock skew is far below the send window", MaxClockSkew*2 <= SendWindow},
		{"a refused outcome is proposed again soon after", proposeMost <= SendWindow},
		{"pauses grow", proposeFirst < proposeMost && connectFirst < connectMost},
		{"one attempt to connect fits the longest pause", connectTimeout <= connectMost},
		{"closing waits longer than a request may be late", closeWait > sendGrace},
		{"a target is let go before its lane", targetIdle < laneIdle && sweepEvery <= targetIdle},
		{"a visit serves several messages", fairQuantum >= 4*costPerMessage},
		{"retention is looked at often enough", trimPause < trimIdle && trimIdle < DefaultRetention},
		{"the burst of a lane is short", rateBurst <= time.Second/10},
	} {
		if !c.ok {
			t.Error(c.what)
		}
	}
}

func TestOptions(t *testing.T) {
	if _, err := New(Options{}); !errors.Is(err, ErrOptions) {
		t.Fatalf("no options: %v", err)
	}
	bad := Options{MaxInFlight: -1, MaxConnecting: 1, MaxClaimsPerTurn: 5000, WindowPerTarget: 3, MaxWindowed: 10, MaxQueued: 1}
	err := bad.Validate()
	for _, field := range []string{
		"Log", "Store", "Carrier", "Stamper", "Node", "Boot", "MaxInFlight: is -1, want 1 to 65536", "MaxConnecting: is 1, want 2 to 4096",
		"MaxClaimsPerTurn: is 5000, want 1 to 1024", "WindowPerTarget: is 3, want 4 to 65536", "MaxWindowed", "MaxQueued",
	} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("the error does not name %s: %v", field, err)
		}
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct{ limit, spread, slot, want uint32 }{
		{32, 0, 0, 32}, {32, 1, 0, 32}, {32, 3, 0, 11}, {32, 3, 1, 11}, {32, 3, 2, 10}, {2, 4, 3, 1}, {1, 2, 1, 1},
	} {
		if got := share(c.limit, c.spread, c.slot); got != c.want {
			t.Errorf("share(%d, %d, %d) = %d, want %d", c.limit, c.spread, c.slot, got, c.want)
		}
	}
}

func TestRateArithmetic(t *testing.T) {
	for _, c := range []struct {
		per, spread uint32
		want        time.Duration
	}{{0, 1, 0}, {1, 1, time.Second}, {100, 1, 10 * time.Millisecond}, {3, 1, 333333334}, {10, 4, 400 * time.Millisecond}, {1<<32 - 1, 1, 1}} {
		if got := limitRate(c.per, c.spread); got != c.want {
			t.Errorf("limitRate(%d, %d) = %d, want %d", c.per, c.spread, got, c.want)
		}
	}
	r := rateLimit{interval: time.Second}
	r.take(10 * time.Second)
	if r.ready() != 11*time.Second {
		t.Errorf("next at %s", r.ready())
	}
	r.giveBack()
	if r.ready() != 10*time.Second {
		t.Errorf("after giving back at %s", r.ready())
	}
	fast := rateLimit{interval: time.Millisecond}
	n, now := 0, time.Hour
	for fast.ready() <= now {
		fast.take(now)
		n++
	}
	if want := int(rateBurst/time.Millisecond) + 1; n != want {
		t.Errorf("%d at once, want %d", n, want)
	}
}

func TestRetention(t *testing.T) {
	d := &shard.Destination{Retention: time.Hour}
	for s, want := range map[shard.GenerationState]time.Duration{
		shard.StateDelivered: time.Hour, shard.StateCancelled: time.Hour, shard.StateSuperseded: time.Hour,
		shard.StateDeadLettered: DefaultDeadLetterRetention, shard.StateExpired: DefaultDeadLetterRetention,
	} {
		if got := retentionOf(d, s); got != want {
			t.Errorf("%s is kept %s, want %s", s, got, want)
		}
	}
}
