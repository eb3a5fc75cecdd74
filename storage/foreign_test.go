package storage_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sealane/sealane/storage"
)

// TestForeignDirectoryIsRefused: a mistyped path must not found a store among somebody else's files.
func TestForeignDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("hi"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := storage.Open(storage.Options{Dir: dir}); !errors.Is(err, storage.ErrNotEmpty) {
		t.Errorf("Open = %v, %v", s, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if n.Name() != "file" && n.Name() != "LOCK" {
			t.Errorf("%s was written", n.Name())
		}
	}
}
