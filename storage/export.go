package storage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrNoState means that a group that was to be exported has no state: nothing was ever applied. A programming error.
var ErrNoState = errors.New("storage: group has no state")

// Export is the whole state of one group at one moment, written to the disk as tables and read as one stream (stream.go). It is for one
// goroutine. Close it: it takes as much disk space as the state, and one of MaxExports places.
type Export struct {
	store  *Store
	dir    string
	header streamHeader
	closed bool

	part    int // of the stream: 0 header, then the tables, then the trailer
	current io.Reader
	file    vfs.File // behind current while it is a table
	sum     hash.Hash
}

// ExportProgress tells how far Export is.
type ExportProgress struct {
	Tables int    // finished
	Keys   uint64 // written
	Bytes  uint64 // of keys and values, before compression
}

// progressKeys is after how many keys an export looks at its context and tells its progress.
const progressKeys = 512

// Export reads the state of a group as it is now and writes it out. Memory is bounded whatever the size of the state. It waits for
// one of MaxExports places. progress may be nil. Errors: ErrBusy, ErrNoState, ErrDiskFull, ErrCorrupt, the context's; then nothing is left behind.
func (s *Store) Export(ctx context.Context, group uint32, progress func(ExportProgress)) (*Export, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(ExportProgress) {}
	}
	if err := takeSlot(ctx, s.spool.exports); err != nil {
		return nil, err
	}
	e := &Export{store: s, header: streamHeader{group: group}, sum: sha256.New()}
	if err := e.write(ctx, progress); err != nil {
		s.spool.exportsFailed.Add(1)
		return nil, errors.Join(fmt.Errorf("export state of group %d: %w", group, s.annotate(err)), e.Close())
	}
	s.spool.exported.Add(1)
	return e, nil
}

func (e *Export) write(ctx context.Context, progress func(ExportProgress)) (err error) {
	s, group := e.store, e.header.group
	from, to := groupKey(kindGroup, group), groupEnd(kindGroup, group)
	size, err := s.state.EstimateDiskUsage(from, to)
	if err != nil {
		return err
	}
	if err := s.checkRoom(size + s.opts.MemTableBytes); err != nil {
		return err
	}
	if e.dir, _, err = s.newSpoolDir(exportPrefix); err != nil {
		return err
	}
	// One iterator is the state of one moment. Unlike a snapshot of Pebble's it also stays whole while an install replaces the range.
	it, err := s.state.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	return errors.Join(e.writeTables(ctx, it, progress), it.Close())
}

func (e *Export) writeTables(ctx context.Context, it *pebble.Iterator, progress func(ExportProgress)) error {
	if !it.First() {
		return errors.Join(it.Error(), ErrNoState)
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return err
	}
	if len(it.Key()) != prefixBytes {
		return fmt.Errorf("%w: state has no applied index", ErrCorrupt)
	}
	if e.header.applied, err = decodeApplied(e.header.group, value); err != nil {
		return err
	}
	var done ExportProgress
	for it.Valid() {
		if err := e.writeTable(ctx, it, &done, progress); err != nil {
			return err
		}
		done.Tables++
		progress(done)
	}
	return it.Error()
}

// writeTable writes keys from where the iterator stands until the table is large enough.
func (e *Export) writeTable(ctx context.Context, it *pebble.Iterator, done *ExportProgress, progress func(ExportProgress)) error {
	if len(e.header.tables) == maxStreamTables {
		return fmt.Errorf("%w: state needs more than %d tables", ErrTooLarge, maxStreamTables)
	}
	file, err := e.store.opts.fs().Create(e.tablePath(len(e.header.tables)), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	out := &tableFile{file: file}
	w := sstable.NewWriter(out, tableOptions())
	fill := func() error {
		for size := uint64(0); it.Valid() && size < e.store.spool.tableBytes; it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			if err := w.Set(it.Key(), value); err != nil {
				return err
			}
			n := uint64(len(it.Key()) + len(value))
			size += n
			done.Bytes += n
			if done.Keys++; done.Keys%progressKeys == 0 {
				if err := ctx.Err(); err != nil {
					return err
				}
				progress(*done)
			}
		}
		return ctx.Err()
	}
	if err := errors.Join(fill(), w.Close()); err != nil {
		return err
	}
	e.header.tables = append(e.header.tables, streamTable{bytes: out.bytes, sum: out.sum})
	return nil
}

func (e *Export) tablePath(n int) string { return e.store.opts.fs().PathJoin(e.dir, tableName(n)) }

// Size gives the exact length of the stream in bytes.
func (e *Export) Size() int64 { return e.header.bytes() }

// Applied gives the applied index of the exported state.
func (e *Export) Applied() uint64 { return e.header.applied }

// Read gives the next bytes of the stream, once through.
func (e *Export) Read(p []byte) (int, error) {
	for {
		if e.closed {
			return 0, ErrClosed
		}
		if e.current == nil {
			if err := e.nextPart(); err != nil {
				return 0, err
			}
		}
		n, err := e.current.Read(p)
		e.sum.Write(p[:n])
		e.store.spool.exportedBytes.Add(int64(n))
		if errors.Is(err, io.EOF) {
			if err = e.endPart(); n == 0 && err == nil {
				continue
			}
		}
		return n, err
	}
}

// nextPart makes current the part that comes next, or gives io.EOF.
func (e *Export) nextPart() error {
	switch table := e.part - 1; {
	case table < 0:
		e.current = bytes.NewReader(e.header.encode())
	case table < len(e.header.tables):
		file, err := e.store.opts.fs().Open(e.tablePath(table))
		if err != nil {
			return fmt.Errorf("read export of group %d: %w", e.header.group, err)
		}
		e.file, e.current = file, file
	case table == len(e.header.tables):
		e.current = bytes.NewReader(e.sum.Sum(nil))
	default:
		return io.EOF
	}
	return nil
}

func (e *Export) endPart() error {
	e.part++
	e.current = nil
	if e.file == nil {
		return nil
	}
	file := e.file
	e.file = nil
	return file.Close()
}

// Close removes what was written and gives the place to the next export. Closing twice is fine.
func (e *Export) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	var err error
	if e.file != nil {
		err = e.file.Close()
	}
	if e.dir != "" {
		e.store.removeSpool(e.dir)
	}
	<-e.store.spool.exports
	return err
}
