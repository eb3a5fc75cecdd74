package peer

import "encoding/binary"

// cursor reads an encoding and remembers the first thing that did not fit; everything read after that is zero.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) fail() { c.b, c.bad = nil, true }

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) fixed64() uint64 {
	if len(c.b) < 8 {
		c.fail()
		return 0
	}
	v := binary.BigEndian.Uint64(c.b)
	c.b = c.b[8:]
	return v
}

func (c *cursor) byte() byte {
	if len(c.b) == 0 {
		c.fail()
		return 0
	}
	v := c.b[0]
	c.b = c.b[1:]
	return v
}

// flags reads a byte of which only the bits of known may be set.
func (c *cursor) flags(known byte) byte {
	v := c.byte()
	if v&^known != 0 {
		c.fail()
		return 0
	}
	return v
}

// bytes reads a length and as many bytes, at most limit; nil for none. They point into the encoding.
func (c *cursor) bytes(limit int) []byte {
	n := c.uvarint()
	if n > uint64(limit) || n > uint64(len(c.b)) {
		c.fail()
		return nil
	}
	if n == 0 {
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

// done tells whether everything was read and fitted.
func (c *cursor) done() bool { return !c.bad && len(c.b) == 0 }

func appendString[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func appendUvarints(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// bit is mask if set, else 0.
func bit(set bool, mask byte) byte {
	if set {
		return mask
	}
	return 0
}
