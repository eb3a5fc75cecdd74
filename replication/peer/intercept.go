package peer

import (
	"context"
	"fmt"
	"time"
)

// Class says what a frame or call is, for Options.Intercept.
type Class uint8

// The classes.
const (
	ClassHeartbeat Class = iota + 1
	ClassVote            // votes and pre-votes
	ClassTransfer        // TimeoutNow
	ClassAppend
	ClassPing     // the connection's own sign of life
	ClassAnswer   // an answer to any of the above
	ClassSnapshot // one chunk of a snapshot
	ClassCall     // a unary call, or the opening of a stream, of a registered service
)

func (c Class) String() string {
	names := [...]string{"", "heartbeat", "vote", "transfer", "append", "ping", "answer", "snapshot", "call"}
	if int(c) < len(names) && c != 0 {
		return names[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Verdict is what happens to a frame. A stream of bytes cannot lose or reorder anything, so faults of that kind are made here, above it.
type Verdict struct {
	// Drop loses a frame without a trace. A chunk ends its snapshot, a call fails as if the node could not be reached.
	Drop bool
	// Delay holds the frame back; later frames overtake it.
	Delay time.Duration
	// Copies are sent in addition. Chunks and calls are never copied.
	Copies int
}

// Intercept decides the fate of what node from sends to node to. It is called on hot goroutines, for copies once.
type Intercept func(from, to string, class Class) Verdict

// hold applies a verdict to something that cannot be copied.
func (i Intercept) hold(ctx context.Context, from, to string, class Class) error {
	if i == nil {
		return nil
	}
	v := i(from, to, class)
	if v.Drop {
		return fmt.Errorf("%w: %s from %s to %s", ErrIntercepted, class, from, to)
	}
	if v.Delay <= 0 {
		return nil
	}
	t := time.NewTimer(v.Delay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
