package storage_test

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sealane/sealane/storage"
	"github.com/sealane/sealane/storage/storagetest"
)

// FuzzReceive: whatever arrives instead of a state, nothing but the sound stream is taken, and the group never changes.
func FuzzReceive(f *testing.F) {
	from := storagetest.OpenMem(f)
	fill(f, from, 1, 3, "k", 9)
	sound := exported(f, from, 1)
	f.Add(sound)
	f.Add([]byte{})
	f.Add(sound[:40])
	f.Add(sound[:len(sound)-1])
	f.Add(append(bytes.Clone(sound), 0))
	flipped := bytes.Clone(sound)
	flipped[len(sound)/2] ^= 0x10
	f.Add(flipped)
	to := storagetest.Open(f, storagetest.Options(f, vfs.NewMem()))
	fill(f, to, 1, 2, "mine", 2)
	want := content(f, to, 1)
	f.Fuzz(func(t *testing.T, stream []byte) {
		err := receive(t, to, 1, stream, storage.SnapshotMarker{Index: 9, Term: 1})
		if same := bytes.Equal(stream, sound); same != (err == nil) {
			t.Fatalf("the sound stream: %t; got %v", same, err)
		}
		must(t, to.DropInstall(1))
		if names := to.SpoolNames(t); len(names) != 0 {
			t.Fatalf("left over: %v", names)
		}
		sameContent(t, "untouched", content(t, to, 1), want)
	})
}

// FuzzDecodeHeader and FuzzDecodePending: what is accepted is written the same way again.
func FuzzDecodeHeader(f *testing.F) {
	from := storagetest.OpenMem(f)
	fill(f, from, 1, 3, "k", 9)
	f.Add(exported(f, from, 1)[:36+12+4])
	f.Add([]byte("SEALSNAP"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if again, err := storage.DecodeHeader(b, 1); err == nil && !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

func FuzzDecodePending(f *testing.F) {
	f.Add(storage.SomePending(1))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		if again, err := storage.DecodePending(1, b); err == nil && !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}
