package storage

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// OverwriteEntry changes the stored bytes of one entry behind the store's back; nil removes it. Pebble's checksums are right afterwards:
// only ours can notice.
func OverwriteEntry(t *testing.T, fs vfs.FS, dir string, group uint32, index uint64, change func([]byte) []byte) {
	t.Helper()
	Overwrite(t, fs, fs.PathJoin(dir, logName), entryKey(group, index), change)
}

// Overwrite changes one key of a Pebble database.
func Overwrite(t *testing.T, fs vfs.FS, path string, key []byte, change func([]byte) []byte) {
	t.Helper()
	db, err := pebble.Open(path, &pebble.Options{FS: fs, FormatMajorVersion: formatMajor, Logger: silent{}})
	if err != nil {
		t.Fatal(err)
	}
	value, _, err := getCopy(db, key)
	if err != nil {
		t.Fatal(err)
	}
	if value = change(value); value == nil {
		err = db.Delete(key, pebble.Sync)
	} else {
		err = db.Set(key, value, pebble.Sync)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// StateKey gives a key as it is in the state instance; without key that of the applied index.
func StateKey(group uint32, key string) []byte { return append(groupKey(kindGroup, group), key...) }

// MarkerKey and SentinelKey give keys of the log instance.
func MarkerKey(group uint32) []byte   { return groupKey(kindMarker, group) }
func SentinelKey(group uint32) []byte { return groupKey(kindSentinel, group) }

// PendingKey gives the key of a pending install in the log instance.
func PendingKey(group uint32) []byte { return groupKey(kindPending, group) }

// SetTableBytes sets how large an export makes a table.
func (s *Store) SetTableBytes(n uint64) { s.spool.tableBytes = n }

// DecodePending and DecodeHeader decode and encode again what they accept.
func DecodePending(group uint32, v []byte) ([]byte, error) {
	p, err := decodePending(group, v)
	if err != nil {
		return nil, err
	}
	return encodePending(group, p), nil
}

// DecodeHeader gives the header as it would be written.
func DecodeHeader(v []byte, group uint32) ([]byte, error) {
	h, err := decodeHeader(v, group)
	if err != nil {
		return nil, err
	}
	return h.encode(), nil
}

// SpoolNames lists what lies in the directory for states on their way.
func (s *Store) SpoolNames(t testing.TB) []string {
	t.Helper()
	names, err := s.opts.fs().List(s.spoolDir())
	if err != nil && !isNotExist(err) {
		t.Fatal(err)
	}
	return names
}

// SomePending is an encoded intent.
func SomePending(group uint32) []byte {
	return encodePending(group, pendingInstall{spool: 3, applied: 40, marker: SnapshotMarker{Index: 38, Term: 2, Configuration: []byte("c"), ConfigurationIndex: 5}})
}
