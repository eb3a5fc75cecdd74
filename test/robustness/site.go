package robustness

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
)

// Site is where one node lives: its addresses, and how a test gets there.
type Site struct {
	ID                       string
	GRPC, HTTP, Peer, Faults string
	Dial                     func(ctx context.Context, address string) (net.Conn, error)
	Launch                   func(*exec.Cmd) error
}

// Net is the network between the nodes of a test: how they are cut off from each other. Cuts are silent: nothing is refused, nothing arrives.
type Net interface {
	// Site makes the place for a node; called once for each id.
	Site(id string) (*Site, error)
	// Listen listens where every node can reach it: the receiver's place.
	Listen() (net.Listener, error)
	// Block drops what one node sends to another; Unblock ends that.
	Block(ctx context.Context, from, to string) error
	Unblock(ctx context.Context, from, to string) error
	// Unplug cuts a node off from everything but this test, the receiver too if it can; Plug ends that.
	Unplug(ctx context.Context, id string) error
	Plug(ctx context.Context, id string) error
	// TLS tells whether peers are not on loopback and must prove who they are.
	TLS() bool
	Close() error
}

// Loopback is the network of a machine without root: every node has its own ports on 127.0.0.1, and the fault build holds bytes back where a
// cut is asked for. The receiver cannot be cut off.
type Loopback struct {
	faults func(id string) *Faults // of a node

	mu    sync.Mutex
	sites map[string]*Site
}

// NewLoopback makes one; faults gives the control of a node's faults.
func NewLoopback(faults func(id string) *Faults) *Loopback {
	return &Loopback{faults: faults, sites: map[string]*Site{}}
}

// Site takes free ports.
func (l *Loopback) Site(id string) (*Site, error) {
	s := &Site{ID: id, Dial: dialTCP}
	for _, at := range []*string{&s.GRPC, &s.HTTP, &s.Peer, &s.Faults} {
		a, err := freeAddress()
		if err != nil {
			return nil, err
		}
		*at = a
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sites[id] = s
	return s, nil
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// Listen listens on loopback.
func (l *Loopback) Listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

// Block holds what `from` writes to connections it dialled to `to`, and what it answers on those that `to` dialled.
func (l *Loopback) Block(ctx context.Context, from, to string) error {
	return l.hold(ctx, from, to, true)
}

// Unblock ends that.
func (l *Loopback) Unblock(ctx context.Context, from, to string) error {
	return l.hold(ctx, from, to, false)
}

func (l *Loopback) hold(ctx context.Context, from, to string, on bool) error {
	a, b := l.site(from), l.site(to)
	if a == nil || b == nil {
		return fmt.Errorf("no site %s or %s", from, to)
	}
	if err := l.faults(from).Link(ctx, b.Peer, func(k *Link) { k.HoldWrites = on }); err != nil {
		return err
	}
	return l.faults(to).Link(ctx, a.Peer, func(k *Link) { k.HoldReads = on })
}

func (l *Loopback) site(id string) *Site {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sites[id]
}

// Unplug blocks a node from and to every other one.
func (l *Loopback) Unplug(ctx context.Context, id string) error { return l.all(ctx, id, l.Block) }

// Plug ends that.
func (l *Loopback) Plug(ctx context.Context, id string) error { return l.all(ctx, id, l.Unblock) }

func (l *Loopback) all(ctx context.Context, id string, do func(ctx context.Context, from, to string) error) error {
	l.mu.Lock()
	ids := make([]string, 0, len(l.sites))
	for other := range l.sites {
		ids = append(ids, other)
	}
	l.mu.Unlock()
	var failed []string
	for _, other := range ids {
		if other == id {
			continue
		}
		for _, way := range [][2]string{{id, other}, {other, id}} {
			if err := do(ctx, way[0], way[1]); err != nil {
				failed = append(failed, err.Error())
			}
		}
	}
	if failed != nil {
		return fmt.Errorf("cut of %s: %s", id, strings.Join(failed, "; "))
	}
	return nil
}

// TLS is not needed on loopback.
func (l *Loopback) TLS() bool { return false }

// Close has nothing to end.
func (l *Loopback) Close() error { return nil }
