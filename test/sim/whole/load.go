package whole

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

// How long clients wait for one call.
const (
	callWait   = 6 * time.Second
	submitWait = 10 * time.Second
)

// destinations are applied at the beginning. The first word of a name is the receiver's temper; "wide" has a lane in every shard.
var destinations = []string{"good-wide", "good-a", "slow-hold", "slow-retry", "drop-hold", "drop-retry", "lying-a", "sour-a"}

// spare is for registers: nothing of it is ever due.
const spare = "good-registers"

// load is the clients of a run.
type load struct {
	run    *Run
	client *client.Client
	stop   chan struct{}
}

func newLoad(run *Run) *load {
	addresses := ""
	for _, id := range run.cluster.all() {
		addresses += "," + run.cluster.members[id].address(doorGRPC)
	}
	c, err := client.Dial(addresses[1:], client.Options{
		RetryFor: submitWait, SubmitBy: 6 * time.Hour, // clocks may be off by hours
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(run.cluster.clients.dial)},
	})
	if err != nil {
		panic(err) // only a programmer's error can be the cause
	}
	return &load{run: run, client: c, stop: make(chan struct{})}
}

// apply registers all destinations.
func (l *load) apply() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, name := range append([]string{spare}, destinations...) {
		d := destination(name, l.run.plan.shards)
		for {
			_, err := l.client.Destinations().ApplyDestination(ctx, &sealanev1.ApplyDestinationRequest{Destination: d})
			if err == nil {
				break
			}
			if ctx.Err() != nil || status.Code(err) == codes.InvalidArgument {
				l.run.problem("apply %s: %v", name, err)
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func destination(name string, shards uint32) *sealanev1.Destination {
	d := &sealanev1.Destination{
		Name: name,
		Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{
			Url: "http://127.0.0.1:9/" + name, Timeout: durationpb.New(2 * time.Second),
		}},
		Retry: &sealanev1.RetryPolicy{
			MaxAttempts: 6, InitialBackoff: durationpb.New(200 * time.Millisecond), MaxBackoff: durationpb.New(2 * time.Second),
		},
		Circuit: &sealanev1.CircuitPolicy{
			FailureThreshold: 8, OpenFor: durationpb.New(time.Second), MaxOpenFor: durationpb.New(2 * time.Second), HalfOpenSuccesses: 1,
			TrialTimeout: durationpb.New(4 * time.Second),
		},
	}
	switch name {
	case "good-wide", spare:
		d.Lane = &sealanev1.LaneLimits{Spread: shards}
	case "drop-retry", "slow-retry":
		d.Uncertainty = &sealanev1.UncertaintyPolicy{
			OnUncertain: sealanev1.OnUncertain_retry, MaxRetries: 3, AcceptDuplicates: true, WhenExhausted: sealanev1.WhenExhausted_hold,
		}
	}
	return d
}

// work lets so many workers submit, change and read until the load is stopped.
func (l *load) work(workers int) {
	for w := range workers {
		random := rand.New(rand.NewPCG(l.run.seed, 0x10ad+uint64(w)))
		l.run.background.Go(func() {
			for n := 0; !isClosed(l.stop); n++ {
				l.once(random, fmt.Sprintf("w%d-%d", w, n))
				l.pause(time.Duration(random.IntN(120)) * time.Millisecond)
			}
		})
	}
}

// pause waits for a while, or until the load is stopped.
func (l *load) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.stop:
	}
}

// once is one thing that a client does.
func (l *load) once(random *rand.Rand, key string) {
	ids := l.run.journal.known()
	recent := ""
	if len(ids) > 0 {
		recent = ids[len(ids)-1-random.IntN(min(len(ids), 40))]
	}
	switch n := random.IntN(100); {
	case n < 60 || recent == "":
		l.submit(random, key)
	case n < 66:
		l.cancel(recent)
	case n < 72:
		l.reschedule(random, recent, key)
	case n < 94:
		l.read(random, recent)
	default:
		l.readAt(random)
	}
}

// submit submits one message, sometimes twice under one key at the same time.
func (l *load) submit(random *rand.Rand, key string) {
	s := &submit{key: key, dest: destinations[random.IntN(len(destinations))], payload: sha256.Sum256([]byte(key))}
	if random.IntN(10) == 0 && s.dest != "slow-retry" && s.dest != "drop-retry" { // a retry of an unknown with a key needs a receiver that dedups
		s.ordering = fmt.Sprintf("o%d", random.IntN(3))
	}
	if random.IntN(6) == 0 {
		s.deliverAt = time.Now().Add(time.Duration(random.IntN(15_000)) * time.Millisecond)
	}
	l.run.journal.begin(s)
	if random.IntN(12) == 0 {
		l.run.background.Go(func() { l.submitOnce(s) })
	}
	l.submitOnce(s)
}

func (l *load) submitOnce(s *submit) (id, position string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), submitWait)
	defer cancel()
	a, err := l.client.Submit(ctx, client.Message{
		Destination: s.dest, Payload: []byte(s.key), IdempotencyKey: s.key, OrderingKey: s.ordering, DeliverAt: s.deliverAt,
	})
	var not *client.NotAcceptedError
	switch {
	case err == nil:
		l.run.journal.end(l.run, s.key, accepted, a.MessageID, a.Position, "")
		l.run.trace.note("client", "%s is %s at %s", s.key, a.MessageID, a.Position)
	case errors.As(err, &not):
		l.run.journal.end(l.run, s.key, refused, "", "", err.Error())
		l.run.trace.note("client", "%s: %v", s.key, err)
		if not.Refusal.Code == codes.InvalidArgument || not.Refusal.Code == codes.AlreadyExists {
			l.run.problem("submit %s was refused: %v", s.key, err)
		}
	default:
		l.run.journal.end(l.run, s.key, open, "", "", err.Error())
		l.run.trace.note("client", "%s: %v", s.key, err)
	}
	return a.MessageID, a.Position, err == nil
}

func (l *load) cancel(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), callWait)
	defer cancel()
	r, err := l.client.Delivery().Cancel(ctx, &sealanev1.CancelRequest{Id: id, Reason: "simulation"})
	if err == nil {
		l.run.journal.changed(change{kind: "cancel", id: id, generation: r.GetGeneration()})
		l.run.trace.note("client", "cancelled %s-%d at %s", id, r.GetGeneration(), r.GetPosition())
	}
}

func (l *load) reschedule(random *rand.Rand, id, key string) {
	ctx, cancel := context.WithTimeout(context.Background(), callWait)
	defer cancel()
	at := time.Now().Add(time.Duration(random.IntN(5_000)) * time.Millisecond)
	r, err := l.client.Delivery().Reschedule(ctx, &sealanev1.RescheduleRequest{Id: id, DeliverAt: timestamppb.New(at), RequestId: key})
	if err == nil {
		l.run.journal.changed(change{kind: "reschedule", id: id, generation: r.GetGeneration(), request: key})
		l.run.trace.note("client", "rescheduled %s-%d at %s", id, r.GetGeneration(), r.GetPosition())
	}
}

// query picks a node by chance and gives its query service: what the node says counts, not what another would.
func (l *load) query(random *rand.Rand) (sealanev1.QueryServiceClient, string) {
	id := pick(random, l.run.cluster.up())
	if id == "" {
		return nil, ""
	}
	return l.run.cluster.door(id).query(), id
}

// read reads a message linearizably, and compares it with what was read before.
func (l *load) read(random *rand.Rand, id string) {
	q, node := l.query(random)
	if q == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callWait)
	defer cancel()
	before := l.run.journal.floorOf(id)
	r, err := q.GetMessage(ctx, &sealanev1.GetMessageRequest{Id: id, Consistency: sealanev1.Consistency_linearizable})
	switch {
	case status.Code(err) == codes.NotFound:
		l.run.problem("a linearizable read of %s on %s says: %v", id, node, err)
	case err == nil && r.GetMessage() != nil:
		l.run.reads.Add(1)
		l.run.journal.saw(l.run, before, r.GetMessage())
	}
}

// readAt reads a message at the position at which it was acknowledged, on any node.
func (l *load) readAt(random *rand.Rand) {
	q, node := l.query(random)
	s := l.run.journal.recent(random)
	if q == nil || s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callWait)
	defer cancel()
	r, err := q.GetMessage(ctx, &sealanev1.GetMessageRequest{Id: s.id, Position: s.position})
	if status.Code(err) == codes.NotFound {
		l.run.problem("a read of %s at %s on %s says: %v", s.id, s.position, node, err)
	}
	if err == nil && r.GetMessage() != nil {
		l.run.reads.Add(1)
		_, want, _ := positionOf(s.position)
		_, at, _ := positionOf(r.GetRead().GetAppliedPosition())
		if at < want {
			l.run.problem("a read at %s on %s was answered at %s", s.position, node, r.GetRead().GetAppliedPosition())
		}
	}
}

// recent picks one of the newest acknowledged submits.
func (j *journal) recent(random *rand.Rand) *submit {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.ids) == 0 {
		return nil
	}
	id := j.ids[len(j.ids)-1-random.IntN(min(len(j.ids), 20))]
	for _, s := range j.byKey {
		if s.id == id {
			c := *s
			return &c
		}
	}
	return nil
}
