package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/shard"
)

// carried is an opened target of one destination version, shared by all lanes of the destination.
type carried struct {
	version uint64
	dest    shard.Destination
	target  Target
	users   int // connections in hand or being made
	usedAt  time.Duration
}

// dialer is the part of a target that makes connections: one attempt at a time until one succeeds, with growing pauses, then as many as
// there is work for.
type dialer struct {
	readiness lane.Readiness
	version   uint64 // destination version last dialled or claimed under
	dialing   int
	ready     []readyConn   // made in this turn and not yet claimed
	notBefore time.Duration // mono time of the next attempt after a failure
	pause     time.Duration
	queued    bool // waits for a place among MaxConnecting
}

type readyConn struct {
	carried *carried
	conn    Conn
}

// maxDialsPerTarget bounds the connections made at a time for one target that is READY.
const maxDialsPerTarget = 8

// dialObstacle is what keeps a target from having a connection, as far as is known without trying.
func (t *target) dialObstacle(now time.Duration) (Why, time.Duration) {
	if t.notBefore > now && len(t.ready) == 0 {
		if t.readiness == lane.Blocked {
			return WhyBlocked, t.notBefore
		}
		return WhyConnecting, t.notBefore
	}
	return WhySending, never
}

// carrier opens a destination version, or finds it open.
func (h *Host) carrier(l *laneState, version uint64) (*carried, error) {
	k := versionName{destinationName{l.name.Namespace, l.name.Destination}, version}
	if c := h.carriers[k]; c != nil {
		c.usedAt = h.mono
		return c, nil
	}
	d, ok, err := shard.GetDestination(h.opt.Store.Reader(), k.namespace, k.name, version)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s/%s version %d is pinned but not installed", shard.ErrCorrupt, k.namespace, k.name, version)
	}
	if err != nil {
		h.fail(err)
		return nil, err
	}
	c := &carried{version: version, dest: d, usedAt: h.mono}
	if c.target, err = h.opt.Carrier.Target(&c.dest); err != nil {
		return nil, &ConnectFailure{Class: "TARGET", Detail: plain(err), Blocked: true} // no waiting mends a definition
	}
	h.carriers[k] = c
	return c, nil
}

// hold gives a connection to the target at hand for this version, at once, or starts making one and returns nil.
func (h *Host) hold(t *target, version uint64) (*carried, Conn) {
	for i, r := range t.ready {
		if r.carried.version == version {
			t.ready = append(t.ready[:i], t.ready[i+1:]...)
			return r.carried, r.conn
		}
	}
	c, err := h.carrier(t.lane, version)
	if err != nil {
		h.connectFailed(t, err)
		return nil, nil
	}
	t.version = version
	if conn, ok := c.target.TryConn(); ok {
		c.users++
		h.connected(t)
		return c, conn
	}
	h.dial(t, c)
	return nil, nil
}

// dialFor starts the readiness check of a target, under the version of its first due item.
func (h *Host) dialFor(t *target) {
	if err := h.refill(t); err != nil {
		h.fail(err)
		return
	}
	if len(t.win.heap) == 0 {
		return
	}
	it := t.win.heap[0]
	if it.version == 0 && !h.identify(it) {
		h.poke(t)
		return
	}
	c, err := h.carrier(t.lane, it.version)
	if err != nil {
		h.connectFailed(t, err)
		return
	}
	h.dial(t, c)
}

// dial makes connections in the background: one while the target is not READY, else as many as the due work can use.
func (h *Host) dial(t *target, c *carried) {
	want := 1
	if t.readiness == lane.Ready && t.circuit.Phase == lane.CircuitClosed {
		want = min(len(t.win.heap), t.lane.max-t.lane.inFlight, maxDialsPerTarget)
	}
	for t.dialing < want {
		if !h.dialRoom(t) {
			if !t.queued {
				t.queued = true
				h.waitingDial = append(h.waitingDial, t)
			}
			return
		}
		h.dialOne(t, c)
	}
}

// dialRoom keeps half of the places for targets that answered before, so that many dead ones cannot hold up the living.
func (h *Host) dialRoom(t *target) bool {
	if h.dialing >= h.opt.MaxConnecting {
		return false
	}
	return t.readiness == lane.Ready || h.dialingFresh < h.opt.MaxConnecting/2
}

func (h *Host) dialOne(t *target, c *carried) {
	fresh := t.readiness != lane.Ready
	t.readiness = verifying(t.readiness)
	t.dialing++
	h.dialing++
	if fresh {
		h.dialingFresh++
	}
	c.users++
	h.dials.Go(func() {
		ctx, cancel := context.WithTimeout(h.base, connectTimeout)
		conn, err := c.target.Connect(ctx)
		cancel()
		if !h.inbox.put(message{call: func() { h.dialled(t, c, fresh, conn, err) }}) && err == nil {
			conn.Release()
		}
	})
}

// verifying is the readiness while a connection is being made: what was BLOCKED is verified anew before it can be READY (B.4).
func verifying(r lane.Readiness) lane.Readiness {
	if r == lane.Blocked {
		return lane.Recovering
	}
	return r
}

// dialled takes the result of one attempt to connect.
func (h *Host) dialled(t *target, c *carried, fresh bool, conn Conn, err error) {
	t.dialing--
	h.dialing--
	if fresh {
		h.dialingFresh--
	}
	for _, w := range h.waitingDial {
		w.queued = false
		h.poke(w)
	}
	h.waitingDial = h.waitingDial[:0]
	current := h.fairIDs[t.fairID] == t
	switch {
	case err != nil:
		c.users--
		if current {
			h.connectFailed(t, err)
		}
	case !current:
		conn.Release()
		c.users--
	default:
		h.connected(t)
		t.ready = append(t.ready, readyConn{c, conn})
	}
	if current {
		h.poke(t)
	}
}

func (h *Host) connected(t *target) {
	t.readiness, t.pause, t.notBefore, t.detail = lane.Ready, 0, 0, ""
}

// connectFailed: no attempt is used up. The circuit counts it, unless the lane is BLOCKED, which no waiting helps (DESIGN 7).
func (h *Host) connectFailed(t *target, err error) {
	var f *ConnectFailure
	if !errors.As(err, &f) {
		f = &ConnectFailure{Class: "CONNECT_FAILED", Detail: plain(err)}
	}
	t.readiness, t.detail = lane.Recovering, f.Class+": "+f.Detail
	if f.Blocked {
		t.readiness = lane.Blocked
	}
	if t.notBefore <= h.mono { // several attempts that fail together are one failure
		t.pause = min(max(2*t.pause, connectFirst), connectMost)
		t.notBefore = h.mono + t.pause
		h.opt.Observer.ConnectFailed(t.lane.name, f.Class)
		if !f.Blocked && !t.event {
			h.laneEvent(t, shard.LaneConnectFailed, f.Class, f.Detail)
		}
	}
	h.poke(t)
}

// releaseReady gives back connections that nothing claimed; the target keeps them idle.
func (t *target) releaseReady() {
	for _, r := range t.ready {
		r.conn.Release()
		r.carried.users--
	}
	t.ready = nil
}
