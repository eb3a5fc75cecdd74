package plan

import (
	"slices"
	"time"

	"github.com/sealane/sealane/catalog"
)

// Limits of what is done at once.
const (
	// maxFills bounds the replicas that one node fills at once: filling reads a shard's whole state over the network.
	maxFills = 2
	// maxLong bounds the snapshots and digest comparisons of operations at once.
	maxLong = 2
	// transferPause is the least time between two transfers of one group: each costs it a moment without sends.
	transferPause = 5 * time.Second
	// steadyAfter is how long a node must have been reachable before it is given something for the sake of balance.
	steadyAfter = 5 * time.Second
	// goneAfter is how long a node must have been unreachable before an operator's word that it is gone is believed: a node that is only slow
	// for a moment would lose everything by a slip.
	goneAfter = 10 * time.Second
	// stuckAfter is how long a node must have been unreachable before a replica that it has only begun to fill goes to another node.
	stuckAfter = 30 * time.Second
)

// cluster is a View with its parts joined, and the steps planned so far.
type cluster struct {
	v      *View
	nodes  []*node // by id
	groups []*group
	steps  []Step
	taken  map[uint32]bool // groups that have their step
	noted  map[string]bool // operations that have their recording: the next one must see its version
	long   int
	moving map[string]bool // nodes that a leadership moves off or onto
}

// node is a node with what is placed on it. The counts include the effect of steps that are planned or being executed.
type node struct {
	catalog.Node
	view *NodeView // nil: never asked
	// leaving: it is REMOVED, or an operation removes it.
	leaving   bool
	replicas  int // of shards, that will stay
	fills     int // of shards, being filled
	leads     int // shards
	preferred int // shards
}

// group is a group with what its leader says of it. Without a leader, nothing about its configuration is known.
type group struct {
	catalog.Placement
	leader  *GroupView // nil: none that answers
	at      *node      // the leader's node
	replica string     // the leader's replica id
	victim  string     // the replica that goes because there are too many, decided once: its node does not count it any more
	move    *catalog.Operation
}

func newCluster(v *View) *cluster {
	c := &cluster{v: v, taken: map[uint32]bool{}, noted: map[string]bool{}, moving: map[string]bool{}}
	for i := range v.Nodes {
		n := &node{Node: v.Nodes[i], leaving: v.Nodes[i].State == catalog.NodeRemoved}
		for j := range v.Observed {
			// One that did not answer did not say which replica it is.
			if o := &v.Observed[j]; o.Node == n.ID && (o.Replica == n.Replica || !o.Reachable) {
				n.view = o
			}
		}
		c.nodes = append(c.nodes, n)
	}
	for i := range v.Placements {
		g := &group{Placement: v.Placements[i]}
		g.Replicas = slices.Clone(g.Replicas)
		c.groups = append(c.groups, g)
	}
	c.readOperations()
	c.readRunning()
	for _, g := range c.groups {
		c.findLeader(g)
	}
	c.count()
	return c
}

// readOperations finds what open operations mean for nodes and groups. Those that are only REGISTERED mean nothing yet.
func (c *cluster) readOperations() {
	for i := range c.v.Operations {
		o := &c.v.Operations[i]
		if o.State != catalog.OperationApplying {
			continue
		}
		switch o.Kind {
		case catalog.RemoveNode:
			// Until it is DRAINING for it, or REMOVED, the operation may still be rejected.
			if n := c.holder(subject(o)); n != nil && n.State == catalog.NodeDraining && !o.Params.Gone {
				n.leaving = true
			}
		case catalog.MoveReplica:
			if g := c.group(o.Params.Group); g != nil && g.move == nil {
				g.move = o
			}
		}
	}
}

// readRunning counts the effect of what is being executed as if it were done.
func (c *cluster) readRunning() {
	for i := range c.v.Running {
		s := &c.v.Running[i]
		c.taken[s.Group] = true
		switch s.Kind {
		case TransferTo:
			c.moving[s.Leader], c.moving[s.Node] = true, true
		case TakeSnapshot, CompareDigests:
			c.long++
		case Advance, Finish:
			c.noted[s.Operation] = true
		}
		g := c.group(s.Group)
		switch cmd := s.Command.(type) {
		case *catalog.ChangePlacement:
			if g != nil {
				g.set(cmd.Replica, cmd.State)
			}
		case *catalog.PreferLeader:
			if g != nil {
				g.Leader = cmd.Node
			}
		}
	}
}

// set changes a replica's state in this plan's own copy.
func (g *group) set(replica string, state catalog.ReplicaState) {
	for i := range g.Replicas {
		if g.Replicas[i].ID == replica {
			g.Replicas[i].State = state
			return
		}
	}
	g.Replicas = append(g.Replicas, catalog.PlacedReplica{ID: replica, State: state})
}

// findLeader takes the leader of the highest term: an older one may not have noticed yet that it was deposed.
func (c *cluster) findLeader(g *group) {
	for _, n := range c.nodes {
		v := n.viewOf(g.Group)
		if v != nil && v.Leads && (g.leader == nil || v.Term > g.leader.Term) {
			g.leader, g.at, g.replica = v, n, n.Replica
		}
	}
}

func (c *cluster) count() {
	for _, g := range c.groups {
		if g.Group == catalog.ControlGroup {
			continue
		}
		for _, r := range g.Replicas {
			n := c.holder(r.ID)
			if n == nil || !r.State.Live() {
				continue
			}
			n.replicas++
			if r.State != catalog.ReplicaVoter && !c.caughtUp(g, r.ID) {
				n.fills++
			}
		}
		if g.at != nil {
			g.at.leads++
		}
		if n := c.node(g.Leader); n != nil {
			n.preferred++
		}
	}
	for _, g := range c.groups {
		if g.victim = c.surplus(g); g.victim != "" {
			c.holder(g.victim).replicas--
		}
	}
}

func (c *cluster) node(id string) *node {
	for _, n := range c.nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}

func (c *cluster) group(number uint32) *group {
	for _, g := range c.groups {
		if g.Group == number {
			return g
		}
	}
	return nil
}

// holder gives the node that a replica id belongs to now; nil for that of a node that was removed and perhaps came back as another.
func (c *cluster) holder(replica string) *node {
	if n := c.node(catalog.NodeOf(replica)); n != nil && n.Replica == replica {
		return n
	}
	return nil
}

// reachable says whether the node answered when it was last asked.
func (n *node) reachable() bool { return n.view != nil && n.view.Reachable }

// steady says whether it has been answering for a while, is ACTIVE, and is not about to stop.
func (c *cluster) steady(n *node) bool {
	return n.reachable() && n.State == catalog.NodeActive && !n.leaving && !n.view.Draining && c.v.Now.Sub(n.view.Since) >= steadyAfter
}

// silent says for how long the node has not been answering; 0 where it does, or was never asked.
func (c *cluster) silent(n *node) time.Duration {
	if n.view == nil || n.view.Reachable {
		return 0
	}
	return c.v.Now.Sub(n.view.Since)
}

func (n *node) viewOf(group uint32) *GroupView {
	if !n.reachable() {
		return nil
	}
	for i := range n.view.Groups {
		if n.view.Groups[i].Group == group {
			return &n.view.Groups[i]
		}
	}
	return nil
}

// alive says whether a replica is open on its node and works, as far as it was seen.
func (c *cluster) alive(g *group, replica string) bool {
	n := c.holder(replica)
	if n == nil {
		return false
	}
	v := n.viewOf(g.Group)
	return v != nil && v.Failure == ""
}

// caughtUp says whether a replica has applied what its leader had committed when the leader was asked the time before. Comparing it with
// what the leader has committed by now would never be true under load.
func (c *cluster) caughtUp(g *group, replica string) bool {
	if g.leader == nil || g.leader.CommitAsked == 0 || !c.alive(g, replica) {
		return false
	}
	return c.holder(replica).viewOf(g.Group).Applied >= g.leader.CommitAsked
}

// member says whether the leader's configuration has a replica, and whether it votes.
func (g *group) member(replica string) (in, votes bool) {
	for _, m := range g.leader.Members {
		if m.Replica == replica {
			return true, m.Voter
		}
	}
	return false, false
}

// voters counts the votes of the leader's configuration.
func (g *group) voters() (n int) {
	for _, m := range g.leader.Members {
		if m.Voter {
			n++
		}
	}
	return n
}

// stays says whether a replica is counted on for the future: it is live, and its node is not leaving.
func (c *cluster) stays(r *catalog.PlacedReplica) bool {
	n := c.holder(r.ID)
	return r.State.Live() && n != nil && !n.leaving
}

// emit plans a step, unless its group has one already.
func (c *cluster) emit(s Step) bool {
	recording := s.Kind == Advance || s.Kind == Finish
	if c.taken[s.Group] || recording && c.noted[s.Operation] {
		return false
	}
	c.taken[s.Group] = true
	if recording {
		c.noted[s.Operation] = true
	}
	c.steps = append(c.steps, s)
	return true
}

// record plans the next state of a replica and counts it.
func (c *cluster) record(g *group, replica string, state catalog.ReplicaState, why string) bool {
	n, before := c.holder(replica), g.State(replica)
	ok := c.emit(Step{
		Kind: Record, Group: g.Group, Replica: replica, Node: catalog.NodeOf(replica), Why: why,
		Command: &catalog.ChangePlacement{Group: g.Group, ExpectVersion: g.Version, Replica: replica, State: state},
	})
	if ok && n != nil && g.Group != catalog.ControlGroup && before == catalog.ReplicaNone {
		n.replicas++
		n.fills++
	}
	return ok
}

// change plans a change of the group itself.
func (c *cluster) change(g *group, kind StepKind, replica, why string) bool {
	return c.emit(Step{
		Kind: kind, Group: g.Group, Leader: g.at.ID, Replica: replica, Node: catalog.NodeOf(replica), MembersAt: g.leader.MembersAt, Why: why,
	})
}
