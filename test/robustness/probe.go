package robustness

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/client"
)

// Probe writes a message to one shard at short intervals, and so knows when the shard takes writes, and when it sends.
type Probe struct {
	Shard       uint32
	Destination string
	Every       time.Duration
	Client      Submitter
	Record      func(Submitted)
	Seed        uint64

	wg sync.WaitGroup

	mu    sync.Mutex
	wrote []span           // calls that were accepted
	began map[string]int64 // start of the submit by message id, nanoseconds since epoch
	fails int
}

type span struct{ began, ended time.Time }

// ProbeName finds the name of a destination whose messages all go to one shard.
func ProbeName(shard, shards uint32) string {
	for i := 0; ; i++ {
		name := fmt.Sprintf("probe-%d-%d", shard, i)
		if uint32(catalog.ShardOf("default", name, 0, shards)) == shard {
			return name
		}
	}
}

// Run probes until the context ends. Each probe has a second, and several may wait at a time: a slow one does not hide how long it took.
func (p *Probe) Run(ctx context.Context) {
	p.began = map[string]int64{}
	p.wg.Go(func() {
		tick := time.NewTicker(p.Every)
		defer tick.Stop()
		slots := make(chan struct{}, 50)
		for n := 0; ; n++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			select {
			case slots <- struct{}{}:
			default:
				continue // fifty probes wait already
			}
			p.wg.Go(func() {
				p.one(ctx, n)
				<-slots
			})
		}
	})
}

// Wait waits for the last probes.
func (p *Probe) Wait() { p.wg.Wait() }

func (p *Probe) one(ctx context.Context, n int) {
	key := fmt.Sprintf("%s-%d-%d", p.Destination, p.Seed, n)
	s := Submitted{Key: key, Destination: p.Destination, Payload: sha256.Sum256([]byte(key)), Began: time.Now()}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	a, err := p.Client.Submit(call, client.Message{Destination: p.Destination, Payload: []byte(key), IdempotencyKey: key})
	s.Ended = time.Now()
	p.mu.Lock()
	if err != nil {
		s.Verdict, s.Why = MaybeAccepted, err.Error()
		p.fails++
	} else {
		s.MessageID, s.Position = a.MessageID, a.Position
		p.wrote = append(p.wrote, span{s.Began, s.Ended})
		p.began[a.MessageID] = s.Began.UnixNano()
	}
	p.mu.Unlock()
	p.Record(s)
}

// WrittenSince tells when the first probe that began at or after a time was accepted.
func (p *Probe) WrittenSince(t time.Time) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.wrote {
		if !w.began.Before(t) {
			return w.ended, true
		}
	}
	return time.Time{}, false
}

// Gap is the longest time without an accepted probe between two times, ends included.
func (p *Probe) Gap(from, to time.Time) time.Duration {
	p.mu.Lock()
	ends := make([]time.Time, 0, len(p.wrote))
	for _, w := range p.wrote {
		ends = append(ends, w.ended)
	}
	p.mu.Unlock()
	return longestGap(ends, from, to)
}

// SentSince tells when the receiver got the first probe that was submitted at or after a time.
func (p *Probe) SentSince(r *Receiver, t time.Time) (time.Time, bool) {
	for _, s := range r.Since(t, "/"+p.Destination) {
		id := s.WebhookID[:max(0, len(s.WebhookID)-2)]
		p.mu.Lock()
		began, ok := p.began[id]
		p.mu.Unlock()
		if ok && began >= t.UnixNano() {
			return s.At, true
		}
	}
	return time.Time{}, false
}

// SendGap is the longest time between two requests of this probe at the receiver.
func (p *Probe) SendGap(r *Receiver, from, to time.Time) time.Duration {
	var at []time.Time
	for _, s := range r.Since(from, "/"+p.Destination) {
		at = append(at, s.At)
	}
	return longestGap(at, from, to)
}

func longestGap(at []time.Time, from, to time.Time) time.Duration {
	slices.SortFunc(at, time.Time.Compare)
	last, longest := from, time.Duration(0)
	for _, t := range at {
		if t.Before(from) || t.After(to) {
			continue
		}
		longest, last = max(longest, t.Sub(last)), t
	}
	return max(longest, to.Sub(last))
}
