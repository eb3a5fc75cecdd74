package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/sealane/sealane/policy"
)

// ErrCorrupt marks state that cannot be what the machine wrote: a record that does not decode or an index entry without its record. The
// shard stops; the state is restored from a replica or by replaying the log into an empty state.
var ErrCorrupt = errors.New("shard: corrupt state")

// recordVersion leads every record, so that a later format can be told apart.
const recordVersion = 1

// encoder appends fields of a record. Numbers are varints; times are zig-zag varints.
type encoder struct{ b []byte }

func newRecord(sizeHint int) encoder {
	return encoder{b: append(make([]byte, 0, sizeHint), recordVersion)}
}

func (e *encoder) uint(v uint64)       { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) u32(v uint32)        { e.uint(uint64(v)) }
func (e *encoder) int(v int64)         { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) time(t policy.Time)  { e.int(int64(t)) }
func (e *encoder) dur(d time.Duration) { e.int(int64(d)) }
func (e *encoder) byte(v byte)         { e.b = append(e.b, v) }
func (e *encoder) text(s string)       { e.uint(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) bytes(v []byte)      { e.uint(uint64(len(v))); e.b = append(e.b, v...) }
func (e *encoder) raw(v []byte)        { e.b = append(e.b, v...) }
func (e *encoder) u64fixed(v uint64)   { e.b = binary.BigEndian.AppendUint64(e.b, v) }

func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
		return
	}
	e.b = append(e.b, 0)
}

// decoder reads what encoder wrote. The first fault sticks; the caller checks finish once.
type decoder struct {
	b    []byte
	what string
	err  error
}

func openRecord(what string, b []byte) decoder {
	d := decoder{b: b, what: what}
	if v := d.byte(); d.err == nil && v != recordVersion {
		d.fail("version %d, this build knows %d", v, recordVersion)
	}
	return d
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s record: %s", ErrCorrupt, d.what, fmt.Sprintf(format, args...))
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("number cut short or too long")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) u32() uint32 {
	v := d.uint()
	if v > 1<<32-1 {
		d.fail("number %d does not fit 32 bits", v)
		return 0
	}
	return uint32(v)
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("number cut short or too long")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) time() policy.Time { return policy.Time(d.int()) }

func (d *decoder) dur() time.Duration { return time.Duration(d.int()) }

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail("cut short")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) bool() bool {
	v := d.byte()
	if v > 1 {
		d.fail("flag is %d", v)
	}
	return v == 1
}

// take returns the next n bytes of the input, not a copy.
func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail("%d bytes wanted, %d left", n, len(d.b))
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() string { return string(d.take(d.uint())) }

func (d *decoder) bytes() []byte { return append([]byte(nil), d.take(d.uint())...) }

func (d *decoder) fixed(dst []byte) { copy(dst, d.take(uint64(len(dst)))) }

func (d *decoder) u64fixed() uint64 {
	v := d.take(8)
	if d.err != nil {
		return 0
	}
	return binary.BigEndian.Uint64(v)
}

// count reads a number of items of at least one byte each, so that a damaged count cannot ask for more memory than the record has.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail("%d items in %d bytes", n, len(d.b))
		return 0
	}
	return int(n)
}

func (d *decoder) finish() error {
	if d.err == nil && len(d.b) != 0 {
		d.fail("%d bytes too many", len(d.b))
	}
	return d.err
}
