package storage

import (
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// formatMajor is Pebble's on-disk format, pinned: a newer library must not raise it silently, since an older program could then not open
// the directory. Raising it is a change of FormatVersion. Value separation does nothing below it.
const formatMajor = pebble.FormatValueSeparation

const (
	separateFrom      = 1 << 10 // values from this size leave the tables, so that compaction does not rewrite payloads and entries
	blobDepth         = 10
	blobMinimumAge    = 5 * time.Minute
	blobGarbageRatio  = 0.20
	stopWritesTables  = 1000 // L0 is watched (Metrics.ReadAmp), it must not stop writes
	truncateFlushWait = 10 * time.Second
)

// commonOptions holds what log and state share. Chosen for two cores and many small writes.
func (s *Store) commonOptions(name string) *pebble.Options {
	o := &pebble.Options{
		FS:                          s.opts.FS,
		FormatMajorVersion:          formatMajor,
		Cache:                       s.cache,
		FileCache:                   s.files,
		MemTableSize:                s.opts.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		L0StopWritesThreshold:       stopWritesTables,
		LBaseMaxBytes:               64 << 20,
		Logger:                      &engineLogger{store: s, instance: name},
		ErrorIfNotExists:            s.identity.ready,
	}
	listener := s.listener(name)
	o.EventListener = &listener
	o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{Enabled: true, MinimumSize: separateFrom, MaxBlobReferenceDepth: blobDepth,
			RewriteMinimumAge: blobMinimumAge, TargetGarbageRatio: blobGarbageRatio}
	}
	return o
}

// logOptions: entries live shortly and are read from the ring, so nothing is spent on compression or filters, and early compaction of
// the first level is avoided.
func (s *Store) logOptions() *pebble.Options {
	o := s.commonOptions(logName)
	o.L0CompactionThreshold = 8
	o.CompactionConcurrencyRange = func() (int, int) { return 1, 1 }
	o.FlushDelayDeleteRange = truncateFlushWait
	for i := range o.Levels {
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	}
	return o
}

// stateOptions: no write-ahead log, filters for the many reads of keys that do not exist.
func (s *Store) stateOptions() *pebble.Options {
	o := s.commonOptions(stateName)
	o.DisableWAL = true
	o.L0CompactionThreshold = 4
	o.CompactionConcurrencyRange = func() (int, int) { return 1, 2 }
	o.Experimental.IngestSplit = func() bool { return true }
	tuneStateTables(o)
	return o
}

// tuneStateTables shapes the tables of the state, those that are sent to other stores too.
func tuneStateTables(o *pebble.Options) {
	for i := range o.Levels {
		o.Levels[i].BlockSize = 16 << 10
		o.Levels[i].IndexBlockSize = 256 << 10
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
	}
}
