package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// link is the outgoing connection to one node: a gRPC connection, the control and the data stream on it, and the watch over its silence.
type link struct {
	n    *Network
	node string
	cc   *grpc.ClientConn
	ctx  context.Context // ends with close
	stop context.CancelFunc
	done sync.WaitGroup

	control, data *stream
	numbers       atomic.Uint64 // of calls
	snapshots     chan struct{} // a place for each one under way
	stats         *counters

	read atomic.Int64 // when something was last received, as Network.now

	mu    sync.Mutex
	conns map[*dialled]struct{}
	away  time.Duration // since when there is no data stream; 0 while there is one
}

func newLink(n *Network, node string, stats *counters) (*link, error) {
	l := &link{n: n, node: node, snapshots: make(chan struct{}, maxSnapshots), conns: map[*dialled]struct{}{}, stats: stats}
	l.ctx, l.stop = context.WithCancel(n.ctx)
	secure := n.opts.Credentials
	if secure == nil {
		secure = insecure.NewCredentials()
	}
	var err error
	l.cc, err = grpc.NewClient("passthrough:///"+node,
		grpc.WithTransportCredentials(hostCredentials{secure.Clone()}), grpc.WithContextDialer(l.dial),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: dialTimeout,
			Backoff: backoff.Config{BaseDelay: reconnectFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectLast}}),
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(connectionWindow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: clientPingAfter, Timeout: serverPingPatience, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(n.codec), grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)))
	if err != nil {
		l.stop()
		return nil, fmt.Errorf("peer: connection to %s: %w", node, err)
	}
	if node == AnyNode {
		return l, nil // no frames go there, and gRPC's own keep-alive does for a few calls
	}
	l.away = max(n.now(), 1)
	l.control, l.data = newStream(l, "Control"), newStream(l, "Data")
	l.done.Go(l.control.run)
	l.done.Go(l.data.run)
	l.done.Go(l.watch)
	return l, nil
}

func (l *link) close() error {
	l.stop()
	err := l.cc.Close()
	l.done.Wait()
	return err
}

// dialled is a connection that notes when it received something, and knows where it leads.
type dialled struct {
	net.Conn
	l    *link
	host string
}

func (c *dialled) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.l.read.Store(int64(c.l.n.now()))
	}
	return n, err
}

func (c *dialled) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// dial asks where the node is now, and connects.
func (l *link) dial(ctx context.Context, _ string) (net.Conn, error) {
	address, ok := l.n.opts.Resolve(l.node)
	if !ok {
		return nil, fmt.Errorf("%w: no address of node %s is known", ErrUnreachable, l.node)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := l.n.opts.Dial(ctx, address)
	if err != nil {
		l.stats.failed(fmt.Errorf("%w: %s at %s: %w", ErrUnreachable, l.node, address, err))
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	c := &dialled{Conn: conn, l: l, host: host}
	l.read.Store(int64(l.n.now()))
	l.mu.Lock()
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	return c, nil
}

// hangUp ends the connection; gRPC makes a new one.
func (l *link) hangUp(why error) {
	l.stats.failed(why)
	l.mu.Lock()
	var conns []*dialled
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	var problems []error
	for _, c := range conns {
		problems = append(problems, c.Close())
	}
	if err := errors.Join(problems...); err != nil {
		l.n.opts.Logger.Debug("closing a dead connection failed", "node", l.node, "error", err)
	}
}

// watch ends a connection that stays silent though it was asked for a sign of life. gRPC's keep-alive would take ten seconds or more.
func (l *link) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var asked *session
	for {
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			return
		}
		s := l.control.current()
		silence := l.n.now() - time.Duration(l.read.Load())
		if s == nil || silence < pingAfter {
			asked = nil
			continue
		}
		if asked != s {
			asked = s
			s.ping()
			continue
		}
		limit := silentAfter
		if l.busy() {
			limit = busySilentAfter
		}
		if silence >= limit {
			l.n.opts.Logger.Warn("a node does not answer; connecting again", "node", l.node, "silent", silence.Round(time.Millisecond))
			l.hangUp(fmt.Errorf("%w: %s was silent for %v", ErrUnreachable, l.node, silence.Round(time.Millisecond)))
			asked = nil
		}
	}
}

// busy tells whether so much is on its way that an answer may stand behind it.
func (l *link) busy() bool {
	if len(l.snapshots) > 0 {
		return true
	}
	s := l.data.current()
	return s != nil && s.underWay.Load() > busyBytes
}

// noteCaller learns from a call of that node's that it is there, and which process it is.
func (l *link) noteCaller(p Peer) {
	if l.control == nil {
		return
	}
	switch s := l.control.current(); {
	case s == nil:
		l.cc.ResetConnectBackoff() // it is back: do not sleep on
	case s.peer.Boot != p.Boot || s.peer.Replica != p.Replica:
		l.hangUp(fmt.Errorf("%w: %s has restarted", ErrUnreachable, p.Node))
	}
}

// awayFor tells how long there has been no data stream.
func (l *link) awayFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away == 0 {
		return 0
	}
	return l.n.now() - l.away
}

func (l *link) setAway(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !away:
		l.away = 0
	case l.away == 0:
		l.away = max(l.n.now(), 1)
	}
}

// hostCredentials verify the other side's certificate against the host that was dialled, since a node's address may change while the name
// of its connection stays. A server name in the credentials themselves goes first.
type hostCredentials struct {
	credentials.TransportCredentials
}

func (h hostCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c, ok := conn.(*dialled); ok {
		authority = c.host
	}
	return h.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

func (h hostCredentials) Clone() credentials.TransportCredentials {
	return hostCredentials{h.TransportCredentials.Clone()}
}
