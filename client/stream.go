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

// Stream submits many messages at once. It keeps up to Options.StreamWindow of them waiting for their answer, packs what waits into few
// requests, and has one call to each node that leads shards of the messages. When a call breaks or falls silent, what it owes is submitted
// again with the same keys on another node, for up to Options.RetryFor; what is left then ends as *MaybeAcceptedError. Safe for concurrent
// use.
//
// Messages with the same destination and ordering key are handed over in the order of their Submit calls, on the same call; where one of
// them has to be tried again a later one may be accepted first. Who needs more submits the next when the one before is answered.
type Stream struct {
	client *Client
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	changed  sync.Cond        // room in the window, everything is answered, or a call has ended
	next     uint64           // number of the next message
	waiting  map[uint64]*item // every message without its answer
	calls    map[*endpoint]*streamCall
	orders   map[string]*order // ordering keys of which messages wait
	live     int               // calls that have not ended, and answers that are being handed out
	closed   bool
	worked   time.Time // when a call last gave an answer, or the window was last empty: the start of the present outage
	failures int       // calls that broke since then
	stalls   int       // and those of them that had fallen silent
	lastErr  error     // why the last call ended

	handing sync.Mutex // held while answers are handed out: callers get them one at a time
}

type item struct {
	number   uint64
	req      *sealanev1.SubmitRequest
	since    time.Time // when it was first sent; before that, when it was taken
	call     *streamCall
	sent     bool      // on call, without an answer
	not      *endpoint // where it has just failed
	order    *order
	verdicts verdicts
	done     func(Accepted, error)
}

// order keeps the messages of one ordering key on one call while any of them waits.
type order struct {
	key   string
	e     *endpoint
	count int
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
	s := &Stream{
		client: c, ctx: ctx, cancel: cancel, waiting: make(map[uint64]*item), calls: make(map[*endpoint]*streamCall),
		orders: make(map[string]*order), worked: time.Now(), live: 1,
	}
	s.changed.L = &s.mu
	context.AfterFunc(ctx, s.abort)
	return s
}

// Submit hands a message over and returns once there is room for it; done is then called exactly once with the answer, as Client.Submit
// would give it, from a goroutine of the stream, one call at a time: it must not block and must not call Submit. An error means that the
// message was not taken and done will not be called.
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
	s.enterOrderLocked(it)
	s.dispatchLocked([]*item{it})
	return nil
}

// Close takes no more messages, waits until every one has its answer, and ends the calls. To stop sooner cancel the stream's context.
func (s *Stream) Close() {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	for len(s.waiting) > 0 {
		s.changed.Wait()
	}
	for _, k := range s.calls {
		k.wake()
	}
	s.mu.Unlock()
	s.awaitCalls()
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.live > 0 { // abort has run as well
		s.changed.Wait()
	}
}

// awaitCalls waits until every call has ended.
func (s *Stream) awaitCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.calls) > 0 {
		s.changed.Wait()
	}
}

// abort answers everything that still waits when the context ends; the calls end by themselves.
func (s *Stream) abort() {
	s.mu.Lock()
	left := make([]answered, 0, len(s.waiting))
	for _, it := range s.waiting {
		left = append(left, s.giveUpLocked(it))
	}
	slices.SortFunc(left, func(a, b answered) int { return cmp.Compare(a.item.number, b.item.number) })
	s.changed.Broadcast()
	s.mu.Unlock()
	s.handOut(left)
}

// giveUpLocked ends an item for which there will be no further try.
func (s *Stream) giveUpLocked(it *item) answered {
	it.verdicts.maybe = it.verdicts.maybe || it.sent
	if it.verdicts.last == nil {
		it.verdicts.last = unreached(s.lastErr, s.ctx.Err())
	}
	s.settleLocked(it)
	return answered{it, Accepted{}, it.verdicts.giveUp()}
}

// settleLocked takes an item out of everything, because its answer is there.
func (s *Stream) settleLocked(it *item) {
	delete(s.waiting, it.number)
	if k := it.call; k != nil && it.sent {
		k.owed--
	}
	it.sent, it.call = false, nil
	if o := it.order; o != nil {
		if o.count--; o.count == 0 {
			delete(s.orders, o.key)
		}
	}
}

// expiredLocked: the time of an item is over, or the client is closed. What was never sent counts from the start of the outage: waiting its turn is not failing.
func (s *Stream) expiredLocked(it *item) bool {
	since := it.since
	if it.verdicts.tries == 0 && s.worked.After(since) {
		since = s.worked
	}
	return time.Since(since) >= s.client.options.RetryFor || s.client.ctx.Err() != nil
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

// handOut gives answers to those who wait for them. The caller has counted it in live.
func (s *Stream) handOut(list []answered) {
	s.handing.Lock()
	for _, a := range list {
		a.item.done(a.answer, a.err)
	}
	s.handing.Unlock()
	s.mu.Lock()
	s.live--
	s.changed.Broadcast()
	s.mu.Unlock()
}
