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
