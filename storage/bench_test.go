package storage_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
	"github.com/sealane/sealane/storage/storagetest"
)

// benchStore is a store with default options, on disk or in memory.
func benchStore(b *testing.B, fs vfs.FS) *storage.Store {
	b.Helper()
	return storagetest.Open(b, storage.Options{Dir: b.TempDir(), FS: fs, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
}

// BenchmarkStoreLogs: one synced StoreLogs per operation, on the real disk; several groups share syncs.
func BenchmarkStoreLogs(b *testing.B) {
	for _, c := range []struct{ groups, entries, bytes int }{{1, 1, 256}, {1, 1, 64 << 10}, {16, 1, 256}, {16, 1, 64 << 10}} {
		b.Run(fmt.Sprintf("groups=%d/entries=%d/bytes=%d", c.groups, c.entries, c.bytes), func(b *testing.B) {
			s := benchStore(b, nil)
			var next atomic.Uint32
			b.SetBytes(int64(c.entries * c.bytes))
			b.ReportAllocs()
			b.SetParallelism(max(1, c.groups/2))
			b.RunParallel(func(pb *testing.PB) {
				l, err := s.RaftLog(next.Add(1))
				must(b, err)
				for i := uint64(1); pb.Next(); i++ {
					must(b, l.StoreLogs([]*raft.Log{{Index: i, Term: 1, Data: make([]byte, c.bytes)}}))
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(s.Metrics().Fsyncs)/float64(b.N), "fsyncs/op")
		})
	}
}

// BenchmarkBatchCommit: a batch of 1 000 small sets, each after a read of the same key, as apply does.
func BenchmarkBatchCommit(b *testing.B) {
	st := benchStore(b, vfs.NewMem()).State(1)
	key, value := make([]byte, 24), make([]byte, 100)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		batch := st.NewBatch()
		for j := range 1000 {
			binary.BigEndian.PutUint64(key, uint64(i*1000+j)*0x9E3779B97F4A7C15)
			if _, _, err := batch.Get(key); err != nil {
				b.Fatal(err)
			}
			must(b, batch.Set(key, value))
		}
		batch.SetApplied(uint64(i + 1))
		must(b, batch.Commit())
		batch.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/set")
}

// BenchmarkBatchSets is the same without reads.
func BenchmarkBatchSets(b *testing.B) {
	st := benchStore(b, vfs.NewMem()).State(1)
	key, value := make([]byte, 24), make([]byte, 100)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		batch := st.NewBatch()
		for j := range 1000 {
			binary.BigEndian.PutUint64(key, uint64(i*1000+j)*0x9E3779B97F4A7C15)
			must(b, batch.Set(key, value))
		}
		batch.SetApplied(uint64(i + 1))
		must(b, batch.Commit())
		batch.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/set")
}

// BenchmarkBatchMixed: in a batch of 256 steps, each reads, scans a few keys and writes, as a vector of commands does.
func BenchmarkBatchMixed(b *testing.B) {
	st := benchStore(b, vfs.NewMem()).State(1)
	key, value := make([]byte, 16), make([]byte, 60)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		batch := st.NewBatch()
		for j := range 256 {
			binary.BigEndian.PutUint64(key, uint64(i*256+j)*0x9E3779B97F4A7C15)
			must(b, batch.Set(key, value))
			n := 0
			must(b, batch.Scan(key[:8], nil, false, func(k, v []byte) (bool, error) { n++; return n < 3, nil }))
			if _, _, err := batch.Get(key[:8]); err != nil {
				b.Fatal(err)
			}
		}
		batch.SetApplied(uint64(i + 1))
		must(b, batch.Commit())
		batch.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/step")
}

// BenchmarkGet reads from a state of 200 000 keys in tables: hits, misses, and hits remembered by a batch.
func BenchmarkGet(b *testing.B) {
	s := benchStore(b, vfs.NewMem())
	st := s.State(1)
	const keys = 200_000
	name := func(k []byte, i int) []byte {
		return binary.BigEndian.AppendUint64(k[:0], uint64(i)*0x9E3779B97F4A7C15)
	}
	var key []byte
	for i := range keys / 1000 {
		batch := st.NewBatch()
		for j := range 1000 {
			key = name(key, i*1000+j)
			must(b, batch.Set(key, make([]byte, 100)))
		}
		batch.SetApplied(uint64(i + 1))
		must(b, batch.Commit())
		batch.Close()
	}
	must(b, s.Flush(b.Context()))
	get := func(r storagetest.Reader, from, span int) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				key = name(key, from+i%span)
				if _, ok, err := r.Get(key); err != nil || ok != (from == 0) {
					b.Fatal(ok, err)
				}
			}
		}
	}
	b.Run("hit", get(st, 0, keys))
	b.Run("miss", get(st, keys, keys))
	batch := st.NewBatch()
	defer batch.Close()
	b.Run("batch again", get(batch, 0, 100))
}

// BenchmarkGetLog reads the newest entries, from the ring and from tables.
func BenchmarkGetLog(b *testing.B) {
	s := benchStore(b, vfs.NewMem())
	l, err := s.RaftLog(1)
	must(b, err)
	must(b, l.StoreLogs(storagetest.Entries(1, 1, 5000, 1)))
	read := func(from uint64) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			var e raft.Log
			for i := uint64(0); b.Loop(); i++ {
				must(b, l.GetLog(from+i%900, &e))
			}
		}
	}
	b.Run("ring", read(4100))
	b.Run("table", read(1))
}

// BenchmarkExport and BenchmarkInstall: a state of 200 MB in values of one size, on the real disk. Installing includes receiving and checking.
func BenchmarkExport(b *testing.B) {
	for _, size := range []int{256, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := benchStore(b, nil)
			b.SetBytes(bulk(b, s, 1, size))
			for b.Loop() {
				e, err := s.Export(b.Context(), 1, nil)
				must(b, err)
				_, err = io.Copy(io.Discard, e)
				must(b, err)
				must(b, e.Close())
			}
		})
	}
}

func BenchmarkInstall(b *testing.B) {
	for _, size := range []int{256, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			from := benchStore(b, nil)
			b.SetBytes(bulk(b, from, 1, size))
			index := uint64(0)
			for b.Loop() {
				b.StopTimer()
				to := benchStore(b, nil)
				e, err := from.Export(b.Context(), 1, nil)
				must(b, err)
				index++
				b.StartTimer()
				r, err := to.Receive(b.Context(), 1)
				must(b, err)
				_, err = io.Copy(r, e)
				must(b, err)
				must(b, r.Complete(storage.SnapshotMarker{Index: 1, Term: 1}))
				_, err = to.Install(1)
				must(b, err)
				b.StopTimer()
				must(b, e.Close())
				must(b, to.Close())
				b.StartTimer()
			}
		})
	}
}

// bulk fills a group with incompressible values and gives their bytes.
func bulk(b *testing.B, s *storage.Store, group uint32, size int) int64 {
	b.Helper()
	const total, perBatch = 200 << 20, 4 << 20
	value := make([]byte, size)
	rng := rand.New(rand.NewPCG(1, 1))
	n := 0
	for index := uint64(1); n*size < total; index++ {
		batch := s.State(group).NewBatch()
		for range max(1, perBatch/size) {
			for k := 0; k+8 <= size; k += 8 {
				binary.LittleEndian.PutUint64(value[k:], rng.Uint64())
			}
			must(b, batch.Set(binary.BigEndian.AppendUint64(nil, uint64(n)), value))
			n++
		}
		batch.SetApplied(index)
		must(b, batch.Commit())
		batch.Close()
	}
	must(b, s.Flush(b.Context()))
	return int64(n * size)
}
