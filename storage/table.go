package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// tableFile is a table that is being written, as Pebble's table writer wants it. It is not synced: nobody needs it after a crash.
type tableFile struct {
	file  vfs.File
	bytes uint64
	sum   uint32
}

// Write is part of objstorage.Writable. The sum comes first: a file may change what it is given.
func (f *tableFile) Write(p []byte) error {
	f.sum = crc32.Update(f.sum, castagnoli, p)
	f.bytes += uint64(len(p))
	_, err := f.file.Write(p)
	return err
}

// Finish is part of objstorage.Writable.
func (f *tableFile) Finish() error { return f.file.Close() }

// Abort is part of objstorage.Writable. Whoever aborts removes the file, so that an error of closing it says nothing.
func (f *tableFile) Abort() { _ = f.file.Close() }

// tableOptions give tables like those that the state instance writes itself.
func tableOptions() sstable.WriterOptions {
	o := &pebble.Options{FormatMajorVersion: formatMajor}
	tuneStateTables(o)
	o.EnsureDefaults()
	return o.MakeWriterOptions(len(o.Levels)-1, formatMajor.MaxTableFormat())
}

// tableRange is what check has seen of a state so far.
type tableRange struct {
	group   uint32
	applied uint64
	last    []byte // newest key; nil before the first
	keys    uint64
}

// check reads a whole table of a received state: all checksums of its blocks, and that it holds nothing but plain keys of the group's
// range, behind those of the table before. The first key of the first table is the applied index.
func (r *tableRange) check(fs vfs.FS, path string) (err error) {
	file, err := fs.Open(path)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		return errors.Join(fmt.Errorf("open %s: %w", path, err), file.Close())
	}
	o := (&verifier{fs: fs}).options()
	o.EnsureDefaults()
	reader, err := sstable.NewReader(context.Background(), readable, o.MakeReaderOptions())
	if err != nil {
		return errors.Join(fmt.Errorf("%w: not a table: %w", ErrStream, err), readable.Close())
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	if err := reader.ValidateBlockChecksums(); err != nil {
		return fmt.Errorf("%w: %w", ErrStream, err)
	}
	if err := plainTable(reader); err != nil {
		return fmt.Errorf("%w: %w", ErrStream, err)
	}
	return r.walk(reader)
}

// plainTable refuses what an export never writes and an install could not undo: deletions, ranges, references to other files.
func plainTable(reader *sstable.Reader) error {
	format, err := reader.TableFormat()
	if err != nil {
		return err
	}
	if highest := formatMajor.MaxTableFormat(); format > highest {
		return fmt.Errorf("format of a table is %s, this program knows up to %s", format, highest)
	}
	p, err := reader.ReadPropertiesBlock(context.Background(), nil)
	if err != nil {
		return err
	}
	if p.NumDeletions != 0 || p.NumRangeDeletions != 0 || p.NumRangeKeys() != 0 || p.NumMergeOperands != 0 || p.NumValuesInBlobFiles != 0 {
		return fmt.Errorf("a table has %d deletions, %d range deletions, %d range keys, %d merges and %d values elsewhere, want none",
			p.NumDeletions, p.NumRangeDeletions, p.NumRangeKeys(), p.NumMergeOperands, p.NumValuesInBlobFiles)
	}
	return nil
}

// walk reads every key.
func (r *tableRange) walk(reader *sstable.Reader) error {
	it, err := reader.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStream, err)
	}
	prefix := groupKey(kindGroup, r.group)
	before := r.keys
	for kv := it.First(); kv != nil; kv = it.Next() {
		key := kv.K.UserKey
		var wrong error
		switch {
		case kv.K.Kind() != pebble.InternalKeyKindSet || kv.K.SeqNum() != 0:
			wrong = fmt.Errorf("key %.40x is no plain one", key)
		case !bytes.HasPrefix(key, prefix):
			wrong = fmt.Errorf("key %.40x is not of group %d", key, r.group)
		case r.last != nil && bytes.Compare(key, r.last) <= 0:
			wrong = fmt.Errorf("key %.40x follows %.40x", key, r.last)
		case r.last == nil:
			value, _, verr := kv.Value(nil)
			if verr == nil {
				verr = r.checkApplied(key, value)
			}
			wrong = verr
		}
		if wrong != nil {
			return errors.Join(fmt.Errorf("%w: %w", ErrStream, wrong), it.Close())
		}
		r.last = append(r.last[:0], key...)
		r.keys++
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return fmt.Errorf("%w: %w", ErrStream, err)
	}
	if r.keys == before {
		return fmt.Errorf("%w: a table without keys", ErrStream)
	}
	return nil
}

func (r *tableRange) checkApplied(key, value []byte) error {
	if len(key) != prefixBytes {
		return fmt.Errorf("first key is %.40x, want the applied index", key)
	}
	applied, err := decodeApplied(r.group, value)
	if err != nil {
		return err
	}
	if applied != r.applied {
		return fmt.Errorf("state is at applied index %d, header says %d", applied, r.applied)
	}
	return nil
}
