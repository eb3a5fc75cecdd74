package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrStream means that a received state is damaged, cut short or not for this group. Nothing was changed; ask for it again. The text says
// what is wrong and where.
var ErrStream = errors.New("storage: stream of a state is unusable")

// The state of one group, as it travels from one store to another. All numbers are big-endian.
//
//	offset  bytes  content
//	0       8      streamMagic
//	8       4      streamVersion
//	12      4      FormatVersion of the sending store
//	16      4      format of its tables (formatMajor)
//	20      4      group
//	24      8      applied index of the state
//	32      4      number of tables, 1 to maxStreamTables
//	36      12 n   for each table: bytes (u64), CRC32C of its bytes (u32)
//	        4      CRC32C of everything before
//	        ...    the tables, one after another, in the order of their keys
//	        32     SHA-256 of everything before
//
// The tables are Pebble's, without references to other files. Together they hold every key of the group's range in the state instance,
// the applied index first.
const (
	streamMagic     = "SEALSNAP"
	streamVersion   = 1
	streamFixed     = 36
	streamPerTable  = 12
	streamTrailer   = 32
	maxStreamTables = 1 << 16
	// maxTableBytes bounds one table of a stream: a few times what a sender aims at, since one value may be large.
	maxTableBytes = 1 << 30
)

// streamHeader says what a stream holds.
type streamHeader struct {
	group   uint32
	applied uint64
	tables  []streamTable
}

type streamTable struct {
	bytes uint64
	sum   uint32
}

func (h streamHeader) encode() []byte {
	b := make([]byte, 0, headerBytes(len(h.tables)))
	b = append(b, streamMagic...)
	b = binary.BigEndian.AppendUint32(b, streamVersion)
	b = binary.BigEndian.AppendUint32(b, FormatVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(formatMajor))
	b = binary.BigEndian.AppendUint32(b, h.group)
	b = binary.BigEndian.AppendUint64(b, h.applied)
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.tables)))
	for _, t := range h.tables {
		b = binary.BigEndian.AppendUint64(b, t.bytes)
		b = binary.BigEndian.AppendUint32(b, t.sum)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// headerBytes gives the length of a header of so many tables.
func headerBytes(tables int) int { return streamFixed + tables*streamPerTable + 4 }

// bytes gives the length of the whole stream.
func (h streamHeader) bytes() int64 {
	return int64(headerBytes(len(h.tables))) + int64(h.tableBytes()) + streamTrailer
}

func (h streamHeader) tableBytes() uint64 {
	var n uint64
	for _, t := range h.tables {
		n += t.bytes
	}
	return n
}

// streamTables reads the number of tables out of the first streamFixed bytes. Magic and versions come first, so that a stream of another
// version is called that and not damaged.
func streamTables(fixed []byte, group uint32) (int, error) {
	if string(fixed[:8]) != streamMagic {
		return 0, fmt.Errorf("%w: it starts with %x, want %q", ErrStream, fixed[:8], streamMagic)
	}
	for _, f := range []struct {
		name string
		at   int
		want uint32
	}{
		{"stream", 8, streamVersion},
		{"store", 12, FormatVersion},
		{"tables", 16, uint32(formatMajor)},
	} {
		if got := binary.BigEndian.Uint32(fixed[f.at:]); got != f.want {
			return 0, fmt.Errorf("%w: %w: format of the %s is %d, this program knows %d", ErrStream, ErrFormatVersion, f.name, got, f.want)
		}
	}
	if got := binary.BigEndian.Uint32(fixed[20:]); got != group {
		return 0, fmt.Errorf("%w: it is of group %d, want group %d", ErrStream, got, group)
	}
	n := binary.BigEndian.Uint32(fixed[32:])
	if n == 0 || n > maxStreamTables {
		return 0, fmt.Errorf("%w: it has %d tables, want 1 to %d", ErrStream, n, maxStreamTables)
	}
	return int(n), nil
}

// decodeHeader reads a whole header.
func decodeHeader(b []byte, group uint32) (streamHeader, error) {
	if len(b) < streamFixed {
		return streamHeader{}, fmt.Errorf("%w: header has %d bytes, want at least %d", ErrStream, len(b), streamFixed)
	}
	n, err := streamTables(b, group)
	if err != nil {
		return streamHeader{}, err
	}
	if len(b) != headerBytes(n) {
		return streamHeader{}, fmt.Errorf("%w: header has %d bytes, want %d for %d tables", ErrStream, len(b), headerBytes(n), n)
	}
	body := b[:len(b)-4]
	if got, want := crc32.Checksum(body, castagnoli), binary.BigEndian.Uint32(b[len(b)-4:]); got != want {
		return streamHeader{}, fmt.Errorf("%w: header has checksum %08x, want %08x", ErrStream, got, want)
	}
	h := streamHeader{group: group, applied: binary.BigEndian.Uint64(b[24:])}
	if h.applied == 0 {
		return streamHeader{}, fmt.Errorf("%w: applied index is 0", ErrStream)
	}
	for at := streamFixed; at < len(body); at += streamPerTable {
		t := streamTable{bytes: binary.BigEndian.Uint64(b[at:]), sum: binary.BigEndian.Uint32(b[at+8:])}
		if t.bytes == 0 || t.bytes > maxTableBytes {
			return streamHeader{}, fmt.Errorf("%w: table %d has %d bytes, want 1 to %d", ErrStream, len(h.tables), t.bytes, maxTableBytes)
		}
		h.tables = append(h.tables, t)
	}
	return h, nil
}
