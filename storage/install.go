package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

var (
	// ErrNoInstall means that no received state waits to be installed. A programming error.
	ErrNoInstall = errors.New("storage: no state to install")
	// ErrStateReplaced means that the state was replaced by a received one since a Snapshot was taken, which can give nothing any more. Take another.
	ErrStateReplaced = errors.New("storage: state was replaced by a received one")
)

// Install carries out the pending install of a group and gives the applied index of the state afterwards, which is the received one's, or
// the old one's if that is not older: a state never goes back. Either way log and snapshot marker then follow the received snapshot, all of
// it durable when Install returns. A crash at any moment is finished by the next Open. The group's batches and log must not be in
// use, as they are not inside Restore of Raft's state machine. Errors: ErrNoInstall; ErrFailed (the process must stop); any other means
// that the group is as it was and the received state was dropped.
func (s *Store) Install(group uint32) (applied uint64, err error) {
	return s.install(group, true)
}

// install checks what was received once more unless this process did.
func (s *Store) install(group uint32, checked bool) (uint64, error) {
	if err := s.usable(); err != nil {
		return 0, err
	}
	p, ok := s.pendingOf(group)
	if !ok {
		return 0, fmt.Errorf("%w: group %d", ErrNoInstall, group)
	}
	l, err := s.RaftLog(group)
	if err != nil {
		return 0, err
	}
	if err := s.replaceState(l.state, p, checked); err != nil {
		if s.Failed() != nil {
			return 0, err
		}
		return 0, errors.Join(fmt.Errorf("install state of group %d: %w", group, s.annotate(err)), s.DropInstall(group))
	}
	if err := s.Flush(context.Background()); err != nil {
		return 0, err
	}
	if err := l.follow(p.marker); err != nil {
		return 0, err
	}
	s.forgetPending(group, p)
	s.spool.installed.Add(1)
	return l.state.Applied()
}

// replaceState puts the received tables in the place of the group's range, in one step, unless the state is as new already.
func (s *Store) replaceState(st *State, p pendingInstall, checked bool) error {
	if p.applied <= st.visible.Load() {
		return nil
	}
	dir := s.spoolPath(installName(p.spool))
	tables, err := s.spoolTables(dir, st.group, p, checked)
	if err != nil {
		return err
	}
	paths, err := s.linkTables(dir, tables)
	if err != nil {
		return err
	}
	// Without a write-ahead log Pebble keeps an ingest over unflushed keys only in memory. There are none after a flush: the group is still.
	if err := s.flushInstance(context.Background(), s.state); err != nil {
		return err
	}
	st.replaced.Add(1) // before the range changes: a snapshot that reads across the change must notice
	span := pebble.KeyRange{Start: groupKey(kindGroup, st.group), End: groupEnd(kindGroup, st.group)}
	if _, err := s.state.IngestAndExcise(context.Background(), paths, nil, nil, span); err != nil {
		return err
	}
	if err := s.Failed(); err != nil {
		return err
	}
	st.recent.clear()
	st.generation.Add(1)
	st.visible.Store(p.applied)
	s.flush.dirty.Store(true)
	return nil
}

// spoolTables gives how many tables were received. Unless they were checked by this process, the disk may have changed them.
func (s *Store) spoolTables(dir string, group uint32, p pendingInstall, checked bool) (int, error) {
	fs := s.opts.fs()
	raw, err := readFile(fs, fs.PathJoin(dir, headerName), headerBytes(maxStreamTables))
	if err != nil {
		return 0, err
	}
	h, err := decodeHeader(raw, group)
	if err != nil {
		return 0, err
	}
	if h.applied != p.applied {
		return 0, fmt.Errorf("%w: state is at applied index %d, want %d", ErrStream, h.applied, p.applied)
	}
	if checked {
		return len(h.tables), nil
	}
	r := tableRange{group: group, applied: h.applied}
	for i, t := range h.tables {
		path := fs.PathJoin(dir, tableName(i))
		got, err := sumFile(fs, path)
		if err != nil {
			return 0, err
		}
		if got != t {
			return 0, fmt.Errorf("%w: table %d has %d bytes and checksum %08x, want %d and %08x", ErrStream, i, got.bytes, got.sum, t.bytes, t.sum)
		}
		if err := r.check(fs, path); err != nil {
			return 0, fmt.Errorf("table %d: %w", i, err)
		}
	}
	return len(h.tables), nil
}

// linkTables gives second names to the tables: Pebble takes away what it ingests, and the originals stay until the intent ends, so that a
// repetition finds them whatever Pebble had made durable.
func (s *Store) linkTables(dir string, tables int) ([]string, error) {
	fs := s.opts.fs()
	paths := make([]string, tables)
	for i := range paths {
		paths[i] = fs.PathJoin(dir, "ingest-"+tableName(i))
		if err := fs.Remove(paths[i]); err != nil && !isNotExist(err) {
			return nil, fmt.Errorf("remove %s: %w", paths[i], err)
		}
		if err := vfs.LinkOrCopy(fs, fs.PathJoin(dir, tableName(i)), paths[i]); err != nil {
			return nil, fmt.Errorf("link %s: %w", paths[i], err)
		}
	}
	return paths, nil
}

func readFile(fs vfs.FS, path string, limit int) (b []byte, err error) {
	file, err := fs.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var out bytes.Buffer
	if _, err := io.Copy(&out, io.LimitReader(file, int64(limit)+1)); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return out.Bytes(), nil
}

// sumFile reads a file through.
func sumFile(fs vfs.FS, path string) (t streamTable, err error) {
	file, err := fs.Open(path)
	if err != nil {
		return t, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := crc32.New(castagnoli)
	n, err := io.Copy(sum, file)
	if err != nil {
		return t, fmt.Errorf("read %s: %w", path, err)
	}
	return streamTable{bytes: uint64(n), sum: sum.Sum32()}, nil
}

// follow makes log and marker agree with an installed snapshot and ends the intent, in one durable write. A marker that is newer already
// stays, and with it the log.
func (l *RaftLog) follow(m SnapshotMarker) error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	b := l.store.logDB.NewBatch()
	if err := b.Delete(groupKey(kindPending, l.group), nil); err != nil {
		return err
	}
	l.mu.RLock()
	have := l.marker
	l.mu.RUnlock()
	to := edge{m.Index, m.Term}
	if to.before(have) {
		return l.store.commitLog(l.group, b, true)
	}
	if err := b.Set(groupKey(kindMarker, l.group), encodeMarker(l.group, m), nil); err != nil {
		return err
	}
	if err := l.adopt(b, to); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marker = to
	return nil
}

// finishInstalls goes on where a crash interrupted an install. A received state that the disk has damaged since is dropped: the group
// goes on with the state that it has. A group whose log cannot be opened says so when it is.
func (s *Store) finishInstalls() error {
	for _, group := range slices.Sorted(maps.Keys(s.spool.pending)) {
		applied, err := s.install(group, false)
		if failed := s.Failed(); failed != nil {
			return failed
		}
		if err != nil {
			s.opts.Logger.Error("an interrupted install cannot be finished", "group", group, "error", err)
			continue
		}
		s.opts.Logger.Warn("finished an interrupted install", "group", group, "applied", applied)
	}
	return nil
}
