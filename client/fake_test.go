package client

import (
	"context"
	"io"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// refusal makes the error of a node.
func refusal(code codes.Code, reason string, acceptance sealanev1.Acceptance_Value, field string) error {
	st, err := status.New(code, "because of a test").WithDetails(
		&errdetails.ErrorInfo{Reason: reason, Domain: "sealane.io", Metadata: map[string]string{"limit": "7"}},
		&sealanev1.SubmitErrorDetail{Acceptance: acceptance, Field: field},
	)
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// node is a scripted node: it keeps what it accepted by key, as a shard does, and can fail around that.
type node struct {
	sealanev1.DeliveryServiceClient // every call that is not scripted panics

	mu       sync.Mutex
	kept     map[string]string // idempotency key to message id
	requests []*sealanev1.SubmitRequest
	verdict  func(r *sealanev1.SubmitRequest, nth int) (store bool, answer error) // by number of the submit, from 1
	breakOff func(nth int) bool                                                   // the stream ends instead of giving this answer
	calls    int
}

func newNode() *node { return &node{kept: map[string]string{}} }

// take runs one submit.
func (n *node) take(r *sealanev1.SubmitRequest) (resp *sealanev1.SubmitResponse, nth int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests = append(n.requests, r)
	nth = len(n.requests)
	store, answer := true, error(nil)
	if n.verdict != nil {
		store, answer = n.verdict(r, nth)
	}
	id, again := n.kept[r.GetIdempotencyKey()]
	if store && !again {
		id = "msg_" + r.GetIdempotencyKey()
		n.kept[r.GetIdempotencyKey()] = id
	}
	if answer != nil {
		return nil, nth, answer
	}
	return &sealanev1.SubmitResponse{MessageId: id, Generation: 1, Position: "0:1", Deduplicated: again}, nth, nil
}

func (n *node) breaksOff(nth int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.breakOff != nil && n.breakOff(nth)
}

func (n *node) Submit(ctx context.Context, r *sealanev1.SubmitRequest, _ ...grpc.CallOption) (*sealanev1.SubmitResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	resp, _, err := n.take(r)
	return resp, err
}

// SubmitStream opens a stream of the scripted node.
func (n *node) SubmitStream(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[sealanev1.SubmitStreamRequest, sealanev1.SubmitStreamResponse], error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	s := &nodeStream{ctx: ctx, node: n, answers: make(chan *sealanev1.SubmitStreamResponse, MaxStreamWindow), ended: make(chan struct{})}
	return s, nil
}

type nodeStream struct {
	grpc.ClientStream
	ctx     context.Context
	node    *node
	answers chan *sealanev1.SubmitStreamResponse
	ended   chan struct{}
	once    sync.Once
	err     error
}

func (s *nodeStream) end(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.ended)
	})
}

func (s *nodeStream) Send(req *sealanev1.SubmitStreamRequest) error {
	for _, it := range req.GetItems() {
		select {
		case <-s.ended:
			return io.EOF
		case <-s.ctx.Done():
			return io.EOF
		default:
		}
		resp, nth, err := s.node.take(it.GetMessage())
		if s.node.breaksOff(nth) {
			s.end(status.Error(codes.Unavailable, "connection lost"))
			return io.EOF
		}
		r := &sealanev1.SubmitStreamResult{Sequence: it.GetSequence(), Result: &sealanev1.SubmitStreamResult_Submitted{Submitted: resp}}
		if err != nil {
			r.Result = &sealanev1.SubmitStreamResult_Error{Error: status.Convert(err).Proto()}
		}
		s.answers <- &sealanev1.SubmitStreamResponse{Results: []*sealanev1.SubmitStreamResult{r}}
	}
	return nil
}

func (s *nodeStream) Recv() (*sealanev1.SubmitStreamResponse, error) {
	select {
	case a := <-s.answers:
		return a, nil
	default:
	}
	select {
	case a := <-s.answers:
		return a, nil
	case <-s.ended:
		return nil, s.err
	case <-s.ctx.Done():
		return nil, status.FromContextError(s.ctx.Err()).Err()
	}
}

func (s *nodeStream) CloseSend() error {
	s.end(io.EOF)
	return nil
}
