package peer

import (
	"encoding/binary"
	"fmt"
)

// A message on a control or data stream is a row of frames, each:
//
//	offset  size  what
//	0       4     bytes that follow, big endian
//	4       1     kind; the top bit marks an answer
//	5       1     flags: bit 0, somebody waits for it
//	6       4     group
//	10      8     number of the call, chosen by the caller, given back in the answer
//	18      8     FNV-1a of the replica id that is meant; 0 in answers
//	26            body
const frameHeader = 26

type kind byte

const (
	kindAppend kind = 1 + iota
	kindVote
	kindPreVote
	kindTimeoutNow
	kindPing
	kindSnapshot          // first message of a snapshot stream
	kindSnapshotBeat      // the receiver's count of bytes consumed
	kindAnswer       kind = 0x80
)

const flagUrgent = 1

// frame is one decoded frame. Its body points into the message.
type frame struct {
	kind   kind
	urgent bool
	group  uint32
	call   uint64
	target uint64
	body   []byte
}

// newFrame begins a frame with room for a body of about size bytes, which the caller appends before seal.
func newFrame(size int) []byte { return make([]byte, frameHeader, frameHeader+size) }

// seal writes the header in front of the body.
func seal(b []byte, f frame) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	b[4] = byte(f.kind)
	b[5] = 0
	if f.urgent {
		b[5] = flagUrgent
	}
	binary.BigEndian.PutUint32(b[6:], f.group)
	binary.BigEndian.PutUint64(b[10:], f.call)
	binary.BigEndian.PutUint64(b[18:], f.target)
	return b
}

// walkFrames calls visit for each frame of a message and stops at the first that is not whole.
func walkFrames(b []byte, visit func(frame)) error {
	for len(b) > 0 {
		if len(b) < frameHeader {
			return fmt.Errorf("%w: frame of %d bytes, a header has %d", ErrMalformed, len(b), frameHeader)
		}
		size := uint64(binary.BigEndian.Uint32(b)) + 4
		if size < frameHeader || size > maxFrameBytes || size > uint64(len(b)) {
			return fmt.Errorf("%w: frame says it has %d bytes, want %d to %d", ErrMalformed, size, frameHeader, min(maxFrameBytes, len(b)))
		}
		if b[5]&^flagUrgent != 0 {
			return fmt.Errorf("%w: frame with flags %#x", ErrMalformed, b[5])
		}
		visit(frame{
			kind: kind(b[4]), urgent: b[5]&flagUrgent != 0, group: binary.BigEndian.Uint32(b[6:]),
			call: binary.BigEndian.Uint64(b[10:]), target: binary.BigEndian.Uint64(b[18:]), body: b[frameHeader:size:size],
		})
		b = b[size:]
	}
	return nil
}
