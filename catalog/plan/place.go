package plan

import "github.com/sealane/sealane/catalog"

// place records the next intent about a group's replicas. The rules are in the order of their urgency; the first that applies wins.
func (c *cluster) place(g *group) {
	rules := []func(*group) bool{c.dropUnfinished, c.addCopy, c.addVote, c.startMove, c.dropVote, c.replaced, c.dropCopy, c.tooManyVotes}
	for _, rule := range rules {
		if c.taken[g.Group] || rule(g) {
			return
		}
	}
}

// dropUnfinished gives up replicas that do not vote yet and never will: their node leaves, or is unreachable while another one could do.
func (c *cluster) dropUnfinished(g *group) bool {
	for i := range g.Replicas {
		r := &g.Replicas[i]
		n := c.holder(r.ID)
		if r.State != catalog.ReplicaAdding && r.State != catalog.ReplicaLearner {
			continue
		}
		switch {
		case n == nil || n.State == catalog.NodeRemoved || n.leaving && g.Group != catalog.ControlGroup:
			return c.record(g, r.ID, catalog.ReplicaRemoving, "its node leaves")
		case r.State == catalog.ReplicaLearner:
		case n.leaving:
			return c.record(g, r.ID, catalog.ReplicaLearner, "its node leaves")
		case c.silent(n) >= stuckAfter && g.move == nil:
			if g.Group == catalog.ControlGroup && c.learner(g) != "" {
				return c.record(g, r.ID, catalog.ReplicaLearner, "its node does not answer, another one can vote")
			}
			if g.Group != catalog.ControlGroup && c.candidate(g) != nil {
				return c.record(g, r.ID, catalog.ReplicaRemoving, "its node does not answer, another one can take it")
			}
		}
	}
	return false
}

// addCopy gives a group another replica where it has too few.
func (c *cluster) addCopy(g *group) bool {
	copies, voters, adding := c.tally(g)
	wanted, votes := c.wanted(g)
	if copies >= wanted {
		return false
	}
	n := c.candidate(g)
	if n == nil {
		return false
	}
	state := catalog.ReplicaLearner
	if voters+adding < votes && n.State == catalog.NodeActive {
		state = catalog.ReplicaAdding
	}
	return c.record(g, n.Replica, state, "the group has too few replicas")
}

// candidate gives the best node for another replica of a group; nil where there is none now. Every node takes the control group, and takes
// shards only once it follows that: it opens and destroys replicas by what it reads there.
func (c *cluster) candidate(g *group) (best *node) {
	for _, n := range c.nodes {
		if n.leaving || g.State(n.Replica) != catalog.ReplicaNone {
			continue // as a tombstone too: a new one must wait until the old one is gone
		}
		if g.Group == catalog.ControlGroup {
			return n
		}
		if !c.takes(n) {
			continue
		}
		if best == nil || n.replicas < best.replicas || n.replicas == best.replicas && n.preferred < best.preferred {
			best = n
		}
	}
	return best
}

// takes says whether a node may begin to fill a replica of a shard now.
func (c *cluster) takes(n *node) bool {
	control := c.group(catalog.ControlGroup)
	return fit(n) && n.reachable() && n.fills < maxFills && control != nil && control.State(n.Replica).Live() && c.caughtUp(control, n.Replica)
}

// addVote lets a learner become a voter where there are too few.
func (c *cluster) addVote(g *group) bool {
	_, voters, adding := c.tally(g)
	if _, votes := c.wanted(g); voters+adding >= votes {
		return false
	}
	id := c.learner(g)
	return id != "" && c.record(g, id, catalog.ReplicaAdding, "the group has too few voters")
}

// learner gives the best learner to become a voter, one on an ACTIVE node if there is any; empty where there is none now.
func (c *cluster) learner(g *group) (best string) {
	better := func(a, b *node) bool {
		if active := a.State == catalog.NodeActive; active != (b.State == catalog.NodeActive) {
			return active
		}
		return a.preferred < b.preferred
	}
	for i := range g.Replicas {
		r := &g.Replicas[i]
		if r.State != catalog.ReplicaLearner || !c.stays(r) || !c.alive(g, r.ID) {
			continue
		}
		if best == "" || better(c.holder(r.ID), c.holder(best)) {
			best = r.ID
		}
	}
	return best
}

// startMove adds the replica that an operation moves to its new node.
func (c *cluster) startMove(g *group) bool {
	if g.move == nil {
		return false
	}
	from, to := c.move(g)
	if to == nil || !c.takes(to) || !from.Live() || g.State(to.Replica) != catalog.ReplicaNone {
		return false
	}
	state := catalog.ReplicaAdding
	if from == catalog.ReplicaLearner {
		state = catalog.ReplicaLearner
	}
	return c.record(g, to.Replica, state, "operation "+g.move.ID+" moves it here")
}

// move gives the state of the replica that an operation moves away, and the node that it moves to.
func (c *cluster) move(g *group) (from catalog.ReplicaState, to *node) {
	if n := c.node(g.move.Params.From); n != nil {
		from = g.State(n.Replica)
	}
	return from, c.node(g.move.Params.To)
}

// dropVote makes a replica a learner that was on its way to a vote which is no longer wanted.
func (c *cluster) dropVote(g *group) bool {
	_, voters, adding := c.tally(g)
	if _, votes := c.wanted(g); adding == 0 || voters+adding <= votes || c.replacing(g) {
		return false
	}
	for i := range g.Replicas {
		if r := &g.Replicas[i]; r.State == catalog.ReplicaAdding && c.stays(r) {
			return c.record(g, r.ID, catalog.ReplicaLearner, "its vote is not wanted any more")
		}
	}
	return false
}

// replaced takes a voter of a leaving node out once those that stay are enough. In the control group its node goes on learning, so that it
// sees how its removal goes on.
func (c *cluster) replaced(g *group) bool {
	_, voters, _ := c.tally(g)
	if _, votes := c.wanted(g); voters < votes || voters == 0 || g.Count(catalog.ReplicaRemoving) > 0 {
		return false
	}
	for i := range g.Replicas {
		r := &g.Replicas[i]
		if r.State != catalog.ReplicaVoter || c.stays(r) || !c.quorum(g, "", r.ID) {
			continue
		}
		if n := c.holder(r.ID); g.Group == catalog.ControlGroup && n != nil && n.State != catalog.NodeRemoved {
			return c.record(g, r.ID, catalog.ReplicaLearner, "its node leaves and others vote")
		}
		return c.record(g, r.ID, catalog.ReplicaRemoving, "its node leaves and others vote")
	}
	return false
}

// dropCopy removes a replica where there are too many.
func (c *cluster) dropCopy(g *group) bool {
	victim := g.victim
	_, voters, adding := c.tally(g)
	_, votes := c.wanted(g)
	switch {
	case victim == "" || adding > 0 || g.Count(catalog.ReplicaRemoving) > 0:
		return false
	case g.State(victim) == catalog.ReplicaVoter && (voters <= votes || !c.quorum(g, "", victim)):
		return false
	}
	return c.record(g, victim, catalog.ReplicaRemoving, "the group has more replicas than it needs")
}

// surplus gives the replica of a shard that goes because there are too many; empty where there are not. It is the one that an operation
// moves away, else a learner beside enough voters, else one on a draining node, else the one whose node has most.
func (c *cluster) surplus(g *group) (victim string) {
	copies, _, _ := c.tally(g)
	if wanted, _ := c.wanted(g); g.Group == catalog.ControlGroup || copies <= wanted {
		return ""
	}
	if g.move != nil {
		from, to := c.move(g)
		if n := c.node(g.move.Params.From); from.Live() && !n.leaving && to != nil && g.State(to.Replica).Live() {
			return n.Replica
		}
	}
	better := func(a, b *catalog.PlacedReplica) bool {
		x, y := c.holder(a.ID), c.holder(b.ID)
		if learns := a.State == catalog.ReplicaLearner; learns != (b.State == catalog.ReplicaLearner) {
			return learns
		}
		if drains := x.State == catalog.NodeDraining; drains != (y.State == catalog.NodeDraining) {
			return drains
		}
		if x.replicas != y.replicas {
			return x.replicas > y.replicas
		}
		return a.ID != g.replica && b.ID == g.replica
	}
	var best *catalog.PlacedReplica
	for i := range g.Replicas {
		if r := &g.Replicas[i]; c.stays(r) && r.State != catalog.ReplicaAdding && (best == nil || better(r, best)) {
			best = r
		}
	}
	if best == nil {
		return ""
	}
	return best.ID
}

// tooManyVotes makes a voter a learner where more vote than shall, and all of them stay.
func (c *cluster) tooManyVotes(g *group) bool {
	copies, voters, adding := c.tally(g)
	wanted, votes := c.wanted(g)
	if voters <= votes || adding > 0 || copies > wanted {
		return false
	}
	worse := func(a, b *catalog.PlacedReplica) bool {
		x, y := c.holder(a.ID), c.holder(b.ID)
		if draining := x.State == catalog.NodeDraining; draining != (y.State == catalog.NodeDraining) {
			return draining
		}
		return a.ID != g.replica && (b.ID == g.replica || a.ID > b.ID)
	}
	var worst *catalog.PlacedReplica
	for i := range g.Replicas {
		r := &g.Replicas[i]
		if r.State == catalog.ReplicaVoter && c.stays(r) && c.quorum(g, "", r.ID) && (worst == nil || worse(r, worst)) {
			worst = r
		}
	}
	return worst != nil && c.record(g, worst.ID, catalog.ReplicaLearner, "more vote than shall")
}

// balance moves a replica to a node that has at least two fewer: after the move neither has more than the other by it, so no move is ever
// undone by the next.
func (c *cluster) balance(g *group) {
	if g.Group == catalog.ControlGroup || g.move != nil || !c.settled(g) {
		return
	}
	to := c.candidate(g)
	if to == nil || !c.steady(to) {
		return
	}
	for i := range g.Replicas {
		r := &g.Replicas[i]
		if n := c.holder(r.ID); n.reachable() && n.replicas-to.replicas >= 2 {
			if c.record(g, to.Replica, catalog.ReplicaAdding, "its node has fewer replicas than "+n.ID) {
				n.replicas--
			}
			return
		}
	}
}

// settled says whether nothing is going on in a group and all of it is alive.
func (c *cluster) settled(g *group) bool {
	copies, voters, _ := c.tally(g)
	wanted, votes := c.wanted(g)
	if copies != wanted || voters != votes || copies != len(g.Replicas) {
		return false
	}
	for i := range g.Replicas {
		r := &g.Replicas[i]
		in, voting := g.member(r.ID)
		if !in || voting != (r.State == catalog.ReplicaVoter) || !c.caughtUp(g, r.ID) {
			return false
		}
	}
	return true
}
