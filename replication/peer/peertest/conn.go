package peertest

import (
	"io"
	"net"
	"os"
	"time"
)

// buffered bounds the bytes that wait in one direction of a connection.
const buffered = 1 << 20

// pipe is one direction. The network's lock guards it.
type pipe struct {
	way    way
	pieces []piece
	size   int
	ended  bool  // by the writer; the reader still gets what is left
	err    error // for both sides at once
}

type piece struct {
	bytes []byte
	due   time.Time
}

type conn struct {
	n               *Net
	in, out         *pipe
	other           *conn
	closed          bool
	readBy, writeBy time.Time
}

func (c *conn) Read(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for {
		var wait time.Duration = -1
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.in.err != nil:
			return 0, c.in.err
		case passed(c.readBy):
			return 0, os.ErrDeadlineExceeded
		case c.n.holds[c.in.way]:
		case len(c.in.pieces) > 0:
			if wait = time.Until(c.in.pieces[0].due); wait <= 0 {
				return c.take(b), nil
			}
		case c.in.ended:
			return 0, io.EOF
		}
		c.wait(wait)
	}
}

// wait waits for a change, at most for d if that is not negative.
func (c *conn) wait(d time.Duration) {
	if d >= 0 {
		t := time.AfterFunc(d, c.n.wakeAll)
		defer t.Stop()
	}
	c.n.changed.Wait()
}

func (c *conn) take(b []byte) int {
	p := &c.in.pieces[0]
	n := copy(b, p.bytes)
	c.in.size -= n
	if p.bytes = p.bytes[n:]; len(p.bytes) == 0 {
		c.in.pieces = c.in.pieces[1:]
	}
	c.n.changed.Broadcast()
	return n
}

func (c *conn) Write(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.out.err != nil:
			return 0, c.out.err
		case passed(c.writeBy):
			return 0, os.ErrDeadlineExceeded
		case c.out.size < buffered:
			c.out.pieces = append(c.out.pieces, piece{append([]byte(nil), b...), time.Now().Add(c.n.delays[c.out.way])})
			c.out.size += len(b)
			c.n.changed.Broadcast()
			return len(b), nil
		}
		c.n.changed.Wait()
	}
}

// Close ends the connection. The other side reads what is left, unless it is held, and then the end; its writes fail.
func (c *conn) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.out.ended = true
	c.in.pieces, c.in.size = nil, 0
	delete(c.n.conns, c)
	if c.other.closed {
		delete(c.n.conns, c.other)
	}
	if !c.n.holds[c.out.way] {
		c.in.err = io.ErrClosedPipe // what the other side writes goes nowhere
	}
	c.n.changed.Broadcast()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return address(c.out.way.from) }
func (c *conn) RemoteAddr() net.Addr { return address(c.out.way.to) }

func (c *conn) SetDeadline(t time.Time) error {
	c.deadline(&c.readBy, t)
	c.deadline(&c.writeBy, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error  { c.deadline(&c.readBy, t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.deadline(&c.writeBy, t); return nil }

func (c *conn) deadline(by *time.Time, t time.Time) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	*by = t
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), c.n.wakeAll) // one that is moved wakes in vain
	}
	c.n.changed.Broadcast()
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }
