package whole

import (
	"context"
	"fmt"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/server"
)

// operationWait bounds a cluster operation, faults around it included.
const operationWait = 60 * time.Second

// run registers a cluster operation and waits for its end; false where it did not come to one in time.
func (n *nemesis) operate(req *sealanev1.CreateOperationRequest) (state sealanev1.OperationState_Value, ok bool) {
	req.Reason = "simulation"
	o, err := n.load.operation(req, operationWait)
	if err != nil {
		n.trace.note("nemesis", "operation %s: %v", req.GetOperationId(), err)
		return 0, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), operationWait)
	defer cancel()
	for o.GetState() < sealanev1.OperationState_COMPLETED {
		if rest(ctx, 250*time.Millisecond) != nil {
			n.trace.note("nemesis", "operation %s has not ended: %v", req.GetOperationId(), o)
			return o.GetState(), false
		}
		try, done := context.WithTimeout(ctx, callWait)
		r, err := n.load.client.Control().GetOperation(try, &sealanev1.GetOperationRequest{Id: req.GetOperationId()})
		done()
		if err == nil {
			o = r.GetOperation()
		}
	}
	n.trace.note("nemesis", "operation %s ended: %v", req.GetOperationId(), o)
	return o.GetState(), true
}

func (n *nemesis) transfer() {
	n.operate(transferTo(n.name("transfer"), uint32(n.dice.int(int(n.plan.shards))), n.dice.pick(append(n.cluster.up(), ""))))
}

func transferTo(id string, shard uint32, node string) *sealanev1.CreateOperationRequest {
	return &sealanev1.CreateOperationRequest{OperationId: id, Parameters: &sealanev1.CreateOperationRequest_TransferLeadership{
		TransferLeadership: &sealanev1.TransferLeadership{Shard: shard, ToNodeId: node},
	}}
}

// flap moves leaderships as fast as it can.
func (n *nemesis) flap() {
	for range 6 {
		shard := uint32(n.dice.int(int(n.plan.shards)))
		id, node := n.name("flap"), n.dice.pick(n.cluster.up())
		n.background.Go(func() {
			req := transferTo(id, shard, node)
			req.Reason = "simulation"
			_, err := n.load.operation(req, 10*time.Second)
			n.trace.note("nemesis", "%s shard %d to %s: %v", id, shard, node, err)
		})
		n.dice.rest(100, 500)
	}
}

// transferCut begins a transfer and cuts the target off at once.
func (n *nemesis) transferCut() {
	node := n.dice.pick(n.cluster.up())
	if node == "" {
		return
	}
	req := transferTo(n.name("cut"), uint32(n.dice.int(int(n.plan.shards))), node)
	n.background.Go(func() { n.operate(req) })
	n.dice.rest(0, 300)
	all := n.cluster.all()
	n.between([]string{node}, all, n.cluster.network.hold)
	n.dice.rest(300, 4000)
	n.between([]string{node}, all, n.cluster.network.release)
}

func (n *nemesis) snapshot() {
	n.operate(&sealanev1.CreateOperationRequest{
		OperationId: n.name("snapshot"), Parameters: &sealanev1.CreateOperationRequest_Snapshot{Snapshot: &sealanev1.Snapshot{}},
	})
}

// move moves a replica from one node to another; where the one has none or the other has one already, it is refused.
func (n *nemesis) move() {
	two := n.dice.shuffled(n.cluster.up())
	if len(two) < 2 {
		return
	}
	n.operate(&sealanev1.CreateOperationRequest{
		OperationId: n.name("move"), Parameters: &sealanev1.CreateOperationRequest_MoveReplica{MoveReplica: &sealanev1.MoveReplica{
			Shard: uint32(n.dice.int(int(n.plan.shards))), FromNodeId: two[0], ToNodeId: two[1],
		}},
	})
}

func (n *nemesis) drain() {
	id := n.dice.pick(n.cluster.up())
	n.operate(&sealanev1.CreateOperationRequest{
		OperationId: n.name("drain"), Parameters: &sealanev1.CreateOperationRequest_DrainNode{DrainNode: &sealanev1.DrainNode{NodeId: id}},
	})
	n.dice.rest(0, 3000)
	n.operate(&sealanev1.CreateOperationRequest{
		OperationId: n.name("activate"), Parameters: &sealanev1.CreateOperationRequest_ActivateNode{ActivateNode: &sealanev1.ActivateNode{NodeId: id}},
	})
}

// maxNodes bounds how far a run grows.
const maxNodes = 6

// join adds a node.
func (n *nemesis) join() {
	through := n.dice.pick(n.cluster.up())
	if len(n.cluster.all()) >= maxNodes || through == "" {
		return
	}
	n.joinThrough(n.cluster.addNext(), through)
}

func (n *nemesis) joinThrough(id, through string) {
	n.cluster.joins(id, through)
	n.cluster.start(id)
	n.cluster.awaitNode(id)
}

// remove takes a node out in order, with its help. It stops by itself when it learns that it was removed.
func (n *nemesis) remove() {
	all := n.cluster.all()
	id := n.dice.pick(all)
	if len(all) <= 3 || !n.cluster.leave(id) {
		return
	}
	n.expect(id, server.ErrRemoved)
	_, ended := n.operate(removal(n.name("remove"), id, false))
	if !ended {
		n.problem("the removal of %s did not end within %s", id, operationWait)
	}
	n.dice.rest(2000, 4000) // it learns of it
	n.cluster.retire(id)
}

func removal(id, node string, gone bool) *sealanev1.CreateOperationRequest {
	return &sealanev1.CreateOperationRequest{OperationId: id, Parameters: &sealanev1.CreateOperationRequest_RemoveNode{
		RemoveNode: &sealanev1.RemoveNode{NodeId: node, Gone: gone},
	}}
}

// wiped is a node that loses its disk: under its old name it may not come back, until it was removed; then it joins as another replica.
func (n *nemesis) wiped() {
	id := n.dice.pick(n.cluster.up())
	if id == "" || !n.cluster.leave(id) {
		return
	}
	n.crash(id)
	n.cluster.wipe(id)
	n.expect(id, server.ErrDirectoryLost, server.ErrAlreadyFounded, server.ErrJoin)
	if n.dice.int(2) == 0 { // somebody starts it as if nothing had happened
		p := n.cluster.start(id)
		n.cluster.awaitRefusal(p)
	}
	_, ended := n.operate(removal(n.name("gone"), id, true))
	if !ended {
		n.problem("the removal of %s, whose disk was lost, did not end within %s", id, operationWait)
	}
	n.expect(id)
	n.cluster.returns(id)
	if through := n.dice.pick(n.cluster.up()); through != "" {
		n.joinThrough(id, through)
	}
}

// removedCutOff removes a node that cannot hear of it, and lets it come back.
func (n *nemesis) removedCutOff() {
	all := n.cluster.all()
	id := n.dice.pick(n.cluster.up())
	if id == "" || len(all) <= 3 || !n.cluster.leave(id) {
		return
	}
	n.between([]string{id}, all, n.cluster.network.hold)
	_, ended := n.operate(removal(n.name("lost"), id, true))
	if !ended {
		n.problem("the removal of %s, which was cut off, did not end within %s", id, operationWait)
	}
	n.expect(id, server.ErrRemoved, server.ErrJoin)
	n.between([]string{id}, append(all, clientHost), n.cluster.network.release)
	if n.dice.int(2) == 0 {
		n.crash(id)
		n.cluster.start(id)
	}
	n.dice.rest(5000, 15_000)
	n.cluster.retire(id)
}

// String names a member for the trace.
func (m *member) String() string { return fmt.Sprintf("%s (boot %d)", m.id, m.boots) }
