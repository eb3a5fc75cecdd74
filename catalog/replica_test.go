package catalog_test

import (
	"slices"
	"testing"

	"github.com/sealane/sealane/catalog"
)

// step makes one legal step of a replica.
func (g *group) step(number uint32, replica string, state catalog.ReplicaState) {
	g.t.Helper()
	p := g.placement(number)
	r := g.one(&catalog.ChangePlacement{Group: number, ExpectVersion: p.Version, Replica: replica, State: state})
	if r.Err != nil || !r.Changed || r.Placement.Version != p.Version+1 || r.Placement.State(replica) != state || r.Placement.Changed != g.index {
		g.t.Fatalf("%s of group %d to %s: %+v", replica, number, state, r)
	}
}

var allReplicaStates = []catalog.ReplicaState{
	catalog.ReplicaNone, catalog.ReplicaAdding, catalog.ReplicaVoter, catalog.ReplicaLearner, catalog.ReplicaRemoving, catalog.ReplicaTombstone,
}

// TestReplicaSteps tries every state after every state: these are the only legal steps.
func TestReplicaSteps(t *testing.T) {
	legal := map[catalog.ReplicaState][]catalog.ReplicaState{
		catalog.ReplicaNone:      {catalog.ReplicaAdding, catalog.ReplicaLearner},
		catalog.ReplicaAdding:    {catalog.ReplicaVoter, catalog.ReplicaLearner, catalog.ReplicaRemoving},
		catalog.ReplicaVoter:     {catalog.ReplicaLearner, catalog.ReplicaRemoving},
		catalog.ReplicaLearner:   {catalog.ReplicaAdding, catalog.ReplicaRemoving},
		catalog.ReplicaRemoving:  {catalog.ReplicaTombstone},
		catalog.ReplicaTombstone: {catalog.ReplicaNone},
	}
	way := map[catalog.ReplicaState][]catalog.ReplicaState{
		catalog.ReplicaAdding:    {catalog.ReplicaAdding},
		catalog.ReplicaVoter:     {catalog.ReplicaAdding, catalog.ReplicaVoter},
		catalog.ReplicaLearner:   {catalog.ReplicaLearner},
		catalog.ReplicaRemoving:  {catalog.ReplicaAdding, catalog.ReplicaRemoving},
		catalog.ReplicaTombstone: {catalog.ReplicaAdding, catalog.ReplicaRemoving, catalog.ReplicaTombstone},
	}
	for _, from := range allReplicaStates {
		for _, to := range append(slices.Clone(allReplicaStates), 6, 255) {
			t.Run(from.String()+" to "+to.String(), func(t *testing.T) {
				g := foundedGroup(t, 1, 1)
				g.one(&catalog.RegisterNode{Node: testNode("n09", 1)})
				id := replicaID("n09", 1)
				for _, s := range way[from] {
					g.step(1, id, s)
				}
				if slices.Contains(legal[from], to) {
					g.step(1, id, to)
					return
				}
				g.refused(&catalog.ChangePlacement{Group: 1, ExpectVersion: g.placement(1).Version, Replica: id, State: to}, catalog.ErrIllegalStep)
			})
		}
	}
}

func TestReplicaStepsRefused(t *testing.T) {
	g := foundedGroup(t, 3, 1)
	g.one(&catalog.RegisterNode{Node: testNode("n04", 1)})
	version := g.placement(1).Version
	add := func(group uint32, replica string) *catalog.ChangePlacement {
		return &catalog.ChangePlacement{Group: group, ExpectVersion: version, Replica: replica, State: catalog.ReplicaAdding}
	}
	g.refused(add(9, replicaID("n04", 1)), catalog.ErrNoSuchGroup)
	g.refused(add(1, "n04"), catalog.ErrIllegalStep)
	g.refused(add(1, replicaID("n04", 2)), catalog.ErrIllegalStep)
	g.refused(add(1, replicaID("n77", 1)), catalog.ErrIllegalStep)
	stale := add(1, replicaID("n04", 1))
	stale.ExpectVersion++
	g.refused(stale, catalog.ErrStale)
	g.one(&catalog.SetNodeState{Node: "n04", State: catalog.NodeDraining})
	g.refused(add(1, replicaID("n04", 1)), catalog.ErrIllegalStep)
	g.step(0, replicaID("n04", 1), catalog.ReplicaLearner) // the control group is on every node
}

// TestLastVoter: a group is never left without a voter.
func TestLastVoter(t *testing.T) {
	g := foundedGroup(t, 3, 1)
	g.step(1, replicaID("n01", 1), catalog.ReplicaRemoving)
	g.step(1, replicaID("n02", 1), catalog.ReplicaLearner)
	for _, state := range []catalog.ReplicaState{catalog.ReplicaLearner, catalog.ReplicaRemoving} {
		g.refused(&catalog.ChangePlacement{Group: 1, ExpectVersion: 3, Replica: replicaID("n03", 1), State: state}, catalog.ErrLastVoter)
	}
}

// TestTwoDirectoriesOfOneNode: the replica of a lost directory and that of the node that took its place are told apart.
func TestTwoDirectoriesOfOneNode(t *testing.T) {
	g := foundedGroup(t, 3, 1)
	g.one(&catalog.SetNodeState{Node: "n03", State: catalog.NodeRemoved, Gone: true})
	g.one(&catalog.RegisterNode{Node: testNode("n03", 2)})
	g.refused(&catalog.PreferLeader{Group: 1, Node: "n03"}, catalog.ErrIllegalStep) // its voter is the lost directory's
	g.step(1, replicaID("n03", 2), catalog.ReplicaAdding)
	g.step(1, replicaID("n03", 2), catalog.ReplicaVoter)
	g.step(1, replicaID("n03", 1), catalog.ReplicaRemoving)
	g.step(1, replicaID("n03", 1), catalog.ReplicaTombstone)
	if r := g.one(&catalog.PreferLeader{Group: 1, Node: "n03"}); r.Err != nil || r.Placement.Leader != "n03" {
		t.Errorf("%+v", r)
	}
	g.step(1, replicaID("n03", 1), catalog.ReplicaNone)
	if p := g.placement(1); p.State(replicaID("n03", 2)) != catalog.ReplicaVoter || len(p.Replicas) != 3 {
		t.Errorf("%+v", p)
	}
}

func TestPreferLeader(t *testing.T) {
	g := foundedGroup(t, 3, 1)
	g.refused(&catalog.PreferLeader{Group: 5, Node: "n01"}, catalog.ErrNoSuchGroup)
	g.refused(&catalog.PreferLeader{Group: 1, ExpectVersion: 9, Node: "n02"}, catalog.ErrStale)
	g.refused(&catalog.PreferLeader{Group: 1, Node: "n99"}, catalog.ErrIllegalStep)
	r := g.one(&catalog.PreferLeader{Group: 1, ExpectVersion: 1, Node: "n02"})
	if r.Err != nil || !r.Changed || r.Placement.Leader != "n02" || r.Placement.Version != 2 {
		t.Errorf("%+v", r)
	}
	if r := g.one(&catalog.PreferLeader{Group: 1, Node: "n02"}); r.Err != nil || r.Changed {
		t.Errorf("the same again: %+v", r)
	}
	g.step(1, replicaID("n02", 1), catalog.ReplicaLearner)
	if p := g.placement(1); p.Leader != "" {
		t.Errorf("%q is preferred and does not vote", p.Leader)
	}
	if r := g.one(&catalog.PreferLeader{Group: 1, Node: ""}); r.Err != nil || r.Changed {
		t.Errorf("none: %+v", r)
	}
}
