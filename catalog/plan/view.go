package plan

import (
	"time"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/policy"
)

// View is everything that a plan is made from: the recorded state, what was observed, and what is being done.
type View struct {
	Cluster    catalog.Cluster
	Nodes      []catalog.Node      // as catalog.Nodes gives them
	Placements []catalog.Placement // as catalog.Placements gives them
	Operations []catalog.Operation // as catalog.OpenOperations gives them
	// Observed holds one entry per node that was asked, by node id.
	Observed []NodeView
	// Now is on the same scale as every time in the View.
	Now policy.Time
	// Running are the steps that are being executed: nothing is planned for their groups, and their effect is counted.
	Running []Step
	// Transfers are the last leadership transfers of each group that were tried, whatever came of them.
	Transfers []Transfer
}

// NodeView is what one node said of itself.
type NodeView struct {
	Node    string
	Replica string // its replica id, as it said; empty where it did not answer
	Boot    uint64
	// Reachable says whether it answered when it was last asked, and Since when that began to be so.
	Reachable bool
	Since     policy.Time
	// Draining: its process is about to stop by itself and wants its leaderships taken over. It says nothing about the node's recorded state.
	Draining bool
	Groups   []GroupView // the groups whose replica it holds, by number
}

// GroupView is one replica as its node sees it.
type GroupView struct {
	Group       uint32
	Term        uint64
	Leads       bool     // it leads and takes proposals
	Leader      string   // replica id of the leader as this replica knows it; empty: none
	Members     []Member // by replica id, in the newest configuration that this replica knows
	MembersAt   uint64   // index of that configuration
	Commit      uint64
	Applied     uint64
	Last        uint64
	Failure     string        // why the group stopped by itself; empty where it did not
	Contact     time.Duration // since it heard from the leader; 0 at the leader
	CommitAsked uint64        // at the leader: its commit index when it was asked the time before; 0: not known. See caughtUp
}

// Member is one member of a Raft configuration.
type Member struct {
	Replica string
	Voter   bool
}

// Transfer is a leadership transfer that was tried.
type Transfer struct {
	Group    uint32
	From, To string // nodes
	At       policy.Time
}
