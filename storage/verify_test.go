package storage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
	"github.com/sealane/sealane/storage/storagetest"
)

// groupsOnDisk makes a closed store with four truncated groups, with values in tables and in blob files.
func groupsOnDisk(t *testing.T, fs vfs.FS, dir string) storage.Options {
	t.Helper()
	opts := storagetest.Options(t, fs)
	opts.Dir = dir
	s := storagetest.Open(t, opts)
	must(t, s.SetNode("n1", 9))
	for g := range uint32(4) {
		l, err := s.RaftLog(g)
		must(t, err)
		must(t, l.StoreLogs(storagetest.Entries(g, 1, 40, 1)))
		b := s.State(g).NewBatch()
		for i := range 200 {
			must(t, b.Set(fmt.Appendf(nil, "key%d", i), make([]byte, 20*i)))
		}
		b.SetApplied(30)
		must(t, b.Commit())
		b.Close()
		must(t, s.Flush(t.Context()))
		must(t, s.SaveSnapshotMarker(g, storage.SnapshotMarker{Index: 25, Term: 1}))
		must(t, l.DeleteRange(1, 20))
	}
	must(t, s.Close())
	return opts
}

func TestVerifyHealthy(t *testing.T) {
	dir := t.TempDir()
	groupsOnDisk(t, nil, dir)
	before := contents(t, dir)
	stages := map[string]bool{}
	checked := 0
	r, err := storage.Verify(t.Context(), dir, func(p storage.Progress) { stages[p.Stage] = true },
		func(_ context.Context, group uint32, st *storage.Snapshot) []error {
			checked++
			if v, ok, err := st.Get([]byte("key7")); err != nil || !ok || len(v) != 140 {
				t.Errorf("group %d: key7 has %d bytes, %t (%v)", group, len(v), ok, err)
			}
			if applied, err := st.Applied(); applied != 30 || err != nil {
				t.Errorf("group %d: applied %d (%v)", group, applied, err)
			}
			if group == 2 {
				return []error{errors.New("first finding"), errors.New("second finding")}
			}
			return nil
		})
	must(t, err)
	if len(r.Problems) != 2 || !strings.Contains(fmt.Sprint(r.Problems), "second finding") || r.Problems[0].Group != 2 || !r.Problems[0].InGroup {
		t.Fatalf("problems are %+v, want the two of the check", r.Problems)
	}
	if checked != 4 || len(stages) != 3 || r.Tables == 0 || r.Node != "n1" || r.Incarnation != 9 || r.Identity.CreatedBy != "test" {
		t.Fatalf("checked %d groups, stages %v, report %+v", checked, stages, r)
	}
	want := storage.GroupReport{Group: 3, FirstIndex: 21, LastIndex: 40, LogEntries: 20, SentinelIndex: 20, MarkerIndex: 25,
		DurableApplied: 30, StateKeys: 200, StateBytes: r.Groups[3].StateBytes}
	if r.Groups[3] != want || want.StateBytes < 199*200*10 {
		t.Fatalf("group is %+v, want %+v", r.Groups[3], want)
	}
	if after := contents(t, dir); !slices.Equal(before, after) {
		t.Fatalf("Verify changed the directory:\n%v\n%v", before, after)
	}
}

// contents lists every file with its bytes' sum, the lock files excepted.
func contents(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "LOCK" {
			return err
		}
		b, err := os.ReadFile(path)
		sum := 0
		for i, c := range b {
			sum += (i%251 + 1) * int(c)
		}
		list = append(list, fmt.Sprint(path, len(b), sum))
		return err
	}))
	return list
}

// TestVerifyFindsAll damages every group in another way, and the tables, and wants all of it in one report.
func TestVerifyFindsAll(t *testing.T) {
	fs := vfs.NewMem()
	groupsOnDisk(t, fs, storagetest.Dir)
	log, state := fs.PathJoin(storagetest.Dir, "log"), fs.PathJoin(storagetest.Dir, "state")
	flip := func(v []byte) []byte { v[len(v)-1] ^= 0x10; return v }
	remove := func([]byte) []byte { return nil }
	storage.OverwriteEntry(t, fs, storagetest.Dir, 0, 22, flip)
	storage.OverwriteEntry(t, fs, storagetest.Dir, 0, 35, flip)
	storage.OverwriteEntry(t, fs, storagetest.Dir, 1, 30, remove)
	storage.Overwrite(t, fs, log, storage.MarkerKey(2), flip)
	storage.Overwrite(t, fs, log, storage.SentinelKey(3), func(v []byte) []byte { v[7]--; return v })
	storage.Overwrite(t, fs, state, storage.StateKey(2, ""), func(v []byte) []byte { v[7] = 10; return v }) // durable 10, log starts at 21
	storage.Overwrite(t, fs, state, storage.StateKey(1, ""), remove)
	id := readFile(t, fs, identityPath)
	writeFile(t, fs, identityPath, flip(id))

	r, err := storage.VerifyFS(t.Context(), fs, storagetest.Dir, nil)
	must(t, err)
	for _, want := range []struct {
		group   int
		where   string
		err     error
		mention string
	}{
		{-1, "identity", storage.ErrCorrupt, ""},
		{0, "log", storage.ErrCorrupt, "entry 22"},
		{0, "log", storage.ErrCorrupt, "entry 35"},
		{1, "log", storage.ErrLogGap, "entry 31 follows 29"},
		{1, "state", storage.ErrCorrupt, "no applied index"},
		{2, "log", storage.ErrCorrupt, "snapshot marker"},
		{2, "log", storage.ErrLogGap, "durable up to 10"},
		{3, "log", storage.ErrLogGap, "truncated up to 19"},
	} {
		if !slices.ContainsFunc(r.Problems, func(p storage.Problem) bool {
			return p.Where == want.where && p.InGroup == (want.group >= 0) && (want.group < 0 || p.Group == uint32(want.group)) &&
				errors.Is(p.Err, want.err) && strings.Contains(p.Err.Error(), want.mention)
		}) {
			t.Errorf("no problem %+v", want)
		}
	}
	if t.Failed() {
		t.Logf("problems: %+v", r.Problems)
	}
}

// flipTables flips one bit in the middle of each table of a directory, and gives how many there were.
func flipTables(t *testing.T, fs vfs.FS, dir string) int {
	t.Helper()
	names, err := fs.List(dir)
	must(t, err)
	n := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		path := fs.PathJoin(dir, name)
		b := readFile(t, fs, path)
		b[len(b)/4] ^= 4
		writeFile(t, fs, path, b)
		n++
	}
	return n
}

// TestBitRotInTables (F6): Verify names each damaged table; a running store gives ErrCorrupt or fails, and never the wrong bytes.
func TestBitRotInTables(t *testing.T) {
	fs := vfs.NewMem()
	opts := groupsOnDisk(t, fs, storagetest.Dir)
	flipped := flipTables(t, fs, fs.PathJoin(storagetest.Dir, "state"))
	r, err := storage.VerifyFS(t.Context(), fs, storagetest.Dir, nil)
	must(t, err)
	damaged := 0
	for _, p := range r.Problems {
		if strings.HasPrefix(p.Where, "state/") && errors.Is(p.Err, storage.ErrCorrupt) {
			damaged++
		}
	}
	if flipped == 0 || damaged == 0 || damaged > flipped {
		t.Fatalf("%d tables damaged, %d found: %+v", flipped, damaged, r.Problems)
	}

	fatal := make(chan error, 10)
	opts.OnFatal = func(err error) { fatal <- err }
	s, err := storage.Open(opts)
	if err != nil {
		wantErr(t, err, storage.ErrCorrupt)
		return
	}
	failed := 0
	for g := range uint32(4) {
		keys := 0
		err := s.State(g).Scan(nil, nil, false, func(k, v []byte) (bool, error) {
			keys++
			for _, c := range v {
				if c != 0 {
					t.Fatalf("wrong bytes for %s", k)
				}
			}
			return true, nil
		})
		if err != nil {
			failed++
		} else if keys != 200 {
			t.Errorf("group %d shows %d keys and no error", g, keys)
		}
	}
	if failed == 0 {
		t.Fatal("no scan noticed the damage")
	}
	batch := s.State(1).NewBatch()
	failed = 0
	for range 2 { // a failed read is not remembered as an absent key
		for i := range 200 {
			v, ok, err := batch.Get(fmt.Appendf(nil, "key%d", i))
			if err != nil {
				wantErr(t, err, storage.ErrCorrupt)
				failed++
			} else if !ok || len(v) != 20*i {
				t.Fatalf("key%d has %d bytes, %t", i, len(v), ok)
			}
		}
	}
	if failed == 0 || failed%2 != 0 {
		t.Fatalf("%d reads of a batch noticed the damage", failed)
	}
	batch.Close()
	wantErr(t, received(t, fatal), storage.ErrCorrupt)
	wantErr(t, s.Close(), storage.ErrFailed)
}

// TestTornWAL (F5): a log cut in the middle of its last record loses at most what was not acknowledged when it was written whole. Here
// the cut takes an acknowledged record, as a lying disk would (F4): the loss is a shorter log, never a wrong one.
func TestTornWAL(t *testing.T) {
	fs := vfs.NewCrashableMem()
	opts := storagetest.Options(t, fs)
	s := storagetest.Open(t, opts)
	l, err := s.RaftLog(1)
	must(t, err)
	for i := uint64(1); i <= 20; i++ {
		must(t, l.StoreLog(storagetest.Entry(1, i, 1)))
	}
	for cut := 1; cut < 200; cut += 13 {
		clone := fs.CrashClone(vfs.CrashCloneCfg{})
		names, err := clone.List(storagetest.Dir + "/log")
		must(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, ".log") {
				path := clone.PathJoin(storagetest.Dir, "log", name)
				if b := readFile(t, clone, path); len(b) > 1000 {
					writeFile(t, clone, path, b[:len(b)-cut])
				}
			}
		}
		opts.FS = clone
		s := storagetest.Open(t, opts)
		l, err := s.RaftLog(1)
		must(t, err)
		bounds := storagetest.Bounds(t, l)
		if bounds[0] != 1 || bounds[1] < 15 || bounds[1] > 20 {
			t.Fatalf("cut by %d: log is %v", cut, bounds)
		}
		storagetest.CheckEntries(t, l, 1, 1, bounds[1], storagetest.Always(1))
		var e raft.Log
		if err := l.GetLog(bounds[1]+1, &e); err != raft.ErrLogNotFound { //nolint:errorlint // Raft compares with ==
			t.Fatalf("cut by %d: %v behind the end", cut, err)
		}
		must(t, s.Close())
	}
}

func TestVerifyCannot(t *testing.T) {
	if _, err := storage.Verify(t.Context(), t.TempDir()+"/none", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: error is %v", err)
	}
	fs := vfs.NewMem()
	groupsOnDisk(t, fs, storagetest.Dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := storage.VerifyFS(ctx, fs, storagetest.Dir, nil)
	wantErr(t, err, context.Canceled)
	must(t, fs.RemoveAll(storagetest.Dir+"/log"))
	r, err := storage.VerifyFS(t.Context(), fs, storagetest.Dir, nil)
	must(t, err)
	if r.OK() || len(r.Groups) != 4 || r.Groups[0].StateKeys != 200 {
		t.Errorf("with the log missing: %+v", r)
	}
}
