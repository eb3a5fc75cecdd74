package shard

import (
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

const (
	idVersion = 1
	// idBytes is version 1, incarnation 8, shard 2, milliseconds 6, random 10, checksum 3: 30 bytes, 48 base32 characters.
	idBytes = 30
	// IDPrefix starts the text form of every message id.
	IDPrefix = "msg_"
	// IDTextLen is the length of the text form, prefix included.
	IDTextLen = len(IDPrefix) + idBytes*8/5
)

// ErrInvalidID is returned for a text or a byte string that is not a message id: wrong length, alphabet, version or checksum. The caller
// made a mistake or the id was damaged on its way; nothing can be looked up.
var ErrInvalidID = errors.New("shard: invalid message id")

// ErrInvalidPosition is returned for a text that is not `shard:index`.
var ErrInvalidPosition = errors.New("shard: invalid position")

// idAlphabet is Crockford's, lower case: no letter that reads as a digit.
var idText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

var idSums = crc32.MakeTable(crc32.Castagnoli)

// MessageID is a self-routing message id (R151): any node reads the shard from it, and a damaged one is refused without a look-up.
// It is comparable; the zero value is not a valid id.
type MessageID [idBytes]byte

// LocalID is the part of a message id that is unique inside its shard: 48-bit milliseconds, then 80 random bits. Keys use it.
type LocalID [16]byte

// NewMessageID makes an id from values the caller drew: the core has neither clock nor randomness. unixMillis keeps 48 bits.
func NewMessageID(incarnation uint64, shard uint16, unixMillis int64, random [10]byte) MessageID {
	var id MessageID
	id[0] = idVersion
	binary.BigEndian.PutUint64(id[1:], incarnation)
	binary.BigEndian.PutUint16(id[9:], shard)
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(unixMillis))
	copy(id[11:17], ms[2:])
	copy(id[17:27], random[:])
	id.seal()
	return id
}

func (id *MessageID) seal() {
	sum := crc32.Checksum(id[:27], idSums)
	id[27], id[28], id[29] = byte(sum>>16), byte(sum>>8), byte(sum)
}

// IDFromBytes checks and returns the id held in b.
func IDFromBytes(b []byte) (MessageID, error) {
	var id MessageID
	if len(b) != idBytes {
		return id, fmt.Errorf("%w: %d bytes, want %d", ErrInvalidID, len(b), idBytes)
	}
	copy(id[:], b)
	return id, id.Validate()
}

// ParseID reads the text form.
func ParseID(s string) (MessageID, error) {
	var id MessageID
	if !strings.HasPrefix(s, IDPrefix) || len(s) != IDTextLen {
		return id, fmt.Errorf("%w: want %q and %d characters", ErrInvalidID, IDPrefix, IDTextLen-len(IDPrefix))
	}
	// The decoder skips line breaks: a text with one is shorter than an id.
	if n, err := idText.Decode(id[:], []byte(s[len(IDPrefix):])); err != nil || n != idBytes {
		return MessageID{}, fmt.Errorf("%w: a character outside the alphabet", ErrInvalidID)
	}
	return id, id.Validate()
}

// Validate checks version and checksum.
func (id MessageID) Validate() error {
	if id[0] != idVersion {
		return fmt.Errorf("%w: version %d, this build knows %d", ErrInvalidID, id[0], idVersion)
	}
	want := id
	want.seal()
	if want != id {
		return fmt.Errorf("%w: checksum does not match", ErrInvalidID)
	}
	return nil
}

func (id MessageID) String() string { return IDPrefix + idText.EncodeToString(id[:]) }

// Incarnation is the cluster incarnation the id was made in.
func (id MessageID) Incarnation() uint64 { return binary.BigEndian.Uint64(id[1:]) }

// Shard is the shard that holds the message.
func (id MessageID) Shard() uint16 { return binary.BigEndian.Uint16(id[9:]) }

// UnixMillis is the time at which the id was made, in milliseconds.
func (id MessageID) UnixMillis() int64 {
	var ms [8]byte
	copy(ms[2:], id[11:17])
	return int64(binary.BigEndian.Uint64(ms[:]))
}

// Local is the part that is unique inside the shard.
func (id MessageID) Local() (l LocalID) {
	copy(l[:], id[11:27])
	return l
}

// IsZero tells whether the id was never set.
func (id MessageID) IsZero() bool { return id == MessageID{} }

// Position is a place in a shard's log. Inside one cluster incarnation it is comparable only within one shard (R157).
type Position struct {
	Shard uint16
	Index uint64
}

func (p Position) String() string {
	return strconv.FormatUint(uint64(p.Shard), 10) + ":" + strconv.FormatUint(p.Index, 10)
}

// ParsePosition reads the text form `shard:index`.
func ParsePosition(s string) (Position, error) {
	left, right, ok := strings.Cut(s, ":")
	if !ok {
		return Position{}, fmt.Errorf("%w: %q, want shard:index", ErrInvalidPosition, clip(s))
	}
	n, err := strconv.ParseUint(left, 10, 16)
	if err != nil {
		return Position{}, fmt.Errorf("%w: shard %q is not a number up to 65535", ErrInvalidPosition, clip(left))
	}
	i, err := strconv.ParseUint(right, 10, 64)
	if err != nil {
		return Position{}, fmt.Errorf("%w: index %q is not a number", ErrInvalidPosition, clip(right))
	}
	return Position{Shard: uint16(n), Index: i}, nil
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
