package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/test/robustness"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

type bench struct {
	o        options
	node     *robustness.Process
	receiver *receiver
	serial   atomic.Uint64
	bare     float64
	empty    float64
}

func (b *bench) scenarios(ctx context.Context) error {
	for _, s := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"bare", b.runBare}, {"deliver", b.runDeliver}, {"submit", b.runSubmit}, {"unary", b.runUnary}, {"latency", b.runLatency},
		{"lanes", b.runLanes}, {"backlog", b.runBacklog}, {"cluster", b.runCluster},
	} {
		if !b.wants(s.name) {
			continue
		}
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// usage is the CPU of the three processes.
type usage struct{ client, node, receiver float64 }

func (b *bench) usage() (usage, error) {
	c, err := b.receiver.counts()
	return usage{cpuOf(os.Getpid()), cpuOf(b.node.PID()), c.CPU}, err
}

func (u usage) since(v usage) usage {
	return usage{u.client - v.client, u.node - v.node, u.receiver - v.receiver}
}

func (b *bench) report(name string, n int, took time.Duration, u usage) {
	rate := float64(n) / took.Seconds()
	ratio := ""
	if b.bare > 0 {
		ratio = fmt.Sprintf("  %.2f of bare", rate/b.bare)
	}
	per := 1000 / float64(n)
	fmt.Printf("%-34s %9.0f /s%s  cpu s/1000: client %.3f node %.3f receiver %.3f  node memory %.0f MiB\n", name, rate, ratio, u.client*per, u.node*per,
		u.receiver*per, rssOf(b.node.PID()))
}

// runBare is the bound: the same POSTs from a plain loop with as many workers as bring the most.
func (b *bench) runBare(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	payload := make([]byte, 256)
	before, err := b.usage()
	if err != nil {
		return err
	}
	var left atomic.Int64
	left.Store(int64(b.o.messages))
	start := time.Now()
	errs := make([]error, 32)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for left.Add(-1) >= 0 && errs[w] == nil && ctx.Err() == nil {
				errs[w] = post(client, b.receiver.url, payload)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	after, err := b.usage()
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	b.report("bare Go POST loop, 32 workers", b.o.messages, took, after.since(before))
	b.bare = float64(b.o.messages) / took.Seconds()
	return nil
}

func post(client *http.Client, url string, payload []byte) error {
	resp, err := client.Post(url, "application/octet-stream", newBody(payload))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// destinations registers n destinations with a name prefix.
func (b *bench) destinations(ctx context.Context, prefix string, n int) ([]string, error) {
	names := make([]string, n)
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += len(errs) {
				names[i] = fmt.Sprintf("%s-%d", prefix, i)
				d := &sealanev1.Destination{
					Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: b.receiver.url, Timeout: durationpb.New(15 * time.Second)}},
				}
				_, errs[w] = b.node.Destinations().ApplyDestination(ctx, &sealanev1.ApplyDestinationRequest{Name: names[i], Destination: d})
			}
		})
	}
	wg.Wait()
	return names, errors.Join(errs...)
}

// stream submits n messages over the destinations by SubmitStream and returns when every one has its verdict.
func (b *bench) stream(ctx context.Context, names []string, n int, at time.Time) error {
	stream, err := b.node.Delivery().SubmitStream(ctx)
	if err != nil {
		return err
	}
	got := make(chan error, 1)
	go func() { got <- b.answers(stream, n) }()
	payload := make([]byte, 256)
	var due *timestamppb.Timestamp
	if !at.IsZero() {
		due = timestamppb.New(at)
	}
	const vector = 32
	for i := 0; i < n; i += vector {
		q := &sealanev1.SubmitStreamRequest{}
		for j := i; j < min(i+vector, n); j++ {
			m := &sealanev1.SubmitRequest{Destination: names[j%len(names)], Payload: payload, DeliverAt: due, IdempotencyKey: fmt.Sprintf("k%d", b.serial.Add(1))}
			q.Items = append(q.Items, &sealanev1.SubmitStreamItem{Sequence: uint64(j), Message: m})
		}
		if err := stream.Send(q); err != nil {
			return errors.Join(err, <-got)
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return <-got
}

func (b *bench) answers(stream sealanev1.DeliveryService_SubmitStreamClient, n int) error {
	for n > 0 {
		a, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("%d verdicts are missing: %w", n, err)
		}
		for _, r := range a.Results {
			if e := r.GetError(); e != nil {
				return fmt.Errorf("message %d: %s", r.Sequence, e.Message)
			}
		}
		n -= len(a.Results)
	}
	return nil
}

// delivered waits until the ledger says that all messages of the destinations are delivered and settled.
func (b *bench) delivered(ctx context.Context, names []string, n uint64) error {
	for ctx.Err() == nil {
		var sum uint64
		for token := ""; ; {
			l, err := b.node.Query().ListLanes(ctx, &sealanev1.ListLanesRequest{PageSize: 1000, PageToken: token})
			if err != nil {
				return err
			}
			for _, lane := range l.Lanes {
				if slices.Contains(names, lane.Destination) {
					sum += lane.GetKept().GetDelivered()
				}
			}
			if token = l.NextPageToken; token == "" {
				break
			}
		}
		if sum >= n {
			return nil
		}
		wait(ctx, 10*time.Millisecond)
	}
	return ctx.Err()
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// deliver measures submit acknowledged, POST made, outcome durable, for n messages over some lanes.
func (b *bench) deliver(ctx context.Context, title string, names []string, n int) (float64, error) {
	before, err := b.usage()
	if err != nil {
		return 0, err
	}
	seen, err := b.receiver.counts()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := b.stream(ctx, names, n, time.Time{}); err != nil {
		return 0, err
	}
	submitted := time.Since(start)
	for c := seen; c.Requests < seen.Requests+uint64(n); wait(ctx, 5*time.Millisecond) {
		if c, err = b.receiver.counts(); err != nil || ctx.Err() != nil {
			return 0, errors.Join(err, ctx.Err())
		}
		if !b.node.Running() {
			return 0, errors.New("the node has ended")
		}
	}
	if len(names) <= 200 {
		if err := b.delivered(ctx, names, uint64(n)); err != nil {
			return 0, err
		}
	}
	took := time.Since(start)
	after, err := b.usage()
	if err != nil {
		return 0, err
	}
	b.report(title, n, took, after.since(before))
	fmt.Printf("%-34s %9.0f /s acknowledged during the run\n", "", float64(n)/submitted.Seconds())
	return float64(n) / took.Seconds(), nil
}

func (b *bench) runDeliver(ctx context.Context) error {
	for _, lanes := range []int{1, 16, 100} {
		names, err := b.destinations(ctx, fmt.Sprintf("deliver%d", lanes), lanes)
		if err != nil {
			return err
		}
		rate, err := b.deliver(ctx, fmt.Sprintf("end to end, %d lanes", lanes), names, b.o.messages)
		if err != nil {
			return err
		}
		if lanes == 100 {
			b.empty = rate
		}
	}
	return nil
}

// runSubmit measures acknowledgement alone: the messages are due in a year.
func (b *bench) runSubmit(ctx context.Context) error {
	names, err := b.destinations(ctx, "submit", 16)
	if err != nil {
		return err
	}
	before, err := b.usage()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := b.stream(ctx, names, b.o.messages, start.Add(300*24*time.Hour)); err != nil {
		return err
	}
	took := time.Since(start)
	after, err := b.usage()
	if err != nil {
		return err
	}
	b.report("submit acknowledged, one stream", b.o.messages, took, after.since(before))
	return nil
}
