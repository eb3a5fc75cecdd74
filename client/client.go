package client

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// DefaultAddr is where a node on this machine answers gRPC.
const DefaultAddr = "127.0.0.1:7450"

// Limits and defaults of Options.
const (
	// DefaultRetryFor is how long a submit is tried again after tries that gave no verdict.
	DefaultRetryFor = 30 * time.Second
	// MaxRetryFor bounds RetryFor. It stays well below the shortest useful idempotency window.
	MaxRetryFor = time.Hour
	// DefaultSubmitBy is the time from the first try to submit_by. It leaves room for clocks that differ between client and node.
	DefaultSubmitBy = 5 * time.Minute
	// MaxSubmitBy is the default idempotency window: a later submit_by would outlive the key.
	MaxSubmitBy = 24 * time.Hour
	// DefaultStreamWindow and MaxStreamWindow bound the messages of a Stream that wait for their answer.
	DefaultStreamWindow = 4096
	MaxStreamWindow     = 1 << 16
)

// maxMessageBytes is the largest gRPC message: the largest payload (16 MiB) or the largest batch of them, and what is around it.
const maxMessageBytes = 40 << 20

// ErrOptions is wrapped by every problem of Options; the text names the field and the limit.
var ErrOptions = errors.New("client: invalid options")

// Options says how a Client behaves. The zero value is good.
type Options struct {
	// RetryFor bounds how long Submit and Stream try again, 1 ms to 1 h. 0: 30 s.
	RetryFor time.Duration
	// SubmitBy is the time from the first try to submit_by, RetryFor to 24 h; choose it below the destination's idempotency window. 0: 5 min,
	// or RetryFor where that is longer.
	SubmitBy time.Duration
	// StreamWindow is how many messages of one Stream may wait for their answer, 1 to 65 536. 0: 4 096.
	StreamWindow int
	// Dial are further gRPC options, for example transport credentials. Without any the connection is plain text.
	Dial []grpc.DialOption
}

func (o Options) withDefaults() Options {
	if o.RetryFor == 0 {
		o.RetryFor = DefaultRetryFor
	}
	if o.SubmitBy == 0 {
		o.SubmitBy = max(DefaultSubmitBy, o.RetryFor)
	}
	if o.StreamWindow == 0 {
		o.StreamWindow = DefaultStreamWindow
	}
	return o
}

// validate reports every problem at once.
func (o Options) validate() error {
	var errs []error
	check := func(ok bool, field, limit string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: %s must be from %s", ErrOptions, field, limit))
		}
	}
	check(o.RetryFor >= time.Millisecond && o.RetryFor <= MaxRetryFor, "RetryFor", "1ms to 1h")
	check(o.SubmitBy >= o.RetryFor && o.SubmitBy <= MaxSubmitBy, "SubmitBy", "RetryFor to 24h")
	check(o.StreamWindow >= 1 && o.StreamWindow <= MaxStreamWindow, "StreamWindow", fmt.Sprintf("1 to %d", MaxStreamWindow))
	return errors.Join(errs...)
}

// Client talks to one Sealane cluster through one of its nodes. It is safe for concurrent use.
type Client struct {
	conn    *grpc.ClientConn
	options Options

	delivery     sealanev1.DeliveryServiceClient
	query        sealanev1.QueryServiceClient
	destinations sealanev1.DestinationServiceClient
	control      sealanev1.ControlServiceClient
	cluster      sealanev1.ClusterServiceClient
}

// Dial makes a client for addr, host:port. It does not wait for a connection: the first call does. Close it after use.
func Dial(addr string, o Options) (*Client, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, fmt.Errorf("%w: the address %q must be host:port", ErrOptions, addr)
	}
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	// gRPC's own retries stay off: a repeated submit needs its key and its submit_by, which only submit.go knows about.
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	// passthrough: the address is dialled as it stands, so a proxy or a resolver of the environment cannot send it elsewhere.
	conn, err := grpc.NewClient("passthrough:///"+addr, append(dial, o.Dial...)...)
	if err != nil {
		return nil, fmt.Errorf("client: dial %s: %w", addr, err)
	}
	return &Client{
		conn: conn, options: o,
		delivery: sealanev1.NewDeliveryServiceClient(conn), query: sealanev1.NewQueryServiceClient(conn),
		destinations: sealanev1.NewDestinationServiceClient(conn), control: sealanev1.NewControlServiceClient(conn),
		cluster: sealanev1.NewClusterServiceClient(conn),
	}, nil
}

// Close ends the connection. Calls under way fail; submits among them end as maybe accepted.
func (c *Client) Close() error { return c.conn.Close() }

// Delivery is the generated client for cancel, reschedule and batches. For submits prefer Submit and Stream.
func (c *Client) Delivery() sealanev1.DeliveryServiceClient { return c.delivery }

// Query is the generated client for reads.
func (c *Client) Query() sealanev1.QueryServiceClient { return c.query }

// Destinations is the generated client for destinations.
func (c *Client) Destinations() sealanev1.DestinationServiceClient { return c.destinations }

// Control is the generated client for control operations.
func (c *Client) Control() sealanev1.ControlServiceClient { return c.control }

// Cluster is the generated client for the cluster itself.
func (c *Client) Cluster() sealanev1.ClusterServiceClient { return c.cluster }

// NewKey draws a random key, in the form of a version 4 UUID: an idempotency key, a request id or an operation id.
func NewKey() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: the runtime ends the process instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
