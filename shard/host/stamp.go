package host

import (
	"sync"
	"time"

	"github.com/sealane/sealane/policy"
)

// Stamper gives the time that this node stamps into the entries of one shard (DESIGN 3, Time). The stamp runs with the monotonic clock
// from the later of wall time and shard clock, and is slewed towards wall time: never below half speed, never above double, never
// backwards. So a wall clock that is wrong by an hour neither expires everything at once nor freezes retries.
//
// When the wall clock moves against the monotonic one by more than MaxClockSkew, the clock gate closes: the node admits and expires nothing
// until its wall clock has been stable for WallStable, or its peers agree with it. Stamps go on meanwhile, at monotonic speed.
//
// A Stamper is safe for concurrent use: the proposer stamps, the loop reads.
type Stamper struct {
	clock Clock

	mu     sync.Mutex
	mono   time.Duration // at the last reading
	wall   policy.Time   // at the last reading
	stamp  policy.Time
	offset policy.Time // what wall-mono is expected to be
	closed bool
	stable time.Duration // mono time since which the wall has been stable
	steps  uint64
}

// driftShare is the part of elapsed time by which a healthy wall clock may be corrected against the monotonic one: 1/1000, twice what
// the kernel's clock discipline uses.
const driftShare = 1000

// NewStamper starts at the later of wall time and shardClock.
func NewStamper(c Clock, shardClock policy.Time) *Stamper {
	mono, wall := c.Read()
	return &Stamper{
		clock: c, mono: mono, wall: wall, stamp: max(wall, shardClock), offset: wall.Add(-mono),
	}
}

// Stamp is the time to stamp now, on the shard clock.
func (s *Stamper) Stamp() policy.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	return s.stamp
}

// Anchor makes sure that later stamps are not behind the shard clock, which another leader may have moved.
func (s *Stamper) Anchor(shardClock policy.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	s.stamp = max(s.stamp, shardClock)
}

// PeersAgree opens the clock gate at once: a quorum of peers was found to have the same wall time within MaxClockSkew.
func (s *Stamper) PeersAgree() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	s.closed = false
}

// ClockState is the state of a Stamper, for metrics and readiness.
type ClockState struct {
	GateClosed bool
	Steps      uint64        // wall steps seen since start
	Ahead      time.Duration // how far the stamp is ahead of wall time; negative when behind
	OpensIn    time.Duration // while the gate is closed: until it opens if nothing else moves
}

// State reads the clocks and reports.
func (s *Stamper) State() ClockState {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	st := ClockState{GateClosed: s.closed, Steps: s.steps, Ahead: s.stamp.Sub(s.wall)}
	if s.closed {
		st.OpensIn = WallStable - (s.mono - s.stable)
	}
	return st
}

// now returns mono time, stamp and whether the clock gate is open, from one reading.
func (s *Stamper) now() (mono time.Duration, stamp policy.Time, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	return s.mono, s.stamp, !s.closed
}

// wait is how long, in monotonic time, until the stamp can reach t at the earliest.
func (s *Stamper) wait(t policy.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := t.Sub(s.stamp)
	if d > 0 && !s.closed && s.wall.Sub(s.stamp) > time.Millisecond {
		return d / 2 // catching up at double speed
	}
	return d
}

func (s *Stamper) advance() {
	mono, wall := s.clock.Read()
	d := max(mono-s.mono, 0)
	trusted := !s.closed
	s.watchWall(mono, wall, d)
	s.mono, s.wall = mono, wall
	next := s.stamp.Add(d)
	if trusted && !s.closed {
		err := wall.Sub(next)
		next = next.Add(min(max(err, -d/2), d))
	}
	s.stamp = max(s.stamp, next)
}

// watchWall compares the wall with where the monotonic clock says it should be.
func (s *Stamper) watchWall(mono time.Duration, wall policy.Time, d time.Duration) {
	moved := wall.Sub(s.offset.Add(mono))
	if moved > MaxClockSkew || moved < -MaxClockSkew {
		s.steps++
		s.closed, s.stable = true, mono
		s.offset = wall.Add(-mono)
		return
	}
	drift := d / driftShare
	s.offset = s.offset.Add(min(max(moved, -drift), drift))
	if s.closed && mono-s.stable >= WallStable {
		s.closed = false
	}
}
