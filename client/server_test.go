package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
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

// All nodes are restarted one after the other under load, by a client that was told of one of them: no call fails, and nothing is doubled.
func TestRollingRestart(t *testing.T) {
	c := newFakeCluster(t, 3)
	cl := c.dial(c.nodes[0].addr, Options{})
	if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); err != nil {
		t.Fatal(err)
	}
	until(t, "the other nodes are known", func() bool { return cl.nodes.size() == 3 })

	stop := make(chan struct{})
	var done atomic.Int64
	var wg sync.WaitGroup
	loop := func(name string, f func(i int) error) {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(i); err != nil {
					t.Errorf("%s %d: %v", name, i, err)
					return
				}
				done.Add(1)
			}
		})
	}
	for w := range 3 {
		loop("submit", func(i int) error {
			_, err := cl.Submit(t.Context(), Message{Destination: "d", IdempotencyKey: fmt.Sprintf("u%d-%d", w, i)})
			return err
		})
	}
	loop("read", func(int) error {
		_, _, err := cl.Get(t.Context(), "m", ReadOptions{})
		return err
	})
	s := cl.Stream(t.Context())
	var streamed atomic.Int64
	loop("stream", func(i int) error {
		return s.Submit(Message{Destination: "d", IdempotencyKey: fmt.Sprint("s", i)}, func(_ Accepted, err error) {
			if err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
			streamed.Add(1)
		})
	})
	progress := func() {
		t.Helper()
		before, sent := done.Load(), streamed.Load()
		until(t, "calls go on", func() bool { return done.Load() > before+50 && streamed.Load() > sent+50 || t.Failed() })
	}
	for round := range 2 {
		for i, n := range c.nodes {
			progress()
			c.leader.Store(int32((i + 1) % 3))
			if round == 0 {
				n.stop()
			} else {
				n.kill()
			}
			progress()
			n.start()
		}
	}
	progress()
	close(stop)
	wg.Wait()
	s.Close()
	if n := len(c.log); n != len(c.kept) {
		t.Errorf("%d accepted, %d kept", n, len(c.kept))
	}
}

// A listener that accepts connections and never says a word holds nobody up for long.
func TestNodeThatHangsAfterAccept(t *testing.T) {
	c := newFakeCluster(t, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hung := l.Addr().String()
	cl := c.dial(hung+","+c.nodes[0].addr, Options{})
	cl.nodes.start = 0
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := cl.Submit(ctx, Message{Destination: "d"}); err != nil {
		t.Error(err)
	}
	s := cl.Stream(ctx)
	if a := submitAll(t, s, 100); true {
		s.Close()
		if len(a.got) != 100 || a.got["k0000"][0] != "accepted" {
			t.Errorf("answers %v", a.got)
		}
	}
}

// Once the leader is known submits go straight to it, streams too.
func TestHintsSaveHops(t *testing.T) {
	c := newFakeCluster(t, 3)
	c.leader.Store(2)
	cl := c.dial(c.nodes[0].addr, Options{})
	direct := func() bool {
		before := c.nodes[2].direct.Load()
		if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); err != nil {
			t.Fatal(err)
		}
		return c.nodes[2].direct.Load() > before
	}
	until(t, "submits go to the leader", direct)
	hops := c.nodes[0].hops.Load() + c.nodes[1].hops.Load()
	s := cl.Stream(t.Context())
	a := submitAll(t, s, 500)
	s.Close()
	if after := c.nodes[0].hops.Load() + c.nodes[1].hops.Load(); after != hops || len(a.got) != 500 {
		t.Errorf("%d hops, %d answers", after-hops, len(a.got))
	}
	c.leader.Store(1)
	until(t, "they follow it", func() bool {
		cl.view.due.Store(0)
		before := c.nodes[1].direct.Load()
		if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); err != nil {
			t.Fatal(err)
		}
		return c.nodes[1].direct.Load() > before
	})
}

func TestGetAndWaitPosition(t *testing.T) {
	c := newFakeCluster(t, 2)
	cl := c.dial(c.addrs(), Options{})
	m, read, err := cl.Get(t.Context(), "m", ReadOptions{Position: "0:3", Linearizable: true, IncludePayload: true, Wait: time.Second})
	if err != nil || m.GetId() != "m" || read.GetAppliedPosition() != "0:5" {
		t.Errorf("%v, %v, %v", m, read, err)
	}
	var pending *PendingError
	if _, _, err := cl.Get(t.Context(), "m", ReadOptions{Position: "0:9"}); !errors.As(err, &pending) || pending.Applied != "0:5" || pending.Position != "0:9" {
		t.Errorf("got %v", err)
	}
	if err := cl.WaitPosition(t.Context(), "0:3"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	if err := cl.WaitPosition(ctx, "0:9"); !errors.As(err, &pending) {
		t.Errorf("got %v", err)
	}
}

// A watch goes on where it was broken off: every change once.
func TestWatchResumes(t *testing.T) {
	c := newFakeCluster(t, 3)
	cl := c.dial(c.addrs(), Options{})
	next := uint32(1)
	for r, err := range cl.Watch(t.Context(), &sealanev1.WatchMessageRequest{Id: "m"}) {
		if err != nil || r.GetMessage().GetGeneration() != next {
			t.Fatalf("got %v, %v; want %d", r, err, next)
		}
		next++
	}
	if next != 6 {
		t.Errorf("ended before change %d", next)
	}
	for _, err := range cl.Watch(t.Context(), &sealanev1.WatchMessageRequest{Id: "m", Position: "x"}) {
		if e, ok := AsError(err); !ok || e.Code != codes.InvalidArgument {
			t.Errorf("got %v", err)
		}
	}
	var seen []string
	for op, err := range cl.WatchOperation(t.Context(), "op") {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, fmt.Sprintf("%s %d", op.GetState(), op.GetProgress().GetApplied()))
	}
	if got := strings.Join(seen, ", "); got != "APPLYING 0, APPLYING 1, APPLYING 2, COMPLETED 3" {
		t.Errorf("saw %s", got)
	}
}

// DialOptions reach every connection, learned ones too, with the address as it was named.
func TestDialOptions(t *testing.T) {
	c := newFakeCluster(t, 2)
	names := map[string]string{"one:1": c.nodes[0].addr, "two:1": c.nodes[1].addr}
	var mu sync.Mutex
	dialled := map[string]int{}
	cl := c.dial("one:1,two:1", Options{Static: true, DialOptions: []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			mu.Lock()
			dialled[addr]++
			mu.Unlock()
			return new(net.Dialer).DialContext(ctx, "tcp", names[addr])
		}),
	}})
	if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); err != nil {
		t.Fatal(err)
	}
	until(t, "both nodes are known by name", func() bool {
		return !strings.Contains(cl.nodes.lockedText(), "= ") && cl.nodes.lockedText() != "one:1= two:1="
	})
	mu.Lock()
	defer mu.Unlock()
	for addr := range dialled {
		if names[addr] == "" {
			t.Errorf("dialled %s", addr)
		}
	}
}

func (p *pool) lockedText() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text()
}

func TestDialOptionsThatGRPCRefuses(t *testing.T) {
	_, err := Dial("127.0.0.1:1", Options{DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(nil)}})
	if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "DialOptions") {
		t.Errorf("got %v", err)
	}
}

func TestAddresses(t *testing.T) {
	many := strings.Repeat("h:1,", MaxAddresses) // each once only
	for _, c := range []struct{ in, want, err string }{
		{"a:1", "a:1", ""},
		{" a:1 ,b:2,a:1", "a:1 b:2", ""},
		{"", "", `""`},
		{"a:1,", "", `""`},
		{"a:1,b", "", `"b"`},
		{many + "x:1", "h:1 x:1", ""},
	} {
		got, err := addresses(c.in)
		if strings.Join(got, " ") != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %v, %v", c.in, got, err)
		}
	}
	var list []string
	for i := range MaxAddresses + 1 {
		list = append(list, fmt.Sprint("h:", i))
	}
	if _, err := addresses(strings.Join(list, ",")); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "at most 64") {
		t.Errorf("got %v", err)
	}
}
