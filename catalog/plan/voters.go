package plan

import "github.com/sealane/sealane/catalog"

// How many replicas vote.
//
// A group wants as many voters as the replication factor, or as there are nodes, and an odd number (catalog.Voters). The control group wants
// ControlVoters, and every other node has a learner of it.
//
// Two nodes. Growing from one node to two leaves one voter and makes the second copy a learner: with two voters either node's failure would
// stop every shard, so a cluster would become less available by growing. The second and third voters are promoted one after the other once
// both have caught up, so that the time with two voters is two steps. Shrinking from three nodes to two keeps both voters: taking one's vote
// would leave every later write on one disk, and a cluster must not become less durable by itself. So the number of voters passes through
// an even number, but grows to one only when the next vote is ready too.
//
// Raft changes one member at a time, so a replacement is a voter before the replaced one leaves: three voters become four, then three.
// Four tolerate one failure like three.

// wanted says how many copies and how many votes a group shall have.
func (c *cluster) wanted(g *group) (copies, votes int) {
	n, voting := 0, 0
	for _, nd := range c.nodes {
		state := g.State(nd.Replica)
		if nd.leaving || nd.State != catalog.NodeActive && !state.Live() {
			continue
		}
		n++
		if state == catalog.ReplicaVoter {
			voting++
		}
	}
	factor := int(c.v.Cluster.ReplicationFactor)
	copies = min(n, factor)
	if g.Group == catalog.ControlGroup {
		factor, copies = catalog.ControlVoters, n
	}
	votes = catalog.Voters(n, factor)
	if n == 2 && factor >= 3 && voting == 2 {
		votes = 2
	}
	return copies, votes
}

// tally counts a group's replicas that stay: all live ones, those that are voters, and those that are on their way.
func (c *cluster) tally(g *group) (copies, voters, adding int) {
	for i := range g.Replicas {
		r := &g.Replicas[i]
		if !c.stays(r) {
			continue
		}
		copies++
		switch r.State {
		case catalog.ReplicaVoter:
			voters++
		case catalog.ReplicaAdding:
			adding++
		}
	}
	return copies, voters, adding
}

// quorum says whether a majority of the voters would be alive after a replica got or lost its vote.
func (c *cluster) quorum(g *group, gains, loses string) bool {
	voters, alive := 0, 0
	one := func(replica string) {
		voters++
		if c.alive(g, replica) {
			alive++
		}
	}
	for _, m := range g.leader.Members {
		if m.Voter && m.Replica != loses {
			one(m.Replica)
		}
	}
	if gains != "" {
		one(gains)
	}
	return alive > voters/2
}

// follow records what Raft has done, and lets Raft do what is recorded, but for promotions: those are vote's.
func (c *cluster) follow(g *group) {
	for _, r := range g.Replicas {
		in, votes := g.member(r.ID)
		switch {
		case r.State == catalog.ReplicaAdding && votes:
			c.record(g, r.ID, catalog.ReplicaVoter, "it votes")
		case r.State == catalog.ReplicaRemoving && !in:
			c.record(g, r.ID, catalog.ReplicaTombstone, "it is no member any more")
		}
	}
	for _, r := range g.Replicas {
		in, votes := g.member(r.ID)
		leaves := r.State == catalog.ReplicaRemoving && in || r.State == catalog.ReplicaLearner && votes
		switch {
		case !leaves:
		case r.ID == g.replica:
			c.handOver(g, true, "its leader's replica leaves")
		case votes && !c.quorum(g, "", r.ID):
			// Wait: what is left would not be a living majority.
		case r.State == catalog.ReplicaLearner:
			c.change(g, Demote, r.ID, "it shall only learn")
		default:
			c.change(g, RemoveMember, r.ID, "it is being removed")
		}
	}
	for _, r := range g.Replicas {
		if in, _ := g.member(r.ID); !in && r.State.Live() && c.alive(g, r.ID) {
			c.change(g, AddLearner, r.ID, "it is to be filled")
		}
	}
}

// vote promotes what has caught up.
func (c *cluster) vote(g *group) {
	var ready []string
	for _, r := range g.Replicas {
		in, votes := g.member(r.ID)
		wants := r.State == catalog.ReplicaAdding || r.State == catalog.ReplicaVoter
		if wants && in && !votes && c.stays(&r) && c.caughtUp(g, r.ID) {
			ready = append(ready, r.ID)
		}
	}
	_, wanted := c.wanted(g)
	after := g.voters() + 1
	// An even number of voters is passed through only where the next step makes it odd again: by another promotion, or because one of those
	// that vote is about to leave.
	if len(ready) == 0 || after%2 == 0 && after < wanted && len(ready) < 2 || after > wanted && !c.replacing(g) {
		return
	}
	for _, id := range ready {
		if c.quorum(g, id, "") {
			c.change(g, Promote, id, "it has caught up")
			return
		}
	}
}

// replacing says whether a voter goes once another one has come: its node leaves, or the group has more copies than it wants.
func (c *cluster) replacing(g *group) bool {
	for i := range g.Replicas {
		if r := &g.Replicas[i]; r.State == catalog.ReplicaVoter && !c.stays(r) {
			return true
		}
	}
	copies, _, _ := c.tally(g)
	wanted, _ := c.wanted(g)
	return copies > wanted
}
