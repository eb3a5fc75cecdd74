package peer

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// session is one stream while it lasts: what waits to be sent, and the calls that wait for an answer. Its other end is one process.
type session struct {
	l        *link
	peer     Peer
	out      *outbox
	done     chan struct{}
	underWay atomic.Int64 // bytes of requests without an answer yet

	mu      sync.Mutex
	pending map[uint64]*call
	ended   bool
	reason  error
}

// call is a request that was sent or waits to be.
type call struct {
	session *session
	number  uint64
	size    int64
	into    any // Raft's response structure
	timer   *time.Timer
	err     error
	done    chan struct{}
}

func newSession(l *link, p Peer) *session {
	return &session{
		l: l, peer: p, done: make(chan struct{}), pending: map[uint64]*call{},
		out: newOutbox(l.n.opts.Node, l.node, l.n.opts.Intercept, l.stats),
	}
}

// begin sends a request whose frame is b but for its header. The call's done is closed when it has ended, whatever happens; an error here
// means that it never began. Calls are sent in the order of begin.
func (s *session) begin(b []byte, f frame, class Class, replica string, into any) (*call, error) {
	if s.peer.Replica != replica {
		return nil, fmt.Errorf("%w: %s, asked for %s", ErrOtherReplica, s.peer.Replica, replica)
	}
	if len(b) > maxFrameBytes {
		return nil, fmt.Errorf("%w: frame of %d bytes, limit %d", ErrTooLarge, len(b), maxFrameBytes)
	}
	c := &call{session: s, number: s.l.numbers.Add(1), size: int64(len(b)), into: into, done: make(chan struct{})}
	f.call, f.target = c.number, targetOf(replica)
	seal(b, f)
	timeout := controlTimeout
	if class == ClassAppend {
		_, queued := s.out.size()
		timeout = appendTimeout + time.Duration(queued+len(b))*appendPerMiB/(1<<20)
	}
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreachable, s.l.node, s.reason)
	}
	s.pending[c.number] = c
	s.underWay.Add(c.size)
	c.timer = time.AfterFunc(timeout, func() {
		if s.finish(c.number, nil, ErrTimeout) {
			s.l.stats.timedOut.Add(1)
		}
	})
	s.mu.Unlock()
	if err := s.out.push(b, class, f.urgent); err != nil {
		s.finish(c.number, nil, err)
	}
	return c, nil
}

// finish ends a call with an answer or an error, unless it has ended already.
func (s *session) finish(number uint64, answer []byte, err error) bool {
	s.mu.Lock()
	c := s.pending[number]
	delete(s.pending, number)
	s.mu.Unlock()
	if c == nil {
		return false
	}
	c.timer.Stop()
	s.underWay.Add(-c.size)
	if err == nil {
		err = decodeAnswer(answer, c.into)
	}
	c.err = err
	close(c.done)
	return true
}

// end fails all calls. The first reason counts.
func (s *session) end(err error) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	if err == nil {
		err = ErrUnreachable
	}
	s.ended, s.reason = true, err
	numbers := make([]uint64, 0, len(s.pending))
	for number := range s.pending {
		numbers = append(numbers, number)
	}
	close(s.done)
	s.mu.Unlock()
	s.out.close()
	for _, number := range numbers {
		s.finish(number, nil, fmt.Errorf("%w: %s: %w", ErrUnreachable, s.l.node, err))
	}
}

func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason
}

// receive takes answers until the stream ends.
func (s *session) receive(cs opened) error {
	for {
		var p packet
		if err := cs.RecvMsg(&p); err != nil {
			return err
		}
		var strange error
		frames := 0
		err := walkFrames(p.data.ReadOnlyData(), func(f frame) {
			frames++
			switch {
			case f.kind&kindAnswer == 0:
				strange = fmt.Errorf("%w: a request as an answer", ErrMalformed)
			case f.kind == kindPing|kindAnswer:
			case !s.finish(f.call, f.body, nil):
				s.l.stats.late.Add(1)
			}
		})
		s.l.stats.received(frames, p.data.Len())
		p.free()
		if err != nil {
			return err
		}
		if strange != nil {
			return strange
		}
	}
}

// ping asks for a sign of life; its answer counts because bytes came.
func (s *session) ping() {
	b := seal(newFrame(0), frame{kind: kindPing, urgent: true})
	_ = s.out.push(b, ClassPing, true) // a full queue is a busy line; the silence is judged all the same
}
