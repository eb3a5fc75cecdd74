package client

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// link is the connection to one node. A call is only given to a link that is connected, so that "no node can be reached" is known before
// anything was sent.
type link interface {
	grpc.ClientConnInterface
	// ready: a call would leave at once.
	ready() bool
	// nudge begins to connect, where that is needed, and does not wait.
	nudge()
	// connect waits until the link is ready. An error says why it is not.
	connect(context.Context) error
	Close() error
}

// grpcLink is the real one. gRPC closes the transport of a link that carries no call for idleAfter, and opens it again when it is needed.
type grpcLink struct{ *grpc.ClientConn }

// Times of a connection. Keepalive stays above what nodes tolerate (10 s); it finds a peer that has fallen silent without closing anything.
const (
	idleAfter        = 2 * time.Minute
	connectWithin    = 3 * time.Second
	keepaliveEvery   = 15 * time.Second
	keepaliveTimeout = 5 * time.Second
)

func dialLink(addr string, o Options) (link, error) {
	// gRPC's own retries stay off: a repeated submit needs its key and its submit_by, which only this package knows about.
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(idleAfter),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveEvery, Timeout: keepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: connectWithin,
		}),
	}
	// passthrough: the address is dialled as it stands, so a proxy or a resolver of the environment cannot send it elsewhere.
	conn, err := grpc.NewClient("passthrough:///"+addr, append(options, o.DialOptions...)...)
	if err != nil {
		return nil, err
	}
	return grpcLink{conn}, nil
}

func (l grpcLink) ready() bool { return l.GetState() == connectivity.Ready }

func (l grpcLink) nudge() {
	if l.GetState() == connectivity.Idle {
		l.Connect()
	}
}

func (l grpcLink) connect(ctx context.Context) error {
	for {
		switch s := l.GetState(); s {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return l.trouble(ctx)
		case connectivity.Idle:
			l.Connect()
			fallthrough
		default:
			if !l.WaitForStateChange(ctx, s) {
				return ctx.Err()
			}
		}
	}
}

// trouble asks gRPC why there is no connection: it tells only calls. The health check is one that does no harm if it leaves after all, and
// any answer of the node is as good as another.
func (l grpcLink) trouble(ctx context.Context) error {
	err := l.Invoke(ctx, healthpb.Health_Check_FullMethodName, &healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{})
	if err == nil || l.ready() {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return &Error{Code: s.Code(), Message: s.Message(), cause: err}
	}
	return err
}
