//go:build faults

package fault

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// retransmission is what a lost segment costs on top of the delay: the usual lower bound of TCP's time-out.
const retransmission = 200 * time.Millisecond

// queued bounds the bytes that wait in one direction of a connection; it stands for the buffers of both kernels.
const queued = 4 << 20

// ErrCut is what a dial and a connection return while the link is cut.
var ErrCut = errors.New("fault: the link is cut")

// Dial wraps how peers are dialled; nil stands for TCP with keep-alive.
func Dial(inner func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return dial(process, inner)
}

func dial(c *control, inner func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	if inner == nil {
		d := net.Dialer{KeepAlive: 5 * time.Second}
		inner = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		if err := c.mayDial(ctx, address); err != nil {
			return nil, err
		}
		under, err := inner(ctx, address)
		if err != nil {
			return nil, err
		}
		return newConn(c, under, address), nil
	}
}

// mayDial refuses a cut link, and waits for one that holds either direction: no handshake would come to its end.
func (c *control) mayDial(ctx context.Context, address string) error {
	for {
		s := c.now.Load()
		l, ok := s.spec.link(address)
		switch {
		case !ok || !l.Cut && !l.HoldReads && !l.HoldWrites:
			return nil
		case l.Cut:
			c.count("link.refused")
			return &net.OpError{Op: "dial", Net: "tcp", Err: ErrCut}
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// link is what is wrong with the connections to an address.
func (s Spec) link(address string) (Link, bool) {
	if l, ok := s.Links[address]; ok {
		return l, true
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		if l, ok := s.Links[host]; ok {
			return l, true
		}
	}
	l, ok := s.Links["*"]
	return l, ok
}

// conn carries the bytes of a connection through two queues, one for each direction, which the control can slow down and stop.
type conn struct {
	net.Conn
	c       *control
	address string
	out     *pipe // written, not sent yet
	arrived *pipe // received from the network, not let through yet
	in      *pipe // let through, not read yet
	done    chan struct{}
	once    sync.Once
}

func newConn(c *control, under net.Conn, address string) *conn {
	k := &conn{Conn: under, c: c, address: address, done: make(chan struct{})}
	k.out, k.arrived, k.in = newPipe(), newPipe(), newPipe()
	c.mu.Lock()
	c.conns[k] = struct{}{}
	c.mu.Unlock()
	go k.pumpOut()
	go k.receive()
	go k.pumpIn()
	return k
}

func (k *conn) Read(p []byte) (int, error)  { return k.in.read(p) }
func (k *conn) Write(p []byte) (int, error) { return k.out.write(p, k.due()) }

// Close ends both directions. What has not left yet is lost, as it is when a process dies; gRPC flushes before it closes.
func (k *conn) Close() error {
	k.once.Do(func() {
		close(k.done)
		k.c.mu.Lock()
		delete(k.c.conns, k)
		k.c.mu.Unlock()
	})
	k.fail(net.ErrClosed)
	return k.Conn.Close()
}

func (k *conn) cut() {
	k.c.counts["link.cut"]++ // the control's lock is held
	k.fail(ErrCut)
	_ = k.Conn.Close() // the peer sees the end; this side has its error
}

func (k *conn) fail(err error) {
	for _, p := range []*pipe{k.out, k.arrived, k.in} {
		p.fail(err)
	}
}

func (k *conn) SetDeadline(t time.Time) error {
	return errors.Join(k.SetReadDeadline(t), k.SetWriteDeadline(t))
}
func (k *conn) SetReadDeadline(t time.Time) error  { k.in.setReadDeadline(t); return nil }
func (k *conn) SetWriteDeadline(t time.Time) error { k.out.setWriteDeadline(t); return nil }

// due is when a piece of data that enters now may leave.
func (k *conn) due() time.Time {
	l, ok := k.c.now.Load().spec.link(k.address)
	now := time.Now()
	if !ok {
		return now
	}
	d := l.Delay
	if l.Jitter > 0 {
		d += rand.N(l.Jitter)
	}
	if l.LossPercent > 0 && rand.IntN(100) < l.LossPercent {
		d += retransmission
		k.c.count("link.lost")
	}
	if d > 0 {
		k.c.count("link.delayed")
	}
	return now.Add(d)
}

// open waits until a direction is not held and the time has come; false means that the connection has ended.
func (k *conn) open(due time.Time, held func(Link) bool) bool {
	for {
		s := k.c.now.Load()
		l, _ := s.spec.link(k.address)
		wait := time.Until(due)
		if !held(l) && wait <= 0 {
			return true
		}
		if held(l) {
			k.c.count("link.held")
			wait = time.Hour
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-s.changed:
		case <-k.done:
			t.Stop()
			return false
		}
		t.Stop()
	}
}

func (k *conn) pumpOut() {
	for {
		p, due, err := k.out.front()
		if err != nil || !k.open(due, func(l Link) bool { return l.HoldWrites }) {
			return
		}
		if _, err := k.Conn.Write(p); err != nil {
			k.out.fail(err)
			return
		}
		k.out.pop()
	}
}

// receive takes what comes from the network and writes down when each piece may be read.
func (k *conn) receive() {
	buf := make([]byte, 32<<10)
	for {
		n, err := k.Conn.Read(buf)
		if n > 0 {
			if _, err := k.arrived.write(buf[:n], k.due()); err != nil {
				return
			}
		}
		if err != nil {
			k.arrived.finish(err)
			return
		}
	}
}

func (k *conn) pumpIn() {
	for {
		p, due, err := k.arrived.front()
		if err != nil {
			k.in.finish(err)
			return
		}
		if !k.open(due, func(l Link) bool { return l.HoldReads }) {
			return
		}
		if _, err := k.in.write(p, time.Time{}); err != nil {
			return
		}
		k.arrived.pop()
	}
}

// pipe is a bounded queue of bytes with the time at which each piece may leave.
type pipe struct {
	mu      sync.Mutex
	changed sync.Cond
	pieces  []piece
	size    int
	err     error // both sides fail at once
	end     error // the reader fails once the queue is empty

	readBy, writeBy time.Time
	timers          [2]*time.Timer
}

type piece struct {
	bytes []byte
	due   time.Time
}

func newPipe() *pipe {
	p := &pipe{}
	p.changed.L = &p.mu
	return p
}

func (p *pipe) write(b []byte, due time.Time) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.size > queued && p.err == nil && !passed(p.writeBy) {
		p.changed.Wait()
	}
	switch {
	case p.err != nil:
		return 0, p.err
	case passed(p.writeBy):
		return 0, errTimeout
	}
	p.pieces = append(p.pieces, piece{append([]byte(nil), b...), due})
	p.size += len(b)
	p.changed.Broadcast()
	return len(b), nil
}

// front waits for a piece and leaves it where it is.
func (p *pipe) front() ([]byte, time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.pieces) == 0 && p.err == nil && p.end == nil {
		p.changed.Wait()
	}
	switch {
	case p.err != nil:
		return nil, time.Time{}, p.err
	case len(p.pieces) == 0:
		return nil, time.Time{}, p.end
	}
	return p.pieces[0].bytes, p.pieces[0].due, nil
}

func (p *pipe) pop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size -= len(p.pieces[0].bytes)
	p.pieces = p.pieces[1:]
	p.changed.Broadcast()
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.pieces) == 0 && p.err == nil && p.end == nil && !passed(p.readBy) {
		p.changed.Wait()
	}
	switch {
	case p.err != nil:
		return 0, p.err
	case passed(p.readBy):
		return 0, errTimeout
	case len(p.pieces) == 0:
		return 0, p.end
	}
	n := copy(b, p.pieces[0].bytes)
	p.size -= n
	if p.pieces[0].bytes = p.pieces[0].bytes[n:]; len(p.pieces[0].bytes) == 0 {
		p.pieces = p.pieces[1:]
	}
	p.changed.Broadcast()
	return n, nil
}

// fail ends both sides; the first reason counts.
func (p *pipe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.changed.Broadcast()
}

// finish lets the reader have what is left, and then the reason.
func (p *pipe) finish(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.end = err
	}
	p.changed.Broadcast()
}

func (p *pipe) setReadDeadline(t time.Time)  { p.deadline(0, &p.readBy, t) }
func (p *pipe) setWriteDeadline(t time.Time) { p.deadline(1, &p.writeBy, t) }

func (p *pipe) deadline(slot int, by *time.Time, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*by = t
	if p.timers[slot] != nil {
		p.timers[slot].Stop()
	}
	if !t.IsZero() {
		p.timers[slot] = time.AfterFunc(time.Until(t), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.changed.Broadcast()
		})
	}
	p.changed.Broadcast()
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// errTimeout is a net.Error with Timeout, as a deadline gives on any connection.
var errTimeout error = timeout{}

type timeout struct{}

func (timeout) Error() string   { return "i/o timeout" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

var _ net.Conn = (*conn)(nil)
