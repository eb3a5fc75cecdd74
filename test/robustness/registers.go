package robustness

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Bounds of one register's life. Few open writes keep the judgement cheap: each may have taken effect at any later time.
const (
	registerOps  = 200
	registerOpen = 8
	registerLife = 20 * time.Second
)

// Registers use messages as registers: a message scheduled far ahead is rescheduled by several writers, each to a time of its own, and read
// back, linearizably, on random nodes. What was read and when goes to porcupine. A write without a verdict stays open. Reads at a position
// are checked on the spot: they must not be older than the write that answered with it.
type Registers struct {
	Cluster *Cluster
	Seed    uint64
	Workers int // per register
	Slots   []string
	// Record keeps the submits that made the registers, for the audit.
	Record func(Submitted)

	start time.Time
	wg    sync.WaitGroup

	mu        sync.Mutex
	histories int
	ops       int
	undecided int
	reads     int
	failed    int // reads and writes without an answer
	violation []string
}

// registerState is what the model knows: the newest generation and the time it was set to.
type registerState struct {
	generation uint32
	token      int64
}

type registerInput struct {
	write bool
	token int64
}

type registerOutput struct {
	known bool // false: the write has no verdict
	registerState
}

// registerModel judges: a write makes the next generation, a read returns the newest.
var registerModel = porcupine.Model{
	Init: func() any { return registerState{generation: 1} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(registerState), input.(registerInput), output.(registerOutput)
		if !in.write {
			return out.registerState == s, s
		}
		next := registerState{s.generation + 1, in.token}
		return !out.known || out.generation == next.generation, next
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(registerInput), output.(registerOutput)
		switch {
		case in.write && !out.known:
			return fmt.Sprintf("write %d: no verdict", in.token)
		case in.write:
			return fmt.Sprintf("write %d: generation %d", in.token, out.generation)
		}
		return fmt.Sprintf("read: generation %d, %d", out.generation, out.token)
	},
}

// Run makes and judges registers, one after the other for each slot, until the context ends.
func (g *Registers) Run(ctx context.Context) {
	g.start = time.Now()
	for i, destination := range g.Slots {
		g.wg.Go(func() {
			random := rand.New(rand.NewPCG(g.Seed, uint64(i)+1000))
			for n := 0; ctx.Err() == nil; n++ {
				g.one(ctx, destination, fmt.Sprintf("register-%d-%d-%d", g.Seed, i, n), random)
			}
		})
	}
}

// Wait waits for the registers that are being judged.
func (g *Registers) Wait() { g.wg.Wait() }

// register is one message under test.
type register struct {
	g        *Registers
	id       string
	mu       sync.Mutex
	ops      []porcupine.Operation
	open     int
	position string // of the newest write that this test knows of
	atLeast  uint32 // the generation that it made
}

func (g *Registers) one(ctx context.Context, destination, key string, random *rand.Rand) {
	payload := []byte(key)
	at := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	m := g.Cluster.Pick(random)
	if m == nil {
		pause(ctx, 50*time.Millisecond)
		return
	}
	q := &sealanev1.SubmitRequest{Destination: destination, Payload: payload, IdempotencyKey: key, DeliverAt: timestamppb.New(at)}
	call, cancel := context.WithTimeout(ctx, 2*time.Second)
	s := Submitted{Key: key, Destination: destination, Payload: sha256.Sum256(payload), Began: time.Now()}
	r, err := m.Delivery().Submit(call, q)
	cancel()
	s.Ended = time.Now()
	if err != nil {
		s.Verdict, s.Why = MaybeAccepted, err.Error()
		g.Record(s)
		pause(ctx, 50*time.Millisecond)
		return
	}
	s.MessageID, s.Position = r.GetMessageId(), r.GetPosition()
	g.Record(s)
	reg := &register{g: g, id: r.GetMessageId(), position: r.GetPosition(), atLeast: 1}
	life, stop := context.WithTimeout(ctx, registerLife)
	var wg sync.WaitGroup
	for w := range g.Workers {
		mine := rand.New(rand.NewPCG(random.Uint64(), uint64(w)))
		wg.Go(func() { reg.work(life, mine, at) })
	}
	wg.Wait()
	stop()
	g.judge(key, reg.ops)
	g.discard(ctx, reg.id)
}

func (r *register) work(ctx context.Context, random *rand.Rand, base time.Time) {
	for ctx.Err() == nil && r.more() {
		m := r.g.Cluster.Pick(random)
		if m == nil {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		switch n := random.IntN(10); {
		case n < 3:
			r.write(ctx, m, random, base)
		case n < 8:
			r.read(ctx, m)
		default:
			r.readAt(ctx, m)
		}
		pause(ctx, time.Duration(random.IntN(60))*time.Millisecond)
	}
}

func (r *register) more() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ops) < registerOps && r.open < registerOpen
}

func (r *register) keep(in registerInput, out registerOutput, call, back int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{Input: in, Output: out, Call: call, Return: back})
}

func (r *register) write(ctx context.Context, m *Member, random *rand.Rand, base time.Time) {
	token := random.Int64N(1 << 40)
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	began := r.g.now()
	a, err := m.Delivery().Reschedule(call, &sealanev1.RescheduleRequest{
		Id: r.id, DeliverAt: timestamppb.New(base.Add(time.Duration(token))), RequestId: fmt.Sprint(token),
	})
	if err != nil {
		// Open to the end of time: it may take effect later.
		r.mu.Lock()
		r.open++
		r.mu.Unlock()
		r.keep(registerInput{true, token}, registerOutput{}, began, 1<<62)
		r.g.count(false)
		return
	}
	r.keep(registerInput{true, token}, registerOutput{true, registerState{generation: a.GetGeneration()}}, began, r.g.now())
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.GetGeneration() > r.atLeast {
		r.position, r.atLeast = a.GetPosition(), a.GetGeneration()
	}
}

func (r *register) read(ctx context.Context, m *Member) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	began := r.g.now()
	a, err := m.Query().GetMessage(call, &sealanev1.GetMessageRequest{Id: r.id, Consistency: sealanev1.Consistency_linearizable})
	r.g.count(err == nil && a.GetMessage() != nil)
	if isNotFound(err) {
		r.g.violate("%s: a linearizable read on %s says not found", r.id, m.ID)
		return
	}
	if err != nil || a.GetMessage() == nil {
		return
	}
	out := registerOutput{known: true, registerState: registerState{generation: a.GetMessage().GetGeneration()}}
	if out.generation > 1 {
		gens := a.GetMessage().GetGenerations()
		out.token = int64(gens[len(gens)-1].GetDeliverAt().AsTime().Sub(r.base(a.GetMessage())))
	}
	r.keep(registerInput{}, out, began, r.g.now())
}

// base is the time that the register was made for: tokens count from it.
func (r *register) base(m *sealanev1.Message) time.Time {
	return m.GetDeliverAt().AsTime()
}

// readAt reads at the position of the newest write that this test knows of.
func (r *register) readAt(ctx context.Context, m *Member) {
	r.mu.Lock()
	position, atLeast := r.position, r.atLeast
	r.mu.Unlock()
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	a, err := m.Query().GetMessage(call, &sealanev1.GetMessageRequest{Id: r.id, Position: position})
	r.g.count(err == nil)
	if isNotFound(err) {
		r.g.violate("%s: a read at %s on %s says not found", r.id, position, m.ID)
	}
	if err == nil && a.GetMessage() != nil && a.GetMessage().GetGeneration() < atLeast {
		r.g.violate("%s: a read at %s on %s gives generation %d, that position made %d", r.id, position, m.ID, a.GetMessage().GetGeneration(), atLeast)
	}
}

func (g *Registers) now() int64 { return int64(time.Since(g.start)) }

func (g *Registers) count(answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reads++; !answered {
		g.failed++
	}
}

func (g *Registers) violate(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.violation = append(g.violation, fmt.Sprintf(format, args...))
}

// judge gives a history to porcupine.
func (g *Registers) judge(key string, ops []porcupine.Operation) {
	result, _ := porcupine.CheckOperationsVerbose(registerModel, ops, 20*time.Second)
	g.mu.Lock()
	g.histories++
	g.ops += len(ops)
	if result == porcupine.Unknown {
		g.undecided++
	}
	g.mu.Unlock()
	if result == porcupine.Illegal {
		g.violate("%s is not linearizable:\n%s", key, describe(ops))
	}
}

// describe shows a history by the time of the calls.
func describe(ops []porcupine.Operation) string {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, o := range ops {
		back := "never"
		if o.Return != 1<<62 {
			back = time.Duration(o.Return).String()
		}
		fmt.Fprintf(&b, "      %12s to %12s  %s\n", time.Duration(o.Call), back, registerModel.DescribeOperation(o.Input, o.Output))
	}
	return b.String()
}

// discard cancels a register so that nothing is pending at the end; where nobody answers it stays scheduled, far ahead.
func (g *Registers) discard(ctx context.Context, id string) {
	for _, m := range g.Cluster.Members() {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		_, err := m.Delivery().Cancel(call, &sealanev1.CancelRequest{Id: id, Reason: "end of test"})
		cancel()
		if err == nil {
			return
		}
	}
}

// Violations are what must not be.
func (g *Registers) Violations() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.violation)
}

func (g *Registers) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("histories judged %d (undecided %d), operations %d, calls %d (without an answer %d)", g.histories, g.undecided, g.ops, g.reads, g.failed)
}
