package replication

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
)

// Limits and timings of every group. They are constants because their relations matter more than their values: see TestLimits.
const (
	// MaxEntryCommands and MaxEntryBytes bound a packed entry (REPLICATION, the path of a write). One larger command goes alone.
	MaxEntryCommands = 256
	MaxEntryBytes    = 256 << 10
	// MaxCommandBytes bounds one command: what fits a log entry of storage alone. The largest payload is 16 MiB.
	MaxCommandBytes = storage.MaxEntryBytes - headerBytes - commandOverhead
	// MaxEntriesInFlight bounds entries handed to Raft and not yet answered. It bounds the uncommitted tail of a log, which must
	// stay well below the trailing entries: a follower may not have to take a snapshot while its own tail runs past it.
	MaxEntriesInFlight = 8

	// Queue bounds per class, in commands and bytes. Engine commands have their own, larger room, so that clients can never keep
	// an admitted attempt from being settled.
	ClientQueueCommands = 8 << 10
	ClientQueueBytes    = 32 << 20
	EngineQueueCommands = 64 << 10
	EngineQueueBytes    = 128 << 20

	// Raft knows one heartbeat timeout for two things: a leader sends every tenth to fifth of it, which is what an idle group costs, and a
	// follower misses its leader after it. So it depends on the role: heartbeatTimeout on a leader, followerTimeout elsewhere, which is three to
	// six heartbeats. It bounds a stall of a majority's disks or processes that costs no leadership. It is above the lease, so that a
	// leader that is cut off steps down before another is elected. The election timeout is the pause between two tries to be elected; on a leader
	// it bounds a transfer.
	heartbeatTimeout = time.Second
	followerTimeout  = 600 * time.Millisecond
	electionTimeout  = time.Second
	leaseTimeout     = 500 * time.Millisecond
	commitTimeout    = 500 * time.Millisecond
	maxAppendEntries = 128

	// applyBatchBytes is where a run of entries is committed and a new batch begun: far below half a
	// memtable, where Pebble begins to rotate the memtable for each batch.
	applyBatchBytes = 4 << 20

	defaultTrailingEntries = 1024
	defaultSnapshotBytes   = 64 << 20
	defaultSnapshotEntries = 16 << 10

	// transferStuck is how long Raft may refuse proposals with "transfer in progress" before its instance is restarted (696).
	// A sound transfer lasts at most two election timeouts.
	transferStuck = 3 * electionTimeout
	// noticeStep is what the voters of a group leave between them when they look for a silent leader: longer than an election takes, so that
	// they do not stand at the same time.
	noticeStep = 150 * time.Millisecond
	// changePatience is how long Raft may take to look at a change of the configuration.
	changePatience = electionTimeout
	// nudgeEvery paces the empty entries that start a leadership or probe a stuck transfer.
	nudgeEvery = 100 * time.Millisecond
	// snapshotRetry paces snapshots after a failed one.
	snapshotRetry = time.Second
	// answerGrace is how long callbacks may still take once Raft has ended, before what is left is failed as maybe accepted.
	answerGrace = 250 * time.Millisecond
)

// Class chooses the queue of a command.
type Class uint8

const (
	// Client commands: refused at once when their queue is full, so that back-pressure reaches the client.
	Client Class = iota
	// Engine commands: outcomes, expiry, control steps. What was admitted must always be settled, so they have reserved room.
	Engine
	classes
)

func (c Class) String() string {
	switch c {
	case Client:
		return "client"
	case Engine:
		return "engine"
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Transport carries Raft's messages between the replicas of one group. Pre-vote is required. A heartbeat must travel like any other
// append: the handler that Raft offers for heartbeats is never passed on (695). The owner closes the transport, after Group.Close.
type Transport interface {
	raft.Transport
	raft.WithPreVote
}

// StateMachine gives entries their meaning. All methods are called by the group. Apply and Committed share one goroutine; Led and Deposed
// share another.
type StateMachine interface {
	// Apply applies e over b and returns one result per command. It must be deterministic, may read b (which shows the state as of
	// e.Index-1), and must not call SetApplied or Commit. An error means that the entry is not understood or the state is not what it must
	// be: the batch is discarded and the group stops below e.Index. The entry's commands are valid only during the call.
	Apply(b *storage.Batch, e Entry) (results []any, err error)
	// Committed is told that everything up to applied is visible in the state, before any caller of it is answered. Must not block.
	Committed(applied uint64)
	// Led: this replica leads in term, and has applied everything that earlier leaders acknowledged. Proposals are accepted from
	// shortly before the call. Must return promptly: leadership changes are not noticed meanwhile.
	Led(term uint64)
	// Deposed ends the leadership last announced by Led: lost, handed over, or the group is closing or has failed.
	Deposed()
	// Installed is told, on the goroutine of Apply, that the whole state was replaced by one from another replica and now stands at
	// applied: everything derived from the state before must be dropped and read again. It is visible already. Must not block.
	Installed(applied uint64)
}

// Observer receives measurements. Methods are called on hot goroutines and must be cheap; any may be left empty by embedding NopObserver.
type Observer interface {
	// EntryProposed: an entry of so many commands and bytes was handed to Raft; waited is how long its oldest command had queued.
	EntryProposed(commands, bytes int, waited time.Duration)
	// EntryAnswered: its callers were answered, took after the oldest command was queued. err as the callers got it.
	EntryAnswered(commands int, took time.Duration, err error)
	// BatchApplied: one state batch was applied and committed.
	BatchApplied(entries, commands, bytes int, took time.Duration)
	// SnapshotTaken: a marker was written and the log truncated behind it, or not.
	SnapshotTaken(index uint64, took time.Duration, err error)
	// Refused: a proposal did not get into the queue.
	Refused(class Class, err error)
}

// NopObserver ignores everything.
type NopObserver struct{}

// EntryProposed does nothing.
func (NopObserver) EntryProposed(int, int, time.Duration) {}

// EntryAnswered does nothing.
func (NopObserver) EntryAnswered(int, time.Duration, error) {}

// BatchApplied does nothing.
func (NopObserver) BatchApplied(int, int, int, time.Duration) {}

// SnapshotTaken does nothing.
func (NopObserver) SnapshotTaken(uint64, time.Duration, error) {}

// Refused does nothing.
func (NopObserver) Refused(Class, error) {}

// Options configures a Group. Zero means default where one is named.
type Options struct {
	// Store holds log and state. Required. It must outlive the group.
	Store *storage.Store
	// Group is the group's number in Store.
	Group uint32
	// NodeID names this node, 1 to 238 bytes of UTF-8 without '@', and is written into every entry. Required.
	NodeID string
	// ReplicaID names this node together with its data directory: what ReplicaID gives for NodeID and the store's id. It is Raft's id and
	// address of this replica in every group. Required.
	ReplicaID string
	// BootID is drawn anew at every start of the process. Required, not 0.
	BootID uint64
	// Stamp gives the time of an entry in unix nanoseconds when it is packed. Required. Called from one goroutine at a time.
	Stamp func() int64
	// Machine applies the entries. Required.
	Machine StateMachine
	// Bootstrap holds the replica ids of the first voters, each once, this replica's among them; the same on every founding replica. Used
	// only when the group has no state. Empty for a replica that joins later.
	Bootstrap []string
	// Transport reaches the other replicas; its local address must be ReplicaID. Default: a loopback without peers.
	Transport Transport
	// Observer receives measurements. Default: none.
	Observer Observer
	// Logger receives Raft's warnings and the group's own lines. Default: slog.Default().
	Logger *slog.Logger
	// OnFailure is called once, on the supervisor's goroutine, when the group stops at an entry. Default: only logged.
	OnFailure func(error)
	// TrailingEntries stay in the log behind a snapshot for slow followers. Default 1024; at least four times MaxEntriesInFlight.
	TrailingEntries uint64
	// SnapshotBytes and SnapshotEntries: a snapshot is taken when the log grew by either since the last. Defaults 64 MiB and 16384.
	SnapshotBytes   uint64
	SnapshotEntries uint64
}

// withDefaults fills what was left zero.
func (o Options) withDefaults() Options {
	if o.Observer == nil {
		o.Observer = NopObserver{}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.TrailingEntries == 0 {
		o.TrailingEntries = defaultTrailingEntries
	}
	if o.SnapshotBytes == 0 {
		o.SnapshotBytes = defaultSnapshotBytes
	}
	if o.SnapshotEntries == 0 {
		o.SnapshotEntries = defaultSnapshotEntries
	}
	if o.Transport == nil {
		o.Transport = newLoopback(raft.ServerAddress(o.ReplicaID))
	}
	return o
}

// Validate reports every problem at once, each wrapped in ErrOptions and naming its field.
func (o Options) Validate() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
	}
	if o.Store == nil {
		bad("Store is required")
	}
	if !validNode(o.NodeID) {
		bad("NodeID has %d bytes, want 1 to %d of UTF-8 without '@'", len(o.NodeID), maxReplicaNodeBytes)
	}
	if node, _, ok := SplitReplicaID(o.ReplicaID); !ok || node != o.NodeID {
		bad("ReplicaID is %q, want NodeID, '@' and %d hex digits", o.ReplicaID, storeDigits)
	}
	if o.Transport != nil && string(o.Transport.LocalAddr()) != o.ReplicaID {
		bad("Transport has local address %q, want ReplicaID %q", o.Transport.LocalAddr(), o.ReplicaID)
	}
	if o.BootID == 0 {
		bad("BootID must not be 0")
	}
	if o.Stamp == nil {
		bad("Stamp is required")
	}
	if o.Machine == nil {
		bad("Machine is required")
	}
	ids := map[string]bool{}
	for i, id := range o.Bootstrap {
		if _, _, ok := SplitReplicaID(id); !ok {
			bad("Bootstrap[%d] is %q, not a replica id", i, id)
		}
		if ids[id] {
			bad("Bootstrap[%d]: %q appears twice", i, id)
		}
		ids[id] = true
	}
	if len(o.Bootstrap) > 0 && !ids[o.ReplicaID] {
		bad("Bootstrap does not name this replica, %q", o.ReplicaID)
	}
	if o.TrailingEntries != 0 && o.TrailingEntries < 4*MaxEntriesInFlight {
		bad("TrailingEntries is %d, want at least %d", o.TrailingEntries, 4*MaxEntriesInFlight)
	}
	return errors.Join(problems...)
}
