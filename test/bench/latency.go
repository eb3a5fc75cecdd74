package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func newBody(p []byte) io.Reader { return bytes.NewReader(p) }

func percentiles(d []time.Duration) string {
	if len(d) == 0 {
		return "nothing measured"
	}
	slices.Sort(d)
	at := func(p float64) time.Duration {
		return d[min(int(p*float64(len(d))), len(d)-1)].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %s  p90 %s  p99 %s  p99.9 %s  max %s  (n=%d)", at(.5), at(.9), at(.99), at(.999), d[len(d)-1].Round(10*time.Microsecond), len(d))
}

// runUnary measures unary submits, closed loop.
func (b *bench) runUnary(ctx context.Context) error {
	names, err := b.destinations(ctx, "unary", 16)
	if err != nil {
		return err
	}
	before, err := b.usage()
	if err != nil {
		return err
	}
	n := b.o.messages / 2
	due := timestamppb.New(time.Now().Add(300 * 24 * time.Hour))
	var next atomic.Int64
	took := make([][]time.Duration, 64)
	errs := make([]error, len(took))
	var wg sync.WaitGroup
	start := time.Now()
	for w := range took {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n) && errs[w] == nil; i = next.Add(1) {
				t := time.Now()
				_, errs[w] = b.node.Delivery().Submit(ctx, &sealanev1.SubmitRequest{
					Destination: names[i%16], Payload: make([]byte, 256), DeliverAt: due, IdempotencyKey: fmt.Sprintf("u%d", i),
				})
				took[w] = append(took[w], time.Since(t))
			}
		})
	}
	wg.Wait()
	total := time.Since(start)
	after, err := b.usage()
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	b.report("submit acknowledged, 64 unary callers", n, total, after.since(before))
	fmt.Printf("%-34s %s\n", "", percentiles(slices.Concat(took...)))
	return nil
}

// runLatency submits at a fixed rate, whatever the answers take, and measures acknowledgement and submit to request.
func (b *bench) runLatency(ctx context.Context) error {
	const rate = 1000
	names, err := b.destinations(ctx, "latency", 16)
	if err != nil {
		return err
	}
	if _, err := b.receiver.counts(); err != nil { // forget what was measured before
		return err
	}
	n := rate * b.o.seconds
	acks := make([]time.Duration, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		wait(ctx, time.Until(start.Add(time.Duration(i)*time.Second/rate)))
		wg.Go(func() {
			payload := make([]byte, 256)
			payload[0] = 't'
			t := time.Now()
			binary.BigEndian.PutUint64(payload[1:], uint64(t.UnixNano()))
			_, errs[i] = b.node.Delivery().Submit(ctx, &sealanev1.SubmitRequest{
				Destination: names[i%16], Payload: payload, IdempotencyKey: fmt.Sprintf("l%d", i),
			})
			acks[i] = time.Since(t)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	wait(ctx, time.Second)
	c, err := b.receiver.counts()
	if err != nil {
		return err
	}
	lags := make([]time.Duration, len(c.Lags))
	for i, l := range c.Lags {
		lags[i] = time.Duration(l)
	}
	fmt.Printf("%-34s %s\n", "submit acknowledged at 1000/s", percentiles(acks))
	fmt.Printf("%-34s %s\n", "submit to request at 1000/s", percentiles(lags))
	return nil
}

// runLanes measures delivery over many lanes.
func (b *bench) runLanes(ctx context.Context) error {
	if b.o.lanes == 0 {
		return nil
	}
	start := time.Now()
	names, err := b.destinations(ctx, "lanes", b.o.lanes)
	if err != nil {
		return err
	}
	fmt.Printf("%-34s %9.0f /s\n", fmt.Sprintf("destinations applied, %d", b.o.lanes), float64(b.o.lanes)/time.Since(start).Seconds())
	rate, err := b.deliver(ctx, fmt.Sprintf("end to end, %d lanes", b.o.lanes), names, b.o.messages)
	if err == nil && b.empty > 0 {
		fmt.Printf("%-34s %9.2f of 100 lanes\n", "", rate/b.empty)
	}
	return err
}

// runBacklog fills a hundred other lanes with messages that are due in a year, delivers again, and restarts the node.
func (b *bench) runBacklog(ctx context.Context) error {
	if b.o.backlog == 0 {
		return nil
	}
	far, err := b.destinations(ctx, "backlog", 100)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := b.stream(ctx, far, b.o.backlog, start.Add(300*24*time.Hour)); err != nil {
		return err
	}
	fmt.Printf("%-34s %9.0f /s  node memory %.0f MiB\n", fmt.Sprintf("backlog of %d submitted", b.o.backlog), float64(b.o.backlog)/time.Since(start).Seconds(), rssOf(b.node.PID()))
	names, err := b.destinations(ctx, "beside", 100)
	if err != nil {
		return err
	}
	rate, err := b.deliver(ctx, fmt.Sprintf("end to end beside %d pending", b.o.backlog), names, b.o.messages)
	if err != nil {
		return err
	}
	if b.empty > 0 {
		fmt.Printf("%-34s %9.2f of the empty node\n", "", rate/b.empty)
	}
	if err := b.node.Kill(); err != nil {
		return err
	}
	start = time.Now()
	up, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := b.node.Start(up); err != nil {
		return err
	}
	fmt.Printf("%-34s %s after kill -9\n", "restart to leading", time.Since(start).Round(time.Millisecond))
	return nil
}
