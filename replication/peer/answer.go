package peer

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/raft"
)

// The body of an answer: a code; then, for codeOK, flags and what the kind of request asks for, else a text for people.

const (
	answerYes     = 1 << iota // Success, Granted
	answerNoPause             // AppendEntriesResponse.NoRetryBackoff
)

// appendFailure encodes an answer that is an error.
func appendFailure(b []byte, c code, text string) []byte {
	return append(append(b, byte(c)), harmless(text)...)
}

// appendAnswer encodes what Raft answered.
func appendAnswer(b []byte, r raft.RPCResponse) []byte {
	if r.Error != nil {
		return appendFailure(b, codeRemote, r.Error.Error())
	}
	switch p := r.Response.(type) {
	case *raft.AppendEntriesResponse:
		b = append(b, byte(codeOK), bit(p.Success, answerYes)|bit(p.NoRetryBackoff, answerNoPause))
		return appendUvarints(appendRPCHeader(b, p.RPCHeader), p.Term, p.LastLog)
	case *raft.RequestVoteResponse:
		b = append(b, byte(codeOK), bit(p.Granted, answerYes))
		return appendString(binary.AppendUvarint(appendRPCHeader(b, p.RPCHeader), p.Term), p.Peers)
	case *raft.RequestPreVoteResponse:
		b = append(b, byte(codeOK), bit(p.Granted, answerYes))
		return binary.AppendUvarint(appendRPCHeader(b, p.RPCHeader), p.Term)
	case *raft.TimeoutNowResponse:
		return appendRPCHeader(append(b, byte(codeOK), 0), p.RPCHeader)
	case *raft.InstallSnapshotResponse:
		b = append(b, byte(codeOK), bit(p.Success, answerYes))
		return binary.AppendUvarint(appendRPCHeader(b, p.RPCHeader), p.Term)
	}
	return appendFailure(b, codeRemote, fmt.Sprintf("answer of type %T", r.Response))
}

func appendRPCHeader(b []byte, h raft.RPCHeader) []byte { return appendHeader(b, h, h.Addr, 0) }

func (c *cursor) answerHeader() raft.RPCHeader {
	h, _, flags := c.header()
	if flags&sameLeader == 0 || flags&transfer != 0 {
		c.fail()
	}
	return h
}

// decodeAnswer reads an answer into out, which is one of Raft's response structures and is left alone if the answer is an error. What it
// stores does not point into b.
func decodeAnswer(b []byte, out any) error {
	c := cursor{b: b}
	if k := code(c.byte()); c.bad {
		return fmt.Errorf("%w: empty answer", ErrMalformed)
	} else if k != codeOK {
		sentinel, ok := codeErrors[k]
		if !ok {
			return fmt.Errorf("%w: answer with code %d", ErrMalformed, k)
		}
		if len(c.b) == 0 {
			return sentinel
		}
		return fmt.Errorf("%w: %s", sentinel, harmless(string(c.b)))
	}
	c.b = append([]byte(nil), c.b...)
	flags := c.flags(answerYes | answerNoPause)
	yes := flags&answerYes != 0
	h := c.answerHeader()
	var store func()
	switch p := out.(type) {
	case *raft.AppendEntriesResponse:
		v := raft.AppendEntriesResponse{RPCHeader: h, Success: yes, NoRetryBackoff: flags&answerNoPause != 0, Term: c.uvarint(), LastLog: c.uvarint()}
		store = func() { *p = v }
	case *raft.RequestVoteResponse:
		v := raft.RequestVoteResponse{RPCHeader: h, Granted: yes, Term: c.uvarint(), Peers: c.bytes(maxPackedBytes)}
		store = func() { *p = v }
	case *raft.RequestPreVoteResponse:
		v := raft.RequestPreVoteResponse{RPCHeader: h, Granted: yes, Term: c.uvarint()}
		store = func() { *p = v }
	case *raft.TimeoutNowResponse:
		store = func() { *p = raft.TimeoutNowResponse{RPCHeader: h} }
	case *raft.InstallSnapshotResponse:
		v := raft.InstallSnapshotResponse{RPCHeader: h, Success: yes, Term: c.uvarint()}
		store = func() { *p = v }
	default:
		return fmt.Errorf("%w: answer for %T", ErrMalformed, out)
	}
	if !c.done() {
		return fmt.Errorf("%w: answer for %T", ErrMalformed, out)
	}
	store()
	return nil
}
