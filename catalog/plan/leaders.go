package plan

import "github.com/sealane/sealane/catalog"

// lead keeps leaders where they should be. Each shard has a preferred leader, and the preferences are what is balanced; leadership follows
// them where it can. While a preferred node does not answer, its shards' leaders are spread over the nodes that do, and go back later.
func (c *cluster) lead(g *group) {
	if !fit(g.at) {
		c.handOver(g, false, "its leader's node is draining")
		return
	}
	if g.Group == catalog.ControlGroup {
		return
	}
	if !c.asked(g) && c.prefer(g) {
		return
	}
	shall := c.node(g.Leader)
	if shall != nil && c.canLead(g, shall) {
		if shall != g.at && c.steady(shall) {
			c.transfer(g, shall, "its node is the preferred leader")
		}
		return
	}
	best := c.leastLeading(g)
	if best != nil && c.steady(best) && g.at.leads-best.leads >= 2 {
		c.transfer(g, best, "its node leads fewer shards than "+g.at.ID)
	}
}

// asked says whether an open operation says who shall lead the group: the balance of preferences leaves it alone until that is done or given up.
func (c *cluster) asked(g *group) bool {
	for i := range c.v.Operations {
		o := &c.v.Operations[i]
		if t := o.Target(g.Group); o.Kind == catalog.TransferLeadership && !o.State.Done() && t != nil && !t.State.Done() {
			return true
		}
	}
	return false
}

// fit says whether a node may lead at all.
func fit(n *node) bool {
	return n.State == catalog.NodeActive && !n.leaving && !(n.view != nil && n.view.Draining)
}

// canLead says whether a node holds a voter that could take over now, and shall.
func (c *cluster) canLead(g *group, n *node) bool { return fit(n) && c.couldLead(g, n) }

// couldLead says whether a node holds a voter that could take over now.
func (c *cluster) couldLead(g *group, n *node) bool {
	_, votes := g.member(n.Replica)
	return !n.leaving && votes && g.State(n.Replica) == catalog.ReplicaVoter && (n == g.at || c.caughtUp(g, n.Replica))
}

// prefer records another preferred leader where the recorded one cannot be meant any more, or is preferred by two more than another.
func (c *cluster) prefer(g *group) bool {
	var best *node
	for _, n := range c.nodes {
		if !fit(n) || !n.reachable() || g.State(n.Replica) != catalog.ReplicaVoter {
			continue
		}
		if best == nil || n.preferred < best.preferred || n.preferred == best.preferred && n == g.at {
			best = n
		}
	}
	if best == nil || best.ID == g.Leader {
		return false
	}
	now := c.node(g.Leader)
	valid := now != nil && now.State == catalog.NodeActive && !now.leaving && g.State(now.Replica) == catalog.ReplicaVoter
	if valid && (now.preferred-best.preferred < 2 || !c.steady(best)) {
		return false
	}
	why := "it has none that can lead"
	if valid {
		why = "its node is preferred by fewer shards than " + now.ID
	}
	if !c.preferLeader(g, best, "", why) {
		return false
	}
	best.preferred++
	if now != nil {
		now.preferred--
	}
	return true
}

func (c *cluster) preferLeader(g *group, n *node, operation, why string) bool {
	return c.emit(Step{
		Kind: Prefer, Group: g.Group, Node: n.ID, Replica: n.Replica, Operation: operation, Why: why,
		Command: &catalog.PreferLeader{Group: g.Group, ExpectVersion: g.Version, Node: n.ID},
	})
}

// leastLeading gives the node that could lead and leads the fewest shards.
func (c *cluster) leastLeading(g *group) (best *node) {
	for _, n := range c.nodes {
		if n != g.at && c.canLead(g, n) && (best == nil || n.leads < best.leads) {
			best = n
		}
	}
	return best
}

// handOver moves the leadership off a replica that must not keep it, to whoever shall lead; with force, else to whoever could.
func (c *cluster) handOver(g *group, force bool, why string) {
	if n := c.node(g.Leader); n != nil && n != g.at && c.canLead(g, n) {
		c.transfer(g, n, why)
		return
	}
	if n := c.leastLeading(g); n != nil {
		c.transfer(g, n, why)
		return
	}
	for _, n := range c.nodes {
		if force && n != g.at && c.couldLead(g, n) {
			c.transfer(g, n, why)
			return
		}
	}
}

// transfer plans a leadership transfer, at most one for each node at a time, and not soon after the last one of the group.
func (c *cluster) transfer(g *group, to *node, why string) bool {
	if c.moving[g.at.ID] || c.moving[to.ID] {
		return false
	}
	for _, t := range c.v.Transfers {
		if t.Group == g.Group && c.v.Now.Sub(t.At) < transferPause {
			return false
		}
	}
	if !c.change(g, TransferTo, to.Replica, why) {
		return false
	}
	c.moving[g.at.ID], c.moving[to.ID] = true, true
	g.at.leads--
	to.leads++
	return true
}
