package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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
	mu sync.Mutex
	*store
	requests []*sealanev1.SubmitRequest
	verdict  func(r *sealanev1.SubmitRequest, nth int) (store bool, answer error) // by number of the submit, from 1
	breakOff func(nth int) bool                                                   // the stream ends instead of giving this answer
	calls    int
	down     bool                      // it cannot be connected to
	silent   bool                      // it takes everything and answers nothing
	cluster  func() *sealanev1.Cluster // nil: it has no such call
	position string                    // where it says that messages went; empty: 0:1
}

func (n *node) isSilent() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.silent
}

// store is what the shards hold, whichever node took it in.
type store struct {
	keeping sync.Mutex
	kept    map[string]string // idempotency key to message id
	log     []string          // keys in the order of acceptance
}

func newNode() *node { return &node{store: &store{kept: map[string]string{}}} }

// newNodes makes the nodes of one cluster.
func newNodes(count int) []*node {
	nodes := []*node{newNode()}
	for len(nodes) < count {
		nodes = append(nodes, &node{store: nodes[0].store})
	}
	return nodes
}

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
	id, again := n.keep(r.GetIdempotencyKey(), store)
	if answer != nil {
		return nil, nth, answer
	}
	return &sealanev1.SubmitResponse{MessageId: id, Generation: 1, Position: cmp.Or(n.position, "0:1"), Deduplicated: again}, nth, nil
}

func (s *store) keep(key string, store bool) (id string, again bool) {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	id, again = s.kept[key]
	if store && !again {
		id = "msg_" + key
		s.kept[key] = id
		s.log = append(s.log, key)
	}
	return id, again
}

func (s *store) has(key string) bool {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	return s.kept[key] != ""
}

func (n *node) breaksOff(nth int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.breakOff != nil && n.breakOff(nth)
}

func (n *node) Submit(ctx context.Context, r *sealanev1.SubmitRequest) (*sealanev1.SubmitResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if n.isSilent() {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	resp, _, err := n.take(r)
	return resp, err
}

// testClient makes a client for scripted nodes; their addresses are n1, n2 and so on.
func testClient(o Options, nodes ...*node) *Client {
	seeds := make([]string, len(nodes))
	byAddr := map[string]*node{}
	for i, n := range nodes {
		seeds[i] = fmt.Sprintf("n%d", i+1)
		byAddr[seeds[i]] = n
	}
	return newClient(o.withDefaults(), seeds, func(addr string) (link, error) { return &nodeLink{byAddr[addr]}, nil })
}

// nodeLink is the connection to a scripted node.
type nodeLink struct{ n *node }

func (l *nodeLink) ready() bool  { return !l.n.isDown() }
func (l *nodeLink) nudge()       {}
func (l *nodeLink) Close() error { return nil }

func (l *nodeLink) connect(context.Context) error {
	if l.n.isDown() {
		return errors.New("connection refused")
	}
	return nil
}

func (n *node) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

func (n *node) setDown(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
}

func (l *nodeLink) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	switch method {
	case sealanev1.DeliveryService_Submit_FullMethodName:
		resp, err := l.n.Submit(ctx, args.(*sealanev1.SubmitRequest))
		if err == nil {
			proto.Merge(reply.(proto.Message), resp)
		}
		return err
	case sealanev1.ClusterService_GetCluster_FullMethodName:
		if l.n.cluster != nil {
			proto.Merge(reply.(proto.Message), &sealanev1.GetClusterResponse{Cluster: l.n.cluster()})
			return nil
		}
	}
	if l.n.isSilent() {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Error(codes.Unimplemented, method)
}

// NewStream opens a stream of submits.
func (l *nodeLink) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	if method != sealanev1.DeliveryService_SubmitStream_FullMethodName {
		return nil, status.Error(codes.Unimplemented, method)
	}
	n := l.n
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	return &nodeStream{ctx: ctx, node: n, answers: make(chan *sealanev1.SubmitStreamResponse, MaxStreamWindow), ended: make(chan struct{})}, nil
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

func (s *nodeStream) SendMsg(m any) error {
	req := m.(*sealanev1.SubmitStreamRequest)
	for _, it := range req.GetItems() {
		select {
		case <-s.ended:
			return io.EOF
		case <-s.ctx.Done():
			return io.EOF
		default:
		}
		if s.node.isSilent() {
			continue
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

func (s *nodeStream) RecvMsg(m any) error {
	resp, err := s.recv()
	if err == nil {
		proto.Merge(m.(proto.Message), resp)
	}
	return err
}

func (s *nodeStream) recv() (*sealanev1.SubmitStreamResponse, error) {
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
