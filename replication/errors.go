package replication

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// Errors of the first kind: the command is definitely not in the log and never will be. The caller may answer NOT_ACCEPTED, or try
// again here or elsewhere.
var (
	// ErrNotLeader: this replica does not lead, or leads but has not yet applied an entry of its own term. Go to the leader
	// (Status().LeaderID), or wait for Led.
	ErrNotLeader = errors.New("replication: not the leader")
	// ErrQueueFull: the queue of the command's class is at its bound. Slow down and try again.
	ErrQueueFull = errors.New("replication: proposal queue is full")
	// ErrStopped: the group is closed, or was before the command was handed to Raft. Use another node.
	ErrStopped = errors.New("replication: group is stopped")
	// ErrTransferring: leadership is being moved to another replica. Try again there in a moment.
	ErrTransferring = errors.New("replication: leadership transfer in progress")
	// ErrFailed: the group stopped at an entry it could not apply; the cause is wrapped. Nothing will be accepted until an operator
	// acts (usually: a newer binary).
	ErrFailed = errors.New("replication: group has failed")
	// ErrInvalid: the command or vector is empty or over a bound, which the text names. Do not try again unchanged.
	ErrInvalid = errors.New("replication: invalid command")
	// ErrContext: the caller's context had ended before the command was queued; the context's error is wrapped.
	ErrContext = errors.New("replication: context ended before the command was queued")
	// ErrChangeInProgress: another change of the configuration is not yet committed. Try again in a moment.
	ErrChangeInProgress = errors.New("replication: another membership change is in progress")
	// ErrNotMember: the replica that should be promoted or demoted is not in the configuration. Add it first.
	ErrNotMember = errors.New("replication: no such member")
	// ErrLastVoter: the change would leave the group without a voter. Promote another replica first.
	ErrLastVoter = errors.New("replication: the last voter must stay")
	// ErrLeaderStays: the leader would lose its vote. Transfer leadership, then ask the new leader.
	ErrLeaderStays = errors.New("replication: the leader must hand leadership over first")
)

// ErrMaybeAccepted is the other kind: the command was handed to Raft and its fate is unknown here; it may be applied now, later or never.
// The cause is wrapped. Propose the same command again under the same idempotency key; only a verdict decided at apply clears it.
var ErrMaybeAccepted = errors.New("replication: command may have been accepted")

// Errors of starting, running and reading a group.
var (
	// ErrEntry: a log entry cannot be decoded: damaged, or written by a newer version. The group stops at that index.
	ErrEntry = errors.New("replication: unreadable log entry")
	// ErrSnapshotNewer: the snapshot marker names an index that the durable state has not reached, so state is missing. The group
	// refuses to start. Wipe and rejoin the replica (one replica: restore a backup).
	ErrSnapshotNewer = errors.New("replication: snapshot is newer than the durable state")
	// ErrStateAhead: the state holds an index that the only voter's own log never reached, so the log lost its tail. The group refuses
	// to start, since new entries would reuse indexes already applied. Restore a backup.
	ErrStateAhead = errors.New("replication: state is ahead of the log")
	// ErrSnapshotStreaming: a snapshot from a peer came without its state, or the state to send does not reach its snapshot. Nothing was
	// changed; Raft tries again.
	ErrSnapshotStreaming = errors.New("replication: snapshot and streamed state do not belong together")
	// ErrNoPeers: the loopback transport was asked to reach another node.
	ErrNoPeers = errors.New("replication: loopback transport has no peers")
	// ErrNoTransferTarget: there is no other voter that could lead.
	ErrNoTransferTarget = errors.New("replication: no other voter to transfer leadership to")
	// ErrTransferFailed: the transfer did not happen; this replica may still lead. Try again.
	ErrTransferFailed = errors.New("replication: leadership transfer failed")
	// ErrBarrier: leadership could not be confirmed for the read; the cause is wrapped. Read again, at the leader.
	ErrBarrier = errors.New("replication: read barrier not confirmed")
	// ErrOptions: a field of Options is missing or out of bounds; the text names each one and its limit.
	ErrOptions = errors.New("replication: invalid options")
)

// errAlreadyApplied answers a proposal whose index the state already held. It cannot happen while log and state belong together.
var errAlreadyApplied = errors.New("replication: entry was applied before it was proposed")

var notAccepted = []error{ErrNotLeader, ErrQueueFull, ErrStopped, ErrTransferring, ErrFailed, ErrInvalid, ErrContext,
	ErrChangeInProgress, ErrNotMember, ErrLastVoter, ErrLeaderStays}

// NotAccepted reports whether err proves that the command is not in the log and never will be. False for nil, for ErrMaybeAccepted
// whatever it wraps, and for every error that does not come from proposing.
func NotAccepted(err error) bool {
	if err == nil || errors.Is(err, ErrMaybeAccepted) {
		return false
	}
	for _, sentinel := range notAccepted {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

func maybeAccepted(cause error) error {
	return fmt.Errorf("%w: %w", ErrMaybeAccepted, cause)
}

// fromRaft sorts an error of an apply future into the two kinds. Raft returns the first three only for entries that never reached its
// log. A shutdown is ambiguous: the same value is used before and after hand-off.
func fromRaft(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader):
		return ErrNotLeader
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return ErrTransferring
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return ErrQueueFull
	default:
		return maybeAccepted(err)
	}
}
