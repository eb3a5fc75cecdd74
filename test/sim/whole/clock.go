package whole

import (
	"sync"
	"time"

	"github.com/sealane/sealane/policy"
)

// clock is one machine's clocks: the monotonic one follows the simulation's time, the wall is off by a step and drifts. It outlives processes.
type clock struct {
	mu    sync.Mutex
	base  time.Time
	since time.Time // of the present drift
	off   time.Duration
	drift int64 // parts per million
}

func newClock() *clock {
	now := time.Now()
	return &clock{base: now, since: now}
}

// Read implements host.Clock.
func (c *clock) Read() (time.Duration, policy.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return now.Sub(c.base), policy.Time(now.UnixNano()).Add(c.wrong(now))
}

func (c *clock) wrong(now time.Time) time.Duration {
	return c.off + time.Duration(int64(now.Sub(c.since))/1000*c.drift/1000)
}

// step moves the wall by d, and from now on it gains so many parts per million.
func (c *clock) step(d time.Duration, drift int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.off, c.since, c.drift = c.wrong(now)+d, now, drift
}

// correct sets the wall right.
func (c *clock) correct() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off, c.drift = 0, 0
}
