package client

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// One request of a stream packs what waits, up to these bounds; the first is the API's limit.
const (
	maxPackedItems = 1000
	maxPackedBytes = 1 << 20
)

// call runs one gRPC call to its end. One goroutine, this one, sends; another receives.
func (s *Stream) call() {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.mu.Lock()
	s.broken = false
	s.mu.Unlock()
	rpc, err := s.client.delivery.SubmitStream(ctx)
	if err != nil {
		s.interrupted(err)
		return
	}
	received := make(chan struct{})
	go func() {
		defer close(received)
		s.interrupted(s.receive(rpc))
	}()
	if !s.send(rpc) || rpc.CloseSend() != nil {
		cancel()
	}
	<-received
}

// send passes messages on until the call breaks (false) or everything is answered after Close (true).
func (s *Stream) send(rpc sealanev1.DeliveryService_SubmitStreamClient) bool {
	for {
		batch, finished := s.take()
		if batch == nil {
			return finished
		}
		if rpc.Send(batch) != nil {
			return false // Recv tells why
		}
	}
}

// take waits for messages to send. No batch means that nothing more is sent on this call; finished says that nothing ever will be.
func (s *Stream) take() (batch *sealanev1.SubmitStreamRequest, finished bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.unsent) == 0 && !s.broken && s.ctx.Err() == nil {
		if s.closed && len(s.waiting) == 0 {
			return nil, true
		}
		s.changed.Wait()
	}
	if s.broken || s.ctx.Err() != nil {
		return nil, false
	}
	n, bytes := 0, 0
	for n < len(s.unsent) && n < maxPackedItems && bytes < maxPackedBytes {
		bytes += len(s.unsent[n].req.GetPayload())
		n++
	}
	batch = &sealanev1.SubmitStreamRequest{Items: make([]*sealanev1.SubmitStreamItem, n)}
	for i, it := range s.unsent[:n] {
		batch.Items[i] = &sealanev1.SubmitStreamItem{Sequence: it.number, Message: it.req}
		it.sent = true
	}
	clear(s.unsent[:n])
	s.unsent = s.unsent[n:]
	return batch, false
}

// receive reads answers until the call ends, and returns why it ended.
func (s *Stream) receive(rpc sealanev1.DeliveryService_SubmitStreamClient) error {
	for {
		resp, err := rpc.Recv()
		if err != nil {
			return err
		}
		s.answer(resp.GetResults())
	}
}

// answer hands results to those who wait for them.
func (s *Stream) answer(results []*sealanev1.SubmitStreamResult) {
	final := make([]answered, 0, len(results))
	s.mu.Lock()
	s.worked = time.Now()
	for _, r := range results {
		it := s.waiting[r.GetSequence()]
		if it == nil {
			continue // answered before, or given up
		}
		a, done := s.judge(it, r)
		if !done {
			time.AfterFunc(retryPause(it.verdicts.tries), func() { s.again(it) })
			continue
		}
		delete(s.waiting, it.number)
		final = append(final, a)
	}
	s.changed.Broadcast()
	s.mu.Unlock()
	deliver(final)
}

// judge reads one result; done false means that the message is to be submitted again.
func (s *Stream) judge(it *item, r *sealanev1.SubmitStreamResult) (a answered, done bool) {
	it.sent = false
	if ok := r.GetSubmitted(); ok != nil {
		return answered{it, accepted(ok, it.verdicts.key), nil}, true
	}
	done, err := it.verdicts.take(status.ErrorProto(r.GetError()))
	if !done && time.Since(it.since) >= s.client.options.RetryFor {
		done, err = true, it.verdicts.giveUp()
	}
	return answered{it, Accepted{}, err}, done
}

// again puts a message that was refused for the moment back into the queue, unless it was given up meanwhile.
func (s *Stream) again(it *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[it.number] == it {
		s.unsent = append(s.unsent, it)
		s.changed.Broadcast()
	}
}

// interrupted notes that the call ended: what was sent and not answered may have been accepted, and is submitted again.
func (s *Stream) interrupted(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken, s.lastErr = true, err
	var open []*item
	for _, it := range s.waiting {
		if it.sent {
			it.sent = false
			it.verdicts.lost(err)
			open = append(open, it)
		}
	}
	slices.SortFunc(open, func(a, b *item) int { return cmp.Compare(a.number, b.number) })
	s.unsent = append(open, s.unsent...)
	s.changed.Broadcast()
}

// retryPause is the pause before a message is submitted again after so many tries.
func retryPause(tries int) time.Duration {
	d := firstPause
	for range min(tries, 8) - 1 {
		d *= 2
	}
	return min(d, longestPause)
}
