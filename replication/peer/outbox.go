package peer

import (
	"sync"
	"time"

	"google.golang.org/grpc/mem"
)

// outbox holds the frames that wait for one stream, and packs them: whatever waits when the stream is free goes in one message. This is
// what coalesces the heartbeats of all groups.
type outbox struct {
	from, to  string
	intercept Intercept
	stats     *counters
	wake      chan struct{} // holds one: there is something to send
	hurry     chan struct{} // holds one: somebody waits for it

	mu     sync.Mutex
	frames [][]byte
	bytes  int
	closed bool
}

func newOutbox(from, to string, intercept Intercept, stats *counters) *outbox {
	return &outbox{from: from, to: to, intercept: intercept, stats: stats, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
}

// push adds a frame, or says why not. A frame that a simulation drops or delays counts as added.
func (o *outbox) push(b []byte, class Class, urgent bool) error {
	if o.intercept == nil {
		return o.add(b, urgent)
	}
	v := o.intercept(o.from, o.to, class)
	if v.Drop {
		o.stats.intercepted.Add(1)
		return nil
	}
	var err error
	for range v.Copies + 1 {
		if v.Delay > 0 {
			time.AfterFunc(v.Delay, func() { _ = o.add(b, urgent) }) // a frame that comes too late is lost
		} else {
			err = o.add(b, urgent)
		}
	}
	return err
}

func (o *outbox) add(b []byte, urgent bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return ErrUnreachable
	}
	if len(o.frames) > 0 && (len(o.frames) >= maxQueueFrames || o.bytes+len(b) > maxQueueBytes) {
		o.stats.queueFull.Add(1)
		return ErrQueueFull
	}
	o.frames = append(o.frames, b)
	o.bytes += len(b)
	signal(o.wake)
	if urgent {
		signal(o.hurry)
	}
	return nil
}

// pack takes what goes into the next message.
func (o *outbox) pack() mem.BufferSlice {
	o.mu.Lock()
	defer o.mu.Unlock()
	var parts mem.BufferSlice
	size := 0
	for len(o.frames) > 0 && size < maxPackedBytes && (size == 0 || size+len(o.frames[0]) <= maxMessageBytes) {
		b := o.frames[0]
		o.frames[0] = nil
		o.frames = o.frames[1:]
		parts = append(parts, mem.SliceBuffer(b))
		size += len(b)
	}
	o.bytes -= size
	if len(o.frames) == 0 {
		o.frames = nil
	}
	return parts
}

// size gives the frames and bytes that wait.
func (o *outbox) size() (frames, bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.frames), o.bytes
}

// close loses what waits and refuses what comes.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.frames, o.bytes = true, nil, 0
}

// run sends until done is closed or sending fails. Frames that nobody waits for linger for company.
func (o *outbox) run(done <-chan struct{}, send func(*packet) error) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-o.wake:
		case <-done:
			return nil
		}
		timer.Reset(linger)
		select {
		case <-o.hurry:
		case <-timer.C:
		case <-done:
			return nil
		}
		drain(o.wake) // what is added from here on marks it again
		drain(o.hurry)
		for {
			parts := o.pack()
			if len(parts) == 0 {
				break
			}
			o.stats.sent(len(parts), parts.Len())
			if err := send(&packet{parts: parts}); err != nil {
				return err
			}
		}
	}
}

// signal leaves a mark in a channel that holds one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func drain(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}
