package replication

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sealane/sealane/storage"
)

// sink writes one small key per entry and gives constant results: what is left is the cost of this package, Raft and storage.
type sink struct {
	led     chan struct{}
	results []any
}

func (s *sink) Apply(b *storage.Batch, e Entry) ([]any, error) {
	for len(s.results) < len(e.Commands) {
		s.results = append(s.results, nil)
	}
	return s.results[:len(e.Commands):len(e.Commands)], b.Set([]byte("k"), []byte("v"))
}
func (s *sink) Committed(uint64) {}
func (s *sink) Led(uint64)       { s.led <- struct{}{} }
func (s *sink) Deposed()         {}
func (s *sink) Installed(uint64) {}

func benchGroup(b *testing.B, disk bool) *Group {
	b.Helper()
	dir, fs := "data", vfs.FS(vfs.NewMem())
	if disk {
		dir, fs = b.TempDir(), nil
	}
	s := openStore(b, dir, fs)
	m := &sink{led: make(chan struct{}, 8)}
	g := open(b, options(s, m))
	b.Cleanup(func() {
		closeGroup(b, g)
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	<-m.led
	return g
}

// BenchmarkPropose keeps a window of 256-byte commands open, as an asynchronous caller would. The metric is commands per second.
func BenchmarkPropose(b *testing.B) {
	for _, disk := range []bool{false, true} {
		for _, window := range []int{1, 64, 4096} {
			b.Run(fmt.Sprintf("disk=%v/open=%d", disk, window), func(b *testing.B) {
				g := benchGroup(b, disk)
				command := make([]byte, 256)
				slots := make(chan struct{}, window)
				var failed atomic.Int64
				done := func(_ any, _ uint64, err error) {
					if err != nil {
						failed.Add(1)
					}
					<-slots
				}
				before := g.Status()
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					slots <- struct{}{}
					if err := g.Propose(b.Context(), Client, command, done); err != nil {
						b.Fatal(err)
					}
				}
				for range window {
					slots <- struct{}{}
				}
				b.StopTimer()
				if failed.Load() > 0 {
					b.Fatalf("%d commands failed", failed.Load())
				}
				after := g.Status()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
				b.ReportMetric(float64(after.Commands-before.Commands)/float64(after.Entries-before.Entries), "commands/entry")
			})
		}
	}
}

// BenchmarkDo is 64 callers that each wait for their verdict.
func BenchmarkDo(b *testing.B) {
	for _, disk := range []bool{false, true} {
		b.Run(fmt.Sprintf("disk=%v", disk), func(b *testing.B) {
			g := benchGroup(b, disk)
			command := make([]byte, 256)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range 64 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for next.Add(1) <= int64(b.N) {
						if _, _, err := g.Do(b.Context(), Client, command); err != nil {
							b.Error(err)
							return
						}
					}
				}()
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
		})
	}
}

// BenchmarkQueue is the path before Raft alone: push and take.
func BenchmarkQueue(b *testing.B) {
	q := openQueue()
	f := &flight{}
	it := oneItem("x", 256)
	b.ReportAllocs()
	for range b.N {
		if err := q.push(Client, it); err != nil {
			b.Fatal(err)
		}
		if q.class[Client].commands == MaxEntryCommands {
			q.take(f)
			clear(f.items)
			f.items, f.commands, f.bytes, f.oldest = f.items[:0], 0, 0, 0
		}
	}
}

// BenchmarkDecodeEntry reads an entry of 256 commands.
func BenchmarkDecodeEntry(b *testing.B) {
	e := Entry{Stamp: time.Now().UnixNano(), NodeID: "node-1", BootID: 7}
	for range MaxEntryCommands {
		e.Commands = append(e.Commands, make([]byte, 256))
	}
	data := AppendEntry(nil, &e)
	var got Entry
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for range b.N {
		if err := decodeEntry(data, &got); err != nil {
			b.Fatal(err)
		}
	}
}

// diskCluster is three replicas in one process, each with a store on disk, and Raft's in-memory transport.
func diskCluster(b *testing.B) *cluster {
	b.Helper()
	c := newClusterWith(b, 3, 3, func(c *cluster) {
		for _, r := range c.replicas {
			r.store = openStore(b, b.TempDir(), nil)
		}
	})
	b.Cleanup(func() { c.close(b) })
	return c
}

// BenchmarkTransfer moves leadership back and forth under the load of 64 callers. ns/op is one transfer until the new leader accepts commands;
// gap-ms is the longest time without an acknowledgement.
func BenchmarkTransfer(b *testing.B) {
	c := diskCluster(b)
	c.leader(b, -1)
	load := c.load(b, 64)
	b.ResetTimer()
	for range b.N {
		old := c.leader(b, -1)
		if err := c.replicas[old].group.TransferLeadershipTo(b.Context(), c.replicas[(old+1)%3].id); err != nil {
			b.Fatal(err)
		}
		c.leader(b, old)
	}
	b.StopTimer()
	acked := load.stop()
	if load.unknown() > 0 {
		b.Fatalf("%d commands are unknown", load.unknown())
	}
	b.ReportMetric(float64(load.longestGap)/1e6, "gap-ms")
	b.ReportMetric(float64(len(acked))/b.Elapsed().Seconds(), "commands/s")
}

// BenchmarkElection cuts the leader off under load. ns/op is the time until another one accepts commands, on real time and disks.
func BenchmarkElection(b *testing.B) {
	c := diskCluster(b)
	c.leader(b, -1)
	load := c.load(b, 8)
	for range b.N {
		old := c.leader(b, -1)
		c.cutOff(old)
		b.StartTimer()
		c.leader(b, old)
		b.StopTimer()
		c.connect(old)
		c.caughtUp(b, old)
	}
	load.stop()
}

// BenchmarkDigest hashes a state of 64 MiB in values of 4 KiB.
func BenchmarkDigest(b *testing.B) {
	s := openStore(b, b.TempDir(), nil)
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()
	st := s.State(1)
	for i := range 64 {
		batch := st.NewBatch()
		for k := range 256 {
			if err := batch.Set(fmt.Appendf(nil, "%03d-%03d", i, k), make([]byte, 4<<10)); err != nil {
				b.Fatal(err)
			}
		}
		batch.SetApplied(uint64(i + 1))
		if err := batch.Commit(); err != nil {
			b.Fatal(err)
		}
		batch.Close()
	}
	snapshot := st.NewSnapshot()
	defer func() { must(b, "close", snapshot.Close()) }()
	b.SetBytes(64 << 20)
	var progress atomic.Uint64
	for b.Loop() {
		if _, err := hashState(b.Context(), snapshot, &progress); err != nil {
			b.Fatal(err)
		}
	}
}
