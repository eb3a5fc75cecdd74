package robustness

import (
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

// TestLeaderKilled kills the leader of one shard after the other. Goal: sending again within two seconds in the median.
func TestLeaderKilled(t *testing.T) {
	ctx, r := startScenario(t, nil)
	var sends, writes []time.Duration
	for i := range rounds(t) {
		p := r.Probes[i%len(r.Probes)]
		m := r.Leader(ctx, p.Shard)
		if m == nil {
			t.Fatalf("shard %d has no leader\n%s", p.Shard, r.Describe(ctx))
		}
		began := time.Now()
		if err := r.Kill(m); err != nil {
			t.Fatal(err)
		}
		waiting, cancel := context.WithTimeout(ctx, 30*time.Second)
		for {
			if at, ok := p.SentSince(r.Receiver, began); ok {
				sends = append(sends, at.Sub(began))
				break
			}
			if !pause(waiting, 5*time.Millisecond) {
				t.Fatalf("shard %d does not send\n%s", p.Shard, r.Describe(ctx))
			}
		}
		cancel()
		at, _ := p.WrittenSince(began)
		writes = append(writes, at.Sub(began))
		if _, err := r.Recover(ctx, rand.New(rand.NewPCG(uint64(i), 1))); err != nil {
			t.Fatalf("%v\n%s", err, r.Describe(ctx))
		}
		if err := r.AwaitCaughtUp(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	show(t, "leader killed: until its shard sends again", sends)
	show(t, "leader killed: until its shard takes a write again", writes)
	finish(ctx, t, r, nil, rand.New(rand.NewPCG(r.o.Seed, 4)))
}

// TestMinority cuts a leader off from its peers, not from the receiver: it takes no write, its linearizable reads are refused, and its
// local reads say how old they are. The audit shows that it sent nothing that was not admitted before.
func TestMinority(t *testing.T) {
	ctx, r := startScenario(t, nil)
	p := r.Probes[0]
	m := r.Leader(ctx, p.Shard)
	if m == nil {
		t.Fatal("shard 0 has no leader")
	}
	known, ok := r.Load.Recent(rand.New(rand.NewPCG(1, 1)))
	for !ok {
		pause(ctx, 10*time.Millisecond)
		known, ok = r.Load.Recent(rand.New(rand.NewPCG(1, 1)))
	}
	var others []string
	for _, o := range r.Members() {
		if o != m {
			others = append(others, o.ID)
		}
	}
	cuts := both([]string{m.ID}, others)
	if err := r.cut(ctx, cuts); err != nil {
		t.Fatal(err)
	}
	pause(ctx, 4*time.Second) // longer than any leadership can last without a majority
	for range 20 {
		call, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		key := client.NewKey()
		a, err := m.Delivery().Submit(call, &sealanev1.SubmitRequest{Destination: p.Destination, Payload: []byte(key), IdempotencyKey: key})
		if err == nil {
			t.Errorf("the minority accepted a write: %v", a)
		}
		// It may still be accepted, by the majority and after the cut has healed.
		r.record(Submitted{Key: key, Destination: p.Destination, Payload: sha256.Sum256([]byte(key)), Verdict: MaybeAccepted})
		_, err = m.Query().GetMessage(call, &sealanev1.GetMessageRequest{Id: known.MessageID, Consistency: sealanev1.Consistency_linearizable})
		if err == nil || isNotFound(err) {
			t.Errorf("the minority answered a linearizable read: %v", err)
		}
		cancel()
	}
	call, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	a, err := m.Query().GetMessage(call, &sealanev1.GetMessageRequest{Id: known.MessageID, Consistency: sealanev1.Consistency_local})
	switch {
	case err != nil:
		t.Errorf("a local read on the minority: %v", err)
	case a.GetRead().GetLeader() || a.GetRead().GetLeaderContact().AsDuration() < 2*time.Second:
		t.Errorf("a local read on the minority does not say how old it is: %v", a.GetRead())
	default:
		t.Logf("FIGURE minority: a local read says that the leader was heard %s ago", round(a.GetRead().GetLeaderContact().AsDuration()))
	}
	if _, err := r.AwaitWritable(ctx, time.Now()); err != nil {
		t.Errorf("the majority takes no writes: %v", err)
	}
	if err := r.heal(ctx, cuts); err != nil {
		t.Fatal(err)
	}
	finish(ctx, t, r, nil, rand.New(rand.NewPCG(r.o.Seed, 4)))
}

// TestPausedLeader stops a leader for longer than an election takes and lets it go on: what it answers then must not be old (porcupine judges
// the registers, which also read from it), and it must not send again what the new leader has taken over (the audit).
func TestPausedLeader(t *testing.T) {
	ctx, r := startScenario(t, func(o *RunOptions) { o.Registers = 8 })
	for i := range rounds(t) {
		p := r.Probes[i%len(r.Probes)]
		m := r.Leader(ctx, p.Shard)
		if m == nil {
			t.Fatalf("shard %d has no leader\n%s", p.Shard, r.Describe(ctx))
		}
		if err := m.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		pause(ctx, 5*time.Second)
		if err := m.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		pause(ctx, time.Second)
		if _, err := r.Recover(ctx, rand.New(rand.NewPCG(uint64(i), 1))); err != nil {
			t.Fatalf("%v\n%s", err, r.Describe(ctx))
		}
	}
	finish(ctx, t, r, nil, rand.New(rand.NewPCG(r.o.Seed, 4)))
}

// TestReplaceDead lets a node die for good, under load, and puts a new one in its place.
func TestReplaceDead(t *testing.T) {
	ctx, r := startScenario(t, nil)
	limit, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	began := time.Now()
	if err := r.Replace(limit, r.Member("n3")); err != nil {
		t.Fatalf("%v\n%s", err, r.Describe(ctx))
	}
	t.Logf("FIGURE a dead node replaced: %s, longest time without a write of some shard meanwhile %s", round(time.Since(began)), round(r.WriteGap(began, time.Now())))
	finish(ctx, t, r, nil, rand.New(rand.NewPCG(r.o.Seed, 4)))
}
