package webhook

import (
	"net"
	"sync/atomic"

	"github.com/sealane/sealane/delivery"
)

// gateConn asks the gate on the first write of a request. With TLS it sits below the encryption, so a refused write means that not one byte
// of the request left the process.
type gateConn struct {
	net.Conn
	armed atomic.Pointer[sending]
}

// Phases of a request on a gated connection.
const (
	waiting int32 = iota // not one byte was written
	begun                // the first write has begun: what reached the wire is no longer known for certain
	barred               // nothing of it will be written any more
)

// sending is one request's way through the gate. Exactly one of "begun" and "barred" follows "waiting", whatever the order in which the writer
// and the caller come.
type sending struct {
	gate    delivery.Gate
	phase   atomic.Int32
	refused atomic.Pointer[error]
	written atomic.Int64
	failed  atomic.Bool // the first write failed and nothing was written before
}

// start passes the gate, once. It returns an error if the request must not be written.
func (s *sending) start() error {
	if err := s.gate(); err != nil {
		if s.phase.CompareAndSwap(waiting, barred) {
			s.refused.Store(&err)
		}
		return err
	}
	if !s.phase.CompareAndSwap(waiting, begun) {
		return net.ErrClosed
	}
	return nil
}

// bar makes sure that a request not begun never will be, and tells whether it had begun.
func (s *sending) bar() (hadBegun bool) {
	return !s.phase.CompareAndSwap(waiting, barred) && s.phase.Load() == begun
}

func (c *gateConn) Write(p []byte) (int, error) {
	s := c.armed.Load()
	if s == nil {
		return c.Conn.Write(p)
	}
	if s.phase.Load() != begun {
		if err := s.start(); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Write(p)
	if total := s.written.Add(int64(n)); err != nil && total == 0 {
		s.failed.Store(true)
	}
	return n, err
}
