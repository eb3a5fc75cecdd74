package plan_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/catalog/plan"
)

var seeds = flag.Int("seeds", 20, "number of seeds of TestSimulation")

// chaos is a world with random events.
type chaos struct {
	*world
	joined, operations int
	directories        map[string]int
}

// TestSimulation: random joins, kills, drains, removals, moves and lost steps. No step takes a living majority or a replica that is needed
// (world checks each); when the events end, the plan comes to rest with everything as it should be and every operation ended.
func TestSimulation(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, uint64(seed), 1+seed%5, uint32(1+seed%7))
			c := &chaos{world: w, joined: len(w.nodes), directories: map[string]int{}}
			for range 60 {
				c.event()
				for range 1 + w.rand.IntN(6) {
					w.tick()
					w.round()
				}
			}
			if seed%2 == 0 {
				w.note("rest with the dead ones dead")
				w.settle()
			}
			w.note("everyone comes back")
			c.reviveAll()
			w.settle()
			w.good()
		})
	}
}

// event makes one random thing happen, if it can.
func (c *chaos) event() {
	w := c.world
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	switch w.rand.IntN(12) {
	case 0, 1:
		c.join()
	case 2, 3:
		c.kill(n)
	case 4:
		c.revive(n)
	case 5:
		c.operate(catalog.DrainNode, catalog.OperationParams{Node: n.id})
	case 6, 7:
		c.operate(catalog.ActivateNode, catalog.OperationParams{Node: n.id})
	case 8:
		c.operate(catalog.RemoveNode, catalog.OperationParams{Node: n.id, Gone: !n.alive})
	case 9:
		to := w.nodes[w.rand.IntN(len(w.nodes))]
		c.operate(catalog.MoveReplica, catalog.OperationParams{Group: c.shard(), From: n.id, To: to.id})
	case 10:
		c.operate(catalog.TransferLeadership, catalog.OperationParams{Group: c.shard(), To: n.id})
	case 11:
		kind := catalog.Snapshot + catalog.OperationKind(w.rand.IntN(2))
		c.operate(kind, catalog.OperationParams{AllShards: true})
	}
}

func (c *chaos) shard() uint32 { return uint32(1 + c.rand.IntN(len(c.raft)-1)) }

func (c *chaos) operate(kind catalog.OperationKind, p catalog.OperationParams) {
	c.operations++
	id := fmt.Sprintf("op-%d", c.operations)
	err := c.propose(&catalog.RegisterOperation{ID: id, Hash: catalog.OperationHash(kind, p, ""), Kind: kind, Params: p})
	c.note("EVENT %s %s %+v: %v", id, kind, p, err)
	if err == nil && c.rand.IntN(8) == 0 {
		c.tick()
		c.round()
		c.note("EVENT %s cancelled: %v", id, c.propose(&catalog.FinishOperation{ID: id, State: catalog.OperationCancelled}))
	}
}

// join starts a node that asks to be taken in: a new one, or one of a removed name with an empty directory.
func (c *chaos) join() {
	if c.living() >= 7 {
		return
	}
	id := fmt.Sprintf("n%d", c.joined+1)
	directory := 1
	if nodes, err := catalog.Nodes(c.st); err == nil && c.rand.IntN(2) == 0 {
		for _, n := range nodes {
			if n.State == catalog.NodeRemoved {
				c.directories[n.ID]++
				id, directory = n.ID, 1+c.directories[n.ID]
			}
		}
	}
	n := simNodeOf(id, directory)
	n.open[0], n.since = 0, c.now
	if err := c.propose(&catalog.RegisterNode{Node: registration(n)}); err != nil {
		c.note("EVENT join %s: %v", n.replica, err)
		return
	}
	c.note("EVENT join %s", n.replica)
	if old := c.node(id); old != nil {
		*old = *n
		return
	}
	c.joined++
	c.nodes = append(c.nodes, n)
}

func (c *chaos) living() (n int) {
	for _, node := range c.nodes {
		if node.alive {
			n++
		}
	}
	return n
}

// kill stops a node unless a group would have no majority without it: of such a group nothing can be asked.
func (c *chaos) kill(n *simNode) {
	if !n.alive {
		return
	}
	n.alive = false
	for _, r := range c.raft {
		if !c.majority(r, r.members) {
			n.alive = true
			return
		}
	}
	n.since = c.now
	c.note("EVENT kill %s", n.id)
}

func (c *chaos) revive(n *simNode) {
	if !n.alive {
		n.alive, n.since = true, c.now
		c.note("EVENT revive %s", n.id)
	}
}

// reviveAll brings everyone back, the removed ones too: nobody listens to those.
func (c *chaos) reviveAll() {
	for _, n := range c.nodes {
		c.revive(n)
	}
}

// good checks that everything is as it should be at rest.
func (w *world) good() {
	w.t.Helper()
	v := w.view()
	for i := range v.Operations {
		if o := &v.Operations[i]; !w.mayWait(o, v) {
			w.fatalf("operation %s is still open:\n%s", o.ID, w.describe())
		}
	}
	members := 0
	for _, n := range v.Nodes {
		if n.State != catalog.NodeRemoved {
			members++
		}
	}
	replicas, preferred := map[string]int{}, map[string]int{}
	for i := range v.Placements {
		p := &v.Placements[i]
		w.goodGroup(p, v, members)
		if p.Group == 0 {
			continue
		}
		preferred[p.Leader]++
		for _, r := range p.Replicas {
			replicas[r.ID]++
		}
	}
	low, high := 1<<30, 0
	for _, n := range v.Nodes {
		if n.State == catalog.NodeActive {
			low, high = min(low, replicas[n.Replica]), max(high, replicas[n.Replica])
		}
	}
	draining := false
	for _, n := range v.Nodes {
		draining = draining || n.State == catalog.NodeDraining
	}
	if high-low > 1 && !draining {
		w.fatalf("replicas are spread from %d to %d:\n%s", low, high, w.describe())
	}
}

// mayWait says whether an operation is right to wait at rest: a drain does while everyone who could lead instead is draining too.
func (w *world) mayWait(o *catalog.Operation, v *plan.View) bool {
	if o.Kind != catalog.DrainNode {
		return false
	}
	for i := range v.Placements {
		p := &v.Placements[i]
		if w.raft[p.Group].leader != o.Targets[0].Node {
			continue
		}
		for _, n := range v.Nodes {
			if n.State == catalog.NodeActive && p.State(n.Replica) == catalog.ReplicaVoter {
				return false
			}
		}
	}
	return true
}

// goodGroup checks one group at rest: enough copies, an odd number of voters, Raft as recorded, and the leader where it should be.
func (w *world) goodGroup(p *catalog.Placement, v *plan.View, members int) {
	w.t.Helper()
	r := w.raft[p.Group]
	voters := p.Count(catalog.ReplicaVoter)
	if voters+p.Count(catalog.ReplicaLearner) != len(p.Replicas) || len(r.members) != len(p.Replicas) {
		w.fatalf("group %d is not at rest:\n%s", p.Group, w.describe())
	}
	for i, m := range r.members {
		if p.Replicas[i].ID != m.Replica || (p.Replicas[i].State == catalog.ReplicaVoter) != m.Voter {
			w.fatalf("group %d is recorded otherwise than it is:\n%s", p.Group, w.describe())
		}
		n := w.holder(m.Replica)
		if n == nil {
			w.fatalf("group %d has a member that nobody holds:\n%s", p.Group, w.describe())
		}
	}
	draining := 0
	for _, n := range v.Nodes {
		if n.State == catalog.NodeDraining {
			draining++
		}
		open := false
		if sim := w.holder(n.Replica); sim != nil {
			_, open = sim.open[p.Group]
		}
		if p.Group != 0 && n.State != catalog.NodeRemoved && open != p.State(n.Replica).Open() {
			w.fatalf("group %d, node %s: open is %v:\n%s", p.Group, n.ID, open, w.describe())
		}
		if p.Leader == n.ID && n.State == catalog.NodeActive && r.leader != n.Replica {
			w.fatalf("group %d is led by %s:\n%s", p.Group, r.leader, w.describe())
		}
		for _, other := range v.Nodes {
			able := other.State == catalog.NodeActive && p.State(other.Replica) == catalog.ReplicaVoter
			if r.leader == n.Replica && n.State == catalog.NodeDraining && able {
				w.fatalf("group %d is led by a draining node:\n%s", p.Group, w.describe())
			}
		}
	}
	if draining > 0 {
		return // what is wanted then depends on who drained when
	}
	copies, want := min(members, 3), catalog.Voters(members, 3)
	if p.Group == 0 {
		copies = members
	}
	if len(p.Replicas) != copies || voters != want && !(members == 2 && voters == 2) {
		w.fatalf("group %d has %d replicas and %d voters, want %d and %d:\n%s", p.Group, len(p.Replicas), voters, copies, want, w.describe())
	}
}
