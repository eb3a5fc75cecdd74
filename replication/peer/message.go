package peer

//lint:file-ignore SA1019 the library's old fields are part of what it sends, and come back as they were

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// The bodies of frames: Raft's requests. Numbers are uvarints, byte strings have their length before them. Everything that Raft's structures
// hold is carried, whether the present Raft reads it or not.

// Flags in a header: what need not be written twice.
const (
	sameAddr   = 1 << iota // Addr equals ID
	sameLeader             // the field from before headers (Leader, Candidate) equals Addr
	transfer               // RequestVote: the vote is part of a leadership transfer
)

func appendHeader(b []byte, h raft.RPCHeader, old []byte, flags byte) []byte {
	flags |= bit(bytes.Equal(h.Addr, h.ID), sameAddr) | bit(bytes.Equal(old, h.Addr), sameLeader)
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(h.ProtocolVersion))
	b = appendString(b, h.ID)
	if flags&sameAddr == 0 {
		b = appendString(b, h.Addr)
	}
	if flags&sameLeader == 0 {
		b = appendString(b, old)
	}
	return b
}

func (c *cursor) header() (h raft.RPCHeader, old []byte, flags byte) {
	flags = c.flags(sameAddr | sameLeader | transfer)
	version := c.uvarint()
	if version > uint64(raft.ProtocolVersionMax) {
		c.fail()
	}
	h.ProtocolVersion = raft.ProtocolVersion(version)
	h.ID = c.bytes(maxReplicaBytes)
	if h.Addr = h.ID; flags&sameAddr == 0 {
		h.Addr = c.bytes(maxReplicaBytes)
	}
	if old = h.Addr; flags&sameLeader == 0 {
		old = c.bytes(maxReplicaBytes)
	}
	return h, old, flags
}

// isHeartbeat tells Raft's heartbeats from appends that have an entry in front.
func isHeartbeat(q *raft.AppendEntriesRequest) bool {
	return q.Term != 0 && q.PrevLogEntry == 0 && q.PrevLogTerm == 0 && len(q.Entries) == 0 && q.LeaderCommitIndex == 0
}

// entryBytes is about what an entry takes in a frame.
func entryBytes(e *raft.Log) int { return len(e.Data) + len(e.Extensions) + 40 }

// cutEntries gives how many of the entries fit one append; at least one.
func cutEntries(entries []*raft.Log) (count, size int) {
	for i, e := range entries {
		n := entryBytes(e)
		if i > 0 && size+n > maxAppendBytes {
			return i, size
		}
		size += n
	}
	return len(entries), size
}

func appendAppend(b []byte, q *raft.AppendEntriesRequest) []byte {
	b = appendHeader(b, q.RPCHeader, q.Leader, 0)
	b = appendUvarints(b, q.Term, q.PrevLogEntry, q.PrevLogTerm, q.LeaderCommitIndex, uint64(len(q.Entries)))
	for _, e := range q.Entries {
		b = appendUvarints(b, e.Index, e.Term)
		b = append(b, byte(e.Type), bit(!e.AppendedAt.IsZero(), 1))
		if !e.AppendedAt.IsZero() {
			b = binary.AppendVarint(b, e.AppendedAt.Unix())
			b = binary.AppendUvarint(b, uint64(e.AppendedAt.Nanosecond()))
		}
		b = appendString(b, e.Data)
		b = appendString(b, e.Extensions)
	}
	return b
}

// decodeAppend keeps pointing into b.
func decodeAppend(b []byte) (*raft.AppendEntriesRequest, error) {
	c := cursor{b: b}
	q := &raft.AppendEntriesRequest{}
	var flags byte
	q.RPCHeader, q.Leader, flags = c.header()
	q.Term, q.PrevLogEntry, q.PrevLogTerm, q.LeaderCommitIndex = c.uvarint(), c.uvarint(), c.uvarint(), c.uvarint()
	n := c.uvarint()
	if n > maxEntries || n > uint64(len(c.b))/6 || flags&transfer != 0 {
		c.fail()
	}
	if n > 0 && !c.bad {
		entries := make([]raft.Log, n)
		q.Entries = make([]*raft.Log, n)
		for i := range entries {
			c.entry(&entries[i])
			q.Entries[i] = &entries[i]
		}
	}
	if !c.done() {
		return nil, fmt.Errorf("%w: append", ErrMalformed)
	}
	return q, nil
}

func (c *cursor) entry(e *raft.Log) {
	e.Index, e.Term = c.uvarint(), c.uvarint()
	e.Type = raft.LogType(c.byte())
	if c.flags(1) != 0 {
		seconds, nanos := c.varint(), c.uvarint()
		if nanos >= uint64(time.Second) {
			c.fail()
			return
		}
		e.AppendedAt = time.Unix(seconds, int64(nanos))
		if e.AppendedAt.IsZero() {
			c.fail() // zero has its own form
			return
		}
	}
	e.Data, e.Extensions = c.bytes(maxFrameBytes), c.bytes(maxFrameBytes)
}

func appendVote(b []byte, q *raft.RequestVoteRequest) []byte {
	b = appendHeader(b, q.RPCHeader, q.Candidate, bit(q.LeadershipTransfer, transfer))
	return appendUvarints(b, q.Term, q.LastLogIndex, q.LastLogTerm)
}

func decodeVote(b []byte) (*raft.RequestVoteRequest, error) {
	c := cursor{b: b}
	q := &raft.RequestVoteRequest{}
	var flags byte
	q.RPCHeader, q.Candidate, flags = c.header()
	q.LeadershipTransfer = flags&transfer != 0
	q.Term, q.LastLogIndex, q.LastLogTerm = c.uvarint(), c.uvarint(), c.uvarint()
	if !c.done() {
		return nil, fmt.Errorf("%w: vote", ErrMalformed)
	}
	return q, nil
}

func appendPreVote(b []byte, q *raft.RequestPreVoteRequest) []byte {
	b = appendHeader(b, q.RPCHeader, q.Addr, 0)
	return appendUvarints(b, q.Term, q.LastLogIndex, q.LastLogTerm)
}

func decodePreVote(b []byte) (*raft.RequestPreVoteRequest, error) {
	c := cursor{b: b}
	q := &raft.RequestPreVoteRequest{}
	h, _, flags := c.header()
	q.RPCHeader = h
	q.Term, q.LastLogIndex, q.LastLogTerm = c.uvarint(), c.uvarint(), c.uvarint()
	if !c.done() || flags&sameLeader == 0 || flags&transfer != 0 {
		return nil, fmt.Errorf("%w: pre-vote", ErrMalformed)
	}
	return q, nil
}

func appendTimeoutNow(b []byte, q *raft.TimeoutNowRequest) []byte {
	return appendHeader(b, q.RPCHeader, q.Addr, 0)
}

func decodeTimeoutNow(b []byte) (*raft.TimeoutNowRequest, error) {
	c := cursor{b: b}
	h, _, flags := c.header()
	if !c.done() || flags&sameLeader == 0 || flags&transfer != 0 {
		return nil, fmt.Errorf("%w: transfer", ErrMalformed)
	}
	return &raft.TimeoutNowRequest{RPCHeader: h}, nil
}

func appendSnapshot(b []byte, q *raft.InstallSnapshotRequest) []byte {
	b = appendHeader(b, q.RPCHeader, q.Leader, 0)
	b = binary.AppendVarint(b, int64(q.SnapshotVersion))
	b = appendUvarints(b, q.Term, q.LastLogIndex, q.LastLogTerm)
	b = appendString(b, q.Peers)
	b = appendString(b, q.Configuration)
	return appendUvarints(b, q.ConfigurationIndex, uint64(q.Size))
}

func decodeSnapshot(b []byte) (*raft.InstallSnapshotRequest, error) {
	c := cursor{b: b}
	q := &raft.InstallSnapshotRequest{}
	var flags byte
	q.RPCHeader, q.Leader, flags = c.header()
	q.SnapshotVersion = raft.SnapshotVersion(c.varint())
	q.Term, q.LastLogIndex, q.LastLogTerm = c.uvarint(), c.uvarint(), c.uvarint()
	q.Peers, q.Configuration = c.bytes(maxPackedBytes), c.bytes(maxPackedBytes)
	q.ConfigurationIndex = c.uvarint()
	size := c.uvarint()
	q.Size = int64(size)
	if !c.done() || size > 1<<62 || flags&transfer != 0 {
		return nil, fmt.Errorf("%w: snapshot", ErrMalformed)
	}
	return q, nil
}

// decodeRequest reads the body of a request of a control or data stream.
func decodeRequest(k kind, body []byte) (command any, header raft.RPCHeader, err error) {
	switch k {
	case kindAppend:
		q, err := decodeAppend(body)
		if err != nil {
			return nil, raft.RPCHeader{}, err
		}
		return q, q.RPCHeader, nil
	case kindVote:
		q, err := decodeVote(body)
		if err != nil {
			return nil, raft.RPCHeader{}, err
		}
		return q, q.RPCHeader, nil
	case kindPreVote:
		q, err := decodePreVote(body)
		if err != nil {
			return nil, raft.RPCHeader{}, err
		}
		return q, q.RPCHeader, nil
	case kindTimeoutNow:
		q, err := decodeTimeoutNow(body)
		if err != nil {
			return nil, raft.RPCHeader{}, err
		}
		return q, q.RPCHeader, nil
	}
	return nil, raft.RPCHeader{}, fmt.Errorf("%w: kind %d", ErrMalformed, k)
}
