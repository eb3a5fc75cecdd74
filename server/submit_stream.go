package server

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/status"

	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// maxStreamInFlight bounds the messages of one stream whose results the client has not been sent. At the bound the stream is read no
// further, so that back-pressure reaches the client through flow control. It is what one shard's log can have under way (eight entries of 256
// commands), so that a single stream can fill it.
const maxStreamInFlight = 2048

// SubmitStream submits continuously. Two goroutines per stream: one reads and proposes, the handler's own sends what is ready. A message
// costs neither a goroutine nor a channel operation of its own.
func (s *deliveryService) SubmitStream(stream sealanev1.DeliveryService_SubmitStreamServer) error {
	ctx := stream.Context()
	st := &submitStream{s: s, namespace: namespaceOf(ctx), trace: traceOf(ctx), wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	go st.receive(ctx, stream)
	return st.send(ctx, stream)
}

// submitStream is one stream under way.
type submitStream struct {
	s                *deliveryService
	namespace, trace string
	wake, room       chan struct{} // hold one: results are ready, in flight went down

	mu       sync.Mutex
	ready    []*sealanev1.SubmitStreamResult
	inFlight int   // read and not yet answered to the client
	ended    error // why nothing more is read; io.EOF when the client is done
	stopped  bool  // the sending side has ended; nothing more is proposed
}

// receive reads until the client, the stream or the sending side ends.
func (st *submitStream) receive(ctx context.Context, stream sealanev1.DeliveryService_SubmitStreamServer) {
	for {
		req, err := stream.Recv()
		if err == nil {
			err = st.take(ctx, req.GetItems())
		}
		if err != nil {
			st.mu.Lock()
			st.ended = err
			st.mu.Unlock()
			signal(st.wake)
			return
		}
	}
}

// take proposes the items of one request, in order.
func (st *submitStream) take(ctx context.Context, items []*sealanev1.SubmitStreamItem) error {
	if len(items) == 0 || len(items) > maxBatch {
		return submitStatus(invalid("items", "has %d entries, want 1 to %d", len(items), maxBatch), true).Err()
	}
	for _, item := range items {
		if err := st.enter(ctx); err != nil {
			return err
		}
		st.propose(ctx, item.GetSequence(), item.GetMessage())
	}
	return nil
}

// enter waits for room for one more message.
func (st *submitStream) enter(ctx context.Context) error {
	for {
		st.mu.Lock()
		switch {
		case st.stopped:
			st.mu.Unlock()
			return answered(ErrDraining)
		case st.inFlight < maxStreamInFlight:
			st.inFlight++
			st.mu.Unlock()
			return nil
		}
		st.mu.Unlock()
		select {
		case <-st.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (st *submitStream) propose(ctx context.Context, sequence uint64, m *sealanev1.SubmitRequest) {
	cmd, r, err := st.s.prepare(ctx, st.namespace, st.trace, m)
	if err != nil {
		st.s.n.metrics.submits[resultInvalid].Inc()
		st.answer(streamResult(sequence, nil, submitStatus(err, true)))
		return
	}
	err = r.submitAsync(cmd, func(res shard.Result, err error) { st.done(sequence, r, res, err) })
	if err != nil {
		st.done(sequence, r, shard.Result{}, err)
	}
}

// done is called by the log; it must be cheap.
func (st *submitStream) done(sequence uint64, r *shardRef, res shard.Result, err error) {
	st.s.n.metrics.submitted(res, err)
	ok, bad := submitAnswer(r, res, err)
	st.answer(streamResult(sequence, ok, bad))
}

func streamResult(sequence uint64, ok *sealanev1.SubmitResponse, st *status.Status) *sealanev1.SubmitStreamResult {
	if ok != nil {
		return &sealanev1.SubmitStreamResult{Sequence: sequence, Result: &sealanev1.SubmitStreamResult_Submitted{Submitted: ok}}
	}
	return &sealanev1.SubmitStreamResult{Sequence: sequence, Result: &sealanev1.SubmitStreamResult_Error{Error: st.Proto()}}
}

func (st *submitStream) answer(r *sealanev1.SubmitStreamResult) {
	st.mu.Lock()
	st.ready = append(st.ready, r)
	first := len(st.ready) == 1
	st.mu.Unlock()
	if first {
		signal(st.wake)
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// send hands out what is ready, several results in one response, until everything that was read is answered.
func (st *submitStream) send(ctx context.Context, stream sealanev1.DeliveryService_SubmitStreamServer) error {
	defer st.stop()
	draining := st.s.draining
	var spare []*sealanev1.SubmitStreamResult
	for {
		st.mu.Lock()
		batch := st.ready
		st.ready = spare[:0]
		left, ended, stopped := st.inFlight, st.ended, st.stopped
		st.mu.Unlock()
		if len(batch) > 0 {
			if err := st.give(stream, batch); err != nil {
				return err
			}
			spare = batch
			continue
		}
		spare = batch
		if left == 0 && (ended != nil || stopped) {
			return endOf(ended)
		}
		select {
		case <-st.wake:
		case <-draining:
			st.stop()
			draining = nil
		case <-ctx.Done():
			return answered(ctx.Err())
		}
	}
}

// give sends results in responses of at most maxBatch and makes room for as many messages.
func (st *submitStream) give(stream sealanev1.DeliveryService_SubmitStreamServer, batch []*sealanev1.SubmitStreamResult) error {
	for part := batch; len(part) > 0; {
		n := min(len(part), maxBatch)
		if err := stream.Send(&sealanev1.SubmitStreamResponse{Results: part[:n]}); err != nil {
			return err
		}
		part = part[n:]
	}
	st.mu.Lock()
	st.inFlight -= len(batch)
	st.mu.Unlock()
	signal(st.room)
	clear(batch)
	return nil
}

// stop ends the reading side at its next message.
func (st *submitStream) stop() {
	st.mu.Lock()
	st.stopped = true
	st.mu.Unlock()
	signal(st.room)
}

// endOf is the stream's status: OK where the client ended it, else why it was ended.
func endOf(ended error) error {
	switch {
	case ended == nil:
		return answered(ErrDraining)
	case errors.Is(ended, io.EOF):
		return nil
	}
	return answered(ended)
}
