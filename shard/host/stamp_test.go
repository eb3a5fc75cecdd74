package host

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sealane/sealane/policy"
)

// handClock is moved by hand, both sides apart.
type handClock struct {
	mono time.Duration
	wall policy.Time
}

func (c *handClock) Read() (time.Duration, policy.Time) { return c.mono, c.wall }

const noon = policy.Time(1_800_000_000_000_000_000)

func TestStamperGolden(t *testing.T) {
	type moment struct {
		mono, wall time.Duration // passed since the moment before
		stamp      time.Duration // expected, since the start's wall time
		closed     bool
	}
	for name, c := range map[string]struct {
		shardClock policy.Time
		moments    []moment
	}{
		"steady": {0, []moment{{time.Second, time.Second, time.Second, false}, {time.Hour, time.Hour, time.Hour + time.Second, false}}},
		"step +1h": {0, []moment{
			{time.Second, time.Second + time.Hour, time.Second, true},
			{30 * time.Second, 30 * time.Second, 31 * time.Second, true},
			{30 * time.Second, 30 * time.Second, 61 * time.Second, false}, // stable for 60 s: trusted from here on
			{time.Second, time.Second, 63 * time.Second, false},           // and followed at double speed
		}},
		"step -1h": {0, []moment{
			{time.Second, time.Second - time.Hour, time.Second, true},
			{59 * time.Second, 59 * time.Second, 60 * time.Second, true},
			{time.Second, time.Second, 61 * time.Second, false},
			{10 * time.Second, 10 * time.Second, 66 * time.Second, false}, // half speed, never back
		}},
		"step +1h and back": {0, []moment{
			{time.Second, time.Second + time.Hour, time.Second, true},
			{30 * time.Second, 30*time.Second - time.Hour, 31 * time.Second, true},
			{59 * time.Second, 59 * time.Second, 90 * time.Second, true},
			{time.Second, time.Second, 91 * time.Second, false},
			{time.Second, time.Second, 92 * time.Second, false},
		}},
		"step within the skew": {0, []moment{
			{time.Second, time.Second + MaxClockSkew, time.Second + MaxClockSkew, false},
			{time.Second, time.Second, 2*time.Second + MaxClockSkew, false},
		}},
		"small steps add up": {0, []moment{
			{time.Second, time.Second + 300*time.Millisecond, 1300 * time.Millisecond, false},
			{time.Second, time.Second + 300*time.Millisecond, 2300 * time.Millisecond, true},
		}},
		"frozen": {0, []moment{
			{0, 0, 0, false},
			{0, 0, 0, false},
			{0, 10 * time.Minute, 0, true}, // the machine slept: wall went on, monotonic did not
			{time.Second, time.Second, time.Second, true},
		}},
		"shard clock ahead of wall": {noon.Add(time.Minute), []moment{
			{0, 0, time.Minute, false},
			{10 * time.Second, 10 * time.Second, 65 * time.Second, false}, // half speed until the wall has caught up
			{100 * time.Second, 100 * time.Second, 115 * time.Second, false},
			{time.Second, time.Second, 115500 * time.Millisecond, false},
		}},
		"shard clock behind": {noon.Add(-time.Hour), []moment{{time.Second, time.Second, time.Second, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &handClock{mono: 5 * time.Second, wall: noon}
			s := NewStamper(clock, c.shardClock)
			for i, m := range c.moments {
				clock.mono += m.mono
				clock.wall = clock.wall.Add(m.wall)
				if got := s.Stamp().Sub(noon); got != m.stamp {
					t.Errorf("moment %d: stamp %s after the start, want %s", i, got, m.stamp)
				}
				if got := s.State().GateClosed; got != m.closed {
					t.Errorf("moment %d: gate closed %v, want %v", i, got, m.closed)
				}
			}
		})
	}
}

// A clock that is disciplined at 500 parts in a million is no step, however long it takes and however seldom it is read.
func TestStamperSlowDrift(t *testing.T) {
	for _, ppm := range []time.Duration{500, -500} {
		clock := &handClock{wall: noon}
		s := NewStamper(clock, 0)
		for range 24 * 360 {
			clock.mono += clockSample
			clock.wall = clock.wall.Add(clockSample + clockSample*ppm/1_000_000)
			s.Stamp()
		}
		st := s.State()
		if st.GateClosed || st.Steps != 0 || st.Ahead > 10*time.Millisecond || st.Ahead < -10*time.Millisecond {
			t.Errorf("a day at %d ppm: %+v", ppm, st)
		}
	}
}

func TestStamperPeersAndAnchor(t *testing.T) {
	clock := &handClock{wall: noon}
	s := NewStamper(clock, 0)
	clock.wall = noon.Add(time.Minute)
	if st := s.State(); !st.GateClosed || st.Steps != 1 || st.OpensIn != WallStable || st.Ahead != -time.Minute {
		t.Errorf("after a step: %+v", st)
	}
	s.PeersAgree()
	if s.State().GateClosed {
		t.Error("closed although the peers agree")
	}
	s.Anchor(noon.Add(time.Hour))
	if got := s.Stamp(); got != noon.Add(time.Hour) {
		t.Errorf("stamp %d after an anchor", got.Sub(noon))
	}
	s.Anchor(noon)
	if got := s.Stamp(); got != noon.Add(time.Hour) {
		t.Error("an older anchor moved the stamp back")
	}
}

// Whatever the wall does: stamps never go back, never run below half speed or above double, and stay at the monotonic speed while the gate is
// closed. wait never overestimates.
func TestStamperProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		clock := &handClock{wall: noon}
		s := NewStamper(clock, noon.Add(time.Duration(rng.Int64N(int64(time.Hour)))-30*time.Minute))
		last := s.Stamp()
		for range 200 {
			d := time.Duration(rng.Int64N(int64(20 * time.Second)))
			clock.mono += d
			clock.wall = clock.wall.Add(d)
			if rng.IntN(10) == 0 {
				clock.wall = clock.wall.Add(time.Duration(rng.Int64N(int64(2*time.Hour))) - time.Hour)
			}
			closedBefore := s.closed
			ahead := last.Add(time.Duration(rng.Int64N(int64(time.Minute))))
			wait := s.wait(ahead)
			now := s.Stamp()
			moved := now.Sub(last)
			if moved < d/2 || moved > 2*d {
				t.Fatalf("the stamp moved %s in %s", moved, d)
			}
			if closedBefore && s.closed && moved != d {
				t.Fatalf("the stamp moved %s in %s while the gate was closed", moved, d)
			}
			if !closedBefore && now >= ahead && d < wait && !s.closed && wait-d > time.Millisecond && s.wall.Sub(last) < 0 {
				t.Fatalf("reached in %s what was said to take %s", d, wait)
			}
			last = now
		}
	})
}

func BenchmarkStamp(b *testing.B) {
	s := NewStamper(NewClock(), 0)
	for b.Loop() {
		s.Stamp()
	}
}
