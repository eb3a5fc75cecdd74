package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// rounds is how often a scenario repeats what it does: a few times in every run, SEALANE_TEST_ROUNDS in nightly.
func rounds(t *testing.T) int {
	t.Helper()
	v := os.Getenv("SEALANE_TEST_ROUNDS")
	if v == "" {
		return 3
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 1000 {
		t.Fatalf("SEALANE_TEST_ROUNDS=%q, want 1 to 1000", v)
	}
	return n
}

// startScenario starts three nodes, with probes that are close enough to measure gaps, and a load that knows the whole cluster only.
func startScenario(t *testing.T, change func(*RunOptions)) (context.Context, *Run) {
	t.Helper()
	s := seed(t)
	t.Setenv("SEALANE_TEST_SEED", fmt.Sprint(s))
	t.Logf("repeat with: SEALANE_TEST_ROUNDS=%d SEALANE_TEST_SEED=%d go test -count=1 -timeout 30m -run '^%s$' -v ./test/robustness", rounds(t), s, t.Name())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	r := startRun(ctx, t, 3, func(o *RunOptions) {
		o.PerSecond, o.ProbeEvery, o.WholeClient = 300, 20*time.Millisecond, true
		if change != nil {
			change(o)
		}
	})
	if _, err := r.AwaitWritable(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	return ctx, r
}

// mustPlan checks what operator's acts may never cost.
func mustPlan(t *testing.T, r *Run, e *Ending) {
	t.Helper()
	if n := e.Audit.UnknownBy["RECOVERY"]; n != 0 {
		t.Errorf("%d attempts became UNKNOWN by RECOVERY although no process died", n)
	}
	if n := r.Load.failed.Load(); n != 0 {
		t.Errorf("%d calls of the client failed: %v", n, r.Load.Failures())
	}
}

// TestTransfers moves leaderships under load. Goal: no more than 300 ms without a send, no RECOVERY, no failed call.
func TestTransfers(t *testing.T) {
	ctx, r := startScenario(t, nil)
	var sends, writes []time.Duration
	for i := range 2 * rounds(t) {
		p := r.Probes[i%len(r.Probes)]
		began := time.Now()
		if err := r.Transfer(ctx, p.Shard, ""); err != nil {
			t.Fatal(err)
		}
		pause(ctx, time.Second)
		now := time.Now()
		sends, writes = append(sends, p.SendGap(r.Receiver, began, now)), append(writes, p.Gap(began, now))
	}
	show(t, "transfer: time without a send", sends)
	show(t, "transfer: time without a write", writes)
	mustPlan(t, r, finish(ctx, t, r, nil, rand.New(rand.NewPCG(r.o.Seed, 4))))
}

// show prints the figures of a scenario.
func show(t *testing.T, what string, d []time.Duration) {
	t.Helper()
	worst := time.Duration(0)
	for _, one := range d {
		worst = max(worst, one)
	}
	t.Logf("FIGURE %s: median %s, worst %s of %d", what, round(median(d)), round(worst), len(d))
}

// TestRollingRestart stops and starts all nodes softly, one by one, under load: no failed call, no RECOVERY.
func TestRollingRestart(t *testing.T) {
	ctx, r := startScenario(t, nil)
	began := time.Now()
	for range max(1, rounds(t)/3) {
		if err := r.RollingRestart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	t.Logf("FIGURE rolling restart: took %s, longest time without a write of some shard %s, without a send %s",
		round(now.Sub(began)), round(r.WriteGap(began, now)), round(r.SendGap(began, now)))
	mustPlan(t, r, finish(ctx, t, r, nil, rand.New(rand.NewPCG(r.o.Seed, 4))))
}

// TestGrowAndShrink grows from three nodes to five, drains and removes two of the founders, all under load: no failed call, no RECOVERY.
func TestGrowAndShrink(t *testing.T) {
	ctx, r := startScenario(t, nil)
	began := time.Now()
	for _, id := range []string{"n4", "n5"} {
		if _, err := r.Join(ctx, id); err != nil {
			t.Fatalf("%s: %v\n%s", id, err, r.Describe(ctx))
		}
	}
	settled, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := r.AwaitReplicas(settled); err != nil {
		t.Fatalf("%v\n%s", err, r.Describe(ctx))
	}
	t.Logf("FIGURE from three nodes to five: %s", round(time.Since(began)))
	shrinking := time.Now()
	for _, id := range []string{"n1", "n2"} {
		if err := r.Leave(settled, r.Member(id)); err != nil {
			t.Fatalf("%s: %v\n%s", id, err, r.Describe(ctx))
		}
	}
	if err := r.AwaitReplicas(settled); err != nil {
		t.Fatalf("%v\n%s", err, r.Describe(ctx))
	}
	now := time.Now()
	t.Logf("FIGURE from five nodes to three others: %s; over both, longest time without a write of some shard %s, without a send %s",
		round(now.Sub(shrinking)), round(r.WriteGap(began, now)), round(r.SendGap(began, now)))
	mustPlan(t, r, finish(ctx, t, r, nil, rand.New(rand.NewPCG(r.o.Seed, 4))))
}
