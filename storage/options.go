package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Limits of what the store takes. Larger input is refused with an error that names the limit.
const (
	// MaxKeyBytes bounds a key of the state, without its group prefix, and a key of the stable store.
	MaxKeyBytes = 8 << 10
	// MaxBatchBytes bounds keys plus values of one Batch. It stays below half of the default memtable: larger batches would make
	// Pebble rotate the memtable for each.
	MaxBatchBytes = 24 << 20
	// MaxEntryBytes bounds data plus extensions of one log entry. An entry that carries the largest payload (16 MiB) fits.
	MaxEntryBytes = 24 << 20
)

const (
	defaultCacheBytes       = 128 << 20
	defaultMemTableBytes    = 64 << 20
	defaultLogWriteDeadline = 20 * time.Second
	defaultBackgroundLimit  = 10 * time.Second
	defaultFlushInterval    = 30 * time.Second
	defaultRingEntries      = 1024
	defaultRingBytes        = 4 << 20
	minMemTableBytes        = 64 << 10
	maxMemTableBytes        = 1 << 30
	// logBatchBytes splits a long StoreLogs, so that no Pebble batch nears half a memtable.
	logBatchBytes = 8 << 20
	openFiles     = 1000
)

// Options configures a Store. Zero means default.
type Options struct {
	// Dir is the store's directory; created if missing. Required.
	Dir string
	// FS is the file system; nil is the disk. A given one is used as it is, without Pebble's slow-disk reports.
	FS vfs.FS
	// CacheBytes bounds the block cache that log and state share. Default 128 MiB; 1 MiB or more.
	CacheBytes int64
	// MemTableBytes is the size at which a memtable is flushed, in each of the two instances: it bounds what must be replayed after
	// a crash. Default 64 MiB; 64 KiB to 1 GiB. Up to four exist per instance while the disk is slow.
	MemTableBytes uint64
	// NoSync leaves out every fsync of the log. A crash of the machine then loses acknowledged writes. Only for tests, and for a
	// development node without a data directory.
	NoSync bool
	// LogWriteDeadline bounds one write of the log. A later one is fatal: a leader whose disk hangs would stay leader otherwise.
	// Default 20 s.
	LogWriteDeadline time.Duration
	// BackgroundErrorLimit is how long flushes or compactions may fail without one success in between. After that it is fatal. Default 10 s.
	BackgroundErrorLimit time.Duration
	// FlushInterval is the longest time that state stays unflushed. Default 30 s.
	FlushInterval time.Duration
	// RingEntries and RingBytes bound the recent entries that each group keeps in memory for replication and apply. Defaults 1 024
	// entries and 4 MiB; the newest entry is always kept.
	RingEntries int
	RingBytes   int
	// OnFatal is told, once and on its own goroutine, why the store has failed. The process must stop: nothing written after that
	// is kept. Default: panic.
	OnFatal func(error)
	// OnDiskSlow is told about a single file operation that takes longer than 5 s. It must not block or call the store. Default: a log line only.
	OnDiskSlow func(detail string)
	// Logger receives Pebble's errors and the store's own lines. Default: slog.Default().
	Logger *slog.Logger
	// CreatedBy names the program and version that creates the directory; kept for support. At most 255 bytes of printable ASCII. Default "sealane".
	CreatedBy string
}

// ErrOptions wraps every complaint of Options.Validate. The caller corrects the fields that it names.
var ErrOptions = errors.New("storage: invalid options")

// Validate reports every problem at once, each naming the field and its limit; the result matches ErrOptions.
func (o Options) Validate() error {
	var bad []error
	complain := func(format string, args ...any) { bad = append(bad, fmt.Errorf(format, args...)) }
	if o.Dir == "" {
		complain("Dir is empty")
	}
	if o.CacheBytes != 0 && o.CacheBytes < 1<<20 {
		complain("CacheBytes is %d, want at least %d", o.CacheBytes, 1<<20)
	}
	if o.MemTableBytes != 0 && (o.MemTableBytes < minMemTableBytes || o.MemTableBytes > maxMemTableBytes) {
		complain("MemTableBytes is %d, want %d to %d", o.MemTableBytes, minMemTableBytes, maxMemTableBytes)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"LogWriteDeadline", o.LogWriteDeadline},
		{"BackgroundErrorLimit", o.BackgroundErrorLimit},
		{"FlushInterval", o.FlushInterval},
	} {
		if d.value < 0 {
			complain("%s is %v, want 0 (default) or more", d.name, d.value)
		}
	}
	if o.RingEntries < 0 {
		complain("RingEntries is %d, want 0 (default) or more", o.RingEntries)
	}
	if o.RingBytes < 0 {
		complain("RingBytes is %d, want 0 (default) or more", o.RingBytes)
	}
	if len(o.CreatedBy) > 255 || !printable(o.CreatedBy) {
		complain("CreatedBy is %q, want at most 255 bytes of printable ASCII", o.CreatedBy)
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrOptions, errors.Join(bad...))
}

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&o.LogWriteDeadline, defaultLogWriteDeadline)
	set(&o.BackgroundErrorLimit, defaultBackgroundLimit)
	set(&o.FlushInterval, defaultFlushInterval)
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = defaultMemTableBytes
	}
	if o.RingEntries == 0 {
		o.RingEntries = defaultRingEntries
	}
	if o.RingBytes == 0 {
		o.RingBytes = defaultRingBytes
	}
	if o.OnFatal == nil {
		o.OnFatal = func(err error) { panic(fmt.Sprintf("storage failed, the process must stop: %v", err)) }
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.CreatedBy == "" {
		o.CreatedBy = "sealane"
	}
	return o
}

// fs gives the file system for the store's own files.
func (o Options) fs() vfs.FS {
	if o.FS == nil {
		return vfs.Default
	}
	return o.FS
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
