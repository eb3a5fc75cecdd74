package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sealane/sealane/delivery"
)

// Target keeps the connections to one URL.
type Target struct {
	a       *Adapter
	spec    Spec
	url     *url.URL
	address string // host:port to dial
	fixed   http.Header
	dialer  net.Dialer
	tls     *tls.Config // nil for http
	secrets atomic.Pointer[signing]

	mu     sync.Mutex
	idle   []*conn // the last is the most recently used
	open   int
	closed bool
	reaper *time.Timer // runs reap; armed is whether it will
	armed  bool
}

// conn is one connection to the target's peer.
type conn struct {
	t      *Target
	cc     *http.ClientConn
	wire   *wire
	remote string
	born   time.Time
	used   time.Time // when it became idle
	broken bool
	reused bool
}

// lookAfter is how long a connection must have been idle for TryConn to look at its socket, which costs a system call. On one used more recently
// the connection's own reader has noticed, or the look before the first byte will.
const lookAfter = time.Second

// hand is a connection in hand, for one attempt.
type hand struct {
	*conn
	spent    bool // the reservation is used up
	released bool
}

// TryConn takes the most recently used idle connection that is still good. One that its peer has closed is thrown away here, before anything
// is admitted. The same look is taken once more right before the first byte; what remains is a close that is on its way in the network at that
// instant, and its outcome is UNKNOWN.
func (t *Target) TryConn() (delivery.Conn, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.a.opt.Now()
	for len(t.idle) > 0 {
		c := t.idle[len(t.idle)-1]
		t.idle = t.idle[:len(t.idle)-1]
		idle := now.Sub(c.used)
		good := idle < IdleTime && now.Sub(c.born) < LifeTime && c.cc.Err() == nil && (idle < lookAfter || !c.wire.spoiled())
		if good && c.cc.Reserve() == nil {
			c.reused = true
			return &hand{conn: c}, true
		}
		t.dropLocked(c)
	}
	return nil, false
}

// dropLocked closes a connection. Closing a wire does not block.
func (t *Target) dropLocked(c *conn) {
	t.open--
	t.a.open.Add(-1)
	c.cc.Close()
}

// Connect dials a new connection and reserves it. The error is a *delivery.ConnectError.
func (t *Target) Connect(ctx context.Context) (delivery.Conn, error) {
	if _, err := t.signers(t.a.opt.Now()); err != nil {
		return nil, err
	}
	if err := t.takeSlot(); err != nil {
		return nil, err
	}
	c, err := t.dial(ctx)
	if err != nil {
		t.mu.Lock()
		t.open--
		t.mu.Unlock()
		t.a.open.Add(-1)
		return nil, err
	}
	return &hand{conn: c}, nil
}

// takeSlot counts a connection to be, closing an idle one if the bound wants that.
func (t *Target) takeSlot() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return failure(ClassClosed, "the target was closed", nil)
	}
	if t.open >= t.spec.MaxConns && len(t.idle) > 0 {
		oldest := t.idle[0]
		t.idle = append(t.idle[:0], t.idle[1:]...)
		t.dropLocked(oldest)
	}
	if t.open >= t.spec.MaxConns {
		return failure(ClassFull, fmt.Sprintf("all %d connections are in use", t.spec.MaxConns), nil)
	}
	if t.a.open.Add(1) > int64(t.a.opt.MaxConns) {
		t.a.open.Add(-1)
		return failure(ClassFull, fmt.Sprintf("all %d connections of the node are in use", t.a.opt.MaxConns), nil)
	}
	t.open++
	return nil
}

// crowded tells whether connections should not be kept idle: more than half of what the node may have are open.
func (t *Target) crowded() bool { return t.a.open.Load() > int64(t.a.opt.MaxConns)/2 }

// Release gives the connection back. A second call does nothing.
func (h *hand) Release() {
	if h.released {
		return
	}
	h.released = true
	c, t := h.conn, h.t
	if !h.spent {
		c.cc.Release()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.a.opt.Now()
	if c.broken || t.closed || t.crowded() || now.Sub(c.born) >= LifeTime || c.cc.Err() != nil {
		t.dropLocked(c)
		return
	}
	c.used = now
	t.idle = append(t.idle, c)
	t.armLocked()
}

// armLocked makes sure that idle connections are looked at once their time is over. There is a timer only while there are idle connections.
func (t *Target) armLocked() {
	if t.armed || len(t.idle) == 0 {
		return
	}
	t.armed = true
	if t.reaper == nil {
		t.reaper = time.AfterFunc(IdleTime, t.reap)
		return
	}
	t.reaper.Reset(IdleTime)
}

// reap closes the connections that have been idle for too long or that their peers have closed.
func (t *Target) reap() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.armed = false
	now := t.a.opt.Now()
	kept := t.idle[:0]
	for _, c := range t.idle {
		if now.Sub(c.used) < IdleTime && now.Sub(c.born) < LifeTime && c.cc.Err() == nil {
			kept = append(kept, c)
			continue
		}
		t.dropLocked(c)
	}
	clear(t.idle[len(kept):])
	t.idle = kept
	t.armLocked()
}

// Close closes idle connections now and those in hand when they are released.
func (t *Target) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.reaper != nil {
		t.reaper.Stop()
	}
	for _, c := range t.idle {
		t.dropLocked(c)
	}
	t.idle = nil
}

// Stats counts the target's connections.
func (t *Target) Stats() delivery.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return delivery.Stats{Open: t.open, Idle: len(t.idle)}
}
