package storage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Receiver takes the stream of an Export of another store (stream.go), writes it to the disk and checks all of it on the way. Nothing of
// the group changes. It is for one goroutine and must be ended by Complete or Abort; it takes one of MaxReceives places until then.
type Receiver struct {
	store  *Store
	group  uint32
	dir    string
	number uint64
	failed error // why nothing more is taken
	ended  bool

	raw     []byte // the header as far as it has come, then the trailer
	header  *streamHeader
	sum     hash.Hash // over header and tables
	digest  []byte    // of them, once they are whole
	table   int       // being received
	left    uint64    // bytes of it still to come
	crc     uint32
	file    vfs.File
	chunk   []byte
	checked tableRange
}

// receiveChunk bounds what is written at once.
const receiveChunk = 256 << 10

// Receive begins to take a state for a group. It waits for one of MaxReceives places. Errors: ErrBusy, ErrDiskFull.
func (s *Store) Receive(ctx context.Context, group uint32) (*Receiver, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if err := takeSlot(ctx, s.spool.receives); err != nil {
		return nil, err
	}
	r := &Receiver{store: s, group: group, sum: sha256.New()}
	var err error
	if r.dir, r.number, err = s.newSpoolDir(installPrefix); err != nil {
		<-s.spool.receives
		return nil, s.annotate(err)
	}
	return r, nil
}

// Write takes the next bytes. After an error nothing more is taken; Abort then. Errors: ErrStream, ErrFormatVersion, ErrDiskFull.
func (r *Receiver) Write(p []byte) (int, error) {
	if r.ended {
		return 0, ErrClosed
	}
	total := len(p)
	for len(p) > 0 && r.failed == nil {
		n, err := r.take(p)
		p = p[n:]
		if err != nil {
			r.store.spool.receiptsRejected.Add(1)
			r.failed = fmt.Errorf("receive state of group %d: %w", r.group, r.store.annotate(err))
		}
	}
	if r.failed != nil {
		return 0, r.failed
	}
	r.store.spool.receivedBytes.Add(int64(total))
	return total, nil
}

// take uses some of p for whatever comes next.
func (r *Receiver) take(p []byte) (int, error) {
	switch {
	case r.header == nil:
		return r.takeHeader(p)
	case r.table < len(r.header.tables):
		return r.takeTable(p)
	}
	if r.digest == nil {
		r.digest = r.sum.Sum(nil)
	}
	n := min(len(p), streamTrailer-len(r.raw))
	if n == 0 {
		return 0, fmt.Errorf("%w: it goes on behind its end", ErrStream)
	}
	r.raw = append(r.raw, p[:n]...)
	if len(r.raw) == streamTrailer && !bytes.Equal(r.raw, r.digest) {
		return n, fmt.Errorf("%w: digest of the whole is %x, want %x", ErrStream, r.digest[:8], r.raw[:8])
	}
	return n, nil
}

// takeHeader collects the fixed part, which tells the length of the rest.
func (r *Receiver) takeHeader(p []byte) (int, error) {
	want := streamFixed
	if len(r.raw) >= streamFixed {
		tables, err := streamTables(r.raw, r.group)
		if err != nil {
			return 0, err
		}
		want = headerBytes(tables)
	}
	n := min(len(p), want-len(r.raw))
	r.raw = append(r.raw, p[:n]...)
	if want == streamFixed || len(r.raw) < want {
		return n, nil
	}
	h, err := decodeHeader(r.raw, r.group)
	if err != nil {
		return n, err
	}
	if err := r.store.checkRoom(h.tableBytes()); err != nil {
		return n, err
	}
	if err := r.writeHeader(); err != nil {
		return n, err
	}
	r.sum.Write(r.raw)
	r.raw = r.raw[:0]
	r.header = &h
	r.checked = tableRange{group: r.group, applied: h.applied}
	return n, nil
}

// writeHeader keeps the header beside the tables, so that they can be checked again after a restart.
func (r *Receiver) writeHeader() error {
	fs := r.store.opts.fs()
	file, err := fs.Create(fs.PathJoin(r.dir, headerName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(bytes.Clone(r.raw)) // as for a table
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func (r *Receiver) takeTable(p []byte) (int, error) {
	fs := r.store.opts.fs()
	path := fs.PathJoin(r.dir, tableName(r.table))
	if r.file == nil {
		file, err := fs.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return 0, err
		}
		r.file, r.left, r.crc = file, r.header.tables[r.table].bytes, 0
	}
	n := int(min(uint64(len(p)), r.left, receiveChunk))
	r.sum.Write(p[:n])
	r.crc = crc32.Update(r.crc, castagnoli, p[:n])
	r.chunk = append(r.chunk[:0], p[:n]...) // a file may change what it is given, and p is the caller's
	if _, err := r.file.Write(r.chunk); err != nil {
		return n, err
	}
	if r.left -= uint64(n); r.left > 0 {
		return n, nil
	}
	file := r.file
	r.file = nil
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return n, err
	}
	if want := r.header.tables[r.table].sum; r.crc != want {
		return n, fmt.Errorf("%w: table %d has checksum %08x, want %08x", ErrStream, r.table, r.crc, want)
	}
	if err := r.checked.check(fs, path); err != nil {
		return n, fmt.Errorf("table %d: %w", r.table, err)
	}
	r.table++
	return n, nil
}

// whole tells whether everything has come.
func (r *Receiver) whole() error {
	switch {
	case r.failed != nil:
		return r.failed
	case r.header == nil:
		return fmt.Errorf("%w: it ends in its header, after %d bytes", ErrStream, len(r.raw))
	case r.table < len(r.header.tables):
		return fmt.Errorf("%w: it ends in table %d of %d", ErrStream, r.table, len(r.header.tables))
	case len(r.raw) < streamTrailer:
		return fmt.Errorf("%w: it ends in its trailer", ErrStream)
	}
	return nil
}

// Complete makes a state that came whole durable, together with the intent to install it: m is the snapshot that it belongs to. Install
// carries the intent out, or else the next Open. The group has not changed yet. An older intent is dropped. Errors: ErrStream,
// ErrSnapshotOlder, ErrTooLarge, ErrDiskFull, ErrFailed; then what was received is dropped.
func (r *Receiver) Complete(m SnapshotMarker) error {
	if r.ended {
		return ErrClosed
	}
	if err := r.complete(m); err != nil {
		r.drop()
		return fmt.Errorf("receive state of group %d: %w", r.group, r.store.annotate(err))
	}
	r.ended = true
	r.store.spool.received.Add(1)
	<-r.store.spool.receives
	return nil
}

func (r *Receiver) complete(m SnapshotMarker) error {
	if err := r.whole(); err != nil {
		return err
	}
	if err := checkMarker(r.group, m); err != nil {
		return err
	}
	if r.header.applied < m.Index {
		return fmt.Errorf("%w: state is at applied index %d, its snapshot at %d", ErrStream, r.header.applied, m.Index)
	}
	l, err := r.store.RaftLog(r.group)
	if err != nil {
		return err
	}
	if err := l.refuseOlder(m); err != nil {
		return err
	}
	fs := r.store.opts.fs()
	for _, dir := range []string{r.dir, fs.PathDir(r.dir)} {
		if err := syncDir(fs, dir); err != nil {
			return err
		}
	}
	return r.store.setPending(r.group, pendingInstall{spool: r.number, applied: r.header.applied, marker: m})
}

// Abort drops what was received. After Complete it does nothing.
func (r *Receiver) Abort() {
	if !r.ended {
		r.drop()
	}
}

func (r *Receiver) drop() {
	r.ended = true
	if r.file != nil {
		if err := r.file.Close(); err != nil {
			r.store.opts.Logger.Warn("cannot close a state that is dropped", "path", r.dir, "error", err)
		}
		r.file = nil
	}
	r.store.removeSpool(r.dir)
	<-r.store.spool.receives
}
