package membership

import (
	"context"
	"errors"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/catalog/plan"
)

// ErrNotLeading is what Control's methods wrap when this node does not lead the control group, or did not to the end of the call. The driver
// stops: Run returns it.
var ErrNotLeading = errors.New("membership: this node does not lead the control group")

// Control is the control group as its leader sees it. Its methods are called from several goroutines.
type Control interface {
	// Read lets fn read the control state that this node has applied, as one consistent view. Everything that Propose answered before is
	// in it, and everything that earlier leaders had committed.
	Read(ctx context.Context, fn func(catalog.Reader) error) error
	// Propose puts a command into the log and gives its verdict: the command's own refusal is in Result.Err, and anything about the way is
	// the error. After an error the command may or may not be in the log.
	Propose(ctx context.Context, c catalog.Command) (catalog.Result, error)
}

// Nodes asks the nodes. Its method is called from several goroutines.
type Nodes interface {
	// Report asks a registered node, this one included, for its groups. An error means that it cannot be reached, or that another process
	// than the recorded replica answered. Of the result, Reachable, Since and CommitAsked are left to the driver.
	Report(ctx context.Context, node catalog.Node) (plan.NodeView, error)
}

// Change is one change of a group's Raft configuration or leadership.
type Change struct {
	// Kind is AddLearner, Promote, Demote, RemoveMember or TransferTo.
	Kind plan.StepKind
	// Replica is whom it is about, by replica id.
	Replica string
	// MembersAt is the index of the configuration that the change was planned from; 0: any. With another one the change should be refused:
	// it may come late, from a driver that was deposed meanwhile. A change that is made nevertheless is put right by the next plan.
	MembersAt uint64
}

// DigestState says what a replica knows of a digest.
type DigestState uint8

// The states of a digest. Only DigestDone has a sum.
const (
	// DigestUnknown: the replica has no memory of a mark at that index.
	DigestUnknown DigestState = iota
	// DigestPending: it has not applied the index yet.
	DigestPending
	// DigestDone: it has computed the digest exactly there.
	DigestDone
	// DigestSkipped: it installed a snapshot that jumped over the index.
	DigestSkipped
)

// Groups changes Raft groups. node is the node to ask: the group's leader, except for DigestAt. All methods are called from several
// goroutines, end when ctx does, and are harmless when they are repeated; after an error the change may or may not have been made.
type Groups interface {
	// Change makes one change.
	Change(ctx context.Context, node string, group uint32, c Change) error
	// Snapshot takes a snapshot of the group on the node and returns the index it covers.
	Snapshot(ctx context.Context, node string, group uint32) (index uint64, err error)
	// Digest puts a mark into the group's log and returns its index.
	Digest(ctx context.Context, node string, group uint32) (index uint64, err error)
	// DigestAt gives the digest that the node's replica computed at the index; it waits for it until ctx ends.
	DigestAt(ctx context.Context, node string, group uint32, index uint64) (sum [32]byte, state DigestState, err error)
}

// Observer receives measurements. Its methods are called from several goroutines and must be cheap; any may be left empty by embedding
// NopObserver.
type Observer interface {
	// Round is told of each finished round: how many nodes are registered and not REMOVED, how many of them answered, and how many steps
	// were planned.
	Round(nodes, reachable, steps int)
	// Step is told of each finished step: its kind, and its error, nil where it was done.
	Step(kind plan.StepKind, err error)
	// Filling is told in each round how many replicas are not voters yet and shall be.
	Filling(replicas int)
}

// NopObserver ignores everything.
type NopObserver struct{}

// Round does nothing.
func (NopObserver) Round(int, int, int) {}

// Step does nothing.
func (NopObserver) Step(plan.StepKind, error) {}

// Filling does nothing.
func (NopObserver) Filling(int) {}
