package robustness

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Accepted is one submit that was acknowledged.
type Accepted struct {
	MessageID   string
	Key         string
	Destination string
	Payload     [32]byte
}

// Load submits messages until it is stopped. A submit whose answer was lost is repeated with the same key until there is a verdict, as a
// client should.
type Load struct {
	node         *Process
	destinations []string
	workers      int

	next     atomic.Uint64
	maybe    atomic.Uint64 // calls without a verdict, each repeated
	mu       sync.Mutex
	accepted []Accepted
	conflict []string // what must never be: two ids for one key
	wg       sync.WaitGroup
}

// NewLoad prepares a load on some destinations.
func NewLoad(node *Process, workers int, destinations ...string) *Load {
	return &Load{node: node, destinations: destinations, workers: workers}
}

// Run starts the workers; they end with the context, after the submit they are at has its verdict or giveUp has ended too.
func (l *Load) Run(ctx, giveUp context.Context) {
	for range l.workers {
		l.wg.Go(func() {
			for ctx.Err() == nil {
				l.one(ctx, giveUp)
			}
		})
	}
}

// Wait waits for the workers.
func (l *Load) Wait() { l.wg.Wait() }

// Accepted returns every acknowledged submit.
func (l *Load) Accepted() []Accepted {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Accepted(nil), l.accepted...)
}

func (l *Load) one(ctx, giveUp context.Context) {
	n := l.next.Add(1)
	key := fmt.Sprintf("key-%d", n)
	payload := []byte(fmt.Sprintf(`{"n": %d,  "n": "again & <again>"}`, n))
	q := &sealanev1.SubmitRequest{
		Destination: l.destinations[n%uint64(len(l.destinations))], Payload: payload, ContentType: "application/json", IdempotencyKey: key,
	}
	var first string
	for giveUp.Err() == nil {
		call, cancel := context.WithTimeout(giveUp, 2*time.Second)
		a, err := l.node.Delivery().Submit(call, q)
		cancel()
		if err == nil {
			l.keep(q, a.MessageId, first)
			return
		}
		l.maybe.Add(1)
		select {
		case <-time.After(10 * time.Millisecond):
		case <-giveUp.Done():
		}
	}
}

func (l *Load) keep(q *sealanev1.SubmitRequest, id, first string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first != "" && first != id {
		l.conflict = append(l.conflict, fmt.Sprintf("%s: %s and %s", q.IdempotencyKey, first, id))
	}
	l.accepted = append(l.accepted, Accepted{MessageID: id, Key: q.IdempotencyKey, Destination: q.Destination, Payload: sha256.Sum256(q.Payload)})
}
