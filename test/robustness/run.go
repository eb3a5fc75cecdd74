package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
	"google.golang.org/protobuf/types/known/durationpb"
)

// RunOptions says what a run against a cluster consists of.
type RunOptions struct {
	ClusterOptions
	Seed       uint64
	PerSecond  int           // submits of the load
	ProbeEvery time.Duration // of each shard
	Registers  int           // at a time
	Readers    int
	// WholeClient submits through the client of the whole cluster only; else half of the tries go to one node, whichever it is.
	WholeClient bool
}

// Run is a cluster under load, with everything that watches it.
type Run struct {
	*Cluster
	Receiver  *Receiver
	Load      *Load
	Probes    []*Probe // by shard
	Registers *Registers
	Readers   *Readers
	Admin     *client.Client // of the whole cluster

	o       RunOptions
	started time.Time
	loading time.Time
	loaded  time.Duration // how long there was load
	stop    []func()      // of load, readers and registers, last first
	probing context.CancelFunc

	mu       sync.Mutex
	recorded []Submitted // of probes and registers
	problems []string
	compared int // times that the replicas were compared and found equal
}

// StartRun starts a cluster, its destinations, and the load.
func StartRun(ctx context.Context, o RunOptions) (*Run, error) {
	l, err := o.Net.Listen()
	if err != nil {
		return nil, err
	}
	r := &Run{o: o, started: time.Now(), Receiver: StartReceiverAt(l, o.Seed)}
	if r.Cluster, err = NewCluster(o.ClusterOptions); err != nil {
		r.Receiver.Close()
		return nil, err
	}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Run) start(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := r.Cluster.Start(call); err != nil {
		return err
	}
	var err error
	if r.Admin, err = r.Client(client.Options{RetryFor: 10 * time.Second}); err != nil {
		return err
	}
	for _, d := range r.destinations() {
		if _, err := r.Admin.Destinations().ApplyDestination(call, &sealanev1.ApplyDestinationRequest{Name: d.Name, Destination: d}); err != nil {
			return fmt.Errorf("destination %s: %w", d.Name, err)
		}
	}
	r.run(ctx)
	return nil
}

// streams are the kinds of messages that the load submits, in turn.
func streams() []Stream {
	return []Stream{
		{Destination: "hold"}, {Destination: "retry"}, {Destination: "ordered", Keys: 200}, {Destination: "later", Later: 6 * time.Second},
		{Destination: "hold"}, {Destination: "retry"}, {Destination: "ordered", Keys: 20}, {Destination: "flaky"},
		{Destination: "hold"}, {Destination: "retry"}, {Destination: "late"}, {Destination: "nowhere", Expire: 4 * time.Second},
	}
}

// nowhere is a port at which nobody listens.
const nowhere = "http://127.0.0.1:9/nowhere"

// destinations are those of the load, of the registers and of the probes.
func (r *Run) destinations() []*sealanev1.Destination {
	seconds := func(f float64) *durationpb.Duration { return durationpb.New(time.Duration(f * float64(time.Second))) }
	base := func(name string, spread uint32) *sealanev1.Destination {
		return &sealanev1.Destination{
			Name:    name,
			Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: r.Receiver.URL() + "/" + name, Timeout: seconds(3)}},
			Retry:   &sealanev1.RetryPolicy{MaxAttempts: 20, InitialBackoff: seconds(0.02), MaxBackoff: seconds(1)},
			Circuit: &sealanev1.CircuitPolicy{FailureThreshold: 50, OpenFor: seconds(0.1), MaxOpenFor: seconds(1)},
			Lane:    &sealanev1.LaneLimits{Spread: spread, MaxInFlight: 128},
		}
	}
	accept := &sealanev1.UncertaintyPolicy{OnUncertain: sealanev1.OnUncertain_retry, MaxRetries: 10, AcceptDuplicates: true}
	// Given up in the end, or one message whose second attempt is refused for good would hold its ordering key for ever, as it should.
	dedup := &sealanev1.UncertaintyPolicy{OnUncertain: sealanev1.OnUncertain_retry, MaxRetries: 15, ReceiverDedupWindow: durationpb.New(24 * time.Hour), WhenExhausted: sealanev1.WhenExhausted_dead_letter}
	giveUp := &sealanev1.UncertaintyPolicy{
		OnUncertain: sealanev1.OnUncertain_retry, MaxRetries: 2, AcceptDuplicates: true, WhenExhausted: sealanev1.WhenExhausted_dead_letter,
	}
	n := r.o.Shards
	hold, retry, ordered, later, flaky, late, lost := base("hold", n), base("retry", n), base("ordered", n), base("later", n), base("flaky", n), base("late", n), base("nowhere", 1)
	retry.Uncertainty, later.Uncertainty, flaky.Uncertainty, ordered.Uncertainty, late.Uncertainty = accept, accept, accept, dedup, giveUp
	late.GetHttp().Timeout = seconds(0.3)
	lost.GetHttp().Url = nowhere
	out := []*sealanev1.Destination{hold, retry, ordered, later, flaky, late, lost, base("register", n)}
	for s := range n {
		p := base(ProbeName(s, n), 1)
		p.Uncertainty = accept
		out = append(out, p)
	}
	return out
}

// run starts everything that talks to the cluster.
func (r *Run) run(ctx context.Context) {
	loading, stop := context.WithCancel(ctx)
	probing, stopProbing := context.WithCancel(ctx)
	r.probing = stopProbing
	r.Load = &Load{Pick: r.submitter, Streams: streams(), PerSecond: r.o.PerSecond, Workers: max(64, r.o.PerSecond), Seed: r.o.Seed}
	r.Readers = &Readers{Cluster: r.Cluster, Load: r.Load, Seed: r.o.Seed, Workers: r.o.Readers}
	r.Registers = &Registers{Cluster: r.Cluster, Seed: r.o.Seed, Workers: 4, Record: r.record}
	for range r.o.Registers {
		r.Registers.Slots = append(r.Registers.Slots, "register")
	}
	for s := range r.o.Shards {
		p := &Probe{Shard: s, Destination: ProbeName(s, r.o.Shards), Every: r.o.ProbeEvery, Client: r.Admin, Record: r.record, Seed: r.o.Seed}
		r.Probes = append(r.Probes, p)
		p.Run(probing)
	}
	r.loading = time.Now()
	r.Load.Run(loading, ctx)
	r.Readers.Run(loading)
	r.Registers.Run(loading)
	r.stop = append(r.stop, r.Load.Wait, r.Readers.Wait, r.Registers.Wait, stop)
}

// submitter is the client of the whole cluster for half of the tries, for the others that of one node.
func (r *Run) submitter(random *rand.Rand) Submitter {
	if m := r.Pick(random); m != nil && !r.o.WholeClient && random.IntN(2) == 0 {
		return m.static
	}
	return r.Admin
}

// record keeps a submit of a probe or a register for the audit.
func (r *Run) record(s Submitted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorded = append(r.recorded, s)
}

// Submitted is everything that anybody submitted.
func (r *Run) Submitted() []Submitted {
	all := r.Load.Submitted()
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(all, r.recorded...)
}

// Quiet stops the load, the readers and the registers, and waits for them. The probes go on.
func (r *Run) Quiet() {
	if r.stop != nil {
		r.loaded = time.Since(r.loading)
	}
	for i := len(r.stop) - 1; i >= 0; i-- {
		r.stop[i]()
	}
	r.stop = nil
}

// Silence stops the probes as well.
func (r *Run) Silence() {
	if r.probing != nil {
		r.probing()
		for _, p := range r.Probes {
			p.Wait()
		}
	}
}

// Problem writes down what should not have been, beside what the audit finds.
func (r *Run) Problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.o.Log("PROBLEM: %s", text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, text)
}

// Problems are all of them, ends of processes that nothing explains included.
func (r *Run) Problems() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(append([]string(nil), r.problems...), r.Ends()...)
}

// AwaitWritable waits until every shard has taken a write that began after a time, and returns how long the slowest took.
func (r *Run) AwaitWritable(ctx context.Context, since time.Time) (time.Duration, error) {
	for {
		worst, missing := time.Duration(0), []string(nil)
		for _, p := range r.Probes {
			at, ok := p.WrittenSince(since)
			if !ok {
				missing = append(missing, fmt.Sprint(p.Shard))
				continue
			}
			worst = max(worst, at.Sub(since))
		}
		if missing == nil {
			return worst, nil
		}
		if !pause(ctx, 20*time.Millisecond) {
			return 0, fmt.Errorf("shards %s take no write: %w", strings.Join(missing, ", "), ctx.Err())
		}
	}
}

// WriteGap and SendGap are the longest times in which some shard took no write, or sent nothing of its probe.
func (r *Run) WriteGap(from, to time.Time) (worst time.Duration) {
	for _, p := range r.Probes {
		worst = max(worst, p.Gap(from, to))
	}
	return worst
}

// SendGap is the same for requests at the receiver.
func (r *Run) SendGap(from, to time.Time) (worst time.Duration) {
	for _, p := range r.Probes {
		worst = max(worst, p.SendGap(r.Receiver, from, to))
	}
	return worst
}

// Close ends everything.
func (r *Run) Close() error {
	r.Quiet()
	r.Silence()
	var errs []error
	if r.Admin != nil {
		errs = append(errs, r.Admin.Close())
	}
	errs = append(errs, r.Cluster.Close())
	r.Receiver.Close()
	return errors.Join(errs...)
}
