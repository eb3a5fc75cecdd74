package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// fakeCluster is a cluster of real gRPC servers on loopback in front of one store: what they do with connections is real, what is behind them
// is not.
type fakeCluster struct {
	*store
	t      *testing.T
	nodes  []*fakeNode
	leader atomic.Int32 // the node that leads shard 0
}

// fakeNode is one server of it, which can be stopped, killed and started again on the same address.
type fakeNode struct {
	sealanev1.UnimplementedDeliveryServiceServer
	sealanev1.UnimplementedQueryServiceServer
	sealanev1.UnimplementedClusterServiceServer
	sealanev1.UnimplementedControlServiceServer

	cluster  *fakeCluster
	number   int
	addr     string
	draining atomic.Pointer[chan struct{}]
	direct   atomic.Int64 // submits that came while it led
	hops     atomic.Int64 // submits that it had to forward

	srv    *grpc.Server
	served chan error
}

func newFakeCluster(t *testing.T, count int) *fakeCluster {
	t.Helper()
	c := &fakeCluster{store: newNode().store, t: t}
	for i := range count {
		n := &fakeNode{cluster: c, number: i, addr: "127.0.0.1:0"}
		c.nodes = append(c.nodes, n)
		n.start()
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.kill()
		}
	})
	return c
}

func (c *fakeCluster) addrs() string {
	list := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		list[i] = n.addr
	}
	return strings.Join(list, ",")
}

// dial connects to some of the nodes.
func (c *fakeCluster) dial(addrs string, o Options) *Client {
	c.t.Helper()
	cl, err := Dial(addrs, o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := cl.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return cl
}

func (n *fakeNode) start() {
	n.cluster.t.Helper()
	l, err := net.Listen("tcp", n.addr)
	if err != nil {
		n.cluster.t.Fatal(err)
	}
	if strings.HasSuffix(n.addr, ":0") {
		n.addr = l.Addr().String() // kept over restarts
	}
	open := make(chan struct{})
	n.draining.Store(&open)
	n.srv, n.served = grpc.NewServer(), make(chan error, 1)
	sealanev1.RegisterDeliveryServiceServer(n.srv, n)
	sealanev1.RegisterQueryServiceServer(n.srv, n)
	sealanev1.RegisterClusterServiceServer(n.srv, n)
	sealanev1.RegisterControlServiceServer(n.srv, n)
	srv, served := n.srv, n.served
	go func() { served <- srv.Serve(l) }()
}

// kill ends it without a word.
func (n *fakeNode) kill() {
	if n.srv == nil {
		return
	}
	n.srv.Stop()
	if err := <-n.served; err != nil {
		n.cluster.t.Errorf("node %d: %v", n.number, err)
	}
	n.srv = nil
}

// stop ends it as a node does on SIGTERM: it refuses what is new, ends streams, and lets the rest finish.
func (n *fakeNode) stop() {
	close(*n.draining.Load())
	n.srv.GracefulStop()
	n.kill()
}

func (n *fakeNode) stopping() bool {
	select {
	case <-*n.draining.Load():
		return true
	default:
		return false
	}
}

func (n *fakeNode) take(r *sealanev1.SubmitRequest) (*sealanev1.SubmitResponse, error) {
	if n.stopping() {
		return nil, refusal(codes.Unavailable, reasonStopping, no, "")
	}
	if int(n.cluster.leader.Load()) == n.number {
		n.direct.Add(1)
	} else {
		n.hops.Add(1)
	}
	id, again := n.cluster.keep(r.GetIdempotencyKey(), true)
	return &sealanev1.SubmitResponse{MessageId: id, Generation: 1, Position: "0:1", Deduplicated: again}, nil
}

func (n *fakeNode) Submit(_ context.Context, r *sealanev1.SubmitRequest) (*sealanev1.SubmitResponse, error) {
	return n.take(r)
}

// SubmitStream answers until the client ends it, or the node stops.
func (n *fakeNode) SubmitStream(s sealanev1.DeliveryService_SubmitStreamServer) error {
	ended := make(chan error, 1)
	go func() { ended <- n.carry(s) }()
	select {
	case err := <-ended:
		return err
	case <-*n.draining.Load():
		return refusal(codes.Unavailable, reasonStopping, no, "")
	}
}

func (n *fakeNode) carry(s sealanev1.DeliveryService_SubmitStreamServer) error {
	for {
		req, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		resp := &sealanev1.SubmitStreamResponse{}
		for _, it := range req.GetItems() {
			ok, err := n.take(it.GetMessage())
			r := &sealanev1.SubmitStreamResult{Sequence: it.GetSequence(), Result: &sealanev1.SubmitStreamResult_Submitted{Submitted: ok}}
			if err != nil {
				r.Result = &sealanev1.SubmitStreamResult_Error{Error: status.Convert(err).Proto()}
			}
			resp.Results = append(resp.Results, r)
		}
		if err := s.Send(resp); err != nil {
			return err
		}
	}
}

func (n *fakeNode) GetMessage(_ context.Context, r *sealanev1.GetMessageRequest) (*sealanev1.GetMessageResponse, error) {
	if n.stopping() {
		return nil, refusal(codes.Unavailable, reasonStopping, no, "")
	}
	read := &sealanev1.ReadMetadata{AppliedPosition: "0:5", Node: fmt.Sprint(n.number)}
	if r.GetPosition() == "0:9" {
		read.Status = sealanev1.ReadStatus_PENDING
		return &sealanev1.GetMessageResponse{Read: read}, nil
	}
	return &sealanev1.GetMessageResponse{Message: &sealanev1.Message{Id: r.GetId()}, Read: read}, nil
}

func (n *fakeNode) WaitPosition(ctx context.Context, r *sealanev1.WaitPositionRequest) (*sealanev1.WaitPositionResponse, error) {
	read := &sealanev1.ReadMetadata{AppliedPosition: "0:5", Node: fmt.Sprint(n.number), Status: sealanev1.ReadStatus_ANSWERED}
	if r.GetPosition() == "0:9" {
		select {
		case <-time.After(r.GetWait().AsDuration()):
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		read.Status = sealanev1.ReadStatus_PENDING
	}
	return &sealanev1.WaitPositionResponse{Read: read}, nil
}

// WatchMessage tells the five changes of a message, at the positions 0:1 to 0:5. The first node breaks off after each.
func (n *fakeNode) WatchMessage(r *sealanev1.WatchMessageRequest, s sealanev1.QueryService_WatchMessageServer) error {
	at := 0
	if _, err := fmt.Sscanf(r.GetPosition(), "0:%d", &at); err != nil && r.GetPosition() != "" {
		return status.Error(codes.InvalidArgument, r.GetPosition())
	}
	for at++; at <= 5; at++ {
		m := &sealanev1.Message{Id: r.GetId(), Generation: uint32(at)}
		if err := s.Send(&sealanev1.WatchMessageResponse{Message: m, Read: &sealanev1.ReadMetadata{AppliedPosition: fmt.Sprintf("0:%d", at)}}); err != nil {
			return err
		}
		if at < 5 {
			return refusal(codes.Unavailable, reasonStopping, no, "")
		}
	}
	return nil
}

// WatchOperation repeats the present state at each beginning, and breaks off after it.
func (n *fakeNode) WatchOperation(r *sealanev1.WatchOperationRequest, s sealanev1.ControlService_WatchOperationServer) error {
	seen := n.cluster.leader.Add(1)
	op := &sealanev1.Operation{OperationId: r.GetId(), State: sealanev1.OperationState_APPLYING, Progress: &sealanev1.OperationProgress{Applied: uint64(seen / 2)}}
	if seen >= 6 {
		op.State = sealanev1.OperationState_COMPLETED
		return s.Send(&sealanev1.WatchOperationResponse{Operation: op})
	}
	if err := s.Send(&sealanev1.WatchOperationResponse{Operation: op}); err != nil {
		return err
	}
	return status.Error(codes.Unavailable, "broken off")
}

func (n *fakeNode) GetCluster(context.Context, *sealanev1.GetClusterRequest) (*sealanev1.GetClusterResponse, error) {
	c := &sealanev1.Cluster{AnsweredBy: fmt.Sprint("node", n.number)}
	for _, m := range n.cluster.nodes {
		c.Nodes = append(c.Nodes, &sealanev1.Node{Id: fmt.Sprint("node", m.number), GrpcAddress: m.addr})
	}
	c.Shards = []*sealanev1.Shard{{Leader: fmt.Sprint("node", n.cluster.leader.Load()), Term: 1}}
	return &sealanev1.GetClusterResponse{Cluster: c}, nil
}

// until polls.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		<-tick.C
	}
}
