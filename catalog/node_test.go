package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sealane/sealane/catalog"
)

// TestRegister: a restart renews what is known of a node and keeps what was decided about it.
func TestRegister(t *testing.T) {
	g := newGroup(t)
	g.refused(&catalog.RegisterNode{Node: testNode("n01", 1)}, catalog.ErrNotFounded)
	g = foundedGroup(t, 2, 1)
	g.one(&catalog.SetNodeState{Node: "n01", State: catalog.NodeDraining})
	g.now = 2000
	again := testNode("n01", 1)
	again.Boot, again.PeerAddress, again.Version, again.LogVersion = 555, "elsewhere:1", "v2", 2
	again.State, again.RegisteredAt = catalog.NodeRemoved, 9 // not the node's to say
	r := g.one(&catalog.RegisterNode{Node: again})
	n := g.node("n01")
	if r.Err != nil || !r.Changed || n.Boot != 555 || n.PeerAddress != "elsewhere:1" || n.Version != "v2" || n.LogVersion != 2 {
		t.Errorf("%+v: %+v", r, n)
	}
	if n.State != catalog.NodeDraining || n.RegisteredAt != 1000 || n.RemovedAt != 0 || n.PastBoots[0] != 101 {
		t.Errorf("%+v", n)
	}
	if r := g.one(&catalog.RegisterNode{Node: again}); r.Err != nil || r.Changed {
		t.Errorf("the same again: %+v", r)
	}
	late := testNode("n01", 1)
	if r := g.one(&catalog.RegisterNode{Node: late}); r.Err != nil || g.node("n01").Boot != 555 {
		t.Errorf("a registration of an ended process: %+v, now boot %d", r, g.node("n01").Boot)
	}
}

// TestAnotherDirectory: a node id belongs to one data directory until that one is REMOVED, and a removed directory never comes back.
func TestAnotherDirectory(t *testing.T) {
	g := foundedGroup(t, 2, 1)
	g.refused(&catalog.RegisterNode{Node: testNode("n02", 2)}, catalog.ErrNodeConflict)
	g.one(&catalog.SetNodeState{Node: "n02", State: catalog.NodeDraining})
	g.refused(&catalog.RegisterNode{Node: testNode("n02", 2)}, catalog.ErrNodeConflict)
	g.now = 3000
	if r := g.one(&catalog.SetNodeState{Node: "n02", State: catalog.NodeRemoved, Gone: true}); r.Err != nil || r.Node.RemovedAt != 3000 {
		t.Fatalf("%+v", r)
	}
	g.refused(&catalog.RegisterNode{Node: testNode("n02", 1)}, catalog.ErrNodeRemoved)
	r := g.one(&catalog.RegisterNode{Node: testNode("n02", 2)})
	if n := g.node("n02"); r.Err != nil || n.Replica != replicaID("n02", 2) || n.State != catalog.NodeActive || n.RegisteredAt != 3000 || n.RemovedAt != 0 {
		t.Errorf("%+v: %+v", r, n)
	}
	g.refused(&catalog.SetNodeState{Node: "n02", State: catalog.NodeRemoved, Replica: replicaID("n02", 1), Gone: true}, catalog.ErrStale)
}

func TestRegisterRefused(t *testing.T) {
	for name, break_ := range map[string]func(*catalog.Node){
		"no id": func(n *catalog.Node) { n.ID = "" },
		"a long id": func(n *catalog.Node) {
			n.ID = strings.Repeat("n", catalog.MaxNodeIDBytes+1)
			n.Replica = replicaID(n.ID, 1)
		},
		"an id with at":     func(n *catalog.Node) { n.ID = "a@b"; n.Replica = replicaID(n.ID, 1) },
		"an id with space":  func(n *catalog.Node) { n.ID = "a b"; n.Replica = replicaID(n.ID, 1) },
		"another's replica": func(n *catalog.Node) { n.Replica = replicaID("n02", 1) },
		"no store":          func(n *catalog.Node) { n.Replica = n.ID + "@" },
		"a store too short": func(n *catalog.Node) { n.Replica = n.ID + "@0123456789abcde" },
		"a store not hex":   func(n *catalog.Node) { n.Replica = n.ID + "@0123456789ABCDEF" },
		"no peer address":   func(n *catalog.Node) { n.PeerAddress = "" },
		"a long address":    func(n *catalog.Node) { n.HTTPAddress = strings.Repeat("x", catalog.MaxAddressBytes+1) },
		"a broken address":  func(n *catalog.Node) { n.GRPCAddress = "\xff" },
		"a long version":    func(n *catalog.Node) { n.Version = strings.Repeat("x", catalog.MaxVersionBytes+1) },
		"no boot":           func(n *catalog.Node) { n.Boot = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			g := foundedGroup(t, 1, 1)
			n := testNode("n09", 1)
			break_(&n)
			g.refused(&catalog.RegisterNode{Node: n}, catalog.ErrInvalid)
		})
	}
}

// TestNodesAreBounded: the live ones by a refusal, the removed ones by forgetting the oldest that nothing names.
func TestNodesAreBounded(t *testing.T) {
	g := foundedGroup(t, catalog.MaxNodes, 1)
	g.refused(&catalog.RegisterNode{Node: testNode("more", 1)}, catalog.ErrTooManyNodes)
	for i := range 300 {
		g.now++
		id := fmt.Sprintf("n%02d", catalog.MaxNodes)
		if i > 0 {
			id = fmt.Sprintf("x%d", i)
		}
		if r := g.one(&catalog.SetNodeState{Node: id, State: catalog.NodeRemoved, Gone: true}); r.Err != nil {
			t.Fatal(r.Err)
		}
		if r := g.one(&catalog.RegisterNode{Node: testNode(fmt.Sprintf("x%d", i+1), 1)}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	nodes, err := catalog.Nodes(g.st)
	if err != nil || len(nodes) != catalog.MaxNodes+255 {
		t.Errorf("%d records, %v", len(nodes), err)
	}
	if n := g.node(fmt.Sprintf("n%02d", catalog.MaxNodes)); n.State != catalog.NodeRemoved {
		t.Errorf("a placement names it still, and it is %s", n.State)
	}
	if _, ok, err := catalog.GetNode(g.st, "x1"); ok || err != nil {
		t.Errorf("the oldest removed one is still there: %v", err)
	}
}

// TestNodeStates tries every state after every state.
func TestNodeStates(t *testing.T) {
	const active, draining, removed = catalog.NodeActive, catalog.NodeDraining, catalog.NodeRemoved
	for _, c := range []struct {
		from, to catalog.NodeState
		want     error
	}{
		{active, active, nil}, {active, draining, nil}, {active, removed, nil}, {active, 0, catalog.ErrInvalid}, {active, 4, catalog.ErrInvalid},
		{draining, active, nil}, {draining, draining, nil}, {draining, removed, nil},
		{removed, active, catalog.ErrNodeRemoved}, {removed, draining, catalog.ErrNodeRemoved}, {removed, removed, nil},
	} {
		t.Run(c.from.String()+" to "+c.to.String(), func(t *testing.T) {
			g := foundedGroup(t, 2, 1)
			if c.from != active {
				if r := g.one(&catalog.SetNodeState{Node: "n01", State: c.from, Gone: true}); r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			cmd := &catalog.SetNodeState{Node: "n01", State: c.to, Gone: true}
			if c.want != nil {
				g.refused(cmd, c.want)
				return
			}
			r := g.one(cmd)
			if r.Err != nil || r.Changed != (c.from != c.to) || g.node("n01").State != c.to || r.Node.State != c.to {
				t.Errorf("%+v", r)
			}
		})
	}
	g := foundedGroup(t, 2, 1)
	g.refused(&catalog.SetNodeState{Node: "n99", State: draining}, catalog.ErrNodeNotFound)
	g.one(&catalog.SetNodeState{Node: "n01", State: draining})
	g.refused(&catalog.SetNodeState{Node: "n02", State: draining}, catalog.ErrLastNode)
	g.refused(&catalog.SetNodeState{Node: "n02", State: removed, Gone: true}, catalog.ErrLastNode)
}

// TestRemovedHoldsNothing: without the word that it is gone, a node is REMOVED only when it holds no shard and has no vote.
func TestRemovedHoldsNothing(t *testing.T) {
	g := foundedGroup(t, 3, 1)
	end := &catalog.SetNodeState{Node: "n03", State: catalog.NodeRemoved}
	g.refused(end, catalog.ErrNodeInUse)
	id := replicaID("n03", 1)
	for _, state := range []catalog.ReplicaState{catalog.ReplicaRemoving, catalog.ReplicaTombstone} {
		g.step(1, id, state)
	}
	g.refused(end, catalog.ErrNodeInUse) // the control group's vote
	g.step(0, id, catalog.ReplicaLearner)
	if r := g.one(end); r.Err != nil || !r.Changed {
		t.Errorf("%+v", r)
	}
}
