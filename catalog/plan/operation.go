package plan

import (
	"fmt"
	"time"

	"github.com/sealane/sealane/catalog"
)

// How long an operation that only needs a living leader waits for it before it gives up. Others wait until they are cancelled.
const (
	transferWithin = time.Minute
	longWithin     = 10 * time.Minute
)

// operation plans the next step of a cluster operation itself: its stages and targets. What it wants of the groups is done by the groups'
// own rules, which know of it.
func (c *cluster) operation(o *catalog.Operation) {
	if o.State.Done() || len(o.Targets) == 0 {
		return
	}
	if o.State == catalog.OperationRegistered {
		c.advance(o, nil, "it is taken up")
		return
	}
	switch o.Kind {
	case catalog.AddNode:
		c.addNode(o)
	case catalog.RemoveNode:
		c.removeNode(o)
	case catalog.MoveReplica:
		c.moveReplica(o)
	case catalog.TransferLeadership:
		c.transferLeadership(o)
	case catalog.Snapshot:
		c.each(o, TakeSnapshot)
	case catalog.VerifyDigests:
		c.each(o, CompareDigests)
	case catalog.DrainNode:
		c.drainNode(o)
	case catalog.ActivateNode:
		c.activateNode(o)
	}
	c.finish(o)
}

// advance records a target's stage; nil makes the operation APPLYING only. A stage that is recorded already costs nothing.
func (c *cluster) advance(o *catalog.Operation, t *catalog.OperationTarget, why string) bool {
	group := o.Targets[0].Group
	if t != nil {
		group = t.Group
		if have := o.Target(t.Group); have != nil && same(have, t) {
			return false
		}
	}
	return c.emit(Step{
		Kind: Advance, Group: group, Operation: o.ID, Why: why,
		Command: &catalog.AdvanceOperation{ID: o.ID, ExpectVersion: o.Version, Target: t},
	})
}

func same(a, b *catalog.OperationTarget) bool {
	return a.State == b.State && a.Node == b.Node && a.Detail == b.Detail && a.Matched == b.Matched && a.Applied == b.Applied &&
		a.Skipped == b.Skipped && a.Failed == b.Failed && len(a.Replicas) == len(b.Replicas)
}

// done is a target that has taken effect.
func done(t catalog.OperationTarget) *catalog.OperationTarget {
	t.State, t.Detail, t.Matched, t.Applied = catalog.TargetCompleted, "", 1, 1
	return &t
}

// failed is a target that is over without its effect: REJECTED if nothing was done, else COMPLETED with a failure.
func failed(t catalog.OperationTarget, why string) *catalog.OperationTarget {
	t.Detail, t.Matched, t.Failed = why, 1, 1
	if t.State == catalog.TargetPending {
		t.State = catalog.TargetRejected
	} else {
		t.State = catalog.TargetCompleted
	}
	return &t
}

// working is a target that is being worked on, with what is going on.
func working(t catalog.OperationTarget, detail string) *catalog.OperationTarget {
	t.State, t.Detail = catalog.TargetApplying, detail
	return &t
}

// finish ends an operation whose targets are all done.
func (c *cluster) finish(o *catalog.Operation) {
	state, detail := catalog.OperationCompleted, ""
	rejected := 0
	for i := range o.Targets {
		t := &o.Targets[i]
		if !t.State.Done() {
			return
		}
		if t.State == catalog.TargetRejected {
			rejected++
		}
		if t.State != catalog.TargetCompleted || t.Failed > 0 || t.Skipped > 0 {
			state = catalog.OperationOutstanding
			if detail == "" {
				detail = fmt.Sprintf("group %d: %s", t.Group, t.Detail)
			}
		}
	}
	if rejected == len(o.Targets) {
		state = catalog.OperationRejected
	}
	c.end(o, state, detail)
}

func (c *cluster) end(o *catalog.Operation, state catalog.OperationState, detail string) {
	why := "every target is done"
	if detail != "" {
		why = detail
	}
	c.emit(Step{
		Kind: Finish, Group: o.Targets[0].Group, Operation: o.ID, Why: why,
		Command: &catalog.FinishOperation{ID: o.ID, ExpectVersion: o.Version, State: state, Detail: detail},
	})
}

// moveReplica follows a move, which the group's own rules make.
func (c *cluster) moveReplica(o *catalog.Operation) {
	t := o.Targets[0]
	g := c.group(t.Group)
	if t.State.Done() || g == nil {
		return
	}
	from, to := c.node(o.Params.From), c.node(o.Params.To)
	arriving, leaving := catalog.ReplicaNone, catalog.ReplicaNone
	if to != nil {
		arriving = g.State(to.Replica)
	}
	if from != nil {
		leaving = g.State(from.Replica)
	}
	arrived := arriving == catalog.ReplicaVoter || arriving == catalog.ReplicaLearner
	copies, _, _ := c.tally(g)
	wanted, _ := c.wanted(g)
	switch {
	case arrived && !leaving.Open():
		c.advance(o, done(t), "the replica has moved")
	case arrived && leaving.Live() && !from.leaving && copies <= wanted:
		// Another replica has left meanwhile, so the new one is in its place.
		c.advance(o, failed(t, "the group needs the replica on "+o.Params.From+" too"), "another replica has left meanwhile")
	case arriving.Live():
		detail := fmt.Sprintf("%s is %s, %s is %s", o.Params.To, arriving, o.Params.From, leaving)
		c.advance(o, working(t, detail), "the move goes on")
	case to == nil || to.State != catalog.NodeActive || to.leaving:
		c.advance(o, failed(t, "node "+o.Params.To+" is not ACTIVE"), "it cannot be done any more")
	case !leaving.Live():
		c.advance(o, failed(t, "node "+o.Params.From+" holds no replica any more"), "it cannot be done any more")
	case !to.reachable():
		t.Detail = "waiting for node " + o.Params.To + " to answer"
		c.advance(o, &t, "its node does not answer")
	}
}

// transferLeadership hands a shard over once, and makes the new leader the preferred one, so that it is not handed back.
func (c *cluster) transferLeadership(o *catalog.Operation) {
	t := o.Targets[0]
	g := c.group(t.Group)
	if t.State.Done() || g == nil {
		return
	}
	late := c.v.Now.Sub(o.RegisteredAt) > transferWithin
	if t.Node == "" {
		n := c.node(o.Params.To)
		if o.Params.To == "" && g.leader != nil {
			n = c.mostAdvanced(g)
		}
		switch {
		case n != nil:
			t.Node = n.ID
			c.advance(o, working(t, "to node "+n.ID), "its node is chosen")
		case late:
			c.advance(o, failed(t, "no other voter could take over in time"), "it takes too long")
		}
		return
	}
	n := c.node(t.Node)
	switch {
	case g.leader != nil && g.at == n:
		c.advance(o, done(t), "its node leads")
	case late:
		c.advance(o, failed(t, "node "+t.Node+" did not take over in time"), "it takes too long")
	case n == nil || g.leader == nil || !c.canLead(g, n) || !c.ready(g):
	case g.Leader != n.ID:
		c.preferLeader(g, n, o.ID, "operation "+o.ID)
	default:
		c.transfer(g, n, "operation "+o.ID)
	}
}

// mostAdvanced gives the node that could lead and has applied most.
func (c *cluster) mostAdvanced(g *group) (best *node) {
	for _, n := range c.nodes {
		if n == g.at || !c.canLead(g, n) {
			continue
		}
		if best == nil || n.viewOf(g.Group).Applied > best.viewOf(g.Group).Applied {
			best = n
		}
	}
	return best
}

// each does one long step in every target, a few at a time. Whoever executes it records the target's end.
func (c *cluster) each(o *catalog.Operation, kind StepKind) {
	late := c.v.Now.Sub(o.RegisteredAt) > longWithin
	for i := range o.Targets {
		t := o.Targets[i]
		g := c.group(t.Group)
		switch {
		case t.State.Done():
		case g == nil || late:
			c.advance(o, failed(t, "no leader could do it in time"), "it takes too long")
		case g.leader != nil && c.long < maxLong && !c.taken[t.Group]:
			s := Step{Kind: kind, Group: t.Group, Leader: g.at.ID, Node: g.at.ID, Operation: o.ID, Why: "operation " + o.ID, Members: g.leader.Members}
			for _, m := range g.leader.Members {
				if c.alive(g, m.Replica) {
					s.Alive = append(s.Alive, m.Replica)
				}
			}
			c.emit(s)
			c.long++
		}
	}
}
