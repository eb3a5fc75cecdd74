package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// stream keeps one stream to a node open: while the node can be reached there is a session.
type stream struct {
	l      *link
	method string

	mu      sync.Mutex
	session *session
	changed chan struct{} // closed when session changes
}

func newStream(l *link, method string) *stream {
	return &stream{l: l, method: method, changed: make(chan struct{})}
}

// current gives the session, nil while there is none.
func (s *stream) current() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

func (s *stream) set(session *session) {
	s.mu.Lock()
	s.session = session
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	if s == s.l.data {
		s.l.setAway(session == nil)
	}
}

// wait gives the session, and waits for one until the timer fires or stop is closed.
func (s *stream) wait(timer <-chan time.Time, stop, interrupted <-chan struct{}) (*session, error) {
	for {
		s.mu.Lock()
		session, changed := s.session, s.changed
		s.mu.Unlock()
		if session != nil {
			return session, nil
		}
		select {
		case <-changed:
		case <-timer:
			return nil, fmt.Errorf("%w: %s: %w", ErrUnreachable, s.l.node, s.l.stats.lastError())
		case <-interrupted:
			return nil, ErrInterrupted
		case <-stop:
			return nil, ErrClosed
		case <-s.l.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// run opens the stream again and again until the link ends.
func (s *stream) run() {
	for s.l.ctx.Err() == nil {
		pause := brokenPause
		err := s.once()
		if s.l.ctx.Err() != nil {
			return
		}
		if refusal(err) {
			pause = refusedPause
			if s.l.stats.failed(err) {
				s.l.n.opts.Logger.Warn("a node refuses this one, or this one it", "node", s.l.node, "error", err)
			}
		} else {
			s.l.stats.failed(err)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-s.l.ctx.Done():
			t.Stop()
		}
	}
}

// refusal tells whether trying again at once would change nothing.
func refusal(err error) bool {
	for _, sentinel := range []error{ErrVersion, ErrIncarnation, ErrIdentity, ErrMalformed} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	switch status.Code(err) {
	case codes.FailedPrecondition, codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
		return true
	}
	return false
}

// once opens the stream, sends and receives on it, and returns why it ended.
func (s *stream) once() error {
	ctx, cancel := context.WithCancel(s.l.ctx)
	defer cancel()
	cs, p, err := s.l.open(ctx, cancel, &grpc.StreamDesc{StreamName: s.method, ClientStreams: true, ServerStreams: true}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	session := newSession(s.l, p)
	s.set(session)
	received := make(chan struct{})
	go func() {
		defer close(received)
		err := session.receive(cs)
		session.end(err)
		cancel()
	}()
	err = session.out.run(session.done, cs.send)
	session.end(err)
	cancel()
	<-received
	s.set(nil)
	return session.why()
}

// opened is a stream whose other end is known.
type opened struct{ grpc.ClientStream }

// send sends a packet.
func (o opened) send(p *packet) error { return o.SendMsg(p) }

// open opens a stream of the frames service and learns who answers. On a connection that is up it may take openTimeout; one that is up in name
// only is ended.
func (l *link) open(ctx context.Context, cancel context.CancelFunc, desc *grpc.StreamDesc, options ...grpc.CallOption) (opened, Peer, error) {
	key, value := l.n.metadataTo(l.node)
	cs, err := l.cc.NewStream(metadata.AppendToOutgoingContext(ctx, key, value), desc, "/"+framesServiceName+"/"+desc.StreamName, options...)
	if err != nil {
		return opened{}, Peer{}, err
	}
	late := time.AfterFunc(openTimeout, func() {
		l.hangUp(fmt.Errorf("%w: %s did not answer the opening of a stream within %v", ErrUnreachable, l.node, openTimeout))
		cancel()
	})
	md, err := cs.Header()
	late.Stop()
	if err != nil {
		return opened{}, Peer{}, err
	}
	if len(md.Get(identityKey)) == 0 { // refused before the header: the error comes with the first receive
		if err := cs.RecvMsg(&packet{}); err != nil {
			return opened{}, Peer{}, err
		}
	}
	p, err := l.n.checkAnswer(l.node, md)
	if err != nil {
		return opened{}, Peer{}, err
	}
	l.stats.heard(p, l.n.now())
	l.n.opts.Heard(p)
	return opened{cs}, p, nil
}
