package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Readers read accepted messages on random nodes, at their position or linearizably: each must be found.
type Readers struct {
	Cluster *Cluster
	Load    *Load
	Seed    uint64
	Workers int

	wg sync.WaitGroup

	mu        sync.Mutex
	answered  int
	pending   int
	failed    int
	violation []string
}

// Run reads until the context ends.
func (r *Readers) Run(ctx context.Context) {
	for w := range r.Workers {
		random := rand.New(rand.NewPCG(r.Seed, uint64(w)+5000))
		r.wg.Go(func() {
			for ctx.Err() == nil {
				r.one(ctx, random)
				pause(ctx, time.Duration(random.IntN(20))*time.Millisecond)
			}
		})
	}
}

// Wait waits for the readers.
func (r *Readers) Wait() { r.wg.Wait() }

func (r *Readers) one(ctx context.Context, random *rand.Rand) {
	s, ok := r.Load.Recent(random)
	m := r.Cluster.Pick(random)
	if !ok || m == nil {
		return
	}
	q := &sealanev1.GetMessageRequest{Id: s.MessageID, Position: s.Position}
	if random.IntN(2) == 0 {
		q = &sealanev1.GetMessageRequest{Id: s.MessageID, Consistency: sealanev1.Consistency_linearizable}
	}
	call, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	a, err := m.Query().GetMessage(call, q)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case isNotFound(err):
		r.violation = append(r.violation, fmt.Sprintf("%s, acknowledged at %s: %s says not found (%v)", s.MessageID, s.Position, m.ID, q))
	case err != nil:
		r.failed++
	case a.GetMessage() == nil:
		r.pending++
	case a.GetMessage().GetIdempotencyKey() != s.Key:
		r.violation = append(r.violation, fmt.Sprintf("%s: %s gives the message of %s, not of %s", s.MessageID, m.ID, a.GetMessage().GetIdempotencyKey(), s.Key))
	default:
		r.answered++
	}
}

// Violations are what must not be.
func (r *Readers) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violation)
}

func (r *Readers) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("answered %d, pending %d, without an answer %d", r.answered, r.pending, r.failed)
}
