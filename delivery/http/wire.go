package webhook

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sealane/sealane/delivery"
)

// wire is the connection that net/http writes requests to. It lies above TLS, so it sees each request in clear: it asks the gate on the first
// byte of a request and can stop every byte after that.
type wire struct {
	net.Conn          // TLS, or the same as raw
	raw      net.Conn // TCP
	h2       bool
	out, in  frames // HTTP/2 only; out is used by the writer, in by the reader
	current  atomic.Pointer[sending]
	// lastStream is the smallest last stream id of a GOAWAY, or noStream.
	lastStream atomic.Uint32
	ended      atomic.Bool     // reading came to an end or failed
	unasked    atomic.Bool     // HTTP/1: the peer said something while no request had begun
	syscall    syscall.RawConn // nil where the platform has none
	peek       peeker
}

const noStream = ^uint32(0)

func newWire(raw, secured net.Conn, h2 bool) *wire {
	w := &wire{Conn: secured, raw: raw, h2: h2}
	w.out.skip = clientPrefaceBytes
	w.lastStream.Store(noStream)
	if c, ok := raw.(syscall.Conn); ok {
		if rc, err := c.SyscallConn(); err == nil {
			w.syscall = rc
			w.peek.prepare()
		}
	}
	return w
}

// Close closes the TCP connection without a TLS farewell: HTTP delimits its messages itself, and a farewell could block.
func (w *wire) Close() error { return w.raw.Close() }

// spoiled tells whether an idle connection can carry no further request: its peer closed or reset it, or said something unasked.
// Over HTTP/2 a peer may speak at any time.
func (w *wire) spoiled() bool {
	if w.unasked.Load() {
		return true // net/http could take it for the answer to the next request
	}
	if w.syscall == nil {
		return false
	}
	found, err := w.peek.look(w.syscall)
	return err != nil || found == foundEnd || found == foundData && !w.h2
}

// Phases of a request on its wire.
const (
	waiting int32 = iota // not one byte was written
	begun                // the first write has begun: what reached the peer is no longer known for certain
	barred               // nothing of it was written and nothing will be
)

// How far the end of a request is.
const (
	endOpen int32 = iota // the last byte was not written yet
	endSent              // the write with the last byte has begun
	endCut               // the last byte will never be written
)

// errSpoiled: the connection turned out to be closed by its peer before anything was written to it.
var errSpoiled = errors.New("the peer closed the connection while it was idle")

// sending is one request's way over a wire. Exactly one of begun and barred follows waiting, in whatever order the writer and the caller come;
// likewise endSent and endCut.
type sending struct {
	gate    delivery.Gate
	now     func() time.Time
	body    *bytes.Reader // HTTP/1; only the writing goroutine looks at it
	reused  bool          // the connection was idle before: look once more whether it still stands
	phase   atomic.Int32
	end     atomic.Int32
	refused atomic.Pointer[error]
	failed  atomic.Bool // the first write failed and the kernel took nothing
	whole   atomic.Bool // the write with the last byte has begun and not failed: an answer can overtake its return
	written atomic.Int64
	first   atomic.Int64  // Unix nanoseconds of the first write, 0 before it
	stream  atomic.Uint32 // HTTP/2
	reset   atomic.Int64  // HTTP/2: the code of RST_STREAM on our stream, or -1
	heard   atomic.Uint32 // HTTP/1: bytes of the answer's start in start
	start   [len("HTTP/1.1 1")]byte
}

// begin passes the gate, once. An error means that the request must not be written.
func (s *sending) begin(w *wire) error {
	if w.unasked.Load() || s.reused && w.spoiled() {
		s.phase.CompareAndSwap(waiting, barred)
		return errSpoiled
	}
	if err := s.gate(); err != nil {
		if s.phase.CompareAndSwap(waiting, barred) {
			s.refused.Store(&err)
		}
		return err
	}
	s.first.Store(s.now().UnixNano())
	if !s.phase.CompareAndSwap(waiting, begun) {
		return net.ErrClosed
	}
	return nil
}

// bar makes sure that a request that has not begun never will, and tells whether it had begun.
func (s *sending) bar() (hadBegun bool) {
	return !s.phase.CompareAndSwap(waiting, barred) && s.phase.Load() == begun
}

// cut makes sure that the last byte of a request is never written, and tells whether that came in time.
func (s *sending) cut() bool {
	return s.end.CompareAndSwap(endOpen, endCut) || s.end.Load() == endCut
}

// hear keeps the first bytes of an HTTP/1 answer, enough to know an informational head.
func (s *sending) hear(p []byte) {
	if n := int(s.heard.Load()); n < len(s.start) && len(p) > 0 {
		s.heard.Store(uint32(n + copy(s.start[n:], p)))
	}
}

// informational tells whether an HTTP/1 answer began with a 1xx head.
func (s *sending) informational() bool {
	return int(s.heard.Load()) == len(s.start) && bytes.HasPrefix(s.start[:], []byte("HTTP/1.")) && s.start[8] == ' ' && s.start[9] == '1'
}

func (w *wire) Write(p []byte) (int, error) {
	s := w.current.Load()
	starts, last := true, false
	if w.h2 {
		saw := w.out.scan(p)
		starts, last = saw.headers, saw.ended
		if s != nil && saw.headers {
			s.stream.Store(saw.stream)
		}
	} else if s != nil {
		last = s.body.Len() == 0
	}
	if s == nil {
		return w.Conn.Write(p)
	}
	switch s.phase.Load() {
	case barred:
		return 0, net.ErrClosed
	case waiting:
		if !starts {
			return w.Conn.Write(p) // HTTP/2 housekeeping
		}
		if err := s.begin(w); err != nil {
			return 0, err
		}
	}
	if last && !s.end.CompareAndSwap(endOpen, endSent) && s.end.Load() == endCut {
		return 0, net.ErrClosed
	}
	if last {
		s.whole.Store(true)
	}
	n, err := w.Conn.Write(p)
	if total := s.written.Add(int64(n)); err != nil && total == 0 && w.Conn == w.raw {
		s.failed.Store(true) // under TLS part of a record may have left, so that is not said there
	}
	if last && err != nil {
		s.whole.Store(false)
	}
	return n, err
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.ended.Store(true)
	}
	s := w.current.Load()
	if !w.h2 {
		switch {
		case s != nil && s.phase.Load() == begun:
			s.hear(p[:n])
		case n > 0:
			w.unasked.Store(true)
		}
		return n, err
	}
	saw := w.in.scan(p[:n])
	if saw.goAway && saw.lastID < w.lastStream.Load() {
		w.lastStream.Store(saw.lastID)
	}
	if saw.reset && s != nil && saw.resetOn == s.stream.Load() {
		s.reset.Store(int64(saw.resetCode))
	}
	return n, err
}
