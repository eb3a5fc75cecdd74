package storage_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/sealane/sealane/storage"
	"github.com/sealane/sealane/storage/storagetest"
)

// cutter takes a disk as a loss of power would leave it before each write to any of its files.
type cutter struct {
	disk     *linkedDisk
	unsynced int
	trigger  string // if set, the first write to such a path arms it
	mu       sync.Mutex
	rng      *rand.Rand
	armed    bool
	phase    int
	points   []cut
}

type cut struct {
	fs    *vfs.MemFS
	phase int // what had returned by then
}

// linkedDisk keeps links and clones apart: Pebble's file system in memory takes a lock twice to link, and hangs if a clone comes in between.
type linkedDisk struct {
	*vfs.MemFS
	apart sync.Mutex
}

func (d *linkedDisk) Link(from, to string) error {
	d.apart.Lock()
	defer d.apart.Unlock()
	return d.MemFS.Link(from, to)
}

func newCutter(disk *vfs.MemFS, unsynced int) (*cutter, vfs.FS) {
	c := &cutter{disk: &linkedDisk{MemFS: disk}, unsynced: unsynced, rng: rand.New(rand.NewPCG(uint64(unsynced), 9))}
	return c, errorfs.Wrap(c.disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		if c.trigger != "" && strings.Contains(op.Path, c.trigger) {
			c.armed, c.trigger = true, ""
		}
		if c.armed {
			c.takeLocked()
		}
		return nil
	}))
}

func (c *cutter) takeLocked() {
	c.disk.apart.Lock()
	defer c.disk.apart.Unlock()
	c.points = append(c.points, cut{c.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.unsynced, RNG: c.rng}), c.phase})
}

func (c *cutter) arm(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = on
}

// passed says that something has returned, and takes the disk at once: what was acknowledged must be there.
func (c *cutter) passed(phase int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase = phase
	c.takeLocked()
}

// The phases of an install.
const (
	receiving = iota
	completed // Complete has returned
	installed // Install has returned
)

// TestCrashDuringInstall cuts the power at every write between the first byte received and the end of the install. At each point the group is
// wholly as it was or wholly as sent, with the log and the marker that go with it; once Complete has returned it is as sent. Checked without the
// remedies: without flushes, without syncing the directories before the intent, or with the intent removed before the log follows, points fail.
func TestCrashDuringInstall(t *testing.T) {
	stream := exported(t, source(t), 1)
	for _, unsynced := range []int{0, 40, 100} {
		t.Run(fmt.Sprint(unsynced), func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			c, fs := newCutter(disk, unsynced)
			s, opts := target(t, fs)
			before := newInstallExpectation(t, s)
			c.arm(true)
			must(t, receive(t, s, 1, stream, mark))
			c.passed(completed)
			_, err := s.Install(1)
			must(t, err)
			c.passed(installed)
			c.arm(false)
			before.want = content(t, s, 1)
			seen := map[bool]int{}
			for i := 0; i < len(c.points); i += crashStride {
				seen[before.check(t, fmt.Sprintf("point %d of %d", i, len(c.points)), opts, c.points[i])]++
			}
			if seen[false] == 0 || seen[true] == 0 {
				t.Fatalf("%d points as before, %d as sent: the test saw only one side", seen[false], seen[true])
			}
			t.Logf("%d crash points, %d as before, %d as sent", len(c.points), seen[false], seen[true])
		})
	}
}

// installExpectation is what may be found after a crash.
type installExpectation struct {
	old    map[string]string // flushed before
	newer  map[string]string // and with what was not flushed
	want   map[string]string // as sent
	others map[uint32]map[string]string
}

func newInstallExpectation(t *testing.T, s *storage.Store) *installExpectation {
	t.Helper()
	e := &installExpectation{newer: content(t, s, 1), others: map[uint32]map[string]string{}}
	e.old = map[string]string{}
	for k, v := range e.newer {
		if !strings.HasPrefix(k, "unflushed/") {
			e.old[k] = v
		}
	}
	e.old[""] = "5"
	for _, g := range spoolGroups {
		if g != 1 {
			e.others[g] = content(t, s, g)
		}
	}
	return e
}

// check opens a disk after a crash and tells whether the group is as sent.
func (e *installExpectation) check(t *testing.T, what string, opts storage.Options, p cut) bool {
	t.Helper()
	opts.FS = p.fs
	r, err := storage.VerifyFS(t.Context(), p.fs, storagetest.Dir, nil)
	must(t, err)
	if !r.OK() {
		t.Fatalf("%s: verify: %+v", what, r.Problems)
	}
	s, err := storage.Open(opts)
	if err != nil {
		t.Fatalf("%s: open: %v", what, err)
	}
	defer func() { must(t, s.Close()) }()
	l, err := s.RaftLog(1)
	if err != nil {
		t.Fatalf("%s: log: %v", what, err)
	}
	for g, w := range e.others {
		sameContent(t, fmt.Sprintf("%s: neighbour %d", what, g), content(t, s, g), w)
	}
	if names := s.SpoolNames(t); len(names) != 0 {
		t.Fatalf("%s: left over: %v", what, names)
	}
	got := content(t, s, 1)
	next := uint64(21)
	sent := got[""] == e.want[""]
	switch {
	case sent:
		sameContent(t, what, got, e.want)
		if b := storagetest.Bounds(t, l); b != [2]uint64{0, 0} || termAt(t, l, mark.Index) != mark.Term || l.SnapshotIndex() != mark.Index {
			t.Fatalf("%s: log %v, term at the snapshot %d, marker at %d", what, b, termAt(t, l, mark.Index), l.SnapshotIndex())
		}
		next = mark.Index + 1
	case p.phase >= completed:
		t.Fatalf("%s: phase %d, and the state is at %s", what, p.phase, got[""])
	default:
		want := e.old
		if got[""] == e.newer[""] {
			want = e.newer
		}
		sameContent(t, what, got, want)
		if b := storagetest.Bounds(t, l); b != [2]uint64{1, 20} || l.SnapshotIndex() != 0 {
			t.Fatalf("%s: log %v, marker at %d", what, b, l.SnapshotIndex())
		}
	}
	must(t, l.StoreLog(storagetest.Entry(1, next, 4))) // it goes on
	return sent
}

// TestCrashWhileFinishing cuts the power again and again while an Open finishes what a crash has left. It begins with the install: the crash
// model loses more of an opening Pebble than any disk would (a marker without the file that it names).
func TestCrashWhileFinishing(t *testing.T) {
	s, opts := target(t, vfs.NewCrashableMem())
	e := newInstallExpectation(t, s)
	from := source(t)
	e.want = content(t, from, 1)
	must(t, receive(t, s, 1, exported(t, from, 1), mark))
	left := opts.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
	for _, unsynced := range []int{0, 40, 100} {
		disk := left.CrashClone(vfs.CrashCloneCfg{})
		c, fs := newCutter(disk, unsynced)
		c.phase, c.trigger = completed, "/snapshots/install-"
		opts.FS = fs
		again := storagetest.Open(t, opts)
		c.arm(false)
		must(t, again.Close())
		if len(c.points) < 10 {
			t.Fatalf("only %d writes", len(c.points))
		}
		for i := 0; i < len(c.points); i += crashStride {
			if !e.check(t, fmt.Sprintf("%d percent, point %d of %d", unsynced, i, len(c.points)), opts, c.points[i]) {
				t.Fatal("not as sent")
			}
		}
	}
}

// TestDamagedWhilePending: what was received is spoiled on the disk before a restart could install it. The group goes on as it was.
func TestDamagedWhilePending(t *testing.T) {
	for _, file := range []string{"HEADER", "000001.sst"} {
		for _, change := range []string{"flip", "cut", "remove"} {
			t.Run(file+" "+change, func(t *testing.T) {
				s, opts := target(t, vfs.NewMem())
				must(t, s.Flush(t.Context()))
				want := content(t, s, 1)
				must(t, receive(t, s, 1, exported(t, source(t), 1), mark))
				must(t, s.Close())
				spoil(t, opts.FS, opts.FS.PathJoin(storagetest.Dir, "snapshots", "install-0", file), change)
				s = storagetest.Open(t, opts)
				sameContent(t, "kept", content(t, s, 1), want)
				l, err := s.RaftLog(1)
				must(t, err)
				if b := storagetest.Bounds(t, l); b != [2]uint64{1, 20} || l.SnapshotIndex() != 0 || len(s.SpoolNames(t)) != 0 {
					t.Fatalf("log %v, marker at %d, spool %v", b, l.SnapshotIndex(), s.SpoolNames(t))
				}
				must(t, receive(t, s, 1, exported(t, source(t), 1), mark)) // sent again
				_, err = s.Install(1)
				must(t, err)
			})
		}
	}
}

func spoil(t *testing.T, fs vfs.FS, path, change string) {
	t.Helper()
	b := readAll(t, fs, path)
	switch change {
	case "flip":
		b[len(b)/2] ^= 1
	case "cut":
		b = b[:len(b)-1]
	case "remove":
		must(t, fs.Remove(path))
		return
	}
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write(b)
	must(t, err)
	must(t, f.Close())
}

func readAll(t *testing.T, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	must(t, err)
	info, err := f.Stat()
	must(t, err)
	b := make([]byte, info.Size())
	_, err = f.ReadAt(b, 0)
	must(t, err)
	must(t, f.Close())
	return b
}

// TestCrashDuringExport: an export changes nothing, and what it has written is gone after a crash at any of its writes.
func TestCrashDuringExport(t *testing.T) {
	c, fs := newCutter(vfs.NewCrashableMem(), 100)
	s, opts := target(t, fs)
	must(t, s.Flush(t.Context()))
	want := content(t, s, 1)
	s.SetTableBytes(20 << 10)
	c.arm(true)
	exported(t, s, 1)
	c.arm(false)
	if len(c.points) < 10 {
		t.Fatalf("only %d writes", len(c.points))
	}
	for i := 0; i < len(c.points); i += crashStride {
		opts.FS = c.points[i].fs
		again, err := storage.Open(opts)
		must(t, err)
		sameContent(t, fmt.Sprintf("point %d", i), content(t, again, 1), want)
		if names := again.SpoolNames(t); len(names) != 0 {
			t.Fatalf("point %d: left over: %v", i, names)
		}
		must(t, again.Close())
	}
}

// TestDiskFullOnTheWay fills the disk at every write of an export, a receipt and an install in turn. Nothing of the group changes, the store
// lives, and once there is room it works.
func TestDiskFullOnTheWay(t *testing.T) {
	stream := exported(t, source(t), 1)
	for _, c := range []struct {
		name string
		hit  func(op errorfs.Op) bool
		run  func(t *testing.T, s *storage.Store) error
	}{
		{"export", inSpool, func(t *testing.T, s *storage.Store) error {
			e, err := s.Export(t.Context(), 1, nil)
			if err == nil {
				must(t, e.Close())
			}
			return err
		}},
		{"receive", inSpool, func(t *testing.T, s *storage.Store) error { return receive(t, s, 1, stream, mark) }},
		{"install", linksOrCopies, func(t *testing.T, s *storage.Store) error {
			must(t, receive(t, s, 1, stream, mark))
			_, err := s.Install(1)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for nth := int64(1); ; nth++ {
				var left atomic.Int64
				fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
					if c.hit(op) && left.Load() > 0 && (left.Load() == 1 || left.Add(-1) == 0) {
						return syscall.ENOSPC // and from here on
					}
					return nil
				}))
				s, _ := target(t, fs)
				want := content(t, s, 1)
				left.Store(nth)
				err := c.run(t, s)
				if err == nil {
					if nth < 5 {
						t.Fatalf("only %d writes could fail", nth-1)
					}
					return
				}
				wantErr(t, err, storage.ErrDiskFull)
				if left.Store(0); s.Failed() != nil {
					t.Fatalf("write %d: the store failed: %v", nth, s.Failed())
				}
				sameContent(t, fmt.Sprintf("write %d", nth), content(t, s, 1), want)
				if names := s.SpoolNames(t); len(names) != 0 {
					t.Fatalf("write %d: left over: %v", nth, names)
				}
				if _, _, pending := s.PendingInstall(1); pending {
					t.Fatalf("write %d: it waits to be installed", nth)
				}
				must(t, c.run(t, s))
				must(t, s.Close())
			}
		})
	}
}

// linksOrCopies is what an install does with what it has received. A link that fails becomes a copy.
func linksOrCopies(op errorfs.Op) bool {
	return op.Kind == errorfs.OpLink || op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "/ingest-")
}

func inSpool(op errorfs.Op) bool {
	writes := []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpMkdirAll}
	return strings.Contains(op.Path, "/snapshots/") && slices.Contains(writes, op.Kind)
}

// TestNoRoomForAState: a state that would eat the reserve is refused before it is written, on either side.
func TestNoRoomForAState(t *testing.T) {
	stream := exported(t, source(t), 1)
	fs := &smallDisk{FS: vfs.NewMem()}
	s, _ := target(t, fs)
	fs.free.Store(256<<20 + 1000)
	wantErr(t, receive(t, s, 1, stream, mark), storage.ErrDiskFull)
	_, err := s.Export(t.Context(), 1, nil)
	wantErr(t, err, storage.ErrDiskFull)
	fs.free.Store(1 << 40)
	must(t, receive(t, s, 1, stream, mark))
	exported(t, s, 1)
}

// smallDisk says how much room it has.
type smallDisk struct {
	vfs.FS
	free atomic.Uint64
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load()}, nil
}
