package peer

import (
	"errors"
	"strings"
)

// Errors of calls to another replica. Raft treats each as "no answer"; none says anything about what the other side did, unless its comment does.
var (
	// ErrOptions: an option is missing or out of range; the text names it.
	ErrOptions = errors.New("peer: bad option")
	// ErrClosed: the network or the group's transport was closed.
	ErrClosed = errors.New("peer: closed")
	// ErrAttached: the group has a transport already. Close that one first.
	ErrAttached = errors.New("peer: group is attached already")
	// ErrUnreachable: there is no connection to the node, or it broke before the answer came. Retry.
	ErrUnreachable = errors.New("peer: node cannot be reached")
	// ErrTimeout: no answer came in time. A later one is dropped.
	ErrTimeout = errors.New("peer: no answer in time")
	// ErrQueueFull: too much waits to be sent to the node already; this was not sent.
	ErrQueueFull = errors.New("peer: queue to the node is full")
	// ErrBusy: the group over there has too many requests waiting, and did not take this one.
	ErrBusy = errors.New("peer: group does not keep up")
	// ErrUnknownGroup: the node has no replica of the group, or has not opened it yet.
	ErrUnknownGroup = errors.New("peer: node has no such group")
	// ErrOtherReplica: the node is there, but with another data directory than the replica that was asked for; nothing was delivered.
	ErrOtherReplica = errors.New("peer: node has another replica")
	// ErrMalformed: bytes that this version does not understand, or above a limit. The stream they came on is closed.
	ErrMalformed = errors.New("peer: malformed message")
	// ErrTooLarge: a message is above a limit and was not sent; the text names both sizes.
	ErrTooLarge = errors.New("peer: message is too large")
	// ErrRemote: the other side's Raft answered with an error, given as text.
	ErrRemote = errors.New("peer: replica answered")
	// ErrInterrupted: Transport.Interrupt ended the wait for a node that cannot be reached.
	ErrInterrupted = errors.New("peer: interrupted")
	// ErrStalled: a snapshot made no progress for too long. It can be sent again from the start.
	ErrStalled = errors.New("peer: snapshot makes no progress")

	// ErrVersion: the other side speaks another version of the protocol; the text names both.
	ErrVersion = errors.New("peer: other protocol version")
	// ErrIncarnation: the other side belongs to another cluster.
	ErrIncarnation = errors.New("peer: node of another cluster")
	// ErrIdentity: the other side is not who it should be: another node answers at this address, a node has this node's id, or a replica
	// id does not belong to its node. Check addresses and node ids.
	ErrIdentity = errors.New("peer: unexpected identity")
	// ErrIntercepted: a fault that a simulation injected.
	ErrIntercepted = errors.New("peer: injected fault")
)

// code is how an error travels in an answer.
type code byte

const (
	codeOK code = iota
	codeRemote
	codeBusy
	codeUnknownGroup
	codeOtherReplica
	codeMalformed
	codeClosed
)

var codeErrors = map[code]error{
	codeRemote: ErrRemote, codeBusy: ErrBusy, codeUnknownGroup: ErrUnknownGroup, codeOtherReplica: ErrOtherReplica,
	codeMalformed: ErrMalformed, codeClosed: ErrClosed,
}

// grantingWords in an error make Raft count a pre-vote as granted, for peers from before pre-votes. There are none here.
const grantingWords = "unexpected command"

// harmless makes a text safe to hand to Raft and bounds it.
func harmless(text string) string {
	if len(text) > maxErrorBytes {
		text = strings.ToValidUTF8(text[:maxErrorBytes], "")
	}
	return strings.ReplaceAll(text, grantingWords, "unsupported request")
}
