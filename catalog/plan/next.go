package plan

import "github.com/sealane/sealane/catalog"

// Next gives the next steps: at most one for each group, operations first, then the groups by number. It returns none where everything is as
// it should be, or nothing can be done now.
func Next(v *View) []Step {
	c := newCluster(v)
	for i := range v.Operations {
		c.operation(&v.Operations[i])
	}
	// What makes a group safe comes before what makes it nicer, for all groups: filling is bounded, and balance must not use it up.
	for _, g := range c.groups {
		c.forget(g)
		if c.ready(g) {
			c.follow(g)
			c.vote(g)
			c.place(g)
		}
	}
	// The control group is last: the driver is where its leader is, and goes on elsewhere when it moves.
	for i := range c.groups {
		if g := c.groups[(i+1)%len(c.groups)]; c.ready(g) {
			c.balance(g)
			c.lead(g)
		}
	}
	return c.steps
}

// Filling counts the replicas that shall vote and do not yet.
func Filling(placements []catalog.Placement) (n int) {
	for i := range placements {
		n += placements[i].Count(catalog.ReplicaAdding)
	}
	return n
}

// ready says whether anything may be decided about a group: it has no step yet, and a leader that answers, whose newest configuration is
// committed. Raft acts on a configuration before it is committed, and a new leader may still undo it.
func (c *cluster) ready(g *group) bool {
	return !c.taken[g.Group] && g.leader != nil && g.leader.MembersAt <= g.leader.Commit
}

// forget clears tombstones that were obeyed. It needs no leader.
//
// A node has obeyed once it answers without the replica and has applied the tombstone: one that has not might still open the replica for an
// older reason. Nobody is waited for where the data directory is no longer a member: it can never come back, and can vote nowhere.
func (c *cluster) forget(g *group) {
	for _, r := range g.Replicas {
		if r.State != catalog.ReplicaTombstone {
			continue
		}
		n := c.holder(r.ID)
		if n == nil || n.State == catalog.NodeRemoved {
			c.record(g, r.ID, catalog.ReplicaNone, "its node was removed")
			continue
		}
		control := n.viewOf(catalog.ControlGroup)
		if g.Group != catalog.ControlGroup && control != nil && control.Applied >= r.Since && n.viewOf(g.Group) == nil {
			c.record(g, r.ID, catalog.ReplicaNone, "its node has destroyed it")
		}
	}
}
