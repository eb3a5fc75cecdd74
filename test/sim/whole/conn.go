package whole

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeBytes bounds what waits in one direction of a connection: a writer beyond it waits, as with a socket's buffers.
const pipeBytes = 1 << 20

// pipe is one direction of a connection. The network's lock guards it; each has a condition of its own, so that one write does not wake the
// whole network.
type pipe struct {
	n       *network
	way     direction
	changed sync.Cond
	pieces  []piece
	size    int
	last    time.Time // when the newest piece is due: nothing overtakes
	ended   bool      // by the writer; the reader gets what is left first
	readErr error     // what the reader is told
	lost    bool      // the writer is dead or gone, or the reader is: what is written leads nowhere
	lostErr error     // what the writer is told; nil while it knows nothing
}

// piece is what one write put in.
type piece struct {
	bytes []byte
	due   time.Time
}

func newPipe(n *network, way direction) *pipe {
	p := &pipe{n: n, way: way}
	p.changed.L = &n.mu
	n.link(way).pipes[p] = struct{}{}
	return p
}

// cut ends a pipe. If the sides are not told, reads wait for ever and writes vanish. The network's lock is held.
func (p *pipe) cut(err error, tell bool) {
	p.lost = true
	p.pieces, p.size = nil, 0
	if tell {
		if p.readErr == nil {
			p.readErr = err
		}
		p.lostErr = err
		delete(p.n.link(p.way).pipes, p)
	}
	p.changed.Broadcast()
}

// conn is one side of a connection.
type conn struct {
	s               *station
	in, out         *pipe
	local, remote   net.Addr
	closed          bool
	readBy, writeBy time.Time
}

func (c *conn) Read(b []byte) (int, error) {
	c.s.n.mu.Lock()
	defer c.s.n.mu.Unlock()
	p := c.in
	for {
		wait := time.Duration(-1)
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case p.readErr != nil:
			return 0, p.readErr
		case c.s.dead:
			return 0, errReset // the process does not exist; its threads may end
		case passed(c.readBy):
			return 0, os.ErrDeadlineExceeded
		case p.n.link(p.way).held || p.lost:
		case len(p.pieces) > 0:
			if wait = time.Until(p.pieces[0].due); wait <= 0 {
				return p.take(b), nil
			}
		case p.ended:
			return 0, io.EOF
		}
		p.wait(wait)
	}
}

// wait waits for a change, at most for d where that is not negative.
func (p *pipe) wait(d time.Duration) {
	if d >= 0 {
		t := time.AfterFunc(d, p.wake)
		defer t.Stop()
	}
	p.changed.Wait()
}

func (p *pipe) wake() {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	p.changed.Broadcast()
}

func (p *pipe) take(b []byte) int {
	first := &p.pieces[0]
	n := copy(b, first.bytes)
	p.size -= n
	if first.bytes = first.bytes[n:]; len(first.bytes) == 0 {
		p.pieces = p.pieces[1:]
	}
	p.changed.Broadcast() // a writer may wait for room
	return n
}

func (c *conn) Write(b []byte) (int, error) {
	c.s.n.mu.Lock()
	defer c.s.n.mu.Unlock()
	p := c.out
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case p.lostErr != nil:
			return 0, p.lostErr
		case c.s.dead:
			return 0, errReset
		case passed(c.writeBy):
			return 0, os.ErrDeadlineExceeded
		case p.lost && p.size < pipeBytes: // nobody is there, and nobody says so
			p.size += len(b)
			return len(b), nil
		case !p.lost && p.size < pipeBytes:
			if p.put(b) {
				return len(b), nil
			}
			c.in.cut(errReset, true)
			p.cut(errReset, true)
			return 0, errReset
		}
		p.changed.Wait()
	}
}

// put sends a piece on its way; false where the network breaks the connection instead.
func (p *pipe) put(b []byte) bool {
	l := p.n.link(p.way)
	if l.resets > 0 && p.n.random.IntN(1000) < l.resets {
		return false
	}
	due := time.Now()
	if l.delay > 0 {
		due = due.Add(l.delay + time.Duration(p.n.random.Int64N(int64(l.delay)/2+1)))
	}
	if due.Before(p.last) {
		due = p.last
	}
	p.last = due
	p.pieces = append(p.pieces, piece{append([]byte(nil), b...), due})
	p.size += len(b)
	p.changed.Broadcast()
	return true
}

// Close ends the connection. The other side reads what is left and then the end; its writes fail.
func (c *conn) Close() error {
	c.s.n.mu.Lock()
	defer c.s.n.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	delete(c.s.conns, c)
	c.out.ended = true
	c.out.changed.Broadcast()
	if c.in.lostErr == nil && !c.in.lost {
		c.in.cut(io.ErrClosedPipe, true)
	}
	c.in.changed.Broadcast()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.deadline(&c.readBy, c.in, t)
	c.deadline(&c.writeBy, c.out, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error  { c.deadline(&c.readBy, c.in, t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.deadline(&c.writeBy, c.out, t); return nil }

func (c *conn) deadline(by *time.Time, p *pipe, t time.Time) {
	c.s.n.mu.Lock()
	defer c.s.n.mu.Unlock()
	*by = t
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), p.wake) // one that was moved wakes in vain
	}
	p.changed.Broadcast()
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }
