package peer

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sealane/sealane/replication"
)

// cpu is the processor time of this process so far.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIdle measures what sixteen groups that do nothing cost on three nodes in one process, over loopback: a node's share is a third of
// the cpu percentage. An operation is a second of idleness: run it with -benchtime=10x.
func BenchmarkIdle(b *testing.B) {
	c := newTrio(b, 16, nil)
	for g := range 16 {
		c.leader(g)
	}
	<-time.After(2 * time.Second) // until the last election is over
	frames, messages, bytes := c.traffic()
	used, began := cpu(b), time.Now()
	b.ResetTimer()
	for range b.N {
		<-time.After(time.Second)
	}
	b.StopTimer()
	seconds := time.Since(began).Seconds()
	frames2, messages2, bytes2 := c.traffic()
	b.ReportMetric(float64(frames2-frames)/seconds, "frames/s")
	b.ReportMetric(float64(messages2-messages)/seconds, "messages/s")
	b.ReportMetric(float64(bytes2-bytes)/seconds, "bytes/s")
	b.ReportMetric(100*(cpu(b)-used).Seconds()/seconds, "%cpu")
	b.ReportMetric(0, "ns/op")
}

// traffic counts what all three sent.
func (c *trio) traffic() (frames, messages, bytes uint64) {
	for _, n := range c.nodes {
		for _, s := range n.Status() {
			frames, messages, bytes = frames+s.FramesSent, messages+s.MessagesSent, bytes+s.BytesSent
		}
	}
	return frames, messages, bytes
}

// BenchmarkWrites measures commands of 256 bytes through replicated groups on the disk, on loopback and with a delay in each direction.
func BenchmarkWrites(b *testing.B) {
	for _, delay := range []time.Duration{0, time.Millisecond} {
		for _, groups := range []int{1, 8} {
			for _, clients := range []int{1, 64, 1024} {
				b.Run(fmt.Sprintf("delay=%v/groups=%d/clients=%d", delay, groups, clients), func(b *testing.B) { writes(b, delay, groups, clients) })
			}
		}
	}
}

func writes(b *testing.B, delay time.Duration, groups, clients int) {
	c := newTrioOn(b, groups, nil, func() (string, vfs.FS) { return b.TempDir(), vfs.Default }, delay)
	var leaders []*replication.Group
	for g := range groups {
		leaders = append(leaders, c.groups[c.leader(g)][g])
	}
	command := make([]byte, 256)
	used := cpu(b)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for k := i; k < b.N; k += clients {
				ctx, cancel := context.WithTimeout(context.Background(), deadline)
				if _, _, err := leaders[i%groups].Do(ctx, replication.Engine, command); err != nil {
					b.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
	b.ReportMetric(float64((cpu(b)-used).Microseconds())/float64(b.N), "cpu-us/op")
}

// BenchmarkAppend measures one append over loopback, without Raft.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 64 << 10, 3 << 20, 24 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			n1, n2 := pair(b, nil, nil)
			t1 := n1.Transport(1)
			answer(n2.Transport(1), nil)
			mustSend(b, t1, "n2", heartbeat("n1", 1))
			q := entries("n1", 1, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				mustSend(b, t1, "n2", q)
			}
		})
	}
}
