package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// maxMessageBytes is the largest gRPC message: the largest payload (16 MiB) or the largest batch of them, and what is around it.
const maxMessageBytes = 40 << 20

// Client talks to one Sealane cluster through whichever of its nodes can be reached. It is safe for concurrent use.
type Client struct {
	options Options
	nodes   *pool
	view    *view

	ctx        context.Context // ends with Close; of the work in the background
	cancel     context.CancelFunc
	begin      sync.Mutex // held while work in the background begins, and while it is made to end
	background sync.WaitGroup

	delivery     sealanev1.DeliveryServiceClient
	query        sealanev1.QueryServiceClient
	destinations sealanev1.DestinationServiceClient
	control      sealanev1.ControlServiceClient
	cluster      sealanev1.ClusterServiceClient
}

// Dial makes a client for a cluster of which one or more nodes answer at addr: host:port, or several of them separated by commas. It learns
// the others from the cluster. It does not wait for a connection: the first call does. Close it after use.
func Dial(addr string, o Options) (*Client, error) {
	seeds, err := addresses(addr)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := newClient(o, seeds, func(addr string) (link, error) { return dialLink(addr, o) })
	// Options that gRPC refuses are refused here and not at the first call.
	if err := c.nodes.openAll(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: DialOptions: %w", ErrOptions, err), c.Close())
	}
	return c, nil
}

// newClient joins the parts; open makes the connection to one node.
func newClient(o Options, seeds []string, open func(addr string) (link, error)) *Client {
	c := &Client{options: o, nodes: newPool(seeds, o.Static, open), view: newView()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.nodes.probe = c.probe
	r := &router{c}
	c.delivery, c.query = sealanev1.NewDeliveryServiceClient(r), sealanev1.NewQueryServiceClient(r)
	c.destinations, c.control = sealanev1.NewDestinationServiceClient(r), sealanev1.NewControlServiceClient(r)
	c.cluster = sealanev1.NewClusterServiceClient(r)
	return c
}

// Close ends all connections. Calls under way fail; submits among them end as maybe accepted. Close streams before.
func (c *Client) Close() error {
	c.begin.Lock()
	c.cancel()
	c.begin.Unlock()
	err := c.nodes.close()
	c.background.Wait()
	return err
}

// inBackground runs f beside the calls, until Close; false means that the client is closed.
func (c *Client) inBackground(f func()) bool {
	c.begin.Lock()
	defer c.begin.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.background.Go(f)
	return true
}

// probe finds out in the background whether a node that failed answers again.
func (c *Client) probe(e *endpoint) {
	c.inBackground(func() {
		ctx, cancel := context.WithTimeout(c.ctx, probeWithin)
		defer cancel()
		err := e.link.connect(ctx)
		if err != nil {
			err = &unreachableError{code: codes.Unavailable, text: connectText(err), err: err}
		} else {
			// Any answer will do, also that there is no such service.
			err = e.link.Invoke(ctx, healthpb.Health_Check_FullMethodName, &healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{})
		}
		c.nodes.probed(e, err)
	})
}

// Delivery is the generated client for cancel, reschedule and batches. Its calls go to a node that answers, and are repeated on another one
// only where the refusal says that nothing happened, or where a request id makes it harmless. For submits prefer Submit and Stream.
func (c *Client) Delivery() sealanev1.DeliveryServiceClient { return c.delivery }

// Query is the generated client for reads. Its calls are repeated on other nodes until one answers. See also Get, WaitPosition and Watch.
func (c *Client) Query() sealanev1.QueryServiceClient { return c.query }

// Destinations is the generated client for destinations. Its reads are repeated on other nodes; apply and delete only where the refusal says
// that nothing happened.
func (c *Client) Destinations() sealanev1.DestinationServiceClient { return c.destinations }

// Control is the generated client for control operations. Its calls are repeated on other nodes: the operation id makes that harmless. See
// also WatchOperation.
func (c *Client) Control() sealanev1.ControlServiceClient { return c.control }

// Cluster is the generated client for the cluster itself. Its calls are repeated on other nodes.
func (c *Client) Cluster() sealanev1.ClusterServiceClient { return c.cluster }

// NewKey draws a random key, in the form of a version 4 UUID: an idempotency key, a request id or an operation id.
func NewKey() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: the runtime ends the process instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
