package storagetest

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sealane/sealane/storage"
)

// Dir is the directory of stores in memory.
const Dir = "/data/sealane"

// Options gives options for a small store in fs: small caches, no logging, and a test error if the store fails.
func Options(t testing.TB, fs vfs.FS) storage.Options {
	return storage.Options{
		Dir: Dir, FS: fs, CacheBytes: 8 << 20, MemTableBytes: 1 << 20, CreatedBy: "test",
		Logger:  slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnFatal: func(err error) { t.Errorf("store failed: %v", err) },
	}
}

// Open opens a store and closes it when the test ends, unless the test did.
func Open(t testing.TB, opts storage.Options) *storage.Store {
	t.Helper()
	s, err := storage.Open(opts)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(func() { closeQuietly(t, s) })
	return s
}

// OpenMem opens a new store in memory.
func OpenMem(t testing.TB) *storage.Store {
	t.Helper()
	return Open(t, Options(t, vfs.NewMem()))
}

func closeQuietly(t testing.TB, s *storage.Store) {
	if err := s.Close(); err != nil && err != storage.ErrClosed && s.Failed() == nil { //nolint:errorlint // ErrClosed comes unwrapped
		t.Errorf("close store: %v", err)
	}
}

// Disk is a disk in memory that can lose power. Safe for use from several goroutines.
type Disk struct {
	t    testing.TB
	mu   sync.Mutex
	rng  *rand.Rand
	fs   *linkedFS
	open []*storage.Store
	// Change, if set, adjusts the options of each Open.
	Change func(*storage.Options)
}

// NewDisk makes an empty one; the seed decides which unsynced data survives a crash.
func NewDisk(t testing.TB, seed uint64) *Disk {
	d := &Disk{t: t, rng: rand.New(rand.NewPCG(seed, 1)), fs: &linkedFS{MemFS: vfs.NewCrashableMem()}}
	t.Cleanup(func() {
		for _, s := range d.open {
			closeQuietly(t, s)
		}
	})
	return d
}

// Open opens the store on the disk.
func (d *Disk) Open() (*storage.Store, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	opts := Options(d.t, d.fs)
	if d.Change != nil {
		d.Change(&opts)
	}
	s, err := storage.Open(opts)
	if err != nil {
		return nil, fmt.Errorf("open store on the test disk: %w", err)
	}
	d.open = append(d.open, s)
	return s, nil
}

// MustOpen is Open for a test that expects it to work.
func (d *Disk) MustOpen() *storage.Store {
	d.t.Helper()
	s, err := d.Open()
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// Crash replaces the disk by what a loss of power leaves now: all synced data, and of the rest each block with a probability of
// unsyncedPercent (0 to 100). Stores that are open keep writing to the old disk, which nobody reads again; they are closed at the end
// of the test. Stop what uses them before that.
func (d *Disk) Crash(unsyncedPercent int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fs.apart.Lock()
	defer d.fs.apart.Unlock()
	d.fs = &linkedFS{MemFS: d.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsyncedPercent, RNG: d.rng})}
}

// linkedFS keeps links and clones apart: Pebble's file system in memory takes a lock twice to link, and hangs if a clone comes in between.
type linkedFS struct {
	*vfs.MemFS
	apart sync.Mutex
}

// Link is part of vfs.FS.
func (f *linkedFS) Link(from, to string) error {
	f.apart.Lock()
	defer f.apart.Unlock()
	return f.MemFS.Link(from, to)
}
