package plan

import "github.com/sealane/sealane/catalog"

// addNode is the named record of a join: it is done when the node is registered and follows the control group.
func (c *cluster) addNode(o *catalog.Operation) {
	t := o.Targets[0]
	if t.State.Done() {
		return
	}
	n, g := c.node(o.Params.Node), c.group(catalog.ControlGroup)
	switch {
	case n == nil || n.State == catalog.NodeRemoved:
		t.Detail = "waiting for the node to register"
		c.advance(o, &t, "the node is not registered")
	case g != nil && g.leader != nil && g.State(n.Replica).Live() && c.caughtUp(g, n.Replica):
		c.advance(o, done(t), "the node follows the control group")
	default:
		c.advance(o, working(t, "registered; its copy of the control group is being filled"), "the node has registered")
	}
}

// subject gives the replica id of the node that remove_node, drain_node or activate_node means. The node id alone could mean a later node of
// the same name.
func subject(o *catalog.Operation) string {
	if len(o.Targets) == 0 {
		return ""
	}
	return o.Targets[0].Node
}

// drainNode keeps leaderships off a node. They are moved by the groups' rules; it is done when none is left.
func (c *cluster) drainNode(o *catalog.Operation) {
	t := o.Targets[0]
	n := c.holder(subject(o))
	switch {
	case t.State.Done():
	case n == nil || n.State == catalog.NodeRemoved:
		c.advance(o, failed(t, "the node was removed"), "it cannot be done any more")
	case n.State == catalog.NodeActive && t.State == catalog.TargetApplying:
		c.advance(o, failed(t, "the node was made ACTIVE meanwhile"), "it cannot be done any more")
	case n.State == catalog.NodeActive && !c.othersActive(n):
		c.advance(o, failed(t, "no other node is ACTIVE"), "it cannot be done")
	case n.State == catalog.NodeActive:
		c.setNode(o, n, catalog.NodeDraining, "it is being drained")
	case n.reachable() && !leads(n):
		c.advance(o, done(t), "it leads nothing any more")
	default:
		c.advance(o, working(t, "its leaderships are moving away"), "it is being drained")
	}
}

// leads says whether a node leads any group, the control group included.
func leads(n *node) bool {
	for i := range n.view.Groups {
		if n.view.Groups[i].Leads {
			return true
		}
	}
	return false
}

// activateNode lets a node lead and take replicas again.
func (c *cluster) activateNode(o *catalog.Operation) {
	t := o.Targets[0]
	n := c.holder(subject(o))
	switch {
	case t.State.Done():
	case n == nil || n.leaving:
		c.advance(o, failed(t, "the node was removed, or is being removed"), "it cannot be done any more")
	case n.State == catalog.NodeDraining:
		c.setNode(o, n, catalog.NodeActive, "it is activated")
	default:
		c.advance(o, done(t), "it is ACTIVE")
	}
}

// removeNode drains a node, waits until everything has moved off it, and ends it; a node that is gone is ended first. The moving is done by
// the groups' rules, to which the node is leaving.
func (c *cluster) removeNode(o *catalog.Operation) {
	replica := subject(o)
	n := c.holder(replica)
	if n != nil && n.State != catalog.NodeRemoved && !c.endNode(o, n) {
		return
	}
	for i := range o.Targets {
		t := o.Targets[i]
		g := c.group(t.Group)
		if t.State.Done() || g == nil {
			continue
		}
		switch state := g.State(replica); {
		case state == catalog.ReplicaNone && (t.Group != catalog.ControlGroup || n == nil || n.State == catalog.NodeRemoved):
			c.advance(o, done(t), "the replica is gone")
		case state != catalog.ReplicaVoter && state != catalog.ReplicaNone:
			c.advance(o, working(t, "the replica is "+state.String()), "the replica leaves")
		}
	}
}

// endNode takes the node's own state further. It returns false where a step was planned or the operation ends.
func (c *cluster) endNode(o *catalog.Operation, n *node) bool {
	switch {
	case o.Params.Gone && n.reachable():
		c.reject(o, "the node answers, so it is not gone; remove it without that word")
	case n.State == catalog.NodeActive && !c.othersActive(n):
		c.reject(o, "no other node is ACTIVE")
	case o.Params.Gone && c.silent(n) < goneAfter:
		// Wait: it may only be slow.
	case o.Params.Gone:
		c.setNode(o, n, catalog.NodeRemoved, "it is gone")
	case n.State == catalog.NodeActive:
		c.setNode(o, n, catalog.NodeDraining, "it is being removed")
	case c.unused(n):
		c.setNode(o, n, catalog.NodeRemoved, "everything has moved off it")
	default:
		return true
	}
	return false
}

func (c *cluster) setNode(o *catalog.Operation, n *node, state catalog.NodeState, why string) {
	c.emit(Step{
		Kind: SetNode, Group: catalog.ControlGroup, Node: n.ID, Replica: n.Replica, Operation: o.ID, Why: why,
		Command: &catalog.SetNodeState{Node: n.ID, State: state, Replica: n.Replica, Gone: o.Params.Gone},
	})
}

func (c *cluster) reject(o *catalog.Operation, why string) {
	for i := range o.Targets {
		if o.Targets[i].State != catalog.TargetPending {
			c.end(o, catalog.OperationCancelled, why)
			return
		}
	}
	c.end(o, catalog.OperationRejected, why)
}

func (c *cluster) othersActive(not *node) bool {
	for _, n := range c.nodes {
		if n != not && n.State == catalog.NodeActive {
			return true
		}
	}
	return false
}

// unused says whether a node holds nothing of any shard, tombstones included, and has no vote in the control group.
func (c *cluster) unused(n *node) bool {
	for _, g := range c.groups {
		state := g.State(n.Replica)
		if g.Group != catalog.ControlGroup {
			if state != catalog.ReplicaNone {
				return false
			}
			continue
		}
		if g.leader == nil || g.leader.MembersAt > g.leader.Commit {
			return false
		}
		if _, votes := g.member(n.Replica); votes || state == catalog.ReplicaVoter || state == catalog.ReplicaAdding {
			return false
		}
	}
	return true
}
