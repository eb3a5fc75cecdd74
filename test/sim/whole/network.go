package whole

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Errors as a real network would give them.
var (
	errRefused = errors.New("sim: connection refused")
	errReset   = errors.New("sim: connection reset")
)

// network carries bytes between hosts as TCP does: what a connection delivers is in order and complete, and what does not arrive ends it. Hosts
// are named; each listens at addresses of its own. Every direction between two hosts can be held (nothing arrives, nobody is told), delayed, and
// made to reset connections at random.
type network struct {
	mu        sync.Mutex
	changed   sync.Cond // of links, for those who dial
	random    *rand.Rand
	hosts     map[string]*station // by address
	links     map[direction]*link
	processes map[string]*station // the newest of each host
}

// direction is one way between two hosts.
type direction struct{ from, to string }

// link is what the network does in one direction. The network's lock guards it.
type link struct {
	held   bool
	delay  time.Duration // each piece takes this and up to half as much again
	resets int           // of a thousand pieces, so many end their connection
	pipes  map[*pipe]struct{}
}

func newNetwork(seed uint64) *network {
	n := &network{
		random: rand.New(rand.NewPCG(seed, 0x4e7)), hosts: map[string]*station{}, links: map[direction]*link{}, processes: map[string]*station{},
	}
	n.changed.L = &n.mu
	return n
}

// link finds the state of one direction; the lock is held.
func (n *network) link(d direction) *link {
	l := n.links[d]
	if l == nil {
		l = &link{pipes: map[*pipe]struct{}{}}
		n.links[d] = l
	}
	return l
}

// station is one process on a host: its listeners and connections end with it.
type station struct {
	n         *network
	host      string
	dead      bool
	listeners map[string]*listener
	conns     map[*conn]struct{}
}

// boot begins a process on a host. What an earlier one left silent is reset: its machine answers again and does not know those connections.
func (n *network) boot(host string) *station {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.processes[host]; old != nil {
		old.resetAll()
	}
	s := &station{n: n, host: host, listeners: map[string]*listener{}, conns: map[*conn]struct{}{}}
	n.processes[host] = s
	return s
}

// kill ends a process at once. Silently, as when a machine loses power: nobody is told, and nothing answers. Otherwise its connections are reset.
func (s *station) kill(silently bool) {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	s.dead = true
	for c := range s.conns {
		c.in.cut(errReset, false)  // the dead process reads nothing more
		c.out.cut(errReset, false) // and what it writes leaves no more
	}
	if !silently {
		s.resetAll()
		for address, l := range s.listeners {
			l.abandon(s.n, address)
		}
	}
	s.n.changed.Broadcast()
}

// resetAll tells the other side of every connection; the lock is held.
func (s *station) resetAll() {
	for c := range s.conns {
		c.in.cut(errReset, true)
		c.out.cut(errReset, true)
		delete(s.conns, c)
	}
	for address, l := range s.listeners {
		if s.dead {
			l.abandon(s.n, address)
		}
	}
}

// listen opens a listener of this process.
func (s *station) listen(address string) (net.Listener, error) {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	if s.dead {
		return nil, fmt.Errorf("sim: %s has been killed", s.host)
	}
	if other := s.n.hosts[address]; other != nil && !other.dead {
		return nil, fmt.Errorf("sim: %s is in use by %s", address, other.host)
	}
	l := &listener{s: s, address: address, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	s.listeners[address] = l
	s.n.hosts[address] = s
	return l, nil
}

// dial connects to an address. It waits while either direction is held, and for ever where a process was killed silently.
func (s *station) dial(ctx context.Context, address string) (net.Conn, error) {
	n := s.n
	stop := context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.changed.Broadcast()
	})
	defer stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if s.dead {
			return nil, errReset
		}
		to := n.hosts[address]
		if to == nil {
			return nil, fmt.Errorf("%w: %s", errRefused, address)
		}
		there, back := direction{s.host, to.host}, direction{to.host, s.host}
		if !n.link(there).held && !n.link(back).held && !to.dead {
			return s.connect(to, address)
		}
		n.changed.Wait()
	}
}

// connect makes a connection to a listener of another process; the lock is held.
func (s *station) connect(to *station, address string) (net.Conn, error) {
	l := to.listeners[address]
	if l == nil {
		return nil, fmt.Errorf("%w: %s", errRefused, address)
	}
	out, in := newPipe(s.n, direction{s.host, to.host}), newPipe(s.n, direction{to.host, s.host})
	mine := &conn{s: s, in: in, out: out, local: simAddr(s.host), remote: simAddr(address)}
	theirs := &conn{s: to, in: out, out: in, local: simAddr(address), remote: simAddr(s.host)}
	s.conns[mine], to.conns[theirs] = struct{}{}, struct{}{}
	l.waiting = append(l.waiting, theirs)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return mine, nil
}

// hold stops one direction until it is released. Connections are not told.
func (n *network) hold(from, to string) { n.set(from, to, func(l *link) { l.held = true }) }

// release ends a hold.
func (n *network) release(from, to string) { n.set(from, to, func(l *link) { l.held = false }) }

// slow makes one direction take so long, and reset so many of a thousand pieces' connections.
func (n *network) slow(from, to string, delay time.Duration, resets int) {
	n.set(from, to, func(l *link) { l.delay, l.resets = delay, resets })
}

func (n *network) set(from, to string, change func(*link)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.link(direction{from, to})
	change(l)
	l.wakeAll()
	n.changed.Broadcast()
}

// heal ends every fault of the network.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		l.held, l.delay, l.resets = false, 0, 0
		l.wakeAll()
	}
	n.changed.Broadcast()
}

// wakeAll lets every pipe of a direction look again.
func (l *link) wakeAll() {
	for p := range l.pipes {
		p.changed.Broadcast()
	}
}

// sever resets all connections between two hosts.
func (n *network) sever(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range []direction{{a, b}, {b, a}} {
		for p := range n.link(d).pipes {
			p.cut(errReset, true)
		}
	}
}

// listener is where a process takes connections.
type listener struct {
	s       *station
	address string
	waiting []*conn // the network's lock guards it
	wake    chan struct{}
	once    sync.Once
	closed  chan struct{}
}

// Accept waits for a connection. A killed process waits for ever: it is not told either.
func (l *listener) Accept() (net.Conn, error) {
	for {
		l.s.n.mu.Lock()
		if len(l.waiting) > 0 && !l.s.dead {
			c := l.waiting[0]
			l.waiting = l.waiting[1:]
			l.s.n.mu.Unlock()
			return c, nil
		}
		l.s.n.mu.Unlock()
		select {
		case <-l.wake:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

// abandon takes the address away and resets what waits; the network's lock is held.
func (l *listener) abandon(n *network, address string) {
	if n.hosts[address] == l.s {
		delete(n.hosts, address)
	}
	for _, c := range l.waiting {
		c.in.cut(errReset, true)
		c.out.cut(errReset, true)
	}
	l.waiting = nil
	n.changed.Broadcast()
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.s.n.mu.Lock()
		defer l.s.n.mu.Unlock()
		delete(l.s.listeners, l.address)
		if !l.s.dead {
			l.abandon(l.s.n, l.address)
		}
		close(l.closed)
	})
	return nil
}

func (l *listener) Addr() net.Addr { return simAddr(l.address) }

type simAddr string

func (simAddr) Network() string  { return "sim" }
func (a simAddr) String() string { return string(a) }
