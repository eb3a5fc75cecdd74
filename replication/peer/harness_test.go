package peer

//lint:file-ignore SA1019 the library's old fields are part of what it sends, and come back as they were

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/replication/peer/peertest"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deadline = 30 * time.Second

// rid is the replica id of a node in tests.
func rid(node string) string { return node + "@00000000000000" + node[len(node)-1:] + "0" }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// rig is a few nodes on a network in memory. Their addresses are their ids with "-addr".
type rig struct {
	t     testing.TB
	net   *peertest.Net
	boots uint64
	nodes map[string]*Network
}

func newRig(t testing.TB, nodes ...string) *rig {
	t.Helper()
	r := &rig{t: t, net: peertest.New(), nodes: map[string]*Network{}}
	for _, node := range nodes {
		r.start(node, nil)
	}
	return r
}

func at(node string) string { return node + "-addr" }

// options are those of a process of node.
func (r *rig) options(node string) Options {
	r.t.Helper()
	l, err := r.net.Listen(at(node))
	if err != nil {
		r.t.Fatal(err)
	}
	r.boots++
	return Options{
		Node: node, Replica: rid(node), Boot: r.boots, Listener: l, Dial: r.net.Dialer(at(node)),
		Resolve:  func(other string) (string, bool) { return at(other), true },
		Register: func(s grpc.ServiceRegistrar) { healthpb.RegisterHealthServer(s, health.NewServer()) },
		Logger:   quiet(),
	}
}

func (r *rig) start(node string, adjust func(*Options)) *Network {
	r.t.Helper()
	o := r.options(node)
	if adjust != nil {
		adjust(&o)
	}
	n, err := New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.nodes[node] = n
	return n
}

func (r *rig) stop(node string) {
	r.t.Helper()
	if err := r.nodes[node].Close(); err != nil {
		r.t.Errorf("close %s: %v", node, err)
	}
	delete(r.nodes, node)
}

func (r *rig) close() {
	r.t.Helper()
	for node := range r.nodes {
		r.stop(node)
	}
}

// answering answers every request of a group like a follower that agrees, until the transport is closed.
type answering struct {
	t        *Transport
	mu       sync.Mutex
	requests []any
	data     []byte
	readErr  error
	hold     chan struct{} // if set, each request waits for it
	ended    chan struct{}
}

func answer(t *Transport, hold chan struct{}) *answering {
	a := &answering{t: t, hold: hold, ended: make(chan struct{})}
	go a.run()
	return a
}

func (a *answering) run() {
	defer close(a.ended)
	for {
		select {
		case rpc := <-a.t.Consumer():
			if a.hold != nil {
				select {
				case <-a.hold:
				case <-a.t.closing:
					return
				}
			}
			a.one(rpc)
		case <-a.t.closing:
			return
		}
	}
}

func (a *answering) one(rpc raft.RPC) {
	a.mu.Lock()
	a.requests = append(a.requests, rpc.Command)
	a.mu.Unlock()
	switch q := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		last := q.PrevLogEntry + uint64(len(q.Entries))
		rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: headerOf("nx"), Term: q.Term, Success: true, LastLog: last}, nil)
	case *raft.RequestVoteRequest:
		rpc.Respond(&raft.RequestVoteResponse{Term: q.Term, Granted: true}, nil)
	case *raft.RequestPreVoteRequest:
		rpc.Respond(&raft.RequestPreVoteResponse{Term: q.Term, Granted: true}, nil)
	case *raft.TimeoutNowRequest:
		rpc.Respond(&raft.TimeoutNowResponse{}, nil)
	case *raft.InstallSnapshotRequest:
		data, err := io.ReadAll(rpc.Reader)
		a.mu.Lock()
		a.data, a.readErr = data, err
		a.mu.Unlock()
		rpc.Respond(&raft.InstallSnapshotResponse{Term: q.Term, Success: err == nil}, err)
	}
}

func (a *answering) seen() []any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]any(nil), a.requests...)
}

func headerOf(node string) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: 3, ID: []byte(rid(node)), Addr: []byte(rid(node))}
}

func heartbeat(from string, term uint64) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{RPCHeader: headerOf(from), Term: term, Leader: []byte(rid(from))}
}

func entries(from string, term uint64, sizes ...int) *raft.AppendEntriesRequest {
	q := heartbeat(from, term)
	for i, size := range sizes {
		q.Entries = append(q.Entries, &raft.Log{Index: uint64(i + 1), Term: term, Data: make([]byte, size), AppendedAt: time.Unix(int64(i), 5)})
	}
	return q
}

func send(t *Transport, to string, q *raft.AppendEntriesRequest) (raft.AppendEntriesResponse, error) {
	var out raft.AppendEntriesResponse
	err := t.AppendEntries(raft.ServerID(rid(to)), raft.ServerAddress(rid(to)), q, &out)
	return out, err
}

func mustSend(t testing.TB, tr *Transport, to string, q *raft.AppendEntriesRequest) raft.AppendEntriesResponse {
	t.Helper()
	out, err := send(tr, to, q)
	if err != nil {
		t.Fatalf("append to %s: %v", to, err)
	}
	return out
}

func check(n *Network, to string) error {
	conn, err := n.Conn(to)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	return err
}

// eventually polls, for what has no event to wait for.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(deadline)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not within the deadline: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

func statusOf(t testing.TB, n *Network, node string) PeerStatus {
	t.Helper()
	for _, s := range n.Status() {
		if s.Node == node {
			return s
		}
	}
	t.Fatalf("no status of %s in %+v", node, n.Status())
	return PeerStatus{}
}

func wantErr(t testing.TB, err, want error, what string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

func named(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// grants tells whether Raft would count an error as a granted pre-vote.
func grants(err error) bool { return strings.Contains(err.Error(), "unexpected command") }

func insecureForTest() credentials.TransportCredentials { return insecure.NewCredentials() }
