package storage

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

var (
	// ErrFailed wraps the first fatal error of a store. Every call that writes returns it from then on. The process must stop.
	ErrFailed = errors.New("storage: store has failed")
	// ErrDiskFull means that the directory's file system has no room. The text names the directory. After room was made, start again:
	// nothing that was acknowledged is lost. Refuse work before it comes to this: see FreeBytes.
	ErrDiskFull = errors.New("storage: disk full")
	// ErrLogWriteDeadline means that one write of the log took longer than Options.LogWriteDeadline. Always fatal.
	ErrLogWriteDeadline = errors.New("storage: log write exceeded its deadline")
)

// backgroundPause slows Pebble's retries of a failing flush, which otherwise spin without a pause. Pebble holds its lock meanwhile, so
// it is short.
const backgroundPause = 20 * time.Millisecond

// health is what the store knows about its own failure.
type health struct {
	failed      atomic.Pointer[error] // first fatal error; never cleared
	failedCh    chan struct{}         // closed when failed is set
	background  atomic.Int64          // failed flushes and compactions
	slow        atomic.Int64          // slow disk reports
	errorsSince [2]atomic.Int64       // unix nanoseconds of the first failure of the current streak, per instance; 0 for none
	errorsLast  [2]atomic.Int64       // unix nanoseconds of the newest failure, per instance
}

// Failed gives the error that made the store unusable, or nil. It matches ErrFailed and its cause.
func (s *Store) Failed() error {
	if p := s.health.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// fail records the first fatal error and reports it. Later ones are only logged.
func (s *Store) fail(cause error) error {
	err := fmt.Errorf("%w: %s: %w", ErrFailed, s.opts.Dir, s.annotate(cause))
	if !s.health.failed.CompareAndSwap(nil, &err) {
		s.opts.Logger.Error("storage failed again", "error", err)
		return s.Failed()
	}
	close(s.health.failedCh)
	// On its own goroutine: Pebble may hold its locks here, and OnFatal may want to look at the store.
	go s.opts.OnFatal(err)
	return err
}

// damaged marks what Pebble calls corruption with ErrCorrupt.
func damaged(err error) error {
	if err != nil && pebble.IsCorruptionError(err) && !errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// annotate turns the system's full-disk error and Pebble's corruption into ours.
func (s *Store) annotate(err error) error {
	err = damaged(err)
	if err != nil && errors.Is(err, syscall.ENOSPC) && !errors.Is(err, ErrDiskFull) {
		return fmt.Errorf("%w: %s: %w", ErrDiskFull, s.opts.Dir, err)
	}
	return err
}

func instanceSlot(name string) int {
	if name == logName {
		return 0
	}
	return 1
}

// listener watches one Pebble instance. Pebble calls some of these with its lock held: they must not call the database.
func (s *Store) listener(name string) pebble.EventListener {
	slot := instanceSlot(name)
	succeeded := func(err error) {
		if err == nil {
			s.health.errorsSince[slot].Store(0)
		}
	}
	return pebble.EventListener{
		BackgroundError: func(err error) { s.backgroundError(name, err) },
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			s.fail(fmt.Errorf("%w: %s instance, file %s: %w", ErrCorrupt, name, info.Path, info.Details))
		},
		CompactionEnd: func(info pebble.CompactionInfo) { succeeded(info.Err) },
		FlushEnd: func(info pebble.FlushInfo) {
			succeeded(info.Err)
			if name == stateName {
				s.flushed()
			}
		},
		DiskSlow: func(info pebble.DiskSlowInfo) {
			s.health.slow.Add(1)
			s.opts.Logger.Warn("disk is slow", "instance", name, "detail", info.String())
			if s.opts.OnDiskSlow != nil {
				s.opts.OnDiskSlow(info.String())
			}
		},
	}
}

// backgroundError counts a failed flush or compaction. Pebble tries again at once and for ever; we do not let it.
func (s *Store) backgroundError(name string, cause error) {
	count := s.health.background.Add(1)
	now := time.Now().UnixNano()
	since, last := &s.health.errorsSince[instanceSlot(name)], &s.health.errorsLast[instanceSlot(name)]
	if time.Duration(now-last.Swap(now)) >= s.opts.BackgroundErrorLimit {
		since.Store(now) // a streak has no pauses: the last one ended without work that could have succeeded
	}
	since.CompareAndSwap(0, now)
	first := since.Load()
	if count == 1 || count%100 == 0 {
		s.opts.Logger.Error("background work failed", "instance", name, "count", count, "error", cause)
	}
	if first != 0 && time.Duration(now-first) >= s.opts.BackgroundErrorLimit {
		s.fail(fmt.Errorf("%s instance: flushes or compactions fail since %v: %w", name, time.Duration(now-first), cause))
		return
	}
	time.Sleep(backgroundPause)
}

// engineLogger carries Pebble's messages. Pebble believes that Fatalf does not return; ours does, after the store was marked as failed,
// and every caller looks at that mark before it believes a success.
type engineLogger struct {
	store    *Store
	instance string
}

func (l *engineLogger) Infof(string, ...any) {}

func (l *engineLogger) Errorf(format string, args ...any) {
	l.store.opts.Logger.Error("pebble", "instance", l.instance, "message", fmt.Sprintf(format, args...))
}

func (l *engineLogger) Fatalf(format string, args ...any) {
	cause := fmt.Errorf("%s instance: %s", l.instance, fmt.Sprintf(format, args...))
	for _, a := range args {
		if err, ok := a.(error); ok {
			cause = fmt.Errorf("%s instance: %w", l.instance, err)
		}
	}
	l.store.fail(cause)
}

// FreeBytes gives the room left on the directory's file system. A file system that cannot tell (in memory) answers the largest number.
func (s *Store) FreeBytes() (uint64, error) {
	usage, err := s.opts.fs().GetDiskUsage(s.opts.Dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return ^uint64(0), nil
	}
	if err != nil {
		return 0, fmt.Errorf("free space of %s: %w", s.opts.Dir, err)
	}
	return usage.AvailBytes, nil
}

func isNotExist(err error) bool { return errors.Is(err, os.ErrNotExist) }
