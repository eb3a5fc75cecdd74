package storage_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/sealane/sealane/storage"
	"github.com/sealane/sealane/storage/storagetest"
)

// faultyStore opens a store whose files fail as inject says while armed, and collects what OnFatal is told.
func faultyStore(t *testing.T, inject func(op errorfs.Op) error, change func(*storage.Options)) (s *storage.Store, armed *atomic.Bool,
	fatal chan error, opts storage.Options) {
	t.Helper()
	armed, fatal = new(atomic.Bool), make(chan error, 10)
	opts = storagetest.Options(t, errorfs.Wrap(vfs.NewCrashableMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !armed.Load() {
			return nil
		}
		return inject(op)
	})))
	opts.OnFatal = func(err error) { fatal <- err }
	if change != nil {
		change(&opts)
	}
	return storagetest.Open(t, opts), armed, fatal, opts
}

func received(t *testing.T, fatal chan error) error {
	t.Helper()
	select {
	case err := <-fatal:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("OnFatal was not told")
		return nil
	}
}

func onLogFile(op errorfs.Op, kind errorfs.OpKind) bool {
	return op.Kind == kind && strings.Contains(op.Path, "/log/") && strings.HasSuffix(op.Path, ".log")
}

var errInjected = errors.New("injected EIO")

// TestSyncErrorIsFatal (F16): a failed sync of the log is an error to the caller and the end of the store, even if the disk recovers;
// OnFatal is told once. Checked without the remedy: with the error of
// SyncWait ignored, the write counts as done.
func TestSyncErrorIsFatal(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileWrite} {
		t.Run(map[errorfs.OpKind]string{errorfs.OpFileSync: "sync", errorfs.OpFileWrite: "write"}[kind], func(t *testing.T) {
			s, armed, fatal, opts := faultyStore(t, func(op errorfs.Op) error {
				// Pebble syncs the log by a call that errorfs counts as one of several kinds.
				if onLogFile(op, kind) || kind == errorfs.OpFileSync && (onLogFile(op, errorfs.OpFileSyncData) || onLogFile(op, errorfs.OpFileSyncTo)) {
					return errInjected
				}
				return nil
			}, nil)
			l, err := s.RaftLog(1)
			must(t, err)
			must(t, l.StoreLogs(storagetest.Entries(1, 1, 3, 1)))
			armed.Store(true)
			err = l.StoreLogs(storagetest.Entries(1, 4, 4, 1))
			wantErr(t, err, storage.ErrFailed)
			wantErr(t, err, errInjected)
			wantErr(t, received(t, fatal), errInjected)
			armed.Store(false)
			wantErr(t, l.StoreLogs(storagetest.Entries(1, 4, 4, 1)), storage.ErrFailed)
			wantErr(t, l.SetUint64([]byte("CurrentTerm"), 9), storage.ErrFailed)
			wantErr(t, s.Flush(t.Context()), storage.ErrFailed)
			if got := storagetest.Bounds(t, l)[1]; got != 3 {
				t.Fatalf("log ends at %d, the failed entry counts", got)
			}
			if !s.Metrics().Failed {
				t.Fatal("metrics do not say that the store failed")
			}
			wantErr(t, s.Close(), storage.ErrFailed)
			if len(fatal) != 0 {
				t.Fatalf("OnFatal was told again: %v", <-fatal)
			}
			opts.OnFatal = func(err error) { t.Errorf("store failed: %v", err) }
			s = storagetest.Open(t, opts) // what was acknowledged is there
			l, err = s.RaftLog(1)
			must(t, err)
			storagetest.CheckEntries(t, l, 1, 1, 3, storagetest.Always(1))
		})
	}
}

// TestVoteIsNotHalfKeptAfterAFailure: the held term does not leak into a later vote.
func TestVoteIsNotHalfKeptAfterAFailure(t *testing.T) {
	s, armed, fatal, _ := faultyStore(t, func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".log") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errInjected
		}
		return nil
	}, nil)
	l, err := s.RaftLog(1)
	must(t, err)
	must(t, l.SetUint64([]byte("LastVoteTerm"), 1))
	must(t, l.Set([]byte("LastVoteCand"), []byte("a")))
	armed.Store(true)
	must(t, l.SetUint64([]byte("LastVoteTerm"), 2))
	wantErr(t, l.Set([]byte("LastVoteCand"), []byte("b")), storage.ErrFailed)
	received(t, fatal)
	term, err := l.GetUint64([]byte("LastVoteTerm"))
	must(t, err)
	cand, err := l.Get([]byte("LastVoteCand"))
	must(t, err)
	if term != 1 || string(cand) != "a" {
		t.Fatalf("vote in term %d for %q, want 1 for a", term, cand)
	}
}

// TestLogWriteDeadline (F15): a write that hangs is fatal while it hangs, and an error when it returns at last. Checked without the
// remedy: without the deadline OnFatal is never told.
func TestLogWriteDeadline(t *testing.T) {
	release := make(chan struct{})
	s, armed, fatal, _ := faultyStore(t, func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".log") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			<-release
		}
		return nil
	}, func(o *storage.Options) { o.LogWriteDeadline = 20 * time.Millisecond })
	l, err := s.RaftLog(1)
	must(t, err)
	armed.Store(true)
	stored := make(chan error, 1)
	go func() { stored <- l.StoreLogs(storagetest.Entries(1, 1, 1, 1)) }()
	wantErr(t, received(t, fatal), storage.ErrLogWriteDeadline)
	select {
	case err := <-stored:
		t.Fatalf("the hanging write returned %v", err)
	default:
	}
	armed.Store(false)
	close(release)
	wantErr(t, <-stored, storage.ErrLogWriteDeadline)
}

// TestDiskFull (F17): a full disk under the log is fatal and named; after room was made a restart has everything that was acknowledged.
func TestDiskFull(t *testing.T) {
	s, armed, fatal, opts := faultyStore(t, func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
			return syscall.ENOSPC
		}
		return nil
	}, nil)
	l, err := s.RaftLog(1)
	must(t, err)
	must(t, l.StoreLogs(storagetest.Entries(1, 1, 3, 1)))
	wantErr(t, s.Failed(), nil)
	armed.Store(true)
	wantErr(t, s.SetNode("n1", 1), storage.ErrDiskFull)
	err = l.StoreLogs(storagetest.Entries(1, 4, 4, 1))
	wantErr(t, err, storage.ErrDiskFull)
	if err := received(t, fatal); !errors.Is(err, storage.ErrDiskFull) || !strings.Contains(err.Error(), storagetest.Dir) {
		t.Fatalf("the error does not name the directory: %v", err)
	}
	armed.Store(false)
	wantErr(t, s.Close(), storage.ErrFailed)
	opts.OnFatal = nil
	s = storagetest.Open(t, opts)
	l, err = s.RaftLog(1)
	must(t, err)
	storagetest.CheckEntries(t, l, 1, 1, 3, storagetest.Always(1))
	if _, _, ok := s.Node(); ok {
		t.Fatal("a node binding that failed is there")
	}
}

// stateFull makes the state's new files fail.
func stateFull(op errorfs.Op) error {
	if op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "/state/") {
		return syscall.ENOSPC
	}
	return nil
}

// TestStateFlushRecovers (F17): Pebble retries for ever; when the disk has room again in time, nothing was lost and nothing failed.
func TestStateFlushRecovers(t *testing.T) {
	s, armed, fatal, _ := faultyStore(t, stateFull, nil)
	storagetest.Apply(t, s.State(1), 1)
	armed.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Flush(ctx) }()
	poll(t, func() bool { return s.Metrics().BackgroundErrors > 2 })
	cancel()
	wantErr(t, <-done, context.Canceled)
	if got := s.State(1).DurableApplied(); got != 0 {
		t.Fatalf("durable %d without a flush", got)
	}
	armed.Store(false)
	must(t, s.Flush(t.Context()))
	if got := s.State(1).DurableApplied(); got != 1 || len(fatal) != 0 {
		t.Fatalf("durable %d, %d fatal errors", got, len(fatal))
	}
}

// TestStateFlushGivesUp: after BackgroundErrorLimit it is fatal, and whoever waits for a flush is released. Checked without the
// remedy: without the limit Flush never returns.
func TestStateFlushGivesUp(t *testing.T) {
	s, armed, fatal, _ := faultyStore(t, stateFull, func(o *storage.Options) { o.BackgroundErrorLimit = 100 * time.Millisecond })
	storagetest.Apply(t, s.State(1), 1)
	armed.Store(true)
	err := s.Flush(t.Context())
	wantErr(t, err, storage.ErrFailed)
	wantErr(t, err, storage.ErrDiskFull)
	wantErr(t, received(t, fatal), storage.ErrDiskFull)
	b := s.State(1).NewBatch()
	defer b.Close()
	must(t, b.Set([]byte("k"), nil))
	b.SetApplied(2)
	wantErr(t, b.Commit(), storage.ErrFailed)
	armed.Store(false) // let Pebble finish, so that Close can
}

func poll(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("gave up waiting")
		}
		<-time.After(time.Millisecond)
	}
}

// TestFlushInterval: state becomes durable by itself, on fake time.
func TestFlushInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := storagetest.Options(t, vfs.NewMem())
		opts.FlushInterval = 30 * time.Second
		s, err := storage.Open(opts)
		must(t, err)
		st := s.State(1)
		storagetest.Apply(t, st, 4)
		<-time.After(29 * time.Second)
		synctest.Wait()
		if got := st.DurableApplied(); got != 0 {
			t.Fatalf("durable %d before the interval", got)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if got := st.DurableApplied(); got != 4 {
			t.Fatalf("durable %d after the interval, want 4", got)
		}
		flushes := s.Metrics().State.Flushes
		<-time.After(5 * time.Minute)
		synctest.Wait()
		if got := s.Metrics().State.Flushes; got != flushes {
			t.Fatalf("%d flushes without writes", got-flushes)
		}
		must(t, s.Close())
	})
}

// TestMemtableFlushIsNoticed: a flush that Pebble starts by itself, because the memtable is full, moves DurableApplied too.
func TestMemtableFlushIsNoticed(t *testing.T) {
	opts := storagetest.Options(t, vfs.NewMem())
	opts.MemTableBytes = 64 << 10
	st := storagetest.Open(t, opts).State(1)
	for i := uint64(1); i <= 2000; i++ {
		storagetest.Apply(t, st, i)
	}
	poll(t, func() bool { return st.DurableApplied() > 0 })
}

// TestManifestErrorIsFatal: Pebble tells only its logger about this one, and believes that the logger ends the process.
func TestManifestErrorIsFatal(t *testing.T) {
	s, armed, fatal, opts := faultyStore(t, func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, "/state/MANIFEST") {
			return errInjected
		}
		return nil
	}, nil)
	storagetest.Apply(t, s.State(1), 1)
	must(t, s.Flush(t.Context()))
	storagetest.Apply(t, s.State(1), 2)
	armed.Store(true)
	wantErr(t, s.Flush(t.Context()), storage.ErrFailed)
	if err := received(t, fatal); !strings.Contains(err.Error(), "injected EIO") {
		t.Fatalf("the cause is missing: %v", err)
	}
	if got := s.State(1).DurableApplied(); got != 1 {
		t.Fatalf("durable %d, want 1", got)
	}
	armed.Store(false)
	wantErr(t, s.Close(), storage.ErrFailed)
	opts.OnFatal = nil
	if got, err := storagetest.Open(t, opts).State(1).Applied(); got != 1 || err != nil {
		t.Fatalf("applied %d (%v) after a restart, want 1", got, err)
	}
}
