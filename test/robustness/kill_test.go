package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
	"google.golang.org/protobuf/types/known/durationpb"
)

// kills is how often the node is killed: a few in every run, SEALANE_TEST_KILLS in nightly.
func kills(t *testing.T) int {
	t.Helper()
	v := os.Getenv("SEALANE_TEST_KILLS")
	if v == "" {
		return 12
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 10_000 {
		t.Fatalf("SEALANE_TEST_KILLS=%q, want 1 to 10000", v)
	}
	return n
}

func seed(t *testing.T) uint64 {
	t.Helper()
	if v := os.Getenv("SEALANE_TEST_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("SEALANE_TEST_SEED=%q is not a number", v)
		}
		return n
	}
	return uint64(time.Now().UnixNano())
}

// TestKillAudit kills a node under load again and again, then audits: every acknowledged submit is in exactly one state, every request the
// receiver saw has its admission, nothing is lost, no duplicate is unexplained (issue: "Kill -9 two hundred times").
func TestKillAudit(t *testing.T) {
	n, s := kills(t), seed(t)
	t.Logf("repeat with: SEALANE_TEST_KILLS=%d SEALANE_TEST_SEED=%d go test -count=1 -run TestKillAudit -v ./test/robustness", n, s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*10*time.Second+2*time.Minute)
	defer cancel()
	receiver, err := StartReceiver(s)
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	node, err := NewProcess(build(t, ""), t.TempDir(), 4)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	names := destinations(ctx, t, node, receiver.URL())
	c, err := client.Dial(node.spec.GRPC, client.Options{Static: true, RetryFor: 2 * time.Second, TryFor: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	load := &Load{Workers: 16, Seed: s, Pick: func(*rand.Rand) Submitter { return c }}
	for _, name := range names {
		load.Streams = append(load.Streams, Stream{Destination: name})
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	load.Run(loading, ctx)
	again := killLoop(ctx, t, node, receiver, n, rand.New(rand.NewPCG(s, 1)))
	stop()
	load.Wait()
	receiver.Calm()
	settle(ctx, t, node, names)
	report, err := Audit(ctx, node.Query(), load.Submitted(), receiver.Requests())
	if err != nil {
		t.Fatalf("audit: %v\n%s", err, node.Output())
	}
	slices.Sort(again)
	t.Logf("kills %d, submits without a verdict at first %d\ntime to send again after start: median %s, worst %s\n%s",
		n, load.maybe.Load(), again[len(again)/2], again[len(again)-1], report)
	if len(load.conflict) > 0 {
		t.Errorf("one key, two ids: %v", load.conflict)
	}
	if report.Failed() {
		t.Errorf("the audit failed\n%s", node.Output())
	}
	if report.Messages == 0 || report.Requests == 0 {
		t.Error("nothing was sent: the run proves nothing")
	}
}

// destinations registers one destination that holds what is uncertain and one that accepts duplicates.
func destinations(ctx context.Context, t *testing.T, node *Process, url string) []string {
	t.Helper()
	base := func(name string) *sealanev1.Destination {
		return &sealanev1.Destination{
			Name:    name,
			Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: url + "/" + name, Timeout: durationpb.New(5 * time.Second)}},
			Retry:   &sealanev1.RetryPolicy{MaxAttempts: 20, InitialBackoff: durationpb.New(20 * time.Millisecond), MaxBackoff: durationpb.New(time.Second)},
			Circuit: &sealanev1.CircuitPolicy{FailureThreshold: 50, OpenFor: durationpb.New(100 * time.Millisecond), MaxOpenFor: durationpb.New(time.Second)},
		}
	}
	hold, retry := base("hold"), base("retry")
	retry.Uncertainty = &sealanev1.UncertaintyPolicy{OnUncertain: sealanev1.OnUncertain_retry, MaxRetries: 5, AcceptDuplicates: true}
	var names []string
	for _, d := range []*sealanev1.Destination{hold, retry} {
		if _, err := node.Destinations().ApplyDestination(ctx, &sealanev1.ApplyDestinationRequest{Name: d.Name, Destination: d}); err != nil {
			t.Fatal(err)
		}
		names = append(names, d.Name)
	}
	return names
}

// killLoop kills and restarts the node n times, at random moments under load, and returns how long each took to send again.
func killLoop(ctx context.Context, t *testing.T, node *Process, receiver *Receiver, n int, random *rand.Rand) []time.Duration {
	t.Helper()
	var again []time.Duration
	for i := range n {
		pause(ctx, time.Duration(100+random.IntN(700))*time.Millisecond)
		if err := node.Kill(); err != nil {
			t.Fatalf("kill %d: %v", i, err)
		}
		started := time.Now()
		if err := node.Start(ctx); err != nil {
			t.Fatalf("start after kill %d: %v", i, err)
		}
		for receiver.FirstAfter(started).IsZero() {
			if time.Since(started) > 30*time.Second || ctx.Err() != nil {
				t.Fatalf("nothing was sent within 30 s of start %d\n%s", i, node.Output())
			}
			pause(ctx, time.Millisecond)
		}
		again = append(again, receiver.FirstAfter(started).Sub(started))
	}
	return again
}

// settle waits until nothing is scheduled or in flight: everything is delivered, dead or uncertain.
func settle(ctx context.Context, t *testing.T, node *Process, names []string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		left := ""
		for _, name := range names {
			l, err := node.Query().GetLane(ctx, &sealanev1.GetLaneRequest{Destination: name})
			if err != nil {
				left = err.Error()
				continue
			}
			if l.Lane.Scheduled+l.Lane.InFlight+l.Lane.OpenAttempts > 0 || name == "retry" && l.Lane.Uncertain > 0 && l.Lane.OldestDueAt != nil {
				left = fmt.Sprintf("%s: scheduled %d, in flight %d, uncertain %d, held by %s", name, l.Lane.Scheduled, l.Lane.InFlight, l.Lane.Uncertain, l.Lane.Hold)
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not at rest within a minute: %s\n%s", left, node.Output())
		}
		pause(ctx, 20*time.Millisecond)
	}
}
