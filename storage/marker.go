package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2"
)

// ErrSnapshotOlder means that a marker was to be replaced by an older one, as happens when an install and a snapshot of the node's own
// overlap (hashicorp/raft issue 248). The newer one stays; the caller drops its own.
var ErrSnapshotOlder = errors.New("storage: snapshot is older than the newest one")

// MaxConfigurationBytes bounds the configuration in a marker.
const MaxConfigurationBytes = 1 << 20

// SnapshotMarker is a snapshot without data: the state is on disk already.
type SnapshotMarker struct {
	Index              uint64 // of the last entry that the snapshot holds; not 0
	Term               uint64 // of that entry
	Configuration      []byte // opaque
	ConfigurationIndex uint64
}

// A marker's value, version 1: version byte, CRC32C (little endian) of the group as u32be and of what follows, then index, term,
// configuration index (u64be each), configuration.
const (
	markerVersion = 1
	markerHeader  = 1 + 4 + 3*8
)

func encodeMarker(group uint32, m SnapshotMarker) []byte {
	v := make([]byte, crcFrom, markerHeader+len(m.Configuration))
	v[0] = markerVersion
	v = binary.BigEndian.AppendUint64(v, m.Index)
	v = binary.BigEndian.AppendUint64(v, m.Term)
	v = binary.BigEndian.AppendUint64(v, m.ConfigurationIndex)
	v = append(v, m.Configuration...)
	binary.LittleEndian.PutUint32(v[crcOffset:], markerSum(group, v[crcFrom:]))
	return v
}

func markerSum(group uint32, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum(binary.BigEndian.AppendUint32(nil, group), castagnoli), castagnoli, rest)
}

func decodeMarker(group uint32, v []byte) (SnapshotMarker, error) {
	if len(v) < markerHeader || v[0] != markerVersion {
		return SnapshotMarker{}, fmt.Errorf("%w: snapshot marker of group %d: %d bytes, want at least %d with version %d", ErrCorrupt,
			group, len(v), markerHeader, markerVersion)
	}
	if got, want := markerSum(group, v[crcFrom:]), binary.LittleEndian.Uint32(v[crcOffset:]); got != want {
		return SnapshotMarker{}, fmt.Errorf("%w: snapshot marker of group %d: checksum %08x, want %08x", ErrCorrupt, group, got, want)
	}
	return SnapshotMarker{
		Index:              binary.BigEndian.Uint64(v[5:]),
		Term:               binary.BigEndian.Uint64(v[13:]),
		ConfigurationIndex: binary.BigEndian.Uint64(v[21:]),
		Configuration:      append([]byte(nil), v[markerHeader:]...),
	}, nil
}

func readMarker(r pebble.Reader, group uint32) (SnapshotMarker, bool, error) {
	v, found, err := getCopy(r, groupKey(kindMarker, group))
	if err != nil || !found {
		return SnapshotMarker{}, false, err
	}
	m, err := decodeMarker(group, v)
	return m, err == nil, err
}

func checkMarker(group uint32, m SnapshotMarker) error {
	if m.Index == 0 {
		return fmt.Errorf("storage: snapshot marker of group %d has index 0", group)
	}
	if len(m.Configuration) > MaxConfigurationBytes {
		return fmt.Errorf("%w: snapshot marker of group %d: configuration has %d bytes, limit MaxConfigurationBytes %d", ErrTooLarge, group,
			len(m.Configuration), MaxConfigurationBytes)
	}
	return nil
}

// refuseOlder gives ErrSnapshotOlder for a snapshot that the stored marker is ahead of.
func (l *RaftLog) refuseOlder(m SnapshotMarker) error {
	l.mu.RLock()
	have := l.marker
	l.mu.RUnlock()
	if (edge{m.Index, m.Term}).before(have) {
		return fmt.Errorf("%w: group %d has index %d term %d, refused index %d term %d", ErrSnapshotOlder, l.group, have.index, have.term, m.Index, m.Term)
	}
	return nil
}

// SaveSnapshotMarker stores the newest snapshot of a group durably. The same again is fine; an older one is ErrSnapshotOlder.
func (s *Store) SaveSnapshotMarker(group uint32, m SnapshotMarker) error {
	if err := checkMarker(group, m); err != nil {
		return err
	}
	l, err := s.RaftLog(group)
	if err != nil {
		return err
	}
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if err := l.refuseOlder(m); err != nil {
		return err
	}
	b := s.logDB.NewBatch()
	if err := b.Set(groupKey(kindMarker, group), encodeMarker(group, m), nil); err != nil {
		return err
	}
	if err := s.commitLog(group, b, true); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marker = edge{m.Index, m.Term}
	return nil
}

// LoadSnapshotMarker gives the newest marker; ok is false without one. A damaged one is ErrCorrupt.
func (s *Store) LoadSnapshotMarker(group uint32) (m SnapshotMarker, ok bool, err error) {
	if err := s.usable(); err != nil {
		return SnapshotMarker{}, false, err
	}
	return readMarker(s.logDB, group)
}
