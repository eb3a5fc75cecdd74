package storage

import (
	"github.com/cockroachdb/pebble/v2"
	dto "github.com/prometheus/client_model/go"
)

// Metrics are plain numbers. Counters start at zero with Open.
type Metrics struct {
	Log   InstanceMetrics
	State InstanceMetrics

	Fsyncs           uint64  // of the log's write-ahead log
	FsyncSeconds     float64 // spent in them
	BackgroundErrors int64   // failed flushes and compactions
	SlowDiskReports  int64   // file operations above 5 s
	CacheHits        int64   // block cache, shared
	CacheMisses      int64
	CacheBytes       int64
	Failed           bool

	Exports          int64 // states written out for other stores
	ExportsFailed    int64
	ExportedBytes    int64 // read from exports
	Receipts         int64 // states received whole
	ReceiptsRejected int64 // streams that were damaged, foreign, or did not fit on the disk
	ReceivedBytes    int64
	Installs         int64 // received states carried over into log and state
}

// InstanceMetrics are those of one Pebble instance.
type InstanceMetrics struct {
	WALBytes         uint64 // written to the write-ahead log
	FlushedBytes     uint64 // written by flushes, tables and blobs
	CompactedBytes   uint64 // written by compactions, tables and blobs
	Flushes          int64
	Compactions      int64
	CompactionDebt   uint64 // bytes that compactions should still rewrite
	DiskBytes        uint64
	MemTableBytes    uint64
	ReadAmp          int // tables that a point read may have to look at
	BlobBytes        uint64
	BlobGarbageBytes uint64
}

// Metrics reads all numbers; zero after Close. It takes locks of Pebble's: not for a hot path.
func (s *Store) Metrics() Metrics {
	m := Metrics{
		BackgroundErrors: s.health.background.Load(),
		SlowDiskReports:  s.health.slow.Load(),
		Failed:           s.Failed() != nil,
		Exports:          s.spool.exported.Load(),
		ExportsFailed:    s.spool.exportsFailed.Load(),
		ExportedBytes:    s.spool.exportedBytes.Load(),
		Receipts:         s.spool.received.Load(),
		ReceiptsRejected: s.spool.receiptsRejected.Load(),
		ReceivedBytes:    s.spool.receivedBytes.Load(),
		Installs:         s.spool.installed.Load(),
	}
	if s.closed.Load() {
		return m
	}
	log, state := s.logDB.Metrics(), s.state.Metrics()
	m.Log, m.State = instanceMetrics(log), instanceMetrics(state)
	m.CacheHits, m.CacheMisses, m.CacheBytes = log.BlockCache.Hits, log.BlockCache.Misses, log.BlockCache.Size
	if log.LogWriter.FsyncLatency != nil {
		var out dto.Metric
		if err := log.LogWriter.FsyncLatency.Write(&out); err == nil { // a histogram in memory: it has no error to give
			m.Fsyncs, m.FsyncSeconds = out.GetHistogram().GetSampleCount(), out.GetHistogram().GetSampleSum()/1e9
		}
	}
	return m
}

func instanceMetrics(m *pebble.Metrics) InstanceMetrics {
	// Summed here: Pebble's own total counts the write-ahead log as flushed.
	var flushed, compacted uint64
	for i := range m.Levels {
		flushed += m.Levels[i].TableBytesFlushed + m.Levels[i].BlobBytesFlushed
		compacted += m.Levels[i].TableBytesCompacted + m.Levels[i].BlobBytesCompacted
	}
	garbage := uint64(0)
	if m.BlobFiles.ValueSize > m.BlobFiles.ReferencedValueSize {
		garbage = m.BlobFiles.ValueSize - m.BlobFiles.ReferencedValueSize
	}
	return InstanceMetrics{
		WALBytes:         m.WAL.BytesWritten,
		FlushedBytes:     flushed,
		CompactedBytes:   compacted,
		Flushes:          m.Flush.Count,
		Compactions:      m.Compact.Count,
		CompactionDebt:   m.Compact.EstimatedDebt,
		DiskBytes:        m.DiskSpaceUsage(),
		MemTableBytes:    m.MemTable.Size,
		ReadAmp:          m.ReadAmp(),
		BlobBytes:        m.BlobFiles.LiveSize,
		BlobGarbageBytes: garbage,
	}
}
