package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// maxWait is the longest that a node waits for a position (ReadMetadata in the API).
const maxWait = time.Minute

// PendingError: the position that a read names was not applied where it was asked for, within the time. Ask again, or wait longer.
type PendingError struct {
	// Position is the one that was asked for.
	Position string
	// Applied is how far the answering replica was.
	Applied string
	// Node is the node that answered.
	Node string
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("position %s is not applied yet; node %s is at %s", e.Position, e.Node, e.Applied)
}

// ReadOptions says how fresh a read must be. The zero value takes what the answering node has.
type ReadOptions struct {
	// Position is the oldest state that will do, shard:index; for example that of an Accepted. Empty: any.
	Position string
	// Linearizable asks for everything that was acknowledged before the read began.
	Linearizable bool
	// Wait is how long to wait for the position, up to 60 s. 0: 5 s.
	Wait time.Duration
	// IncludePayload returns the payload as well.
	IncludePayload bool
}

// Get reads one message with its generations, attempts and history, from whichever node answers. The error is an Error of a node, see
// AsError, or a *PendingError.
func (c *Client) Get(ctx context.Context, id string, o ReadOptions) (*sealanev1.Message, *sealanev1.ReadMetadata, error) {
	req := &sealanev1.GetMessageRequest{Id: id, IncludePayload: o.IncludePayload, Position: o.Position}
	if o.Linearizable {
		req.Consistency = sealanev1.Consistency_linearizable
	}
	if o.Wait > 0 {
		req.Wait = durationpb.New(o.Wait)
	}
	resp, err := c.query.GetMessage(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	if r := resp.GetRead(); r.GetStatus() == sealanev1.ReadStatus_PENDING {
		return nil, r, &PendingError{o.Position, r.GetAppliedPosition(), r.GetNode()}
	}
	return resp.GetMessage(), resp.GetRead(), nil
}

// WaitPosition waits until a position, shard:index, is applied where reads are answered, or the context ends: then the error is a
// *PendingError if a node answered at all.
func (c *Client) WaitPosition(ctx context.Context, position string) error {
	var pending *PendingError
	for {
		wait := maxWait
		if deadline, ok := ctx.Deadline(); ok {
			// Less than there is, so that the node's answer and not the end of the call tells how far it is.
			left := time.Until(deadline)
			wait = min(wait, max(left-max(left/10, 100*time.Millisecond), time.Millisecond))
		}
		resp, err := c.query.WaitPosition(ctx, &sealanev1.WaitPositionRequest{Position: position, Wait: durationpb.New(wait)})
		switch r := resp.GetRead(); {
		case err != nil && pending != nil && ctx.Err() != nil:
			return pending
		case err != nil:
			return err
		case r.GetStatus() != sealanev1.ReadStatus_PENDING:
			return nil
		default:
			pending = &PendingError{position, r.GetAppliedPosition(), r.GetNode()}
		}
		if ctx.Err() != nil {
			return pending
		}
	}
}

// Watch follows a message: its present state, or what follows the request's position, and then each change until its current generation has
// ended. When the node that tells it is lost it goes on at another one from the last position, for up to Options.RetryFor without news; so
// no change is told twice, and changes that follow each other closely may be told as one. It ends at the first error.
func (c *Client) Watch(ctx context.Context, req *sealanev1.WatchMessageRequest) iter.Seq2[*sealanev1.WatchMessageResponse, error] {
	req = proto.CloneOf(req)
	open := func(ctx context.Context) (grpc.ServerStreamingClient[sealanev1.WatchMessageResponse], error) {
		return c.query.WatchMessage(ctx, req)
	}
	return follow(ctx, c, open, func(r *sealanev1.WatchMessageResponse) bool {
		if p := r.GetRead().GetAppliedPosition(); p != "" {
			req.Position = p
		}
		req.IncludePayload = false // it came with the first answer, and never changes
		return true
	})
}

// WatchOperation follows a control operation in the same way until it is done.
func (c *Client) WatchOperation(ctx context.Context, id string) iter.Seq2[*sealanev1.Operation, error] {
	var last *sealanev1.Operation
	open := func(ctx context.Context) (grpc.ServerStreamingClient[sealanev1.WatchOperationResponse], error) {
		return c.control.WatchOperation(ctx, &sealanev1.WatchOperationRequest{Id: id})
	}
	changes := follow(ctx, c, open, func(r *sealanev1.WatchOperationResponse) bool {
		news := last == nil || !proto.Equal(last, r.GetOperation())
		last = r.GetOperation()
		return news
	})
	return func(yield func(*sealanev1.Operation, error) bool) {
		for r, err := range changes {
			if !yield(r.GetOperation(), err) {
				return
			}
		}
	}
}

// follow reads a stream of changes to its end, and opens another one where it breaks. seen takes note of a change and says whether it is news.
func follow[T any](
	ctx context.Context, c *Client, open func(context.Context) (grpc.ServerStreamingClient[T], error), seen func(*T) bool,
) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		p, since := pace{}, time.Now()
		for {
			more, progress, err := followOnce(ctx, c, open, seen, yield)
			if !more || err == nil {
				return
			}
			if progress {
				p, since = pace{}, time.Now()
			}
			failed, ok := AsError(err)
			again := ok && (failed.passing() || failed.Reason == reasonSlow) && ctx.Err() == nil
			if nobody := new(unreachableError); errors.As(err, &nobody) && c.options.FailFast && p.tries == 0 && !progress {
				again = false
			}
			if !again || time.Since(since) >= c.options.RetryFor || !p.again(ctx, nil, err, c.nodes.size(), false) {
				yield(nil, err)
				return
			}
		}
	}
}

// followOnce reads one stream. more false means that the reader wants no more; a nil error that the stream ended in order.
func followOnce[T any](
	ctx context.Context, c *Client, open func(context.Context) (grpc.ServerStreamingClient[T], error), seen func(*T) bool, yield func(*T, error) bool,
) (more, progress bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx)
	if err != nil {
		return true, false, err
	}
	c.refreshDue() // the other nodes must be known before this one is gone
	for {
		r, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return true, progress, nil
		case err != nil:
			return true, progress, err
		}
		progress = true
		if seen(r) && !yield(r, nil) {
			return false, progress, nil
		}
	}
}
