package catalog_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/shard/shardtest"
	"pgregory.net/rapid"
)

// drawCommand draws any command about the cluster, often one that makes sense now.
func drawCommand(t *rapid.T, st catalog.Reader) catalog.Command {
	node := rapid.SampledFrom([]string{"n01", "n02", "n03", "n04", "n05"}).Draw(t, "node")
	replica := replicaID(node, rapid.IntRange(1, 2).Draw(t, "directory"))
	number := rapid.Uint32Range(0, 3).Draw(t, "group")
	p, _, err := catalog.GetPlacement(st, number)
	if err != nil {
		t.Fatal(err)
	}
	version := p.Version + rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(t, "ahead")
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "operation")
	o, _, err := catalog.GetOperation(st, id)
	if err != nil {
		t.Fatal(err)
	}
	switch rapid.IntRange(0, 8).Draw(t, "kind") {
	case 0:
		n := testNode(node, 1)
		n.Replica, n.Boot = replica, rapid.Uint64Range(1, 4).Draw(t, "boot")
		return &catalog.RegisterNode{Node: n}
	case 1:
		return &catalog.SetNodeState{
			Node: node, State: catalog.NodeState(rapid.IntRange(1, 3).Draw(t, "state")), Gone: rapid.Bool().Draw(t, "gone"),
		}
	case 2, 3, 4:
		return &catalog.ChangePlacement{Group: number, ExpectVersion: version, Replica: replica, State: rapid.SampledFrom(allReplicaStates).Draw(t, "replica state")}
	case 5:
		return &catalog.PreferLeader{Group: number, ExpectVersion: version, Node: node}
	case 6:
		params := catalog.OperationParams{Node: node, Group: number, From: node, To: "n04", AllShards: rapid.Bool().Draw(t, "all")}
		return register(id, catalog.OperationKind(rapid.IntRange(1, 8).Draw(t, "operation kind")), params)
	case 7:
		target := &catalog.OperationTarget{Group: number, State: catalog.TargetState(rapid.IntRange(1, 5).Draw(t, "target"))}
		return &catalog.AdvanceOperation{ID: id, ExpectVersion: o.Version, Target: target}
	default:
		return &catalog.FinishOperation{ID: id, ExpectVersion: o.Version, State: catalog.OperationState(rapid.IntRange(3, 6).Draw(t, "end"))}
	}
}

// checkCluster checks what must hold after every command.
func checkCluster(st catalog.Reader) error {
	placements, err := catalog.Placements(st)
	if err != nil {
		return err
	}
	for _, p := range placements {
		if p.Count(catalog.ReplicaVoter) == 0 {
			return fmt.Errorf("group %d has no voter", p.Group)
		}
		for i, r := range p.Replicas {
			if r.State == catalog.ReplicaNone || i > 0 && p.Replicas[i-1].ID >= r.ID {
				return fmt.Errorf("group %d: %+v", p.Group, p.Replicas)
			}
		}
		if p.Leader == "" {
			continue
		}
		if !slices.ContainsFunc(p.Replicas, func(r catalog.PlacedReplica) bool {
			return catalog.NodeOf(r.ID) == p.Leader && r.State == catalog.ReplicaVoter
		}) {
			return fmt.Errorf("group %d prefers %s, which does not vote", p.Group, p.Leader)
		}
	}
	open, err := catalog.OpenOperations(st)
	if err != nil {
		return err
	}
	all, err := catalog.Operations(st, 0, catalog.MaxOperations)
	if err != nil {
		return err
	}
	undone := 0
	for _, o := range all {
		if !o.State.Done() {
			undone++
		}
		if o.State.Done() != (o.CompletedAt != 0) {
			return fmt.Errorf("operation %s is %s and was completed at %d", o.ID, o.State, o.CompletedAt)
		}
	}
	if undone != len(open) {
		return fmt.Errorf("%d operations are open, the index has %d", undone, len(open))
	}
	return nil
}

// TestClusterCommands: whatever comes in whatever order, the invariants hold, what is refused changes nothing, and a second replica that
// applies the same log has the same bytes.
func TestClusterCommands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := shardtest.NewMem(), shardtest.NewMem()
		apply := func(index uint64, c catalog.Command) catalog.Result {
			e := &catalog.Entry{Index: index, Stamp: 1000, Commands: []catalog.Command{c}}
			r, err := catalog.Apply(a, e)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := catalog.Apply(b, e); err != nil {
				t.Fatal(err)
			}
			return r[0]
		}
		apply(1, &catalog.FoundCluster{Incarnation: 7, Shards: 3, Founders: founders(3)})
		for i := range rapid.IntRange(1, 60).Draw(t, "commands") {
			before := a.Clone()
			c := drawCommand(t, a)
			r := apply(uint64(i)+2, c)
			if !r.Changed && !before.Equal(a) {
				t.Fatalf("%T %+v says %+v and changed the state", c, c, r)
			}
			if err := checkCluster(a); err != nil {
				t.Fatalf("after %T %+v: %v", c, c, err)
			}
		}
		if !a.Equal(b) {
			t.Fatal("two replicas differ")
		}
	})
}
