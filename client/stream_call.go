package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// One request of a stream packs what waits, up to these bounds; the first is the API's limit.
const (
	maxPackedItems = 1000
	maxPackedBytes = 1 << 20
)

// Times of a stream's calls.
const (
	callIdle   = 30 * time.Second // a call that has had nothing to do for so long is ended
	callEnding = time.Second      // how long a node may take to end a call that owes nothing
)

// streamCall is one gRPC call to one node. One goroutine, run, sends; another receives. The fields below wakeup belong to Stream.mu.
type streamCall struct {
	s      *Stream
	e      *endpoint
	ctx    context.Context
	cancel context.CancelCauseFunc
	wakeup chan struct{} // holds one: there is something in queue, or the stream is closed

	queue  []*item   // given to this call and not sent
	owed   int       // sent and not answered
	worked time.Time // when it last answered, or first owed something again
	heard  bool      // it has answered
	watch  *time.Timer
}

func newStreamCall(s *Stream, e *endpoint) *streamCall {
	k := &streamCall{s: s, e: e, wakeup: make(chan struct{}, 1)}
	k.ctx, k.cancel = context.WithCancelCause(s.ctx)
	return k
}

func (k *streamCall) wake() {
	select {
	case k.wakeup <- struct{}{}:
	default:
	}
}

// run carries messages until the call ends, and hands what is open then to other calls.
func (k *streamCall) run() {
	err := k.carry()
	if silent := new(silentError); errors.As(context.Cause(k.ctx), &silent) {
		err = silent
	}
	k.cancel(nil)
	if k.s.ctx.Err() == nil {
		k.s.client.note(k.e, err)
	}
	s := k.s
	s.mu.Lock()
	if k.watch != nil {
		k.watch.Stop()
	}
	over := s.endedLocked(k, err)
	s.changed.Broadcast()
	s.mu.Unlock()
	s.handOut(over)
}

// carry runs the gRPC call to its end.
func (k *streamCall) carry() error {
	connecting, cancel := context.WithTimeout(k.ctx, connectWithin)
	err := k.e.link.connect(connecting)
	cancel()
	if err != nil {
		return &unreachableError{code: codes.Unavailable, text: connectText(err), err: err}
	}
	rpc, err := sealanev1.NewDeliveryServiceClient(k.e.link).SubmitStream(k.ctx)
	if err != nil {
		return err
	}
	received := make(chan error, 1)
	go func() { received <- k.receive(rpc) }()
	if err, over := k.send(rpc, received); over {
		return err
	}
	// Nothing is owed: the node may end it in order, but need not be waited for.
	ending := time.AfterFunc(callEnding, func() { k.cancel(nil) })
	defer ending.Stop()
	if rpc.CloseSend() != nil {
		k.cancel(nil)
	}
	<-received
	return nil
}

// send passes messages on until the call breaks (over) or is not needed any more.
func (k *streamCall) send(rpc sealanev1.DeliveryService_SubmitStreamClient, received <-chan error) (err error, over bool) {
	idle := time.NewTimer(callIdle)
	defer idle.Stop()
	for {
		batch := k.take()
		if batch != nil {
			if rpc.Send(batch) != nil {
				k.cancel(nil)
				return <-received, true // it tells why
			}
			continue
		}
		if k.unneeded(false) {
			return nil, false
		}
		idle.Reset(callIdle)
		select {
		case <-k.wakeup:
		case err := <-received:
			return err, true
		case <-idle.C:
			if k.unneeded(true) {
				return nil, false
			}
		}
	}
}

// unneeded tells whether the call can end, and takes it out of the stream if so: it has nothing to do, and the stream is closed or it has been
// idle for long.
func (k *streamCall) unneeded(idle bool) bool {
	s := k.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(k.queue) > 0 || k.owed > 0 || !(idle || s.closed && len(s.waiting) == 0) {
		return false
	}
	if idle && s.calls[k.e] == k {
		delete(s.calls, k.e)
	}
	return true
}

// take packs what is to be sent next; nil where there is nothing.
func (k *streamCall) take() *sealanev1.SubmitStreamRequest {
	s := k.s
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := 0, 0
	for n < len(k.queue) && n < maxPackedItems && bytes < maxPackedBytes {
		bytes += len(k.queue[n].req.GetPayload())
		n++
	}
	if n == 0 {
		return nil
	}
	batch := &sealanev1.SubmitStreamRequest{Items: make([]*sealanev1.SubmitStreamItem, 0, n)}
	now := time.Now()
	if k.owed == 0 {
		k.worked = now
	}
	for _, it := range k.queue[:n] {
		if s.waiting[it.number] != it || it.call != k {
			continue // answered meanwhile
		}
		if it.verdicts.tries == 0 {
			it.since = now
		}
		batch.Items = append(batch.Items, &sealanev1.SubmitStreamItem{Sequence: it.number, Message: it.req})
		it.sent = true
		k.owed++
	}
	clear(k.queue[:n])
	k.queue = k.queue[n:]
	if len(batch.Items) == 0 {
		return nil
	}
	k.watchLocked(s.client.tryFor(s.stalls))
	return batch
}

// receive reads answers until the call ends, and returns why it ended.
func (k *streamCall) receive(rpc sealanev1.DeliveryService_SubmitStreamClient) error {
	for {
		resp, err := rpc.Recv()
		if err != nil {
			return err
		}
		k.answer(resp.GetResults())
	}
}

// answer hands results to those who wait for them.
func (k *streamCall) answer(results []*sealanev1.SubmitStreamResult) {
	s := k.s
	final := make([]answered, 0, len(results))
	s.mu.Lock()
	now := time.Now()
	if !k.heard {
		k.heard = true
		s.client.nodes.used(k.e, nil)
	}
	k.worked, s.worked = now, now
	s.failures, s.stalls = 0, 0
	for _, r := range results {
		it := s.waiting[r.GetSequence()]
		if it == nil || it.call != k || !it.sent {
			continue // answered before, given up, or moved to another call
		}
		if a, done := k.judgeLocked(it, r); done {
			final = append(final, a)
		}
	}
	s.live++
	s.changed.Broadcast()
	s.mu.Unlock()
	s.handOut(final)
}

// judgeLocked reads one result; done false means that the message is to be submitted again, and is seen to.
func (k *streamCall) judgeLocked(it *item, r *sealanev1.SubmitStreamResult) (a answered, done bool) {
	s := k.s
	if ok := r.GetSubmitted(); ok != nil {
		s.settleLocked(it)
		s.client.submitted(it.req, ok)
		return answered{it, accepted(ok, it.verdicts.key), nil}, true
	}
	refusal := status.ErrorProto(r.GetError())
	if done, err := it.verdicts.take(refusal); done {
		s.settleLocked(it)
		return answered{it, Accepted{}, err}, true
	}
	s.client.note(k.e, refusal)
	it.sent, it.call = false, nil
	k.owed--
	elsewhere := s.client.nodes.size() > 1 && !busy(refusal)
	if elsewhere {
		it.not = k.e
	}
	over := s.againLocked([]*item{it}, elsewhere && it.verdicts.tries == 1, retryPause(it.verdicts.tries))
	if len(over) > 0 {
		return over[0], true
	}
	return answered{}, false
}

// silentError: a call owed answers for longer than Options.TryFor and gave none. What it carries may have been accepted.
type silentError struct{ text string }

func (e *silentError) Error() string              { return e.text }
func (e *silentError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.text) }

// watchLocked looks after a while whether the call owes answers and gives none, where there is another node to ask.
func (k *streamCall) watchLocked(after time.Duration) {
	if k.watch == nil && k.s.client.nodes.size() > 1 {
		k.watch = time.AfterFunc(after, k.look)
	}
}

// look ends a call that has fallen silent. Each time in a row it is given twice as long: a whole cluster that is slow must not be flooded
// with repetitions.
func (k *streamCall) look() {
	s := k.s
	s.mu.Lock()
	defer s.mu.Unlock()
	k.watch = nil
	if k.owed == 0 || k.ctx.Err() != nil {
		return
	}
	limit := s.client.tryFor(s.stalls)
	if rest := limit - time.Since(k.worked); rest > 0 {
		k.watchLocked(rest)
		return
	}
	s.stalls++
	k.cancel(&silentError{fmt.Sprintf("no answer from %s within %s", k.e.addr, limit)})
}
