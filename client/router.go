package client

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// router is the connection that the generated clients see: it gives each call to a node that answers, and repeats what may be repeated.
type router struct{ c *Client }

// repeat says when a call may be made again.
type repeat uint8

const (
	// refusedOnly: after a refusal that says that nothing happened.
	refusedOnly repeat = iota
	// harmless: whenever no answer came, since a repetition changes nothing or is recognised.
	harmless
)

// mutations are the calls that a repetition could do twice. Everything else reads, or carries an id that makes repetition harmless.
var mutations = map[string]bool{
	sealanev1.DeliveryService_Submit_FullMethodName: true, sealanev1.DeliveryService_SubmitBatch_FullMethodName: true,
	sealanev1.DeliveryService_Cancel_FullMethodName: true, sealanev1.DeliveryService_Reschedule_FullMethodName: true,
	sealanev1.DestinationService_ApplyDestination_FullMethodName: true, sealanev1.DestinationService_DeleteDestination_FullMethodName: true,
}

func repeatOf(method string, args any) repeat {
	if r, ok := args.(*sealanev1.RescheduleRequest); ok && r.GetRequestId() != "" {
		return harmless
	}
	if mutations[method] {
		return refusedOnly
	}
	return harmless
}

func (r repeat) allows(err error) bool {
	e, ok := AsError(err)
	switch {
	case !ok:
		return false
	case r == refusedOnly:
		return changedNothing[e.Reason]
	}
	return e.passing()
}

// Invoke makes a call.
func (r *router) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	c := r.c
	within, cancel := context.WithTimeout(ctx, c.options.RetryFor)
	defer cancel()
	may := repeatOf(method, args)
	p := pace{}
	var last error
	for {
		e, err := c.nodes.acquire(notAfter(ctx, within, p.tries), c.wanted(args), p.last)
		if err != nil {
			last = better(last, err)
			if c.options.FailFast || c.ctx.Err() != nil || !p.wait(within) {
				return last
			}
			continue
		}
		err = c.try(ctx, e, may, p.tries, method, args, reply, options)
		if err == nil && !c.options.FailFast {
			c.refreshDue() // the other nodes must be known before this one is gone
		}
		if err == nil || ctx.Err() != nil || !may.allows(err) {
			return better(last, err)
		}
		last = better(last, err)
		if !p.again(within, e, err, c.nodes.size(), c.options.FailFast) {
			return last
		}
	}
}

// notAfter lets the first try use the caller's whole time: RetryFor bounds repetitions.
func notAfter(ctx, within context.Context, tries int) context.Context {
	if tries == 0 {
		return ctx
	}
	return within
}

// try makes one try of a call. It is cut off when its node does not answer in time, if it may be repeated and there is another node to ask.
func (c *Client) try(ctx context.Context, e *endpoint, may repeat, tries int, method string, args, reply any, options []grpc.CallOption) error {
	others := c.nodes.size() - 1
	if c.options.FailFast {
		others -= tries
	}
	if may == harmless && others > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.tryFor(tries)+waitOf(args))
		defer cancel()
	}
	err := e.link.Invoke(ctx, method, args, reply, options...)
	c.note(e, err)
	return err
}

// note learns from the end of a call.
func (c *Client) note(e *endpoint, err error) {
	c.nodes.used(e, err)
	if err != nil && leaderMoved(err) {
		c.refreshSoon()
	}
}

// tryFor is how long a try may take: twice as long each time, so that a slow cluster is not asked ever again without ever being heard.
func (c *Client) tryFor(tries int) time.Duration {
	return min(c.options.TryFor<<min(tries, 10), MaxRetryFor)
}

// waitOf is how long a read itself may wait for its position.
func waitOf(args any) time.Duration {
	r, ok := args.(interface{ GetWait() *durationpb.Duration })
	if !ok {
		return 0
	}
	if w := r.GetWait(); w != nil {
		return w.AsDuration()
	}
	return defaultWait
}

// defaultWait is how long a read waits that does not say it.
const defaultWait = 5 * time.Second

// wanted is the node that a call is best given to; empty where it does not matter.
func (c *Client) wanted(args any) string {
	switch r := args.(type) {
	case *sealanev1.SubmitRequest:
		return c.view.leaderFor(r.GetDestination(), r.GetOrderingKey())
	case interface{ GetPosition() string }:
		if p := r.GetPosition(); p != "" {
			return c.view.leaderAt(p)
		}
	}
	return ""
}

// better is the error that tells more: that the time ran out, or that no node could be reached any more, says less than what a node said.
func better(earlier, now error) error {
	if now == nil || earlier == nil {
		return now
	}
	if NeverSent(now) {
		return earlier // an earlier try did leave
	}
	a, said := AsError(earlier)
	b, ok := AsError(now)
	if said && a.Reason != "" && ok && b.Reason == "" && (b.Code == codes.DeadlineExceeded || b.Code == codes.Canceled || b.Code == codes.Unavailable) {
		return earlier
	}
	return now
}

// NewStream opens a call with streams. What the stream was opened for is its reader's to repeat: see Watch, WatchOperation and Stream.
func (r *router) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	e, err := r.c.nodes.acquire(ctx, "", nil)
	if err != nil {
		return nil, err
	}
	s, err := e.link.NewStream(ctx, desc, method, options...)
	if err != nil {
		r.c.note(e, err)
		return nil, err
	}
	return &noted{ClientStream: s, done: func(err error) { r.c.note(e, err) }}, nil
}

// noted is a stream whose end is learned from.
type noted struct {
	grpc.ClientStream
	done func(error)
}

func (s *noted) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if _, ok := status.FromError(err); err != nil && ok {
		s.done(err)
	}
	return err
}
