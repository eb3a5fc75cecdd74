package plan

import (
	"fmt"

	"github.com/sealane/sealane/catalog"
)

// StepKind says what a step does.
type StepKind uint8

// The kinds. The first group records in the control group; the second changes a Raft group, at the node that leads it; the third works on
// cluster operations.
const (
	// Record is catalog.ChangePlacement.
	Record StepKind = iota + 1
	// Prefer is catalog.PreferLeader.
	Prefer
	// SetNode is catalog.SetNodeState.
	SetNode
	// Advance is catalog.AdvanceOperation.
	Advance
	// Finish is catalog.FinishOperation.
	Finish

	// AddLearner takes Replica into the group without a vote.
	AddLearner
	// Promote gives Replica a vote.
	Promote
	// Demote takes its vote.
	Demote
	// RemoveMember takes it out of the group.
	RemoveMember
	// TransferTo hands the leadership to Replica.
	TransferTo

	// TakeSnapshot takes a snapshot at the leader and records the result in Operation's target.
	TakeSnapshot
	// CompareDigests compares the digests of all members and records the result in Operation's target.
	CompareDigests
)

var stepNames = [...]string{
	"none", "record", "prefer", "set_node", "advance", "finish", "add_learner", "promote", "demote", "remove_member", "transfer", "snapshot",
	"verify_digests",
}

func (k StepKind) String() string {
	if int(k) < len(stepNames) {
		return stepNames[k]
	}
	return fmt.Sprintf("StepKind(%d)", uint8(k))
}

// Step is one thing to do.
type Step struct {
	Kind  StepKind
	Group uint32
	// Leader is the node that leads the group, which is asked for the change.
	Leader string
	// Replica is whom the step is about, by replica id; Node is its node.
	Replica, Node string
	// MembersAt is the index of the configuration that a change was planned from: with another one it must not be made.
	MembersAt uint64
	// Command is what is proposed to the control group, for the kinds that record.
	Command catalog.Command
	// Members are all members of the group by replica id, and Alive those of them that answer, for CompareDigests.
	Members []Member
	Alive   []string
	// Operation is the id of the cluster operation that wants the step; empty: the plan itself does.
	Operation string
	// Why is for people: the reason of the step in a few words.
	Why string
}

func (s *Step) String() string {
	out := fmt.Sprintf("group %d: %s %s", s.Group, s.Kind, s.Replica)
	if s.Replica == "" {
		out += s.Node
	}
	switch c := s.Command.(type) {
	case *catalog.ChangePlacement:
		out += " " + c.State.String()
	case *catalog.SetNodeState:
		out += " " + c.State.String()
	}
	return out + " (" + s.Why + ")"
}
