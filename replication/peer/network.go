package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Network is this node's end of the connections to all others.
type Network struct {
	opts   Options
	server *grpc.Server
	codec  codec
	began  time.Time
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	served chan error

	mu       sync.RWMutex
	closed   bool
	links    map[string]*link
	groups   map[uint32]*Transport
	counters map[string]*counters
}

// New serves the peer port at once. The groups follow: see Transport.
func New(o Options) (*Network, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	n := &Network{
		opts: o, codec: newCodec(), began: time.Now(), served: make(chan error, 1),
		links: map[string]*link{}, groups: map[uint32]*Transport{}, counters: map[string]*counters{},
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	credentials := o.Credentials
	if credentials == nil {
		credentials = insecure.NewCredentials()
	}
	n.server = grpc.NewServer(
		grpc.Creds(credentials), grpc.ForceServerCodecV2(n.codec),
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxSendMsgSize(maxMessageBytes),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connectionWindow),
		grpc.ConnectionTimeout(openTimeout), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverPingAfter, Timeout: serverPingPatience}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(n.receiveUnary), grpc.StreamInterceptor(n.receiveStream),
	)
	n.server.RegisterService(&framesService, n)
	if o.Register != nil {
		o.Register(n.server)
	}
	go func() { n.served <- n.server.Serve(o.Listener) }()
	return n, nil
}

// Transport attaches a group and gives the transport for its Raft. There is one at a time for a group: a second one, and one of a closed
// network, fails every call, and gets nothing, with ErrAttached or ErrClosed.
func (n *Network) Transport(group uint32) *Transport {
	t := newTransport(n, group)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		t.refused = ErrClosed
	case n.groups[group] != nil:
		t.refused = fmt.Errorf("%w: group %d", ErrAttached, group)
	default:
		n.groups[group] = t
		go t.deliver()
		return t
	}
	close(t.delivered)
	n.opts.Logger.Error("a group's transport was refused", "group", group, "error", t.refused)
	return t
}

func (n *Network) detach(t *Transport) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.groups[t.group] == t {
		delete(n.groups, t.group)
	}
}

func (n *Network) group(number uint32) *Transport {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.groups[number]
}

// Conn gives the connection to a node for the services registered there. It is made when it is needed and made again when it breaks: a call
// without grpc.WaitForReady fails at once while there is none. The node that answers is checked to be the one that was asked for.
func (n *Network) Conn(node string) (grpc.ClientConnInterface, error) {
	l, err := n.link(node)
	if err != nil {
		return nil, err
	}
	return &calls{l}, nil
}

// link gives the outgoing connection to a node and begins it if there is none.
func (n *Network) link(node string) (*link, error) {
	n.mu.RLock()
	l, closed := n.links[node], n.closed
	n.mu.RUnlock()
	if closed {
		return nil, ErrClosed
	}
	if l != nil {
		return l, nil
	}
	if node == n.opts.Node {
		return nil, fmt.Errorf("%w: node %s asks for a connection to itself", ErrIdentity, node)
	}
	if node == "" || len(node) > maxNodeBytes {
		return nil, fmt.Errorf("%w: node id %q, want 1 to %d bytes", ErrIdentity, node, maxNodeBytes)
	}
	stats := n.countersOf(node)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, ErrClosed
	}
	if l := n.links[node]; l != nil {
		return l, nil
	}
	l, err := newLink(n, node, stats)
	if err != nil {
		return nil, err
	}
	n.links[node] = l
	return l, nil
}

// Forget ends the connection to a node that was removed from the cluster. A later call to it would make a new one.
func (n *Network) Forget(node string) error {
	n.mu.Lock()
	l := n.links[node]
	delete(n.links, node)
	delete(n.counters, node)
	n.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.close()
}

// heard notes a process of another node that has just called.
func (n *Network) heard(p Peer) {
	n.countersOf(p.Node).heard(p, n.now())
	n.mu.RLock()
	l := n.links[p.Node]
	n.mu.RUnlock()
	if l != nil {
		l.noteCaller(p)
	}
	n.opts.Heard(p)
}

// now is the time since the start, which no clock step changes.
func (n *Network) now() time.Duration { return time.Since(n.began) }

// Close ends all connections and groups, fails every call that waits, and returns when no goroutine is left. Close the Raft groups first.
func (n *Network) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	links, groups := n.links, n.groups
	n.links, n.groups = map[string]*link{}, map[uint32]*Transport{}
	n.mu.Unlock()

	n.cancel()
	var problems []error
	for _, t := range groups {
		problems = append(problems, t.Close())
	}
	for _, l := range links {
		problems = append(problems, l.close())
	}
	n.server.Stop()
	if err := <-n.served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		problems = append(problems, fmt.Errorf("peer: serve: %w", err))
	}
	return errors.Join(problems...)
}
