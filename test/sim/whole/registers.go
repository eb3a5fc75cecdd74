package whole

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Bounds of one register. Few open writes keep the judgement cheap: each may take effect at any later time.
const (
	registerOps  = 80
	registerOpen = 6
	registerFar  = 100 * time.Hour
)

// registers use messages as registers: each is scheduled far ahead and rescheduled by several writers, each to a time of its own, and read
// linearizably on all nodes. What was read and when goes to porcupine; a write without a verdict stays open. Reads at a position are judged at
// once: they may not be older than the write that answered with it.
type registers struct {
	run     *Run
	began   time.Time
	workers sync.WaitGroup

	mu   sync.Mutex
	list []*register
}

type register struct {
	of       *registers
	key, id  string
	base     time.Time
	mu       sync.Mutex
	ops      []porcupine.Operation
	open     int
	position string // of the newest write whose answer is known
	atLeast  uint32 // the generation that it made
}

type registerInput struct {
	write bool
	token int64
}

type registerOutput struct {
	known      bool // false: the write has no verdict
	generation uint32
	token      int64
}

type registerState struct {
	generation uint32
	token      int64
}

// registerModel judges: a write makes the next generation, a read returns the newest.
var registerModel = porcupine.Model{
	Init: func() any { return registerState{generation: 1} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(registerState), input.(registerInput), output.(registerOutput)
		if !in.write {
			return out.generation == s.generation && out.token == s.token, s
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

func newRegisters(r *Run) *registers { return &registers{run: r, began: time.Now()} }

// begin makes registers, and works on each until the load is stopped.
func (g *registers) begin() {
	for i := range g.run.plan.registers {
		g.workers.Go(func() { g.live(i) })
	}
}

// live makes one register after the other: a history is bounded.
func (g *registers) live(i int) {
	for n := 0; !isClosed(g.run.load.stop); n++ {
		g.one(i, n)
	}
}

func (g *registers) one(i, n int) {
	r := g.run
	key := fmt.Sprintf("register-%d-%d", i, n)
	base := time.Now().Add(registerFar).Truncate(time.Second)
	s := &submit{key: key, dest: spare, payload: payloadOf(key), deliverAt: base}
	r.journal.begin(s)
	id, position, ok := r.load.submitOnce(s)
	if !ok {
		r.load.pause(100 * time.Millisecond)
		return
	}
	reg := &register{of: g, key: key, id: id, base: base, position: position, atLeast: 1}
	g.mu.Lock()
	g.list = append(g.list, reg)
	g.mu.Unlock()
	var wg sync.WaitGroup
	for w := range 3 {
		random := rand.New(rand.NewPCG(r.seed, uint64(1000*i+100*n+w)))
		wg.Go(func() {
			for reg.more() && !isClosed(r.load.stop) {
				reg.step(random)
				r.load.pause(time.Duration(random.IntN(150)) * time.Millisecond)
			}
		})
	}
	wg.Wait()
}

func (r *register) more() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ops) < registerOps && r.open < registerOpen
}

func (r *register) step(random *rand.Rand) {
	node := pick(random, r.of.run.cluster.up())
	if node == "" {
		return
	}
	d := r.of.run.cluster.door(node)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	switch n := random.IntN(10); {
	case n < 3:
		r.write(ctx, d, random.Int64N(1<<40)+1)
	case n < 8:
		r.read(ctx, d)
	default:
		r.readAt(ctx, d)
	}
}

func (r *register) now() int64 { return int64(time.Since(r.of.began)) }

func (r *register) keep(in registerInput, out registerOutput, call, back int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{Input: in, Output: out, Call: call, Return: back})
}

func (r *register) write(ctx context.Context, d door, token int64) {
	call := r.now()
	a, err := d.delivery().Reschedule(ctx, &sealanev1.RescheduleRequest{
		Id: r.id, DeliverAt: timestamppb.New(r.base.Add(time.Duration(token))), RequestId: fmt.Sprint(token),
	})
	if err != nil { // open to the end of time: it may take effect later
		r.mu.Lock()
		r.open++
		r.mu.Unlock()
		r.keep(registerInput{true, token}, registerOutput{}, call, 1<<62)
		return
	}
	r.keep(registerInput{true, token}, registerOutput{known: true, generation: a.GetGeneration()}, call, r.now())
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.GetGeneration() > r.atLeast {
		r.position, r.atLeast = a.GetPosition(), a.GetGeneration()
	}
}

func (r *register) read(ctx context.Context, d door) {
	call := r.now()
	a, err := d.query().GetMessage(ctx, &sealanev1.GetMessageRequest{Id: r.id, Consistency: sealanev1.Consistency_linearizable})
	if status.Code(err) == codes.NotFound {
		r.of.run.problem("a linearizable read of register %s on %s says: %v", r.id, d.id, err)
	}
	if err != nil || a.GetMessage() == nil {
		return
	}
	out := registerOutput{known: true, generation: a.GetMessage().GetGeneration()}
	if gens := a.GetMessage().GetGenerations(); out.generation > 1 {
		out.token = int64(gens[len(gens)-1].GetDeliverAt().AsTime().Sub(r.base))
	}
	r.keep(registerInput{}, out, call, r.now())
}

func (r *register) readAt(ctx context.Context, d door) {
	r.mu.Lock()
	position, atLeast := r.position, r.atLeast
	r.mu.Unlock()
	a, err := d.query().GetMessage(ctx, &sealanev1.GetMessageRequest{Id: r.id, Position: position})
	if status.Code(err) == codes.NotFound {
		r.of.run.problem("a read of register %s at %s on %s says: %v", r.id, position, d.id, err)
	}
	if err == nil && a.GetMessage() != nil && a.GetMessage().GetGeneration() < atLeast {
		r.of.run.problem("a read of register %s at %s on %s gives generation %d, that position made %d", r.id, position, d.id,
			a.GetMessage().GetGeneration(), atLeast)
	}
}

// end waits for the workers and judges all histories.
func (g *registers) end() {
	g.workers.Wait()
	for _, r := range g.list {
		g.run.report.histories++
		g.run.report.operations += len(r.ops)
		result, _ := porcupine.CheckOperationsVerbose(registerModel, r.ops, time.Minute)
		switch result {
		case porcupine.Illegal:
			g.run.problem("register %s is not linearizable:\n%s", r.key, describe(r.ops))
		case porcupine.Unknown:
			g.run.report.undecided++
		}
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
		fmt.Fprintf(&b, "      %14s to %14s  %s\n", time.Duration(o.Call), back, registerModel.DescribeOperation(o.Input, o.Output))
	}
	return b.String()
}
