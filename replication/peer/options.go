package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Options configures a Network. Zero means default where one is named.
type Options struct {
	// Node is this node's id, 1 to 238 bytes of UTF-8 without '@', and not AnyNode. Required.
	Node string
	// Replica is this node's replica id: the node id, '@' and what tells its data directory apart, at most 255 bytes. Required.
	Replica string
	// Boot is drawn anew at every start of the process. Required, not 0.
	Boot uint64
	// Incarnation gives the incarnation of the cluster, 0 while it is not known. Asked for every handshake and every call. Default: 0.
	Incarnation func() uint64
	// Listener is the peer port. Required. The network closes it.
	Listener net.Listener
	// Dial connects to an address. Default: TCP with keep-alive. It should return when ctx ends; a try has 800 ms.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Resolve gives the newest peer address of a node, or of AnyNode; asked at every try to connect, so it must not block. Required.
	Resolve func(node string) (address string, ok bool)
	// Credentials secure both directions; nil means no security. Where they name no server, the host of the dialled address must be one
	// that the other side's certificate names.
	Credentials credentials.TransportCredentials
	// Register adds other services to the peer server.
	Register func(grpc.ServiceRegistrar)
	// Admit may refuse a process of another node, in both directions, with a reason that it is told. Must not block. Default: all.
	Admit func(Peer) error
	// Heard is told of a process of another node that was heard or reached. It may be called often and from many goroutines, and must not block.
	Heard func(Peer)
	// Intercept decides the fate of each frame and call that this node sends, for simulations. Default: nothing happens.
	Intercept Intercept
	// Logger receives what an operator should know. Default: slog.Default().
	Logger *slog.Logger
}

// Validate reports every problem at once, each wrapped in ErrOptions and naming its field.
func (o Options) Validate() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
	}
	if err := (Peer{Node: o.Node, Replica: o.Replica, Boot: o.Boot}).valid(); err != nil {
		bad("Node, Replica, Boot: %w", err)
	}
	if o.Node == AnyNode {
		bad("Node is %q, which stands for a node whose id is not known", o.Node)
	}
	if o.Listener == nil {
		bad("Listener is required")
	}
	if o.Resolve == nil {
		bad("Resolve is required")
	}
	return errors.Join(problems...)
}

func (o Options) withDefaults() Options {
	if o.Incarnation == nil {
		o.Incarnation = func() uint64 { return 0 }
	}
	if o.Dial == nil {
		dialer := &net.Dialer{KeepAlive: 5 * time.Second}
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	if o.Heard == nil {
		o.Heard = func(Peer) {}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}
