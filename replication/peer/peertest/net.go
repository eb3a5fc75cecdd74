package peertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// ErrRefused: nobody listens at the address.
var ErrRefused = errors.New("peertest: connection refused")

// ErrReset: the connection was broken by Break.
var ErrReset = errors.New("peertest: connection reset")

// Net is one network. Its hosts are named by the addresses they listen at.
type Net struct {
	mu        sync.Mutex
	changed   sync.Cond
	listeners map[string]*listener
	conns     map[*conn]struct{} // each pair once, the dialling side
	holds     map[way]bool
	delays    map[way]time.Duration
}

// way is one direction between two hosts.
type way struct{ from, to string }

// New makes a network without hosts.
func New() *Net {
	n := &Net{listeners: map[string]*listener{}, conns: map[*conn]struct{}{}, holds: map[way]bool{}, delays: map[way]time.Duration{}}
	n.changed.L = &n.mu
	return n
}

// Listen opens a listener at address. A new one may take the place of a closed one.
func (n *Net) Listen(address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, fmt.Errorf("peertest: %s is in use", address)
	}
	l := &listener{n: n, address: address}
	n.listeners[address] = l
	return l, nil
}

// Dialer gives the way in which the host from dials others.
func (n *Net) Dialer(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) { return n.dial(ctx, from, to) }
}

func (n *Net) dial(ctx context.Context, from, to string) (net.Conn, error) {
	stop := context.AfterFunc(ctx, n.wakeAll)
	defer stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.holds[way{from, to}] || n.holds[way{to, from}] { // no handshake would come to its end
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		n.changed.Wait()
	}
	l := n.listeners[to]
	if l == nil {
		return nil, fmt.Errorf("%w: %s", ErrRefused, to)
	}
	out, in := &pipe{way: way{from, to}}, &pipe{way: way{to, from}}
	mine, theirs := &conn{n: n, in: in, out: out}, &conn{n: n, in: out, out: in}
	mine.other, theirs.other = theirs, mine
	n.conns[mine] = struct{}{}
	l.waiting = append(l.waiting, theirs)
	n.changed.Broadcast()
	return mine, nil
}

// Hold stops everything from one host to another until Heal; the other direction goes on. Neither side is told.
func (n *Net) Hold(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.holds[way{from, to}] = true
	n.changed.Broadcast()
}

// Cut holds both directions.
func (n *Net) Cut(a, b string) {
	n.Hold(a, b)
	n.Hold(b, a)
}

// Heal ends all holds.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.holds)
	n.changed.Broadcast()
}

// Delay makes everything that one host sends to another from now on take d.
func (n *Net) Delay(from, to string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delays[way{from, to}] = d
}

// Break resets all connections between two hosts.
func (n *Net) Break(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if c.out.way == (way{a, b}) || c.out.way == (way{b, a}) {
			c.in.err, c.out.err = ErrReset, ErrReset
			delete(n.conns, c)
		}
	}
	n.changed.Broadcast()
}

func (n *Net) wakeAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed.Broadcast()
}

type listener struct {
	n       *Net
	address string
	waiting []*conn
	closed  bool
}

func (l *listener) Accept() (net.Conn, error) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	for len(l.waiting) == 0 && !l.closed {
		l.n.changed.Wait()
	}
	if l.closed {
		return nil, net.ErrClosed
	}
	c := l.waiting[0]
	l.waiting = l.waiting[1:]
	return c, nil
}

func (l *listener) Close() error {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	delete(l.n.listeners, l.address)
	for _, c := range l.waiting {
		c.in.err, c.out.err = ErrReset, ErrReset
	}
	l.n.changed.Broadcast()
	return nil
}

func (l *listener) Addr() net.Addr { return address(l.address) }

type address string

func (address) Network() string  { return "peertest" }
func (a address) String() string { return string(a) }
