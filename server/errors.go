package server

import (
	"context"
	"errors"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/delivery"
	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/host"
	"github.com/sealane/sealane/shard/logcodec"
	"github.com/sealane/sealane/storage"
	"google.golang.org/grpc/codes"
)

// Errors of the doors. docs/errors.md says for each reason what the caller should do.
var (
	// ErrInvalidRequest: fields of the request break their limits; the violations name them. Correct them.
	ErrInvalidRequest = errors.New("server: invalid request")
	// ErrTooLarge: a payload, a batch or a body is over its limit, which the text names.
	ErrTooLarge = errors.New("server: too large")
	// ErrInvalidJSON: the body of a REST call is not the JSON of the request's message.
	ErrInvalidJSON = errors.New("server: invalid JSON")
	// ErrPageToken: the page token is damaged, or belongs to another listing or other filters. Start again from the first page.
	ErrPageToken = errors.New("server: invalid page token")
	// ErrDeadLetterNotFound: the message exists, and the generation asked for has no dead letter.
	ErrDeadLetterNotFound = errors.New("server: no dead letter")
	// ErrUnimplemented: the call or the kind of operation is in the contract and not in this version.
	ErrUnimplemented = errors.New("server: not in this version")
	// ErrDraining: the node is stopping. Use another node, or the same one in a moment.
	ErrDraining = errors.New("server: node is stopping")
	// ErrWatcherSlow: the client of a watch reads more slowly than the message changes. Watch again.
	ErrWatcherSlow = errors.New("server: watcher is too slow")
	// ErrTooManyWatchers: the node, or one message, has as many watches as it may. Ask again later, or poll.
	ErrTooManyWatchers = errors.New("server: too many watches")
	// ErrNoRoute: no REST call has this path.
	ErrNoRoute = errors.New("server: no such path")
	// ErrCrossOrigin: a browser sent the call from a page of another origin.
	ErrCrossOrigin = errors.New("server: cross-origin call")
)

// errorRow says what an error is outside: its gRPC code and its stable reason. Rows marked inside never show their text to a client: it
// speaks of the node, and the node's log has it.
type errorRow struct {
	err    error
	code   codes.Code
	reason string
	inside bool
}

// Reasons that several errors share.
const (
	reasonInternal     = "INTERNAL"
	reasonFailed       = "SHARD_FAILED"
	reasonCorrupt      = "STATE_CORRUPT"
	reasonStart        = "NODE_NOT_STARTED"
	reasonMaybe        = "MAYBE_ACCEPTED"
	reasonNotFound     = "DESTINATION_NOT_FOUND"
	reasonDisk         = "DISK_FULL"
	reasonMembership   = "MEMBERSHIP_CHANGE_FAILED"
	reasonUnavailable  = "UNAVAILABLE"
	reasonDeadline     = "DEADLINE_EXCEEDED"
	reasonCancelled    = "CANCELLED"
	reasonTarget       = "DESTINATION_TARGET_INVALID"
	reasonInvalid      = "INVALID_REQUEST"
	reasonMethod       = "METHOD_NOT_ALLOWED"
	reasonLaneClosed   = "LANE_CLOSED"
	reasonLaneOpen     = "LANE_ALREADY_OPEN"
	reasonLanePaused   = "LANE_ALREADY_PAUSED"
	reasonShuttingDown = "NODE_STOPPING"
)

// errorTable is the one table from our errors to gRPC codes. The first row that matches counts, so wrapping errors come before what they
// wrap. A test holds it against every sentinel of the packages below, and against docs/errors.md.
var errorTable = []errorRow{
	// Decided by a shard at apply. The reason is the rejection's own.
	{err: shard.ErrIdempotencyConflict, code: codes.AlreadyExists},
	{err: shard.ErrMessageIDConflict, code: codes.AlreadyExists},
	{err: shard.ErrSubmitByPassed, code: codes.FailedPrecondition},
	{err: shard.ErrDestinationUnknown, code: codes.NotFound},
	{err: shard.ErrDeliveryWindow, code: codes.InvalidArgument},
	{err: shard.ErrOrderingKey, code: codes.InvalidArgument},
	{err: shard.ErrLaneClosed, code: codes.FailedPrecondition},
	{err: shard.ErrBacklogFull, code: codes.ResourceExhausted},
	{err: shard.ErrMessageNotFound, code: codes.NotFound},
	{err: shard.ErrLaneNotFound, code: codes.NotFound},
	{err: shard.ErrTooLate, code: codes.FailedPrecondition},
	{err: shard.ErrAlreadyTerminal, code: codes.FailedPrecondition},
	{err: shard.ErrVersionConflict, code: codes.FailedPrecondition},
	{err: shard.ErrStale, code: codes.Aborted},
	{err: shard.ErrAttemptNotUncertain, code: codes.FailedPrecondition},
	{err: shard.ErrBudgetUsed, code: codes.FailedPrecondition},
	{err: shard.ErrOperationConflict, code: codes.AlreadyExists},
	{err: shard.ErrAlreadyOpen, code: codes.FailedPrecondition},
	{err: shard.ErrAlreadyPaused, code: codes.FailedPrecondition},
	{err: shard.ErrNotSupported, code: codes.Unimplemented},
	{err: shard.ErrOutcomeIllegal, code: codes.InvalidArgument},
	{err: shard.ErrInvalidArgument, code: codes.InvalidArgument},

	// The doors.
	{err: ErrInvalidRequest, code: codes.InvalidArgument, reason: reasonInvalid},
	{err: ErrTooLarge, code: codes.InvalidArgument, reason: "TOO_LARGE"},
	{err: ErrInvalidJSON, code: codes.InvalidArgument, reason: "INVALID_JSON"},
	{err: ErrPageToken, code: codes.InvalidArgument, reason: "INVALID_PAGE_TOKEN"},
	{err: ErrDeadLetterNotFound, code: codes.NotFound, reason: "DEAD_LETTER_NOT_FOUND"},
	{err: ErrUnimplemented, code: codes.Unimplemented, reason: "NOT_IN_THIS_VERSION"},
	{err: ErrNoSpace, code: codes.ResourceExhausted, reason: "DISK_LOW"},
	{err: ErrDraining, code: codes.Unavailable, reason: reasonShuttingDown},
	{err: ErrWatcherSlow, code: codes.ResourceExhausted, reason: "WATCHER_TOO_SLOW"},
	{err: ErrTooManyWatchers, code: codes.ResourceExhausted, reason: "TOO_MANY_WATCHES"},
	{err: ErrNoRoute, code: codes.NotFound, reason: "NO_SUCH_PATH"},
	{err: ErrCrossOrigin, code: codes.PermissionDenied, reason: "CROSS_ORIGIN"},
	{err: ErrForeignIncarnation, code: codes.NotFound, reason: "FOREIGN_INCARNATION"},
	{err: ErrUnknownShard, code: codes.InvalidArgument, reason: "UNKNOWN_SHARD"},
	{err: ErrDestinationNotFound, code: codes.NotFound, reason: reasonNotFound},
	{err: ErrDestinationInUse, code: codes.FailedPrecondition, reason: "DESTINATION_IN_USE"},
	{err: ErrLeaderUnreachable, code: codes.Unavailable, reason: "LEADER_UNREACHABLE"},
	{err: ErrPeer, code: codes.Unavailable, reason: "PEER_FAILED"},
	{err: ErrNoReplica, code: codes.Unavailable, reason: "NO_REPLICA"},
	{err: ErrNoPeers, code: codes.Unavailable, reason: "NO_REPLICA"},
	{err: ErrDirectoryLost, code: codes.Internal, reason: reasonStart, inside: true},
	{err: ErrAlreadyFounded, code: codes.Internal, reason: reasonStart, inside: true},
	{err: ErrJoin, code: codes.Internal, reason: reasonStart, inside: true},
	{err: ErrTwoProcesses, code: codes.Internal, reason: reasonStart, inside: true},
	{err: ErrRemoved, code: codes.Internal, reason: reasonStart, inside: true},
	{err: ErrConfig, code: codes.Internal, reason: reasonStart, inside: true},
	{err: ErrShardCount, code: codes.Internal, reason: reasonStart, inside: true},
	{err: ErrVerify, code: codes.DataLoss, reason: reasonCorrupt, inside: true},

	{err: shard.ErrInvalidID, code: codes.InvalidArgument, reason: "INVALID_ID"},
	{err: shard.ErrInvalidPosition, code: codes.InvalidArgument, reason: "INVALID_POSITION"},

	// The control group.
	{err: catalog.ErrNotFound, code: codes.NotFound, reason: reasonNotFound},
	{err: catalog.ErrSpreadFixed, code: codes.FailedPrecondition, reason: "SPREAD_FIXED"},
	{err: catalog.ErrFull, code: codes.ResourceExhausted, reason: "TOO_MANY_DESTINATIONS"},
	{err: catalog.ErrNotFounded, code: codes.Unavailable, reason: "CLUSTER_NOT_FOUNDED"},
	{err: catalog.ErrNodeNotFound, code: codes.NotFound, reason: "NODE_NOT_FOUND"},
	{err: catalog.ErrNodeConflict, code: codes.AlreadyExists, reason: "NODE_CONFLICT"},
	{err: catalog.ErrNodeRemoved, code: codes.FailedPrecondition, reason: "NODE_REMOVED"},
	{err: catalog.ErrTooManyNodes, code: codes.ResourceExhausted, reason: "TOO_MANY_NODES"},
	{err: catalog.ErrTooManyNamespaces, code: codes.ResourceExhausted, reason: "TOO_MANY_NAMESPACES"},
	{err: catalog.ErrLastNode, code: codes.FailedPrecondition, reason: "LAST_NODE"},
	{err: catalog.ErrNodeInUse, code: codes.FailedPrecondition, reason: "NODE_IN_USE"},
	{err: catalog.ErrOperationNotFound, code: codes.NotFound, reason: "OPERATION_NOT_FOUND"},
	{err: catalog.ErrOperationConflict, code: codes.AlreadyExists, reason: "OPERATION_CONFLICT"},
	{err: catalog.ErrTooManyOperations, code: codes.ResourceExhausted, reason: "TOO_MANY_OPERATIONS"},
	{err: catalog.ErrIllegalTransition, code: codes.FailedPrecondition, reason: reasonMembership},
	{err: catalog.ErrNoSuchGroup, code: codes.InvalidArgument, reason: "UNKNOWN_SHARD"},
	{err: catalog.ErrIllegalStep, code: codes.FailedPrecondition, reason: reasonMembership},
	{err: catalog.ErrLastVoter, code: codes.FailedPrecondition, reason: reasonMembership},
	{err: catalog.ErrInvalid, code: codes.InvalidArgument, reason: reasonInvalid},
	{err: catalog.ErrStale, code: codes.Aborted, reason: reasonMembership},
	{err: catalog.ErrUnknownCommand, code: codes.Internal, reason: reasonFailed, inside: true},
	{err: catalog.ErrCorrupt, code: codes.DataLoss, reason: reasonCorrupt, inside: true},
	{err: catalog.ErrForeignState, code: codes.Internal, reason: reasonStart, inside: true},

	// Replication. What may have been accepted comes first: it wraps causes that by themselves would be certain.
	{err: replication.ErrMaybeAccepted, code: codes.Unavailable, reason: reasonMaybe},
	{err: replication.ErrBarrier, code: codes.Unavailable, reason: "READ_NOT_CONFIRMED"},
	{err: replication.ErrContext, code: codes.DeadlineExceeded, reason: reasonDeadline},
	{err: replication.ErrNotLeader, code: codes.Unavailable, reason: "NO_LEADER"},
	{err: replication.ErrQueueFull, code: codes.Unavailable, reason: "QUEUE_FULL"},
	{err: replication.ErrTransferring, code: codes.Unavailable, reason: "LEADERSHIP_TRANSFER"},
	{err: replication.ErrFailed, code: codes.Unavailable, reason: reasonFailed, inside: true},
	{err: replication.ErrStopped, code: codes.Unavailable, reason: reasonShuttingDown},
	{err: replication.ErrInvalid, code: codes.InvalidArgument, reason: "INVALID_COMMAND"},
	{err: replication.ErrEntry, code: codes.Unavailable, reason: reasonFailed, inside: true},
	{err: replication.ErrSnapshotNewer, code: codes.Internal, reason: reasonStart, inside: true},
	{err: replication.ErrStateAhead, code: codes.Internal, reason: reasonStart, inside: true},
	{err: replication.ErrSnapshotStreaming, code: codes.Internal, reason: reasonMembership, inside: true},
	{err: replication.ErrNoPeers, code: codes.Internal, reason: reasonMembership, inside: true},
	{err: replication.ErrChangeInProgress, code: codes.Aborted, reason: reasonMembership},
	{err: replication.ErrNotMember, code: codes.FailedPrecondition, reason: reasonMembership},
	{err: replication.ErrLastVoter, code: codes.FailedPrecondition, reason: reasonMembership},
	{err: replication.ErrLeaderStays, code: codes.FailedPrecondition, reason: reasonMembership},
	{err: replication.ErrNoTransferTarget, code: codes.FailedPrecondition, reason: "NO_TRANSFER_TARGET"},
	{err: replication.ErrTransferFailed, code: codes.Aborted, reason: reasonMembership},
	{err: replication.ErrOptions, code: codes.Internal, reason: reasonStart, inside: true},

	// A shard's own trouble.
	{err: shard.ErrCorrupt, code: codes.DataLoss, reason: reasonCorrupt, inside: true},
	{err: shard.ErrUnknownCommand, code: codes.Internal, reason: reasonFailed, inside: true},
	{err: shard.ErrForeignState, code: codes.Internal, reason: reasonStart, inside: true},
	{err: logcodec.ErrUnknown, code: codes.Internal, reason: reasonFailed, inside: true},
	{err: logcodec.ErrMalformed, code: codes.Internal, reason: reasonFailed, inside: true},
	{err: host.ErrNotLeading, code: codes.Unavailable, reason: "NO_LEADER"},
	{err: host.ErrClosed, code: codes.Unavailable, reason: reasonShuttingDown},
	{err: host.ErrStillSending, code: codes.Unavailable, reason: reasonShuttingDown, inside: true},
	{err: host.ErrSendWindow, code: codes.Internal, reason: reasonInternal, inside: true},
	{err: host.ErrDeposed, code: codes.Internal, reason: reasonInternal, inside: true},
	{err: host.ErrOptions, code: codes.Internal, reason: reasonStart, inside: true},
	{err: lane.ErrAlreadyOpen, code: codes.FailedPrecondition, reason: reasonLaneOpen},
	{err: lane.ErrAlreadyPaused, code: codes.FailedPrecondition, reason: reasonLanePaused},
	{err: lane.ErrClosed, code: codes.FailedPrecondition, reason: reasonLaneClosed},
	{err: lane.ErrUnknownEvent, code: codes.Internal, reason: reasonInternal, inside: true},

	// Adapters.
	{err: delivery.ErrUnknownAdapter, code: codes.InvalidArgument, reason: reasonTarget},
	{err: delivery.ErrSpec, code: codes.InvalidArgument, reason: reasonTarget},

	// Storage.
	{err: storage.ErrDiskFull, code: codes.ResourceExhausted, reason: reasonDisk, inside: true},
	{err: storage.ErrCorrupt, code: codes.DataLoss, reason: reasonCorrupt, inside: true},
	{err: storage.ErrLogWriteDeadline, code: codes.Unavailable, reason: reasonUnavailable, inside: true},
	{err: storage.ErrFailed, code: codes.Unavailable, reason: reasonUnavailable, inside: true},
	{err: storage.ErrClosed, code: codes.Unavailable, reason: reasonShuttingDown},
	{err: storage.ErrTooLarge, code: codes.InvalidArgument, reason: "TOO_LARGE"},
	{err: storage.ErrLocked, code: codes.Internal, reason: reasonStart, inside: true},
	{err: storage.ErrFormatVersion, code: codes.Internal, reason: reasonStart, inside: true},
	{err: storage.ErrIdentity, code: codes.Internal, reason: reasonStart, inside: true},
	{err: storage.ErrNotEmpty, code: codes.Internal, reason: reasonStart, inside: true},
	{err: storage.ErrOptions, code: codes.Internal, reason: reasonStart, inside: true},
	{err: storage.ErrLogGap, code: codes.DataLoss, reason: reasonCorrupt, inside: true},
	{err: storage.ErrLogOrder, code: codes.Internal, reason: reasonInternal, inside: true},
	{err: storage.ErrSnapshotOlder, code: codes.Internal, reason: reasonInternal, inside: true},
	{err: storage.ErrAppliedIndex, code: codes.Internal, reason: reasonInternal, inside: true},
	{err: storage.ErrNoState, code: codes.Internal, reason: reasonInternal, inside: true},
	{err: storage.ErrNoInstall, code: codes.Internal, reason: reasonInternal, inside: true},
	{err: storage.ErrStateReplaced, code: codes.Unavailable, reason: reasonUnavailable, inside: true},
	{err: storage.ErrBusy, code: codes.Unavailable, reason: reasonUnavailable, inside: true},
	{err: storage.ErrStream, code: codes.Internal, reason: reasonInternal, inside: true},
	{err: storage.ErrBatchDone, code: codes.Internal, reason: reasonInternal, inside: true},
	{err: storage.ErrBatchStale, code: codes.Internal, reason: reasonInternal, inside: true},

	// What the caller's own context said.
	{err: context.DeadlineExceeded, code: codes.DeadlineExceeded, reason: reasonDeadline},
	{err: context.Canceled, code: codes.Canceled, reason: reasonCancelled},
}
