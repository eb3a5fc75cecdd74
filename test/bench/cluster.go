package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
	"github.com/sealane/sealane/test/robustness"
)

// idleFor is how long an idle cluster is watched.
const idleFor = 30 * time.Second

// runCluster measures one node and three nodes on this machine in one run, through the Go client, and what three idle nodes with 16 shards cost.
func (b *bench) runCluster(ctx context.Context) error {
	rates := map[int]float64{}
	for _, nodes := range []int{1, 3} {
		rate, err := b.clusterRate(ctx, nodes)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", nodes, err)
		}
		rates[nodes] = rate
	}
	fmt.Printf("%-34s %9.2f of one node\n", "three nodes", rates[3]/rates[1])
	return b.clusterIdle(ctx)
}

// withCluster runs fn with a cluster of processes on loopback.
func (b *bench) withCluster(ctx context.Context, nodes int, shards uint32, fn func(*robustness.Cluster) error) (err error) {
	binary, err := filepath.Abs(b.o.binary)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(b.o.dir, "sealane-bench-cluster-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := robustness.NewCluster(robustness.ClusterOptions{
		Binary: binary, Dir: dir, Nodes: nodes, Shards: shards, Net: robustness.NewLoopback(nil), Log: func(string, ...any) {},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	start, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.Start(start); err != nil {
		return err
	}
	if err := c.AwaitLeaders(start); err != nil {
		return err
	}
	return fn(c)
}

// clusterRate is end to end through one Stream of the client: submit acknowledged, POST made.
func (b *bench) clusterRate(ctx context.Context, nodes int) (rate float64, err error) {
	err = b.withCluster(ctx, nodes, uint32(b.o.shards), func(c *robustness.Cluster) error {
		cl, err := c.Client(client.Options{})
		if err != nil {
			return err
		}
		defer cl.Close()
		names := make([]string, 16)
		for i := range names {
			names[i] = fmt.Sprintf("c%d", i)
			_, err := cl.Destinations().ApplyDestination(ctx, &sealanev1.ApplyDestinationRequest{Destination: &sealanev1.Destination{
				Name: names[i], Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: b.receiver.url}},
			}})
			if err != nil {
				return err
			}
		}
		wait(ctx, 8*time.Second) // leaders settle where they shall be
		if err := b.submitAll(ctx, cl, names, b.o.messages/10); err != nil {
			return err // warm-up
		}
		before, err := b.receiver.counts()
		if err != nil {
			return err
		}
		cpu := clusterCPU(c)
		began := time.Now()
		if err := b.submitAll(ctx, cl, names, b.o.messages); err != nil {
			return err
		}
		acknowledged := time.Since(began)
		for now := before; now.Requests < before.Requests+uint64(b.o.messages); wait(ctx, 5*time.Millisecond) {
			if now, err = b.receiver.counts(); err != nil || ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
		}
		took := time.Since(began)
		rate = float64(b.o.messages) / took.Seconds()
		fmt.Printf("%-34s %9.0f /s  acknowledged %.0f /s  cpu s/1000: nodes together %.3f\n", fmt.Sprintf("end to end, %d node(s), 16 lanes", nodes), rate,
			float64(b.o.messages)/acknowledged.Seconds(), (clusterCPU(c)-cpu)*1000/float64(b.o.messages))
		return nil
	})
	return rate, err
}

// submitAll submits n messages by one stream and waits for every answer.
func (b *bench) submitAll(ctx context.Context, cl *client.Client, names []string, n int) error {
	stream := cl.Stream(ctx)
	payload := make([]byte, 256)
	var failed atomic.Int64
	var once sync.Once
	var first error
	for i := range n {
		m := client.Message{Destination: names[i%len(names)], Payload: payload, IdempotencyKey: fmt.Sprintf("c%d", b.serial.Add(1))}
		err := stream.Submit(m, func(_ client.Accepted, err error) {
			if err != nil {
				failed.Add(1)
				once.Do(func() { first = err })
			}
		})
		if err != nil {
			return err
		}
	}
	stream.Close()
	if failed.Load() > 0 {
		return fmt.Errorf("%d of %d submits failed, the first: %w", failed.Load(), n, first)
	}
	return nil
}

func clusterCPU(c *robustness.Cluster) (sum float64) {
	for _, m := range c.Members() {
		sum += cpuOf(m.PID())
	}
	return sum
}

// clusterIdle watches three nodes that have nothing to do.
func (b *bench) clusterIdle(ctx context.Context) error {
	return b.withCluster(ctx, 3, 16, func(c *robustness.Cluster) error {
		wait(ctx, 15*time.Second)
		before := map[string]float64{}
		for _, m := range c.Members() {
			before[m.ID] = cpuOf(m.PID())
		}
		wait(ctx, idleFor)
		for _, m := range c.Members() {
			fmt.Printf("%-34s %9.2f %% of one core  memory %.0f MiB\n", "idle, 16 shards on 3 nodes, "+m.ID,
				(cpuOf(m.PID())-before[m.ID])/idleFor.Seconds()*100, rssOf(m.PID()))
		}
		return ctx.Err()
	})
}
