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
	JitterFull  Jitter = 0 // anywhere from 0 to the wait; the default
	JitterEqual Jitter = 1 // half the wait, and anywhere in the other half
	JitterNone  Jitter = 2 // the wait itself
)

// JitterKey is what a wait is spread by: the same on every replica and after every restart.
type JitterKey struct {
	Message    [16]byte // the part of the message id that is the same in every encoding of it
	Generation uint64
	Attempt    uint64
	Export     bool // Attempt numbers the exports of a dead letter: a domain of its own, so that they do not move in step (R179)
}

// The domains keep these hashes apart from each other and from every other use of the same numbers. They carry the version of the encoding:
// changing a byte of it changes every replica's decisions, so a change takes a new name beside the old one.
const (
	retryDomain  = "sealane/retry/1"
	exportDomain = "sealane/export/1"
)

// draw maps the key to a number, evenly over all 64 bits: the first 8 bytes of SHA-256 over the domain, the 16 bytes of Message, then
// Generation and Attempt, each 8 bytes, all big-endian.
func (k JitterKey) draw() uint64 {
	domain := retryDomain
	if k.Export {
		domain = exportDomain
	}
	b := make([]byte, 0, len(exportDomain)+16+8+8)
	b = append(b, domain...)
	b = append(b, k.Message[:]...)
	b = binary.BigEndian.AppendUint64(b, k.Generation)
	b = binary.BigEndian.AppendUint64(b, k.Attempt)
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:])
}

// spread maps the key into the part of a wait of d >= 0 that jitter may take away: [0, d] for full, [d/2, d] for equal. Zero stays zero.
func (j Jitter) spread(d time.Duration, key JitterKey) time.Duration {
	switch j {
	case JitterNone:
		return d
	case JitterEqual:
		half := d / 2
		return half + scaled(d-half, key.draw())
	}
	return scaled(d, key.draw())
}
