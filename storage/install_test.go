package storage_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sealane/sealane/storage"
	"github.com/sealane/sealane/storage/storagetest"
)

// The groups of a store that a state comes from or goes to. The middle one is exported; the others must never notice.
var spoolGroups = []uint32{0, 1, 2, ^uint32(0)}

// fill gives a group n keys whose values are of many sizes and name tag; the applied index is index.
func fill(t testing.TB, s *storage.Store, group uint32, n int, tag string, index uint64) {
	t.Helper()
	b := s.State(group).NewBatch()
	defer b.Close()
	rng := rand.New(rand.NewPCG(uint64(group), uint64(n)))
	for i := range n {
		must(t, b.Set(fmt.Appendf(nil, "%s/%06d", tag, i), fillValue(rng, tag, i)))
	}
	b.SetApplied(index)
	must(t, b.Commit())
}

// fillValue is incompressible, and now and then so large that it leaves Pebble's tables.
func fillValue(rng *rand.Rand, tag string, i int) []byte {
	size := 20
	switch {
	case i%50 == 7:
		size = 40 << 10
	case i%5 == 0:
		size = 1500
	}
	v := append([]byte(tag), make([]byte, size)...)
	for k := len(tag); k < len(v); k++ {
		v[k] = byte(rng.Uint32())
	}
	return v
}

// content reads a group's state, the applied index under an empty key.
func content(t testing.TB, s *storage.Store, group uint32) map[string]string {
	t.Helper()
	got := map[string]string{}
	applied, err := s.State(group).Applied()
	must(t, err)
	got[""] = fmt.Sprint(applied)
	must(t, s.State(group).Scan(nil, nil, false, func(k, v []byte) (bool, error) {
		got[string(k)] = string(v)
		return true, nil
	}))
	return got
}

func sameContent(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	if len(got) != len(want) || got[""] != want[""] {
		t.Fatalf("%s: %d keys at applied %s, want %d at %s", what, len(got), got[""], len(want), want[""])
	}
	for k, v := range want {
		if got[k] != v {
			t.Fatalf("%s: key %q differs", what, k)
		}
	}
}

// exported gives the whole stream of a group's state.
func exported(t testing.TB, s *storage.Store, group uint32) []byte {
	t.Helper()
	e, err := s.Export(t.Context(), group, nil)
	must(t, err)
	stream, err := io.ReadAll(e)
	must(t, err)
	if int64(len(stream)) != e.Size() {
		t.Fatalf("stream has %d bytes, Size says %d", len(stream), e.Size())
	}
	must(t, e.Close())
	return stream
}

// receive hands a stream over in pieces of every size.
func receive(t testing.TB, s *storage.Store, group uint32, stream []byte, m storage.SnapshotMarker) error {
	t.Helper()
	r, err := s.Receive(t.Context(), group)
	if err != nil {
		return err
	}
	defer r.Abort()
	for n := 1; len(stream) > 0; n = n*3 + 1 {
		n = min(n, len(stream))
		if _, err := r.Write(stream[:n]); err != nil {
			return err
		}
		stream = stream[n:]
	}
	return r.Complete(m)
}

// source is a store whose group 1 has a state at applied index 30, in several tables.
func source(t testing.TB) *storage.Store {
	t.Helper()
	opts := storagetest.Options(t, vfs.NewMem())
	opts.CreatedBy = "source"
	s := storagetest.Open(t, opts)
	s.SetTableBytes(50 << 10)
	for _, g := range spoolGroups {
		fill(t, s, g, 40, "old", 10)
	}
	must(t, s.Flush(t.Context()))
	fill(t, s, 1, 120, "new", 30)
	return s
}

// target is a store with groups of its own, group 1 with a log from 1 to 20 in term 1 and a state at 5.
func target(t testing.TB, fs vfs.FS) (*storage.Store, storage.Options) {
	t.Helper()
	opts := storagetest.Options(t, fs)
	opts.CreatedBy = "target"
	s := storagetest.Open(t, opts)
	for _, g := range spoolGroups {
		fill(t, s, g, 60, "mine", 5)
	}
	l, err := s.RaftLog(1)
	must(t, err)
	must(t, l.StoreLogs(storagetest.Entries(1, 1, 20, 1)))
	must(t, s.Flush(t.Context()))
	fill(t, s, 1, 3, "unflushed", 6)
	return s, opts
}

var mark = storage.SnapshotMarker{Index: 25, Term: 3, Configuration: []byte("configuration"), ConfigurationIndex: 7}

// TestInstall: a state goes from one store to another, whole, and nothing else changes. Log, marker and caches follow; it holds after a
// restart, and a group goes on from there.
func TestInstall(t *testing.T) {
	for _, group := range spoolGroups {
		t.Run(fmt.Sprint(group), func(t *testing.T) {
			from := source(t)
			s, opts := target(t, vfs.NewMem())
			s.State(group).KeepRecent('m', 'n', 'o')
			fill(t, s, group, 1, "mine", 7) // now in the cache
			others := map[uint32]map[string]string{}
			for _, g := range spoolGroups {
				if g != group {
					others[g] = content(t, s, g)
				}
			}
			want := content(t, from, group)
			m := mark
			if group != 1 {
				m.Index = 10
			}
			must(t, receive(t, s, group, exported(t, from, group), m))
			if got := content(t, s, group); got[""] != "7" {
				t.Fatalf("applied %s before the install", got[""])
			}
			applied, err := s.Install(group)
			must(t, err)
			if fmt.Sprint(applied) != want[""] {
				t.Fatalf("installed at %d, want %s", applied, want[""])
			}
			check := func() {
				t.Helper()
				sameContent(t, "installed", content(t, s, group), want)
				if got := s.State(group).DurableApplied(); got != applied {
					t.Fatalf("durable %d, want %d", got, applied)
				}
				for g, w := range others {
					sameContent(t, fmt.Sprintf("neighbour %d", g), content(t, s, g), w)
				}
				if names := s.SpoolNames(t); len(names) != 0 {
					t.Fatalf("left over: %v", names)
				}
				got, ok, err := s.LoadSnapshotMarker(group)
				must(t, err)
				if !ok || got.Index != m.Index || got.Term != m.Term || string(got.Configuration) != string(m.Configuration) {
					t.Fatalf("marker is %+v", got)
				}
				l, err := s.RaftLog(group)
				must(t, err)
				if got := storagetest.Bounds(t, l); group == 1 && got != [2]uint64{0, 0} || termAt(t, l, m.Index) != m.Term {
					t.Fatalf("log is %v, term at the snapshot %d", got, termAt(t, l, m.Index))
				}
				if _, err := s.Install(group); !errors.Is(err, storage.ErrNoInstall) {
					t.Fatalf("a second install gave %v", err)
				}
			}
			check()
			if v, ok, err := s.State(group).Get([]byte("mine/000000")); ok || err != nil {
				t.Fatalf("the cache still has %q (%v)", v, err)
			}
			must(t, s.Close())
			s = storagetest.Open(t, opts)
			check()
			fill(t, s, group, 2, "later", applied+1)
			l, err := s.RaftLog(group)
			must(t, err)
			must(t, l.StoreLog(storagetest.Entry(group, m.Index+1, m.Term)))
			must(t, s.Close())
			r, err := storage.VerifyFS(t.Context(), opts.FS, storagetest.Dir, nil)
			must(t, err)
			if !r.OK() {
				t.Fatalf("verify: %+v", r.Problems)
			}
		})
	}
}

// TestInstallNeverGoesBack: a state that is not newer than the own one is not put in its place, while log and marker still follow the
// snapshot; and a snapshot behind the marker is refused.
func TestInstallNeverGoesBack(t *testing.T) {
	from := source(t)
	stream := exported(t, from, 1)
	s, _ := target(t, vfs.NewMem())
	fill(t, s, 1, 10, "newer", 31)
	want := content(t, s, 1)
	must(t, receive(t, s, 1, stream, mark))
	applied, err := s.Install(1)
	must(t, err)
	if applied != 31 {
		t.Fatalf("state went to %d", applied)
	}
	sameContent(t, "kept", content(t, s, 1), want)
	l, err := s.RaftLog(1)
	must(t, err)
	if termAt(t, l, mark.Index) != mark.Term || l.SnapshotIndex() != mark.Index {
		t.Fatal("the log did not follow the snapshot")
	}
	must(t, receive(t, s, 1, stream, mark)) // the same once more is fine
	_, err = s.Install(1)
	must(t, err)
	older := mark
	older.Index--
	wantErr(t, receive(t, s, 1, stream, older), storage.ErrSnapshotOlder)
	if _, _, pending := s.PendingInstall(1); pending || len(s.SpoolNames(t)) != 0 {
		t.Fatalf("refused, and yet there is %v", s.SpoolNames(t))
	}
}

// TestSecondReceiptReplacesTheFirst: an install that was interrupted in its process and begun again by a newer snapshot.
func TestSecondReceiptReplacesTheFirst(t *testing.T) {
	from := source(t)
	s, opts := target(t, vfs.NewMem())
	must(t, receive(t, s, 1, exported(t, from, 1), mark))
	fill(t, from, 1, 5, "newest", 40)
	second := storage.SnapshotMarker{Index: 35, Term: 4}
	must(t, receive(t, s, 1, exported(t, from, 1), second))
	if names := s.SpoolNames(t); len(names) != 1 {
		t.Fatalf("spool holds %v, want the second only", names)
	}
	must(t, s.Close())
	s = storagetest.Open(t, opts) // finishes it
	sameContent(t, "finished", content(t, s, 1), content(t, from, 1))
	l, err := s.RaftLog(1)
	must(t, err)
	if l.SnapshotIndex() != 35 || len(s.SpoolNames(t)) != 0 {
		t.Fatalf("marker at %d, spool %v", l.SnapshotIndex(), s.SpoolNames(t))
	}
	must(t, receive(t, s, 1, exported(t, from, 1), storage.SnapshotMarker{Index: 36, Term: 4}))
	must(t, s.DropInstall(1))
	if _, err := s.Install(1); !errors.Is(err, storage.ErrNoInstall) || len(s.SpoolNames(t)) != 0 {
		t.Fatalf("dropped, and yet: %v, spool %v", err, s.SpoolNames(t))
	}
}

// TestDestroyTakesThePendingInstallAlong: what was received for a group goes with it.
func TestDestroyTakesThePendingInstallAlong(t *testing.T) {
	s, opts := target(t, vfs.NewMem())
	must(t, receive(t, s, 1, exported(t, source(t), 1), mark))
	must(t, s.DestroyGroup(1))
	if len(s.SpoolNames(t)) != 0 {
		t.Fatalf("left over: %v", s.SpoolNames(t))
	}
	must(t, s.Close())
	s = storagetest.Open(t, opts)
	groups, err := s.Groups()
	must(t, err)
	if slices.Contains(groups, 1) || len(content(t, s, 1)) != 1 {
		t.Fatalf("groups %v, %d keys", groups, len(content(t, s, 1)))
	}
}

// damage is one way to spoil a stream.
type damage struct {
	name   string
	change func(stream []byte) []byte
	want   error
}

func damages(stream []byte) []damage {
	tables := int(binary.BigEndian.Uint32(stream[32:]))
	header := 36 + 12*tables + 4
	resum := func(b []byte) []byte {
		binary.BigEndian.PutUint32(b[header-4:], crc32.Checksum(b[:header-4], crc32.MakeTable(crc32.Castagnoli)))
		return b
	}
	set32 := func(at int, v uint32) func([]byte) []byte {
		return func(b []byte) []byte { binary.BigEndian.PutUint32(b[at:], v); return resum(b) }
	}
	return []damage{
		{"empty", func([]byte) []byte { return nil }, storage.ErrStream},
		{"magic", func(b []byte) []byte { b[0] = 'X'; return b }, storage.ErrStream},
		{"stream version", set32(8, 2), storage.ErrFormatVersion},
		{"store version", set32(12, 9), storage.ErrFormatVersion},
		{"table format", set32(16, 99), storage.ErrFormatVersion},
		{"another group", set32(20, 2), storage.ErrStream},
		{"another applied index", set32(28, 31), storage.ErrStream},
		{"applied index 0", set32(28, 0), storage.ErrStream},
		{"no tables", set32(32, 0), storage.ErrStream},
		{"too many tables", set32(32, 1<<20), storage.ErrStream},
		{"one table more", set32(32, uint32(tables+1)), storage.ErrStream},
		{"table size", set32(36+4, 17), storage.ErrStream},
		{"table size 0", set32(36+4, 0), storage.ErrStream},
		{"table sum", set32(36+8, 17), storage.ErrStream},
		{"one byte more", func(b []byte) []byte { return append(b, 0) }, storage.ErrStream},
		{"twice", func(b []byte) []byte { return append(b, b...) }, storage.ErrStream},
		{"tables exchanged", func(b []byte) []byte {
			first, second := int(binary.BigEndian.Uint64(b[36:])), int(binary.BigEndian.Uint64(b[48:]))
			swapped := append(append([]byte{}, b[header+first:header+first+second]...), b[header:header+first]...)
			copy(b[header:], swapped)
			entries := append(append([]byte{}, b[48:60]...), b[36:48]...)
			copy(b[36:], entries)
			return resum(b)
		}, storage.ErrStream},
	}
}

// TestDamagedStreams: whatever is wrong is found before anything changes, and named.
func TestDamagedStreams(t *testing.T) {
	stream := exported(t, source(t), 1)
	s, _ := target(t, vfs.NewMem())
	want := content(t, s, 1)
	refused := func(what string, damaged []byte, wanted error) {
		t.Helper()
		err := receive(t, s, 1, damaged, mark)
		if !errors.Is(err, wanted) || !strings.Contains(err.Error(), "group 1") {
			t.Fatalf("%s: got %v, want %v", what, err, wanted)
		}
		if _, _, pending := s.PendingInstall(1); pending {
			t.Fatalf("%s: it waits to be installed", what)
		}
		if names := s.SpoolNames(t); len(names) != 0 {
			t.Fatalf("%s: left over: %v", what, names)
		}
	}
	for _, d := range damages(bytes.Clone(stream)) {
		refused(d.name, d.change(bytes.Clone(stream)), d.want)
	}
	// Every region: each byte of the header and the trailer, and a stride through the tables.
	for at := 0; at < len(stream); at += step(at, len(stream)) {
		flipped := bytes.Clone(stream)
		flipped[at] ^= 1 << (at % 8)
		refused(fmt.Sprintf("bit %d of byte %d of %d", at%8, at, len(stream)), flipped, storage.ErrStream)
		refused(fmt.Sprintf("cut at byte %d of %d", at, len(stream)), stream[:at], storage.ErrStream)
	}
	sameContent(t, "untouched", content(t, s, 1), want)
	tooNew := mark
	tooNew.Index = 31
	wantErr(t, receive(t, s, 1, stream, tooNew), storage.ErrStream) // its state is not up to its snapshot
	if got := s.Metrics(); got.Receipts != 0 || got.ReceiptsRejected == 0 {
		t.Fatalf("metrics: %d receipts, %d rejected", got.Receipts, got.ReceiptsRejected)
	}
	must(t, receive(t, s, 1, stream, mark))
	_, err := s.Install(1)
	must(t, err)
}

func step(at, size int) int {
	if at < 200 || at > size-100 {
		return 3
	}
	return 2999
}

// TestForeignTables: a stream whose sums are all right and whose tables are not what an export writes. Built from the export of another
// group, with the header made to say group 1.
func TestForeignTables(t *testing.T) {
	stream := exported(t, source(t), 2)
	tables := int(binary.BigEndian.Uint32(stream[32:]))
	header := 36 + 12*tables + 4
	binary.BigEndian.PutUint32(stream[20:], 1)
	binary.BigEndian.PutUint32(stream[header-4:], crc32.Checksum(stream[:header-4], crc32.MakeTable(crc32.Castagnoli)))
	s, _ := target(t, vfs.NewMem())
	err := receive(t, s, 1, stream, storage.SnapshotMarker{Index: 10, Term: 1})
	wantErr(t, err, storage.ErrStream)
	if !strings.Contains(err.Error(), "not of group 1") {
		t.Fatalf("the reason is missing: %v", err)
	}
}

// TestSnapshotAcrossAnInstall: Pebble's own snapshots lose what an install replaces; ours say so instead of giving another state. Checked
// without the remedy: without intact the Get says that the key does not exist.
func TestSnapshotAcrossAnInstall(t *testing.T) {
	s, _ := target(t, vfs.NewMem())
	want := content(t, s, 1)
	snap := s.State(1).NewSnapshot()
	defer func() { must(t, snap.Close()) }()
	must(t, receive(t, s, 1, exported(t, source(t), 1), mark))
	got := map[string]string{"": want[""]}
	must(t, snap.Scan(nil, nil, false, func(k, v []byte) (bool, error) {
		if len(got) == 2 {
			_, err := s.Install(1)
			must(t, err)
		}
		got[string(k)] = string(v)
		return true, nil
	}))
	sameContent(t, "a scan that had begun", got, want)
	_, _, err := snap.Get([]byte("mine/000000"))
	wantErr(t, err, storage.ErrStateReplaced)
	_, err = snap.Applied()
	wantErr(t, err, storage.ErrStateReplaced)
	wantErr(t, snap.Scan(nil, nil, false, func(k, v []byte) (bool, error) { t.Fatal("called"); return false, nil }), storage.ErrStateReplaced)
}

// TestExportIsOfOneMoment: what is committed, or even installed, while the stream is read is not in it.
func TestExportIsOfOneMoment(t *testing.T) {
	from := source(t)
	want := content(t, from, 1)
	e, err := from.Export(t.Context(), 1, func(p storage.ExportProgress) {
		if p.Tables == 1 {
			fill(t, from, 1, 50, "new", 31)
			must(t, from.Flush(t.Context()))
			other := source(t)
			fill(t, other, 1, 1, "other", 90)
			must(t, receive(t, from, 1, exported(t, other, 1), storage.SnapshotMarker{Index: 80, Term: 9}))
			_, err := from.Install(1)
			must(t, err)
		}
	})
	must(t, err)
	defer func() { must(t, e.Close()) }()
	stream, err := io.ReadAll(e)
	must(t, err)
	s, _ := target(t, vfs.NewMem())
	must(t, receive(t, s, 1, stream, mark))
	_, err = s.Install(1)
	must(t, err)
	sameContent(t, "exported", content(t, s, 1), want)
}

// TestExportLimits: places are bounded and given back, whatever way an export ends; nothing is left on the disk.
func TestExportLimits(t *testing.T) {
	s := source(t)
	var open []*storage.Export
	for range storage.MaxExports {
		e, err := s.Export(t.Context(), 1, nil)
		must(t, err)
		open = append(open, e)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Export(ended, 1, nil)
	wantErr(t, err, storage.ErrBusy)
	for _, e := range open {
		must(t, e.Close())
		must(t, e.Close())
		if _, err := e.Read(make([]byte, 1)); !errors.Is(err, storage.ErrClosed) {
			t.Fatalf("read after close gave %v", err)
		}
	}
	for range storage.MaxExports + 1 { // a failed export gives its place back
		_, err = s.Export(t.Context(), 77, nil)
		wantErr(t, err, storage.ErrNoState)
		ctx, cancel := context.WithCancel(t.Context())
		_, err = s.Export(ctx, 1, func(storage.ExportProgress) { cancel() })
		wantErr(t, err, context.Canceled)
	}
	exported(t, s, 1)
	if names := s.SpoolNames(t); len(names) != 0 {
		t.Fatalf("left over: %v", names)
	}
}

// TestReceiveLimits is the same for the other side.
func TestReceiveLimits(t *testing.T) {
	s, _ := target(t, vfs.NewMem())
	var open []*storage.Receiver
	for range storage.MaxReceives {
		r, err := s.Receive(t.Context(), 1)
		must(t, err)
		open = append(open, r)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Receive(ended, 1)
	wantErr(t, err, storage.ErrBusy)
	for _, r := range open {
		r.Abort()
		r.Abort()
		if _, err := r.Write([]byte("x")); !errors.Is(err, storage.ErrClosed) {
			t.Fatalf("write after the end gave %v", err)
		}
		wantErr(t, r.Complete(mark), storage.ErrClosed)
	}
	must(t, receive(t, s, 1, exported(t, source(t), 1), mark))
}

// TestLeftOversAreRemoved: what a crash leaves of exports and receipts goes when the store opens; what is not ours stays.
func TestLeftOversAreRemoved(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s, opts := target(t, fs)
	_, err := s.Export(t.Context(), 1, nil)
	must(t, err)
	r, err := s.Receive(t.Context(), 1)
	must(t, err)
	_, err = r.Write(exported(t, source(t), 1)[:5000])
	must(t, err)
	must(t, fs.MkdirAll(fs.PathJoin(storagetest.Dir, "snapshots", "mine"), 0o750))
	opts.FS = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	s = storagetest.Open(t, opts)
	if names := s.SpoolNames(t); !slices.Equal(names, []string{"mine"}) {
		t.Fatalf("spool holds %v", names)
	}
}
