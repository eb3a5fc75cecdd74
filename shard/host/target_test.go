package host

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// request is one physical request a receiver saw.
type request struct {
	id         string
	generation uint32
	attempt    uint32
	payload    string
	at         time.Time
	node       string
}

func (r request) key() string { return fmt.Sprintf("%s-%d#%d", r.id, r.generation, r.attempt) }

// receiver is a scripted destination.
type receiver struct {
	mu       sync.Mutex
	requests []request
	inside   int // requests being answered
	most     int
	dials    int
	dialling int // connects under way
	most2    int
	conns    int // connections in hand

	latency   time.Duration
	answer    func(n int, d *Delivery) shard.Outcome // nil: published; n counts from 1
	hang      func(n int) bool                       // until its context ends
	zombie    chan struct{}                          // hang beyond the context, until closed
	connect   func(n int) error
	dialTime  time.Duration
	dialStuck bool
	idle      int // idle connections

	beforeGate time.Duration // a connection that is slow to reach its first byte
	quiet      bool
}

func (r *receiver) seen() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.requests...)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests)
}

// peak is the most requests it ever answered at a time, connecting the most connects.
func (r *receiver) peak() (requests, connects int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most, r.most2
}

func (r *receiver) now() (inside int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inside
}

func (r *receiver) set(fn func(r *receiver)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn(r)
}

// receiverSet is every receiver of a rig by target key.
type receiverSet struct {
	mu sync.Mutex
	m  map[string]*receiver
}

func (s *receiverSet) get(key string) *receiver {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[key]
}

// make returns the receiver of a key, a new one if there is none.
func (s *receiverSet) make(key string) *receiver {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m[key] == nil {
		s.m[key] = &receiver{latency: time.Millisecond}
	}
	return s.m[key]
}

// carrierFor gives receivers by target key.
type carrierFor struct {
	node *testNode
	of   *receiverSet
	mu   sync.Mutex
	open int
}

func (c *carrierFor) Target(d *shard.Destination) (Target, error) {
	r := c.of.get(d.TargetKey)
	if r == nil {
		return nil, &ConnectFailure{Class: "SECRET_MISSING", Detail: "no such target", Blocked: true}
	}
	c.mu.Lock()
	c.open++
	c.mu.Unlock()
	return &testTarget{c, r, d.Version}, nil
}

type testTarget struct {
	c       *carrierFor
	r       *receiver
	version uint64
}

func (t *testTarget) TryConn() (Conn, bool) {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	if t.r.idle == 0 {
		return nil, false
	}
	t.r.idle--
	t.r.conns++
	return &testConn{t: t}, true
}

func (t *testTarget) Connect(ctx context.Context) (Conn, error) {
	r := t.r
	r.mu.Lock()
	r.dials++
	r.dialling++
	r.most2 = max(r.most2, r.dialling)
	n, script, took, stuck := r.dials, r.connect, r.dialTime, r.dialStuck
	r.mu.Unlock()
	defer r.set(func(r *receiver) { r.dialling-- })
	if stuck {
		<-ctx.Done()
		return nil, &ConnectFailure{Class: "DIAL_TIMEOUT", Detail: "nobody answered"}
	}
	if took > 0 {
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return nil, &ConnectFailure{Class: "DIAL_TIMEOUT"}
		}
	}
	if script != nil {
		if err := script(n); err != nil {
			return nil, err
		}
	}
	r.set(func(r *receiver) { r.conns++ })
	return &testConn{t: t}, nil
}

func (t *testTarget) RequestHash(d *Delivery) [32]byte {
	return sha256.Sum256([]byte(fmt.Sprintf("%s %d %d %q v%d", d.MessageID, d.Generation, d.Attempt, d.Payload, t.version)))
}

func (t *testTarget) Close() {
	t.c.mu.Lock()
	t.c.open--
	t.c.mu.Unlock()
}

type testConn struct {
	t        *testTarget
	released bool
}

func (c *testConn) Release() {
	c.t.r.set(func(r *receiver) {
		if c.released {
			panic("released twice")
		}
		c.released = true
		r.conns--
		r.idle++
	})
}

func (c *testConn) Send(ctx context.Context, d *Delivery, gate func() error) shard.Outcome {
	if c.t.r.beforeGate > 0 {
		<-time.After(c.t.r.beforeGate)
	}
	if err := gate(); err != nil {
		return shard.Outcome{SideEffect: policy.NotPublished, Disposition: policy.Fenced, Evidence: shard.Evidence{
			Rule: "TEST_GATE", Statement: StatementBeforeOwnership, Detail: err.Error(),
		}}
	}
	r := c.t.r
	r.mu.Lock()
	if !r.quiet {
		r.requests = append(r.requests, request{d.MessageID, d.Generation, d.Attempt, string(d.Payload), time.Now(), c.t.c.node.name})
	}
	n := len(r.requests)
	r.inside++
	r.most = max(r.most, r.inside)
	latency, answer, hang, zombie := r.latency, r.answer, r.hang, r.zombie
	r.mu.Unlock()
	defer r.set(func(r *receiver) { r.inside-- })
	if zombie != nil {
		<-zombie
		return unknown()
	}
	if hang != nil && hang(n) {
		<-ctx.Done()
		return unknown()
	}
	if latency > 0 {
		select {
		case <-time.After(latency):
		case <-ctx.Done():
			return unknown()
		}
	}
	if answer != nil {
		return answer(n, d)
	}
	return published()
}

func published() shard.Outcome {
	return shard.Outcome{SideEffect: policy.Published, Disposition: policy.OK, Evidence: shard.Evidence{Rule: "TEST_OK", Statement: "RECEIVER_ACCEPTED"}}
}

func unknown() shard.Outcome {
	return shard.Outcome{SideEffect: policy.Unknown, Disposition: policy.LaneUnavailable, Evidence: shard.Evidence{Rule: "TEST_TIMEOUT", Statement: StatementNone}}
}

func refused(d policy.Disposition) shard.Outcome {
	return shard.Outcome{SideEffect: policy.NotPublished, Disposition: d, Evidence: shard.Evidence{
		Rule: "TEST_REFUSED", Statement: "RECEIVER_STATEMENT", ErrorClass: d.String(),
	}}
}
