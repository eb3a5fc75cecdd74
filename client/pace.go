package client

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pauses between tries: doubling, and half of each random so that many clients do not come back at once.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// pace spaces the tries of one call: the first repetition goes to another node at once, where there is one, the others wait.
type pace struct {
	tries int       // that left for a node
	last  *endpoint // of the last try
	pause time.Duration
}

// again waits before the next try after one on e failed with err; false means that there is no time left, or that every one of nodes was
// tried and the caller does not want to wait.
func (p *pace) again(ctx context.Context, e *endpoint, err error, nodes int, failFast bool) bool {
	p.tries++
	p.last = e
	if nodes <= 1 {
		p.last = nil
	}
	if failFast {
		return p.tries < nodes && ctx.Err() == nil
	}
	if p.tries == 1 && nodes > 1 && !busy(err) {
		return ctx.Err() == nil
	}
	return p.wait(ctx)
}

// busy: the shard has more to do than it can, wherever one asks.
func busy(err error) bool {
	e, ok := AsError(err)
	return ok && e.Reason == reasonFull
}

// wait pauses, longer each time; false means that the context ended first.
func (p *pace) wait(ctx context.Context) bool {
	p.pause = min(max(2*p.pause, firstPause), longestPause)
	return wait(ctx, p.pause)
}

// wait pauses for half of d and a random part of the other half; false means that the context ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// retryPause is the pause before a message is submitted again after so many tries.
func retryPause(tries int) time.Duration {
	d := firstPause
	for range min(tries, 8) - 1 {
		d *= 2
	}
	return min(d, longestPause)
}
