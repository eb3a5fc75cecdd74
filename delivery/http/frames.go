package webhook

import "encoding/binary"

// HTTP/2 as far as evidence needs it (RFC 9113, sections 4.1, 6.4, 6.8 and 7).
const (
	frameHeaderBytes   = 9
	clientPrefaceBytes = 24
	frameData          = 0x0
	frameHeaders       = 0x1
	frameReset         = 0x3
	frameGoAway        = 0x7
	flagEndStream      = 0x1
	codeRefusedStream  = 0x7
	streamMask         = 1<<31 - 1
)

// frames follows one direction of an HTTP/2 connection. The frames themselves are the evidence for rows H17 and H18: the library's errors for
// them are private or only text.
type frames struct {
	skip  int // bytes that are not looked at: the client preface, the rest of a payload
	head  [frameHeaderBytes]byte
	have  int // bytes of head
	want  int // bytes of the payload that are looked at
	taken int // of those, how many are in payload
	part  [8]byte
}

// seen is what a stretch of bytes contained. Where several frames of a kind were in it, the last counts.
type seen struct {
	headers   bool // a HEADERS frame begins
	stream    uint32
	ended     bool // END_STREAM was set
	reset     bool
	resetOn   uint32
	resetCode uint32
	goAway    bool
	lastID    uint32
}

// scan takes the next bytes of the direction, however they are cut.
func (f *frames) scan(p []byte) (out seen) {
	for len(p) > 0 {
		switch {
		case f.taken < f.want:
			n := copy(f.part[f.taken:f.want], p)
			f.taken += n
			p = p[n:]
			if f.taken == f.want {
				f.payload(&out)
				f.want, f.taken = 0, 0
			}
		case f.skip > 0:
			n := min(f.skip, len(p))
			f.skip -= n
			p = p[n:]
		default:
			n := copy(f.head[f.have:], p)
			f.have += n
			p = p[n:]
			if f.have == frameHeaderBytes {
				f.header(&out)
				f.have = 0
			}
		}
	}
	return out
}

// header reads a complete frame header.
func (f *frames) header(out *seen) {
	length := int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
	kind, flags := f.head[3], f.head[4]
	switch kind {
	case frameHeaders:
		out.headers, out.stream = true, f.stream()
		out.ended = out.ended || flags&flagEndStream != 0
	case frameData:
		out.ended = out.ended || flags&flagEndStream != 0
	case frameReset:
		f.want = min(4, length)
	case frameGoAway:
		f.want = min(8, length)
	}
	f.skip = length - f.want
}

func (f *frames) stream() uint32 { return binary.BigEndian.Uint32(f.head[5:]) & streamMask }

// payload reads the first bytes of a frame that says something is over. One that is too short says nothing.
func (f *frames) payload(out *seen) {
	switch {
	case f.head[3] == frameReset && f.want == 4:
		out.reset, out.resetOn, out.resetCode = true, f.stream(), binary.BigEndian.Uint32(f.part[:])
	case f.head[3] == frameGoAway && f.want == 8:
		out.goAway, out.lastID = true, binary.BigEndian.Uint32(f.part[:])&streamMask
	}
}
