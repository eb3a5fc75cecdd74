package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Jitter is how an exponential wait is spread, so that messages that failed together do not return together.
type Jitter uint8

// Jitter kinds. Numbers are part of the state and log formats.
const (
	JitterFull  Jitter = 0 // anywhere in [0, wait]
	JitterEqual Jitter = 1 // half the wait, and anywhere in the other half
	JitterNone  Jitter = 2
)

// JitterKey is what a wait is spread by: the same on every replica and after every restart.
type JitterKey struct {
	Message    [16]byte
	Generation uint64
	Attempt    uint64
}

// jitterDomain keeps these hashes apart from those of other uses of the same key.
const jitterDomain = "sealane/retry/1"

// draw maps the key to a number, evenly over all 64 bits.
func (k JitterKey) draw() uint64 {
	b := make([]byte, 0, len(jitterDomain)+16+16)
	b = append(b, jitterDomain...)
	b = append(b, k.Message[:]...)
	b = binary.BigEndian.AppendUint64(b, k.Generation)
	b = binary.BigEndian.AppendUint64(b, k.Attempt)
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:])
}

// spread maps the key into the part of the wait that jitter may take away. Zero stays zero.
func (j Jitter) spread(d time.Duration, key JitterKey) time.Duration {
	switch j {
	case JitterNone:
		return d
	case JitterEqual:
		half := d / 2
		return half + scaled(d-half, key.draw(), 1<<64-1)
	}
	return scaled(d, key.draw(), 1<<64-1)
}
