package replication

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Limits of the envelope. They are properties of the format: a decoder refuses what an encoder can never have written.
const (
	maxNodeIDBytes     = 255
	maxDecodedCommands = 4096 // as the schema says
)

// Field numbers of sealane.log.v1.Entry.
const (
	fieldStamp    protowire.Number = 1
	fieldNodeID   protowire.Number = 2
	fieldBootID   protowire.Number = 3
	fieldCommands protowire.Number = 4
	fieldDigest   protowire.Number = 5
)

// commandTag is the one byte that begins a command.
const commandTag = byte(fieldCommands)<<3 | byte(protowire.BytesType)

// Entry is one decoded log entry: commands that apply in order, each seeing the effects of those before, all at one stamped time.
type Entry struct {
	Index  uint64 // position in the group's log, from 1
	Term   uint64 // Raft term in which it was appended
	Stamp  int64  // unix nanoseconds, stamped by the proposer when it packed the entry
	NodeID string // node that proposed it, 1 to 255 bytes
	BootID uint64 // drawn anew at every start of that node's process
	// Digest marks an entry at which every replica computes the digest of its state: the version of how, 1 so far; 0 in any other entry. A mark
	// has no commands and never reaches the state machine.
	Digest uint32
	// Commands in apply order, opaque here. Empty in leader-start and read-barrier entries and marks. They alias the entry's bytes and are
	// valid only as long as those are; in StateMachine.Apply, only during the call.
	Commands [][]byte
}

// AppendEntry appends the wire form of sealane.log.v1.Entry to dst and returns it. Index and Term are Raft's and not part of it. Zero
// fields are left out, as proto3 does, so that the bytes equal what the generated type marshals.
func AppendEntry(dst []byte, e *Entry) []byte {
	dst = appendHeader(dst, e.Stamp, e.NodeID, e.BootID)
	for _, c := range e.Commands {
		dst = appendCommand(dst, c)
	}
	if e.Digest != 0 {
		dst = appendDigest(dst, e.Digest)
	}
	return dst
}

func appendDigest(dst []byte, version uint32) []byte {
	dst = protowire.AppendTag(dst, fieldDigest, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(version))
}

func appendHeader(dst []byte, stamp int64, nodeID string, bootID uint64) []byte {
	if stamp != 0 {
		dst = protowire.AppendTag(dst, fieldStamp, protowire.Fixed64Type)
		dst = protowire.AppendFixed64(dst, uint64(stamp))
	}
	if nodeID != "" {
		dst = protowire.AppendTag(dst, fieldNodeID, protowire.BytesType)
		dst = protowire.AppendString(dst, nodeID)
	}
	if bootID != 0 {
		dst = protowire.AppendTag(dst, fieldBootID, protowire.Fixed64Type)
		dst = protowire.AppendFixed64(dst, bootID)
	}
	return dst
}

func appendCommand(dst, command []byte) []byte {
	dst = protowire.AppendTag(dst, fieldCommands, protowire.BytesType)
	return protowire.AppendBytes(dst, command)
}

// headerBytes bounds what appendHeader and appendDigest write; commandOverhead bounds what appendCommand adds to a command's own bytes.
const (
	headerBytes     = 9 + 3 + maxNodeIDBytes + 9 + 6
	commandOverhead = 1 + 5
)

// DecodeEntry reads the wire form. It is strict: an unknown field, a repeated scalar, a missing node id or an over-long list is ErrEntry,
// because an entry that is not understood in full must stop the group and not be half applied. The commands alias data.
func DecodeEntry(data []byte) (Entry, error) {
	var e Entry
	err := decodeEntry(data, &e)
	return e, err
}

// decodeEntry fills e, reusing its Commands slice and, when equal, its NodeID string.
func decodeEntry(data []byte, e *Entry) error {
	e.Stamp, e.BootID, e.Digest, e.Commands = 0, 0, 0, e.Commands[:0]
	var seen [fieldDigest + 1]bool
	for rest := data; len(rest) > 0; {
		if rest[0] == commandTag && len(e.Commands) < maxDecodedCommands {
			// The common case, at a third of the cost.
			if c, n := protowire.ConsumeBytes(rest[1:]); n >= 0 {
				e.Commands = append(e.Commands, c)
				rest = rest[1+n:]
				continue
			}
		}
		field, wire, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return fmt.Errorf("%w: offset %d: %w", ErrEntry, len(data)-len(rest), protowire.ParseError(n))
		}
		n2, err := decodeField(rest[n:], field, wire, e, &seen)
		if err != nil {
			return fmt.Errorf("%w: offset %d: field %d: %w", ErrEntry, len(data)-len(rest), field, err)
		}
		rest = rest[n+n2:]
	}
	if !seen[fieldNodeID] {
		return fmt.Errorf("%w: node_id is missing", ErrEntry)
	}
	if e.Digest != 0 && len(e.Commands) > 0 {
		return fmt.Errorf("%w: a digest mark has %d commands, want none", ErrEntry, len(e.Commands))
	}
	return nil
}

// decodeField reads the value of one field and returns the number of bytes it took.
func decodeField(rest []byte, field protowire.Number, wire protowire.Type, e *Entry, seen *[fieldDigest + 1]bool) (int, error) {
	want := protowire.BytesType
	switch field {
	case fieldStamp, fieldBootID:
		want = protowire.Fixed64Type
	case fieldDigest:
		want = protowire.VarintType
	case fieldNodeID, fieldCommands:
	default:
		return 0, errors.New("unknown; written by a newer version?")
	}
	if wire != want {
		return 0, fmt.Errorf("wire type %d, want %d", wire, want)
	}
	if field != fieldCommands {
		if seen[field] {
			return 0, errors.New("appears twice")
		}
		seen[field] = true
	}
	if want == protowire.VarintType {
		v, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		if v != digestVersion {
			return 0, fmt.Errorf("digest version %d, want %d; written by a newer version?", v, digestVersion)
		}
		e.Digest = digestVersion
		return n, nil
	}
	if want == protowire.Fixed64Type {
		v, n := protowire.ConsumeFixed64(rest)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		if field == fieldStamp {
			e.Stamp = int64(v)
		} else {
			e.BootID = v
		}
		return n, nil
	}
	v, n := protowire.ConsumeBytes(rest)
	if n < 0 {
		return 0, protowire.ParseError(n)
	}
	if field == fieldCommands {
		if len(e.Commands) == maxDecodedCommands {
			return 0, fmt.Errorf("more than %d commands", maxDecodedCommands)
		}
		e.Commands = append(e.Commands, v)
		return n, nil
	}
	if len(v) == 0 || len(v) > maxNodeIDBytes {
		return 0, fmt.Errorf("node_id has %d bytes, want 1 to %d", len(v), maxNodeIDBytes)
	}
	if !utf8.Valid(v) {
		return 0, errors.New("node_id is not UTF-8")
	}
	if e.NodeID != string(v) {
		e.NodeID = string(v)
	}
	return n, nil
}
