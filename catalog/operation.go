package catalog

import (
	"errors"
	"fmt"

	"github.com/sealane/sealane/policy"
)

// Errors of the commands about cluster operations.
var (
	// ErrOperationNotFound: no operation of that id is in the register. Only the newest MaxOperations are kept.
	ErrOperationNotFound = errors.New("catalog: operation not found")
	// ErrOperationConflict: the operation id belongs to another operation (another canonical hash). Use a new id.
	ErrOperationConflict = errors.New("catalog: operation id belongs to another operation")
	// ErrTooManyOperations: MaxOpenOperations operations are not done. Wait for one, or cancel one.
	ErrTooManyOperations = errors.New("catalog: too many open operations")
	// ErrIllegalTransition: an operation or one of its targets cannot go from its state to the one asked for.
	ErrIllegalTransition = errors.New("catalog: illegal transition of an operation")
)

// Bounds of the register of operations.
const (
	// MaxOperations is how many are kept; the oldest done one makes room. An id is idempotent as long as its operation is kept.
	MaxOperations = 1000
	// MaxOpenOperations bounds those that are not done.
	MaxOpenOperations = 64
	// MaxOperationIDBytes, MaxReasonBytes, MaxActorBytes and MaxDetailBytes bound an operation's texts; a longer detail is cut.
	MaxOperationIDBytes = 255
	MaxReasonBytes      = 1024
	MaxActorBytes       = 255
	MaxDetailBytes      = 512
)

// OperationKind says what an operation does.
type OperationKind uint8

// The kinds. Numbers are part of the format. Replacing a node is a removal and a join.
const (
	AddNode            OperationKind = 1
	RemoveNode         OperationKind = 2
	MoveReplica        OperationKind = 3
	TransferLeadership OperationKind = 4
	Snapshot           OperationKind = 5
	VerifyDigests      OperationKind = 6
	DrainNode          OperationKind = 7 // done once no leadership is left on the node
	ActivateNode       OperationKind = 8 // undoes DrainNode
)

var kindNames = [...]string{
	"none", "add_node", "remove_node", "move_replica", "transfer_leadership", "snapshot", "verify_digests", "drain_node", "activate_node",
}

// String gives the name of the public parameter field.
func (k OperationKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("OperationKind(%d)", uint8(k))
}

func (k OperationKind) known() bool { return k >= AddNode && k <= ActivateNode }

// OperationState is an operation's stage (DESIGN 9).
type OperationState uint8

// The stages. Numbers are those of the public contract and part of the format.
const (
	OperationRegistered  OperationState = 1 // durable; nothing has taken effect
	OperationApplying    OperationState = 2 // at work; from its first effect on it only rolls forward
	OperationCompleted   OperationState = 3 // every target is done
	OperationOutstanding OperationState = 4 // COMPLETED_WITH_OUTSTANDING: done, and something named by a target is still open
	OperationRejected    OperationState = 5 // refused before any effect
	OperationCancelled   OperationState = 6 // stopped by an operator; what took effect stays
)

var operationStateNames = [...]string{"NONE", "REGISTERED", "APPLYING", "COMPLETED", "COMPLETED_WITH_OUTSTANDING", "REJECTED", "CANCELLED"}

func (s OperationState) String() string {
	if int(s) < len(operationStateNames) {
		return operationStateNames[s]
	}
	return fmt.Sprintf("OperationState(%d)", uint8(s))
}

// Done says whether the stage is final.
func (s OperationState) Done() bool { return s >= OperationCompleted }

// TargetState is an operation's stage in one group.
type TargetState uint8

// The stages of a target. Numbers are those of the public contract and part of the format.
const (
	TargetPending   TargetState = 1
	TargetApplying  TargetState = 2
	TargetCompleted TargetState = 3
	TargetRejected  TargetState = 4
	TargetCancelled TargetState = 5
)

var targetStateNames = [...]string{"NONE", "PENDING", "APPLYING", "COMPLETED", "REJECTED", "CANCELLED"}

func (s TargetState) String() string {
	if int(s) < len(targetStateNames) {
		return targetStateNames[s]
	}
	return fmt.Sprintf("TargetState(%d)", uint8(s))
}

// Done says whether the stage is final.
func (s TargetState) Done() bool { return s >= TargetCompleted }

// OperationParams are the parameters of every kind; those that a kind does not use are zero.
type OperationParams struct {
	// Node of add_node, remove_node, drain_node and activate_node.
	Node string `json:"node,omitempty"`
	// PeerAddress of add_node, for the record: the node registers itself.
	PeerAddress string `json:"peer_address,omitempty"`
	// Gone of remove_node: the operator's word that the node will never come back.
	Gone bool `json:"gone,omitempty"`
	// Group of move_replica and transfer_leadership, and of snapshot and verify_digests unless AllShards. A shard's group: from 1.
	Group uint32 `json:"group,omitempty"`
	// AllShards of snapshot and verify_digests.
	AllShards bool `json:"all_shards,omitempty"`
	// From of move_replica: the node that holds the replica.
	From string `json:"from,omitempty"`
	// To of move_replica and transfer_leadership: the node that shall. Empty for a transfer: the most advanced voter.
	To string `json:"to,omitempty"`
}

// OperationTarget is an operation's stage in one group. The groups are frozen at registration.
type OperationTarget struct {
	Group uint32      `json:"group"`
	State TargetState `json:"state"`
	// FirstIndex and LastIndex are the group's log indexes at its first and its newest step; 0: none, or not of the log.
	FirstIndex uint64 `json:"first_index,omitempty"`
	LastIndex  uint64 `json:"last_index,omitempty"`
	// Matched is the sum of the other three once the target is done.
	Matched uint64 `json:"matched,omitempty"`
	Applied uint64 `json:"applied,omitempty"`
	Skipped uint64 `json:"skipped,omitempty"`
	Failed  uint64 `json:"failed,omitempty"`
	// Node is whom the target works with: of transfer_leadership the node that shall lead, of remove_node, drain_node and activate_node the
	// replica id of the node.
	Node string `json:"node,omitempty"`
	// Detail is for people: what is waited for, or why it failed. Up to MaxDetailBytes.
	Detail string `json:"detail,omitempty"`
	// Replicas are the results of verify_digests, by replica id.
	Replicas []ReplicaResult `json:"replicas,omitempty"`
}

// ReplicaResult is what verify_digests found at one replica.
type ReplicaResult struct {
	Replica string `json:"replica"`
	// Result is EQUAL, DIFFERENT, or why nothing is known: SKIPPED (an installed snapshot jumped over the mark), PENDING (it has not got
	// there in time), UNKNOWN (its process began later) or UNREACHABLE.
	Result string `json:"result"`
	// Digest is in lower-case hex; empty where there is none.
	Digest string `json:"digest,omitempty"`
}

// Results of one replica in verify_digests.
const (
	ResultEqual       = "EQUAL"
	ResultDifferent   = "DIFFERENT"
	ResultSkipped     = "SKIPPED"
	ResultPending     = "PENDING"
	ResultUnknown     = "UNKNOWN"
	ResultUnreachable = "UNREACHABLE"
)

// Operation is one cluster operation in the register.
type Operation struct {
	ID     string          `json:"id"` // the caller's
	Hash   string          `json:"hash"`
	Kind   OperationKind   `json:"kind"`
	Params OperationParams `json:"params"`
	Actor  string          `json:"actor,omitempty"`
	Reason string          `json:"reason,omitempty"`
	State  OperationState  `json:"state"`
	// Sequence numbers the operations in the order of registration, from 1.
	Sequence uint64 `json:"sequence"`
	// Version counts the changes of this record, from 1. Changes are compare-and-set on it.
	Version uint64 `json:"version"`
	// RegisteredIndex is the control group's index of the registration.
	RegisteredIndex uint64            `json:"registered_index"`
	RegisteredAt    policy.Time       `json:"registered_at"`
	UpdatedAt       policy.Time       `json:"updated_at"`
	CompletedAt     policy.Time       `json:"completed_at,omitempty"`
	Targets         []OperationTarget `json:"targets,omitempty"` // by group
	// Detail says why it was REJECTED or CANCELLED, or what is outstanding.
	Detail string `json:"detail,omitempty"`
}

// Target gives the stage in one group; nil where the group is no target.
func (o *Operation) Target(group uint32) *OperationTarget {
	for i := range o.Targets {
		if o.Targets[i].Group == group {
			return &o.Targets[i]
		}
	}
	return nil
}

// targetSteps holds the legal changes of a target, by the state before; the same state again renews progress.
var targetSteps = [...][]TargetState{
	TargetPending:   {TargetPending, TargetApplying, TargetCompleted, TargetRejected},
	TargetApplying:  {TargetApplying, TargetCompleted},
	TargetCompleted: {},
	TargetRejected:  {},
	TargetCancelled: {},
}

// mayFinish says why an operation may not end in a state; empty: it may.
func (o *Operation) mayFinish(state OperationState) string {
	open, worked, unfinished := 0, 0, 0
	for _, t := range o.Targets {
		if !t.State.Done() {
			open++
		}
		if t.State == TargetApplying || t.State == TargetCompleted {
			worked++
		}
		if t.State != TargetCompleted {
			unfinished++
		}
	}
	switch {
	case o.State.Done():
		return "it is " + o.State.String() + " already"
	case state == OperationCompleted && (unfinished > 0 || o.State != OperationApplying):
		return fmt.Sprintf("%d of its targets are not COMPLETED, or it was never APPLYING", unfinished)
	case state == OperationOutstanding && (open > 0 || o.State != OperationApplying):
		return fmt.Sprintf("%d of its targets are open, or it was never APPLYING", open)
	case state == OperationRejected && worked > 0:
		return fmt.Sprintf("it has taken effect in %d targets", worked)
	}
	return ""
}
