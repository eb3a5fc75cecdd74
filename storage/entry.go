package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
)

// ErrCorrupt means that bytes on disk are not what was written: a checksum, a length or an order is wrong. The text names the group and
// index or the file. The node must not serve from it: stop, run Verify, and replace the replica from its peers or the directory from a backup.
var ErrCorrupt = errors.New("storage: corrupt")

// A log entry's value, version 1:
//
//	offset  size  field
//	0       1     version, 1
//	1       4     CRC32C (little endian) of group:u32be, index:u64be and everything from offset 5
//	5       8     term, little endian
//	13      1     type
//	14      8     AppendedAt in unix nanoseconds, little endian, 0 for none
//	22      4     length of the extensions, little endian
//	26      -     extensions, then data
//
// The checksum covers the key, so that an entry that is read from the wrong place is noticed too.
const (
	entryVersion = 1
	entryHeader  = 26
	crcOffset    = 1
	crcFrom      = 5
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func entrySize(l *raft.Log) int { return entryHeader + len(l.Extensions) + len(l.Data) }

// encodeEntry fills dst, which has entrySize bytes.
func encodeEntry(dst []byte, group uint32, l *raft.Log) {
	dst[0] = entryVersion
	binary.LittleEndian.PutUint64(dst[5:], l.Term)
	dst[13] = byte(l.Type)
	var at int64
	if !l.AppendedAt.IsZero() {
		at = l.AppendedAt.UnixNano()
	}
	binary.LittleEndian.PutUint64(dst[14:], uint64(at))
	binary.LittleEndian.PutUint32(dst[22:], uint32(len(l.Extensions)))
	n := entryHeader + copy(dst[entryHeader:], l.Extensions)
	copy(dst[n:], l.Data)
	binary.LittleEndian.PutUint32(dst[crcOffset:], entrySum(group, l.Index, dst[crcFrom:]))
}

func entrySum(group uint32, index uint64, rest []byte) uint32 {
	var where [12]byte
	binary.BigEndian.PutUint32(where[:], group)
	binary.BigEndian.PutUint64(where[4:], index)
	return crc32.Update(crc32.Checksum(where[:], castagnoli), castagnoli, rest)
}

// decodeEntry reads a value into l, which gets its own copy of the bytes. The error matches ErrCorrupt and names group and index.
func decodeEntry(group uint32, index uint64, value []byte, l *raft.Log) error {
	damaged := func(format string, args ...any) error {
		return fmt.Errorf("%w: log of group %d, entry %d: %s", ErrCorrupt, group, index, fmt.Sprintf(format, args...))
	}
	if len(value) < entryHeader {
		return damaged("%d bytes, want at least %d", len(value), entryHeader)
	}
	if value[0] != entryVersion {
		return damaged("entry version %d, want %d", value[0], entryVersion)
	}
	want, got := binary.LittleEndian.Uint32(value[crcOffset:]), entrySum(group, index, value[crcFrom:])
	if want != got {
		return damaged("checksum %08x, want %08x", got, want)
	}
	extensions := uint64(binary.LittleEndian.Uint32(value[22:]))
	if extensions > uint64(len(value)-entryHeader) {
		return damaged("extensions of %d bytes in %d", extensions, len(value)-entryHeader)
	}
	*l = raft.Log{Index: index, Term: binary.LittleEndian.Uint64(value[5:]), Type: raft.LogType(value[13])}
	if at := int64(binary.LittleEndian.Uint64(value[14:])); at != 0 {
		l.AppendedAt = time.Unix(0, at)
	}
	own := append([]byte(nil), value[entryHeader:]...)
	if extensions > 0 {
		l.Extensions = own[:extensions:extensions]
	}
	if data := own[extensions:]; len(data) > 0 {
		l.Data = data
	}
	return nil
}
