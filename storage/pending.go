package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// pendingInstall is a state that was received whole and is to replace the group's. Written durably before anything of the group changes,
// removed together with the last change: whatever happens in between can be repeated from it and its spool.
type pendingInstall struct {
	spool   uint64 // number of its directory
	applied uint64 // applied index of the state in it
	marker  SnapshotMarker
}

// Its value, version 1: version byte, CRC32C (little endian) of the group as u32be and of what follows, then the spool's number and the
// applied index (u64be each), then the marker as in marker.go.
const (
	pendingVersion = 1
	pendingHeader  = 1 + 4 + 2*8
)

func encodePending(group uint32, p pendingInstall) []byte {
	v := make([]byte, crcFrom, pendingHeader+markerHeader+len(p.marker.Configuration))
	v[0] = pendingVersion
	v = binary.BigEndian.AppendUint64(v, p.spool)
	v = binary.BigEndian.AppendUint64(v, p.applied)
	v = append(v, encodeMarker(group, p.marker)...)
	binary.LittleEndian.PutUint32(v[crcOffset:], markerSum(group, v[crcFrom:]))
	return v
}

func decodePending(group uint32, v []byte) (pendingInstall, error) {
	if len(v) < pendingHeader || v[0] != pendingVersion {
		return pendingInstall{}, fmt.Errorf("%w: pending install of group %d: %d bytes, want at least %d with version %d", ErrCorrupt,
			group, len(v), pendingHeader, pendingVersion)
	}
	if got, want := markerSum(group, v[crcFrom:]), binary.LittleEndian.Uint32(v[crcOffset:]); got != want {
		return pendingInstall{}, fmt.Errorf("%w: pending install of group %d: checksum %08x, want %08x", ErrCorrupt, group, got, want)
	}
	m, err := decodeMarker(group, v[pendingHeader:])
	if err != nil {
		return pendingInstall{}, fmt.Errorf("pending install: %w", err)
	}
	return pendingInstall{
		spool:   binary.BigEndian.Uint64(v[crcFrom:]),
		applied: binary.BigEndian.Uint64(v[crcFrom+8:]),
		marker:  m,
	}, nil
}

func readPending(r pebble.Reader, group uint32) (pendingInstall, bool, error) {
	v, found, err := getCopy(r, groupKey(kindPending, group))
	if err != nil || !found {
		return pendingInstall{}, false, err
	}
	p, err := decodePending(group, v)
	return p, err == nil, err
}

// PendingInstall tells about a received state that is not installed yet: the snapshot that it came with and its applied index.
func (s *Store) PendingInstall(group uint32) (m SnapshotMarker, applied uint64, ok bool) {
	p, ok := s.pendingOf(group)
	return p.marker, p.applied, ok
}

func (s *Store) pendingOf(group uint32) (pendingInstall, bool) {
	s.spool.mu.Lock()
	defer s.spool.mu.Unlock()
	p, ok := s.spool.pending[group]
	return p, ok
}

// setPending writes the intent durably and drops an older one that was never carried out.
func (s *Store) setPending(group uint32, p pendingInstall) error {
	b := s.logDB.NewBatch()
	if err := b.Set(groupKey(kindPending, group), encodePending(group, p), nil); err != nil {
		return err
	}
	if err := s.commitLog(group, b, true); err != nil {
		return err
	}
	s.spool.mu.Lock()
	old, had := s.spool.pending[group]
	s.spool.pending[group] = p
	s.spool.mu.Unlock()
	if had {
		s.removeSpool(s.spoolPath(installName(old.spool)))
	}
	return nil
}

// DropInstall forgets a received state that was not installed, if there is one. The group stays as it is; the state can be received
// again. For a replica that starts anew on an open store.
func (s *Store) DropInstall(group uint32) error {
	p, ok := s.pendingOf(group)
	if !ok {
		return nil
	}
	b := s.logDB.NewBatch()
	if err := b.Delete(groupKey(kindPending, group), nil); err != nil {
		return err
	}
	if err := s.commitLog(group, b, true); err != nil {
		return err
	}
	s.forgetPending(group, p)
	return nil
}

// forgetPending drops the memory and the spool of an intent that is gone from the log instance.
func (s *Store) forgetPending(group uint32, p pendingInstall) {
	s.spool.mu.Lock()
	if s.spool.pending[group].spool == p.spool {
		delete(s.spool.pending, group)
	}
	s.spool.mu.Unlock()
	s.removeSpool(s.spoolPath(installName(p.spool)))
}
