package robustness

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sealane/sealane/client"
)

// Verdict is what a submitter learned in the end.
type Verdict int

// The three answers of a submit (DESIGN 3).
const (
	WasAccepted Verdict = iota
	WasNotAccepted
	MaybeAccepted
)

// Submitted is one message that a submitter tried to give away.
type Submitted struct {
	Key, Destination, OrderingKey string
	MessageID, Position           string // of an accepted one
	Payload                       [32]byte
	DeliverAt                     time.Time // zero: at once
	Began, Ended                  time.Time
	Verdict                       Verdict
	Why                           string // of the last refusal
}

// Stream is one kind of message that a load submits.
type Stream struct {
	Destination string
	Keys        int           // ordering keys, 0 for none
	Later       time.Duration // deliver_at lies up to this far ahead, 0 for at once
	Expire      time.Duration // expire_at lies this far ahead, 0 for never
}

// Submitter gives one message to Sealane: a client of the whole cluster, or of one node.
type Submitter interface {
	Submit(context.Context, client.Message) (client.Accepted, error)
}

// Load submits messages with unique keys and known payloads until it is stopped, and writes down every answer.
type Load struct {
	// Pick chooses who submits the next try of a message.
	Pick func(random *rand.Rand) Submitter
	// Streams are submitted in turn.
	Streams []Stream
	// PerSecond is the pace of all workers together; 0 is as fast as they can.
	PerSecond int
	Workers   int
	Seed      uint64

	next     atomic.Uint64
	maybe    atomic.Uint64 // submits that ended without a verdict, most of which were repeated
	failed   atomic.Uint64 // of these and the refused ones: calls of the client that did not end in acceptance
	mu       sync.Mutex
	done     []Submitted
	recent   []int    // indexes into done of accepted ones, for readers
	conflict []string // what must never be: two ids for one key
	failures []string // the first few of the failed calls
	wg       sync.WaitGroup
}

// Run starts the workers; they end with the context, after the submit they are at has its verdict or giveUp has ended too.
func (l *Load) Run(ctx, giveUp context.Context) {
	pace := make(chan struct{})
	if l.PerSecond == 0 {
		close(pace)
	} else {
		l.wg.Go(func() { l.tick(ctx, pace) })
	}
	for w := range l.Workers {
		random := rand.New(rand.NewPCG(l.Seed, uint64(w)+10))
		l.wg.Go(func() {
			for {
				select {
				case <-pace:
				case <-ctx.Done():
				}
				if ctx.Err() != nil {
					return
				}
				l.one(giveUp, random)
			}
		})
	}
}

// tick lets the workers go on at the pace. What could not be taken while all were busy is not made up for.
func (l *Load) tick(ctx context.Context, pace chan<- struct{}) {
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	owed, last := 0.0, time.Now()
	for ctx.Err() == nil {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		owed = min(owed+now.Sub(last).Seconds()*float64(l.PerSecond), float64(l.PerSecond))
		last = now
		for ; owed >= 1; owed-- {
			select {
			case pace <- struct{}{}:
				continue
			default:
			}
			break
		}
	}
}

// Wait waits for the workers.
func (l *Load) Wait() { l.wg.Wait() }

// Submitted returns everything that has an answer, in the order of the answers.
func (l *Load) Submitted() []Submitted {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Submitted(nil), l.done...)
}

// Recent picks one of the last accepted messages; ok is false while there is none.
func (l *Load) Recent(random *rand.Rand) (s Submitted, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.recent)
	if n == 0 {
		return s, false
	}
	from := 0
	if random.IntN(4) > 0 {
		from = max(0, n-200)
	}
	return l.done[l.recent[from+random.IntN(n-from)]], true
}

func (l *Load) one(giveUp context.Context, random *rand.Rand) {
	n := l.next.Add(1)
	stream := l.Streams[n%uint64(len(l.Streams))]
	payload := []byte(fmt.Sprintf(`{"n": %d,  "n": "again & <again>"}`, n))
	m := client.Message{
		Destination: stream.Destination, Payload: payload, ContentType: "application/json", IdempotencyKey: fmt.Sprintf("key-%d-%d", l.Seed, n),
	}
	s := Submitted{Key: m.IdempotencyKey, Destination: m.Destination, Payload: sha256.Sum256(payload), Began: time.Now()}
	m.SubmitBy = s.Began.Add(10 * time.Minute)
	if stream.Keys > 0 {
		m.OrderingKey = fmt.Sprintf("order-%d", random.IntN(stream.Keys))
		s.OrderingKey = m.OrderingKey
	}
	if stream.Later > 0 {
		m.DeliverAt = s.Began.Add(rand.N(stream.Later))
		s.DeliverAt = m.DeliverAt
	}
	if stream.Expire > 0 {
		m.ExpireAt = s.Began.Add(stream.Expire)
	}
	l.submit(giveUp, random, m, &s)
	l.keep(s)
	if s.Verdict == WasAccepted && random.IntN(50) == 0 {
		l.again(giveUp, random, m, s)
	}
}

// submit asks until there is a verdict. Some that have none are given up at once: a client may die with the question open.
func (l *Load) submit(giveUp context.Context, random *rand.Rand, m client.Message, s *Submitted) {
	maybe := false
	for {
		a, err := l.Pick(random).Submit(giveUp, m)
		s.Ended = time.Now()
		if err == nil {
			s.Verdict, s.MessageID, s.Position = WasAccepted, a.MessageID, a.Position
			return
		}
		l.fail(err)
		s.Why = err.Error()
		var unknown *client.MaybeAcceptedError
		if !errors.As(err, &unknown) && !maybe {
			s.Verdict = WasNotAccepted
			return
		}
		// A refusal now says nothing about the earlier try, whatever this client's own history: the verdict is open until accepted.
		maybe, s.Verdict = true, MaybeAccepted
		l.maybe.Add(1)
		if random.IntN(3) == 0 || !pause(giveUp, 10*time.Millisecond) {
			return
		}
	}
}

func (l *Load) fail(err error) {
	l.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failures) < 10 {
		l.failures = append(l.failures, fmt.Sprintf("%s %v", time.Now().Format("15:04:05.000"), err))
	}
}

// Failures are the first few calls that did not end in acceptance.
func (l *Load) Failures() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.failures...)
}

// again submits what was accepted once more: the answer must be the same message.
func (l *Load) again(giveUp context.Context, random *rand.Rand, m client.Message, s Submitted) {
	a, err := l.Pick(random).Submit(giveUp, m)
	if err != nil || a.MessageID == s.MessageID {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conflict = append(l.conflict, fmt.Sprintf("%s: %s and %s", s.Key, s.MessageID, a.MessageID))
}

func (l *Load) keep(s Submitted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.Verdict == WasAccepted {
		l.recent = append(l.recent, len(l.done))
	}
	l.done = append(l.done, s)
}

// pause waits; false means that the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
