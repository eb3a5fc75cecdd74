package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// ErrStreamClosed: Submit was called on a Stream after Close. Open another one.
var ErrStreamClosed = errors.New("client: stream is closed")

// Stream submits many messages over one call. It keeps up to Options.StreamWindow of them waiting for their answer, and packs what waits
// into few requests. When the call breaks it opens another and submits what has no verdict again, with the same keys, for up to
// Options.RetryFor; what is left then ends as *MaybeAcceptedError. Safe for concurrent use.
type Stream struct {
	client *Client
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	changed sync.Cond        // room in the window, something to send, closed, or broken
	next    uint64           // number of the next message
	unsent  []*item          // in the order of their numbers; not yet on the present call
	waiting map[uint64]*item // every message without its answer, unsent ones included
	closed  bool
	worked  time.Time // when a call last gave an answer: the start of the present outage
	broken  bool      // the present call has ended
	lastErr error     // why the last call ended
}

type item struct {
	number   uint64
	req      *sealanev1.SubmitRequest
	since    time.Time
	sent     bool // on the present call, without an answer
	verdicts verdicts
	done     func(Accepted, error)
}

// answered is an item with what its caller is told.
type answered struct {
	item   *item
	answer Accepted
	err    error
}

// Stream opens a stream. Close it after use. Cancelling ctx ends it at once: what waits then is answered as maybe accepted, or as not
// accepted where it was never sent.
func (c *Client) Stream(ctx context.Context) *Stream {
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{client: c, ctx: ctx, cancel: cancel, ended: make(chan struct{}), waiting: make(map[uint64]*item), worked: time.Now()}
	s.changed.L = &s.mu
	stop := context.AfterFunc(ctx, s.wake)
	go func() {
		defer close(s.ended)
		defer stop()
		s.run()
	}()
	return s
}

// Submit hands a message over and returns once there is room for it; done is then called exactly once with the answer, as Client.Submit
// would give it, from a goroutine of the stream: it must not block and must not call Submit. An error means that the message was not taken
// and done will not be called.
func (s *Stream) Submit(m Message, done func(Accepted, error)) error {
	req := s.client.request(m)
	if proto.Size(req) > maxMessageBytes {
		return &NotAcceptedError{tooLarge(len(m.Payload))}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) >= s.client.options.StreamWindow && !s.closed && s.ctx.Err() == nil {
		s.changed.Wait()
	}
	if s.closed {
		return ErrStreamClosed
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	if len(s.waiting) == 0 {
		s.worked = now
	}
	it := &item{number: s.next, req: req, since: now, done: done}
	it.verdicts = verdicts{key: req.GetIdempotencyKey(), submitBy: req.GetSubmitBy().AsTime()}
	s.next++
	s.waiting[it.number] = it
	s.unsent = append(s.unsent, it)
	s.changed.Broadcast()
	return nil
}

// Close takes no more messages, waits until every one has its answer, and ends the call. To stop sooner cancel the stream's context.
func (s *Stream) Close() {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	<-s.ended
	s.cancel()
}

func (s *Stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

// run opens calls while there is something to submit, until the stream is closed and everything is answered, or the context ends.
func (s *Stream) run() {
	pause := firstPause
	for s.work() {
		before := s.lastWorked()
		s.call()
		if s.lastWorked().After(before) {
			pause = firstPause
		}
		if time.Since(s.lastWorked()) >= s.client.options.RetryFor {
			s.giveUp()
		}
		if !s.done() && wait(s.ctx, pause) {
			pause = min(2*pause, longestPause)
		}
	}
	s.giveUp()
}

// work waits until there is something to submit; false means that there never will be.
func (s *Stream) work() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) == 0 && !s.closed && s.ctx.Err() == nil {
		s.changed.Wait()
	}
	return len(s.waiting) > 0 && s.ctx.Err() == nil
}

func (s *Stream) done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed && len(s.waiting) == 0
}

func (s *Stream) lastWorked() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.worked
}

// giveUp answers everything that still waits.
func (s *Stream) giveUp() {
	s.mu.Lock()
	left := make([]answered, 0, len(s.waiting))
	for _, it := range s.waiting {
		it.verdicts.maybe = it.verdicts.maybe || it.sent
		if it.verdicts.last == nil {
			it.verdicts.last = unreached(s.lastErr, s.ctx.Err())
		}
		left = append(left, answered{it, Accepted{}, it.verdicts.giveUp()})
	}
	clear(s.waiting)
	s.unsent = nil
	s.changed.Broadcast()
	s.mu.Unlock()
	slices.SortFunc(left, func(a, b answered) int { return cmp.Compare(a.item.number, b.item.number) })
	deliver(left)
}

// unreached explains a message that no call gave any answer to.
func unreached(call, ctx error) *Error {
	if e, ok := AsError(call); ok {
		return e
	}
	if call == nil {
		call = ctx
	}
	return &Error{Code: codes.Unavailable, Message: fmt.Sprintf("the stream ended: %v", call), cause: call}
}

func deliver(list []answered) {
	for _, a := range list {
		a.item.done(a.answer, a.err)
	}
}
