package storage_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sealane/sealane/storage"
	"github.com/sealane/sealane/storage/storagetest"
)

func TestOptionsValidate(t *testing.T) {
	good := storage.Options{Dir: "x"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	bad := storage.Options{CacheBytes: 5, MemTableBytes: 9, LogWriteDeadline: -1, BackgroundErrorLimit: -time.Second, FlushInterval: -1,
		RingEntries: -1, RingBytes: -1, CreatedBy: "a\nb"}
	err := bad.Validate()
	if !errors.Is(err, storage.ErrOptions) {
		t.Fatalf("error is %v", err)
	}
	for _, field := range []string{"Dir", "CacheBytes", "MemTableBytes", "LogWriteDeadline", "BackgroundErrorLimit", "FlushInterval",
		"RingEntries", "RingBytes", "CreatedBy"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
	if _, err := storage.Open(bad); !errors.Is(err, storage.ErrOptions) {
		t.Errorf("Open gave %v", err)
	}
}

func TestIdentityLasts(t *testing.T) {
	fs := vfs.NewMem()
	opts := storagetest.Options(t, fs)
	s := storagetest.Open(t, opts)
	id := s.Identity()
	if id.StoreID == ([16]byte{}) || id.FormatVersion != storage.FormatVersion || id.CreatedBy != "test" {
		t.Fatalf("identity is %+v", id)
	}
	if _, _, ok := s.Node(); ok {
		t.Fatal("a new store belongs to a node")
	}
	for _, c := range []struct {
		node        string
		incarnation uint64
	}{{"", 1}, {strings.Repeat("n", 256), 1}, {"n1", 0}} {
		if err := s.SetNode(c.node, c.incarnation); err == nil {
			t.Errorf("node of %d bytes, incarnation %d was accepted", len(c.node), c.incarnation)
		}
	}
	must(t, s.SetNode("n\"1", 42))
	must(t, s.Close())

	opts.CreatedBy = "later"
	s = storagetest.Open(t, opts)
	if s.Identity() != id {
		t.Fatalf("identity is %+v, was %+v", s.Identity(), id)
	}
	if node, incarnation, ok := s.Node(); node != "n\"1" || incarnation != 42 || !ok {
		t.Fatalf("node is %q of %d, %t", node, incarnation, ok)
	}
	must(t, s.SetNode("n\"1", 42))
	wantErr(t, s.SetNode("n2", 42), storage.ErrIdentity)
	wantErr(t, s.SetNode("n\"1", 43), storage.ErrIdentity)
	if other := storagetest.OpenMem(t).Identity(); other.StoreID == id.StoreID {
		t.Fatal("two stores have one id")
	}
}

// TestNodeSurvivesACrash: once SetNode has returned, the binding is durable.
func TestNodeSurvivesACrash(t *testing.T) {
	disk := storagetest.NewDisk(t, 1)
	must(t, disk.MustOpen().SetNode("n1", 3))
	disk.Crash(0)
	if node, incarnation, ok := disk.MustOpen().Node(); node != "n1" || incarnation != 3 || !ok {
		t.Fatalf("node is %q of %d, %t", node, incarnation, ok)
	}
}

const identityPath = storagetest.Dir + "/IDENTITY"

func readFile(t *testing.T, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	b, err := io.ReadAll(f)
	must(t, err)
	return b
}

func writeFile(t *testing.T, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write(bytes.Clone(b)) // the file system of a race build scribbles over what it was given
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
}

// closedStoreFS gives a disk with a store that has one entry and one key.
func closedStoreFS(t *testing.T) (*vfs.MemFS, storage.Options) {
	t.Helper()
	fs := vfs.NewMem()
	opts := storagetest.Options(t, fs)
	s := storagetest.Open(t, opts)
	l, err := s.RaftLog(1)
	must(t, err)
	must(t, l.StoreLogs(storagetest.Entries(1, 1, 3, 1)))
	storagetest.Apply(t, s.State(1), 1)
	must(t, s.Close())
	return fs, opts
}

// TestIdentityDamage flips every bit of the identity file (F6), cuts it at every length and removes it: never a new identity.
func TestIdentityDamage(t *testing.T) {
	fs, opts := closedStoreFS(t)
	good := readFile(t, fs, identityPath)
	refused := func(what string, at int) {
		t.Helper()
		s, err := storage.Open(opts)
		if err == nil {
			must(t, s.Close())
		}
		if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrFormatVersion) {
			t.Errorf("%s %d: error is %v", what, at, err)
		}
	}
	for bit := range len(good) * 8 {
		v := bytes.Clone(good)
		v[bit/8] ^= 1 << (bit % 8)
		writeFile(t, fs, identityPath, v)
		refused("bit", bit)
	}
	for n := range good {
		writeFile(t, fs, identityPath, good[:n])
		refused("length", n)
	}
	must(t, fs.Remove(identityPath))
	refused("removed", 0)
	writeFile(t, fs, identityPath, good)
	storagetest.Open(t, opts)
}

func TestOtherFormatVersion(t *testing.T) {
	fs, opts := closedStoreFS(t)
	good := string(readFile(t, fs, identityPath))
	writeFile(t, fs, identityPath, []byte(strings.Replace(good, "sealane-store 2\n", "sealane-store 12\n", 1)+"something new\n"))
	_, err := storage.Open(opts)
	wantErr(t, err, storage.ErrFormatVersion)
	if !strings.Contains(err.Error(), "version 12") || !strings.Contains(err.Error(), "version 2") {
		t.Fatalf("the error does not name both versions: %v", err)
	}
	_, err = storage.VerifyFS(t.Context(), fs, storagetest.Dir, nil)
	wantErr(t, err, storage.ErrFormatVersion)
}

// TestMissingOrForeignInstance: a lost or swapped half is never replaced by an empty one.
func TestMissingOrForeignInstance(t *testing.T) {
	for _, half := range []string{"log", "state"} {
		t.Run(half, func(t *testing.T) {
			fs, opts := closedStoreFS(t)
			path := fs.PathJoin(storagetest.Dir, half)
			must(t, fs.Rename(path, path+".away"))
			_, err := storage.Open(opts)
			wantErr(t, err, storage.ErrCorrupt)
			other, _ := closedStoreFS(t)
			ok, err := vfs.Clone(other, fs, path, path)
			if err != nil || !ok {
				t.Fatalf("copy: %t %v", ok, err)
			}
			_, err = storage.Open(opts)
			wantErr(t, err, storage.ErrIdentity)
		})
	}
}

func TestLock(t *testing.T) {
	for name, opts := range map[string]storage.Options{
		"memory": storagetest.Options(t, vfs.NewMem()),
		"disk":   storagetest.Options(t, nil),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "disk" {
				opts.Dir = t.TempDir()
			}
			s := storagetest.Open(t, opts)
			_, err := storage.Open(opts)
			wantErr(t, err, storage.ErrLocked)
			if opts.FS == nil {
				_, err = storage.Verify(t.Context(), opts.Dir, nil)
				wantErr(t, err, storage.ErrLocked)
			}
			must(t, s.Close())
			storagetest.Open(t, opts)
		})
	}
}

func TestFreeBytes(t *testing.T) {
	if free, err := storagetest.OpenMem(t).FreeBytes(); err != nil || free != ^uint64(0) {
		t.Fatalf("memory: %d (%v)", free, err)
	}
	opts := storagetest.Options(t, nil)
	opts.Dir = t.TempDir()
	if free, err := storagetest.Open(t, opts).FreeBytes(); err != nil || free == 0 || free == ^uint64(0) {
		t.Fatalf("disk: %d (%v)", free, err)
	}
}
