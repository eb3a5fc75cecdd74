package peer

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// calls is the connection to a node for registered services. Calls carry this node's identity, and the answer's is checked: a call that
// another process took than the one that was meant fails with FailedPrecondition. The node is named in the call, so such a process has
// refused it rather than acted on it.
type calls struct{ l *link }

// Invoke makes a unary call.
func (c *calls) Invoke(ctx context.Context, method string, request, answer any, options ...grpc.CallOption) error {
	if err := c.hold(ctx); err != nil {
		return err
	}
	key, value := c.l.n.metadataTo(c.l.node)
	var header metadata.MD
	options = append(options[:len(options):len(options)], grpc.Header(&header))
	err := c.l.cc.Invoke(metadata.AppendToOutgoingContext(ctx, key, value), method, request, answer, options...)
	if err != nil && len(header.Get(identityKey)) == 0 {
		return err // nobody answered, or it was refused
	}
	if wrong := c.answered(header); wrong != nil {
		return wrong
	}
	return err
}

// NewStream opens a stream.
func (c *calls) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := c.hold(ctx); err != nil {
		return nil, err
	}
	key, value := c.l.n.metadataTo(c.l.node)
	s, err := c.l.cc.NewStream(metadata.AppendToOutgoingContext(ctx, key, value), desc, method, options...)
	if err != nil {
		return nil, err
	}
	return &callStream{ClientStream: s, c: c}, nil
}

func (c *calls) hold(ctx context.Context) error {
	if err := c.l.n.opts.Intercept.hold(ctx, c.l.n.opts.Node, c.l.node, ClassCall); err != nil {
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

// answered checks who answered.
func (c *calls) answered(header metadata.MD) error {
	p, err := c.l.n.checkAnswer(c.l.node, header)
	if err != nil {
		c.l.stats.failed(err)
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	c.l.stats.heard(p, c.l.n.now())
	c.l.n.opts.Heard(p)
	return nil
}

// callStream checks who answers before the first message is handed out.
type callStream struct {
	grpc.ClientStream
	c    *calls
	once sync.Once
	err  error
}

// RecvMsg receives a message.
func (s *callStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	s.once.Do(func() {
		header, err := s.Header()
		if err != nil {
			s.err = err
			return
		}
		s.err = s.c.answered(header)
	})
	return s.err
}
