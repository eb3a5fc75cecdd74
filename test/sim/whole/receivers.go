package whole

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/host"
)

// What a receiver does with a request that reached it.
type reaction uint8

const (
	takes     reaction = iota // accepts it and says so
	mute                      // accepts it, and the answer is lost
	swallows                  // loses it, and says nothing
	lies                      // accepts it and says that it did not (500)
	retryable                 // refuses it for now (500)
	throttles                 // asks for fewer (503 with Retry-After)
	refuses                   // refuses it for good (400)
)

func (r reaction) took() bool { return r <= mute || r == lies }

// temper is how one receiver behaves: per mille of requests for each reaction, the rest is taken. Latency is that of an answer.
type temper struct {
	shares  map[reaction]int
	latency time.Duration // answers take from a tenth of it to all of it
	down    int           // per mille of attempts to connect that fail
}

var order = []reaction{mute, swallows, lies, retryable, throttles, refuses}

// tempers are the receivers by the first word of a destination's name.
var tempers = map[string]temper{
	"good":  {latency: 10 * time.Millisecond},
	"slow":  {latency: 2500 * time.Millisecond}, // some beyond the timeout of 2 s
	"drop":  {latency: 50 * time.Millisecond, shares: map[reaction]int{mute: 200, swallows: 200}},
	"lying": {latency: 20 * time.Millisecond, shares: map[reaction]int{lies: 250, retryable: 100}},
	"sour":  {latency: 20 * time.Millisecond, shares: map[reaction]int{retryable: 250, throttles: 30, refuses: 150}, down: 200},
}

// request is what a receiver saw.
type request struct {
	message    string
	generation uint32
	attempt    uint32
	dest       string
	payload    [32]byte
	hash       [32]byte
	node       string
	boot       int
	at         time.Time
	reaction   reaction
}

func (r *request) name() string {
	return fmt.Sprintf("%s-%d attempt %d", r.message, r.generation, r.attempt)
}

// receivers are all destinations, seen from their side. They are not part of the cluster and survive everything.
type receivers struct {
	mu     sync.Mutex
	random *rand.Rand
	calm   bool
	seen   []request
	flying int           // requests that were sent and have not arrived
	stalls time.Duration // how long a send may stand still before its gate
	run    *Run
}

func newReceivers(run *Run, seed uint64) *receivers {
	return &receivers{random: rand.New(rand.NewPCG(seed, 0xde57)), run: run}
}

// settle makes every receiver a good one from now on.
func (r *receivers) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calm, r.stalls = true, 0
}

func (r *receivers) requests() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.seen...)
}

func (r *receivers) temper(dest string) temper {
	if r.calm {
		return tempers["good"]
	}
	word, _, _ := strings.Cut(dest, "-")
	return tempers[word]
}

// carrier is how one process reaches the receivers. Once the process is killed nothing leaves it any more.
type carrier struct {
	r      *receivers
	node   string
	boot   int
	killed chan struct{}
	once   sync.Once
}

func (r *receivers) carrier(node string, boot int) *carrier {
	return &carrier{r: r, node: node, boot: boot, killed: make(chan struct{})}
}

// kill ends the process for the receivers.
func (c *carrier) kill() {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.once.Do(func() { close(c.killed) })
}

func (c *carrier) dead() bool {
	select {
	case <-c.killed:
		return true
	default:
		return false
	}
}

// Target implements host.Carrier.
func (c *carrier) Target(d *shard.Destination) (host.Target, error) {
	return &target{c: c, dest: d.Name, timeout: d.Timeout}, nil
}

type target struct {
	c       *carrier
	dest    string
	timeout time.Duration
}

func (t *target) TryConn() (host.Conn, bool) { return nil, false }
func (t *target) Close()                     {}

func (t *target) RequestHash(d *host.Delivery) [32]byte { return requestHash(t.dest, d) }

func requestHash(dest string, d *host.Delivery) [32]byte {
	b := append([]byte(dest+"\x00"+d.MessageID), 0)
	b = binary.BigEndian.AppendUint32(b, d.Generation)
	return sha256.Sum256(append(b, d.Payload...))
}

// Connect takes a moment, and fails where the receiver is down.
func (t *target) Connect(ctx context.Context) (host.Conn, error) {
	r := t.c.r
	r.mu.Lock()
	wait := time.Duration(r.random.IntN(5_000)) * time.Microsecond
	down := r.random.IntN(1000) < r.temper(t.dest).down
	r.mu.Unlock()
	if err := rest(ctx, wait); err != nil || t.c.dead() {
		return nil, &host.ConnectFailure{Class: "CANCELLED", Detail: "the process ends"}
	}
	if down {
		return nil, &host.ConnectFailure{Class: "DIAL_REFUSED", Detail: "the receiver is down"}
	}
	return &hand{t}, nil
}

// rest waits for a while or the end of the context.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type hand struct{ t *target }

func (h *hand) Release() {}

// Send asks the gate and lets the request go. It arrives later, whatever becomes of the process meanwhile.
func (h *hand) Send(ctx context.Context, d *host.Delivery, gate func() error) shard.Outcome {
	t, r := h.t, h.t.c.r
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	if rest(ctx, r.stallOf()) != nil {
		return outcome(policy.NotPublished, policy.MessageRetriable, "HTTP_H1", "BEFORE_OWNERSHIP", "TIMEOUT", 0)
	}
	if err := gate(); err != nil {
		return outcome(policy.NotPublished, policy.Fenced, "HTTP_GATE", "BEFORE_OWNERSHIP", "SEND_GATE", 0)
	}
	answer := make(chan shard.Outcome, 1)
	r.mu.Lock()
	if t.c.dead() {
		r.mu.Unlock()
		return outcome(policy.Unknown, policy.MessageRetriable, "HTTP_H3", "NONE", "CANCELLED", 0)
	}
	r.flying++
	travel := time.Duration(r.random.IntN(3_000)) * time.Microsecond
	if r.random.IntN(20) == 0 {
		travel *= 300 // late bytes, up to 0.9 s
	}
	r.mu.Unlock()
	req := request{
		message: d.MessageID, generation: d.Generation, attempt: d.Attempt, dest: t.dest, payload: sha256.Sum256(d.Payload),
		hash: requestHash(t.dest, d), node: t.c.node, boot: t.c.boot,
	}
	r.run.background.Go(func() { r.arrive(req, travel, answer) })
	select {
	case o := <-answer:
		return o
	case <-ctx.Done():
		return outcome(policy.Unknown, policy.MessageRetriable, "HTTP_H3", "NONE", "TIMEOUT", 0)
	case <-t.c.killed:
		return outcome(policy.Unknown, policy.MessageRetriable, "HTTP_H3", "NONE", "CANCELLED", 0)
	}
}

// arrive lets a request come in, writes it down, and answers.
func (r *receivers) arrive(req request, travel time.Duration, answer chan<- shard.Outcome) {
	time.Sleep(travel)
	r.mu.Lock()
	m := r.temper(req.dest)
	n := r.random.IntN(1000)
	for _, kind := range order {
		if n < m.shares[kind] {
			req.reaction = kind
			break
		}
		n -= m.shares[kind]
	}
	think := m.latency/10 + time.Duration(r.random.Int64N(int64(m.latency)))
	req.at = time.Now()
	r.seen = append(r.seen, req)
	r.flying--
	r.mu.Unlock()
	r.run.trace.note("receiver", "%s saw %s from %s/%d, reaction %d", req.dest, req.name(), req.node, req.boot, req.reaction)
	time.Sleep(think)
	switch req.reaction {
	case takes:
		answer <- outcome(policy.Published, policy.OK, "HTTP_H4", "RECEIVER_ACCEPTED", "", 200)
	case lies, retryable:
		answer <- outcome(policy.NotPublished, policy.MessageRetriable, "HTTP_H16", "RECEIVER_STATEMENT", "HTTP_500", 500)
	case throttles:
		o := outcome(policy.NotPublished, policy.LaneThrottled, "HTTP_H15", "RECEIVER_STATEMENT", "HTTP_503", 503)
		o.RetryAfter, o.HasRetryAfter = 500*time.Millisecond, true
		answer <- o
	case refuses:
		answer <- outcome(policy.NotPublished, policy.MessagePermanent, "HTTP_H8", "RECEIVER_STATEMENT", "HTTP_400", 400)
	case mute, swallows:
		answer <- outcome(policy.Unknown, policy.MessageRetriable, "HTTP_H3", "NONE", "CONNECTION_LOST", 0)
	}
}

func outcome(side policy.SideEffect, disposition policy.Disposition, rule, statement, class string, status uint32) shard.Outcome {
	return shard.Outcome{SideEffect: side, Disposition: disposition, Evidence: shard.Evidence{
		Rule: rule, Statement: statement, ErrorClass: class, Status: status, At: policy.Time(time.Now().UnixNano()),
	}}
}

// stall lets sends stand still before their gates, each for up to d.
func (r *receivers) stall(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalls = d
}

func (r *receivers) stallOf() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stalls == 0 || r.random.IntN(4) > 0 {
		return 0
	}
	return time.Duration(r.random.Int64N(int64(r.stalls)))
}
