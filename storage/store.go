package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

var (
	// ErrLocked means that another process, or another Store of this one, has the directory open. Stop it first.
	ErrLocked = errors.New("storage: directory is in use")
	// ErrClosed means that Close was called. A programming error: whoever uses the store must be stopped before.
	ErrClosed = errors.New("storage: store is closed")
)

const (
	lockName  = "LOCK"
	logName   = "log"
	stateName = "state"
)

// Store is a node's directory. All methods may be called from any goroutine; what a single group's RaftLog and Batch allow is said there.
type Store struct {
	opts   Options
	lock   io.Closer
	cache  *pebble.Cache
	files  *pebble.FileCache
	logDB  *pebble.DB
	state  *pebble.DB
	health health
	closed atomic.Bool

	identityMu sync.Mutex
	identity   identityFile

	groupsMu sync.Mutex
	logs     map[uint32]*RaftLog
	states   map[uint32]*State

	flush     flusher
	spool     spool
	writing   writing
	stopLoops context.CancelFunc
	loops     sync.WaitGroup
}

// Open opens the directory, creating it if it is missing or empty, and makes both instances ready. Errors: ErrOptions, ErrLocked,
// ErrFormatVersion, ErrCorrupt (identity missing beside data, damaged files), ErrIdentity (log and state of different stores).
// Whatever was applied but not flushed before a crash is gone from the state and must be applied again from the log.
func Open(opts Options) (*Store, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	s := &Store{opts: opts.withDefaults(), logs: map[uint32]*RaftLog{}, states: map[uint32]*State{}}
	s.health.failedCh = make(chan struct{})
	s.flush.wake = make(chan struct{}, 1)
	s.spool.init()
	if err := s.open(); err != nil {
		return nil, errors.Join(s.annotate(err), s.release())
	}
	var ctx context.Context
	ctx, s.stopLoops = context.WithCancel(context.Background())
	s.loops.Go(func() { s.runFlushes(ctx) })
	return s, nil
}

func (s *Store) open() error {
	fs, dir := s.opts.fs(), s.opts.Dir
	if err := makeDir(fs, dir); err != nil {
		return err
	}
	if err := s.takeLock(); err != nil {
		return err
	}
	if err := s.loadIdentity(); err != nil {
		return err
	}
	// Pebble takes the size of every memtable out of its cache: without room for them, two memtables of the default size would leave no cache at
	// all. One for each instance and one being flushed are the usual case.
	s.cache = pebble.NewCache(s.opts.CacheBytes + 3*int64(s.opts.MemTableBytes))
	s.files = pebble.NewFileCache(2, openFiles)
	var err error
	if s.logDB, err = openInstance(fs.PathJoin(dir, logName), s.logOptions()); err != nil {
		return err
	}
	if s.state, err = openInstance(fs.PathJoin(dir, stateName), s.stateOptions()); err != nil {
		return err
	}
	if err := s.pair(); err != nil {
		return err
	}
	if err := s.finishDestroys(); err != nil {
		return err
	}
	if err := s.loadStates(); err != nil {
		return err
	}
	if err := s.openSpool(); err != nil {
		return err
	}
	return s.finishInstalls()
}

// openInstance opens one Pebble database and classifies why it cannot.
func openInstance(path string, o *pebble.Options) (*pebble.DB, error) {
	db, err := pebble.Open(path, o)
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, pebble.ErrDBDoesNotExist):
		return nil, fmt.Errorf("%w: %s is missing although the store was complete: %w", ErrCorrupt, path, err)
	case pebble.IsCorruptionError(err):
		return nil, fmt.Errorf("%w: open %s: %w", ErrCorrupt, path, err)
	case errors.Is(err, syscall.EAGAIN), strings.Contains(err.Error(), "lock held"):
		return nil, fmt.Errorf("%w: %s: %w", ErrLocked, path, err)
	}
	return nil, fmt.Errorf("open %s: %w", path, err)
}

// makeDir creates dir and makes the entries of all directories that it creates durable.
func makeDir(fs vfs.FS, dir string) error {
	var missing []string
	for d := dir; ; d = fs.PathDir(d) {
		if _, err := fs.Stat(d); err == nil {
			break
		} else if !isNotExist(err) {
			return fmt.Errorf("stat %s: %w", d, err)
		}
		missing = append(missing, d)
		if fs.PathDir(d) == d {
			break
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := fs.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("create %s: %w", dir, err)
	}
	for _, d := range slices.Backward(missing) {
		if err := syncDir(fs, fs.PathDir(d)); err != nil {
			return err
		}
	}
	return nil
}

// takeLock keeps a second store out of the directory before anything is read.
func (s *Store) takeLock() error {
	path := s.opts.fs().PathJoin(s.opts.Dir, lockName)
	lock, err := s.opts.fs().Lock(path)
	if err == nil {
		s.lock = lock
		return nil
	}
	// Unix answers EAGAIN or EACCES for a lock that another process holds; a second lock in this process has only a text.
	if errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "lock held") {
		return fmt.Errorf("%w: %s: %w", ErrLocked, s.opts.Dir, err)
	}
	return fmt.Errorf("lock %s: %w", path, err)
}

// loadIdentity reads the identity file, or starts a new store in an empty directory. Data without identity is never adopted.
func (s *Store) loadIdentity() error {
	fs, dir := s.opts.fs(), s.opts.Dir
	f, found, err := readIdentity(fs, dir)
	if err != nil {
		return err
	}
	if found {
		s.identity = f
		return s.clearUnfinished()
	}
	for _, name := range []string{logName, stateName} {
		if _, err := fs.Stat(fs.PathJoin(dir, name)); err == nil {
			return fmt.Errorf("%w: %s has %q but no %s file", ErrCorrupt, dir, name, identityName)
		} else if !isNotExist(err) {
			return fmt.Errorf("stat %s in %s: %w", name, dir, err)
		}
	}
	if err := refuseForeign(fs, dir); err != nil {
		return err
	}
	f = identityFile{Identity: Identity{FormatVersion: FormatVersion, CreatedBy: s.opts.CreatedBy}}
	if _, err := rand.Read(f.StoreID[:]); err != nil {
		return fmt.Errorf("draw store id: %w", err)
	}
	if err := writeIdentity(fs, dir, f); err != nil {
		return err
	}
	s.identity = f
	return nil
}

// refuseForeign keeps a store from being founded among somebody else's files: a mistyped path would do that. What an interrupted first start left
// is no hindrance, nor is what a file system puts in its own root.
func refuseForeign(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	slices.Sort(names)
	for _, name := range names {
		if name != lockName && name != identityName+".new" && name != "lost+found" {
			return fmt.Errorf("%w: %s holds %q and no %s file", ErrNotEmpty, dir, name, identityName)
		}
	}
	return nil
}

// clearUnfinished starts a creation again that was interrupted. Pebble cannot open every directory that a loss of power leaves of its own
// creation. The identity file itself says that the store was never ready, so nothing was ever acknowledged in it.
func (s *Store) clearUnfinished() error {
	if s.identity.ready || s.identity.node != "" {
		return nil
	}
	s.opts.Logger.Warn("creation of the store was interrupted and starts again", "dir", s.opts.Dir)
	fs := s.opts.fs()
	for _, name := range []string{logName, stateName} {
		if err := fs.RemoveAll(fs.PathJoin(s.opts.Dir, name)); err != nil && !isNotExist(err) {
			return fmt.Errorf("clear %s in %s: %w", name, s.opts.Dir, err)
		}
	}
	return syncDir(fs, s.opts.Dir)
}

// pair makes sure that both instances belong to this store; at the first start it marks them and then the store as complete.
func (s *Store) pair() error {
	for _, instance := range []struct {
		name string
		db   *pebble.DB
	}{{logName, s.logDB}, {stateName, s.state}} {
		id, found, err := getCopy(instance.db, storeIDKey)
		if err != nil {
			return fmt.Errorf("read store id of %s: %w", instance.name, err)
		}
		if found && !bytes.Equal(id, s.identity.StoreID[:]) {
			return fmt.Errorf("%w: %s/%s has store id %x, the directory %x", ErrIdentity, s.opts.Dir, instance.name, id, s.identity.StoreID)
		}
		if !found && s.identity.ready {
			return fmt.Errorf("%w: %s/%s has no store id", ErrCorrupt, s.opts.Dir, instance.name)
		}
		if !found {
			if err := s.markInstance(instance.db); err != nil {
				return fmt.Errorf("mark %s: %w", instance.name, err)
			}
		}
	}
	if s.identity.ready {
		return nil
	}
	done := s.identity
	done.ready = true
	if err := writeIdentity(s.opts.fs(), s.opts.Dir, done); err != nil {
		return err
	}
	s.identity = done
	return nil
}

// markInstance writes the store id durably: a flush does it with and without a write-ahead log.
func (s *Store) markInstance(db *pebble.DB) error {
	if err := db.Set(storeIDKey, s.identity.StoreID[:], pebble.NoSync); err != nil {
		return err
	}
	if err := s.flushInstance(context.Background(), db); err != nil {
		return err
	}
	return s.Failed()
}

// usable gives why the store cannot be used, if so.
func (s *Store) usable() error {
	if s.closed.Load() {
		return ErrClosed
	}
	return s.Failed()
}

// closeFlushLimit bounds the flush of Close: without it the log has everything, it is only replayed at the next start.
const closeFlushLimit = time.Minute

// abandonLimit bounds the closing of a failed store.
const abandonLimit = 5 * time.Second

// Close flushes the state, stops the background loop and closes both instances. Everybody who uses the store, its snapshots and batches
// included, must have stopped. A failed store is closed without a flush. Closing twice gives ErrClosed.
func (s *Store) Close() error {
	if s.closed.Load() {
		return ErrClosed
	}
	s.stopLoops()
	s.loops.Wait()
	var err error
	if s.Failed() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeFlushLimit)
		err = s.Flush(ctx)
		cancel()
	}
	if s.closed.Swap(true) {
		return ErrClosed
	}
	if s.Failed() == nil {
		return errors.Join(err, s.release())
	}
	return s.abandon()
}

// abandon closes a failed store as far as it goes: Pebble may hang on the locks of a write that failed.
func (s *Store) abandon() error {
	done := make(chan error, 1)
	go func() { done <- s.release() }()
	limit := time.NewTimer(abandonLimit)
	defer limit.Stop()
	select {
	case err := <-done:
		return errors.Join(s.Failed(), err)
	case <-limit.C:
		return fmt.Errorf("%w (not closed within %v)", s.Failed(), abandonLimit)
	}
}

// release closes whatever is open, in reverse order.
func (s *Store) release() error {
	var errs []error
	for _, db := range []*pebble.DB{s.state, s.logDB} {
		if db != nil {
			errs = append(errs, recovered(db.Close))
		}
	}
	if s.files != nil {
		errs = append(errs, recovered(func() error { s.files.Unref(); s.cache.Unref(); return nil }))
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// recovered turns Pebble's panics while closing into errors: it panics about a failed write-ahead log, and about iterators and snapshots
// that somebody still holds. The lock must be released in any case.
func recovered(closing func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("close pebble: %v", p)
		}
	}()
	return closing()
}

// getCopy reads one key.
func getCopy(r pebble.Reader, key []byte) (value []byte, found bool, err error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, damaged(err)
	}
	value = append([]byte{}, v...)
	return value, true, closer.Close()
}
