package catalog_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/sealane/sealane/catalog"
	"pgregory.net/rapid"
)

// replicaID gives the replica id of a node whose data directory is the given number.
func replicaID(node string, directory int) string { return fmt.Sprintf("%s@%016x", node, directory) }

// testNode is a node as it registers.
func testNode(id string, directory int) catalog.Node {
	return catalog.Node{
		ID: id, Replica: replicaID(id, directory), PeerAddress: id + ".example:7452", GRPCAddress: id + ".example:7450",
		HTTPAddress: id + ".example:7451", Version: "v1", Boot: uint64(100 + directory), LogVersion: 1,
	}
}

func founders(n int) []catalog.Node {
	var out []catalog.Node
	for i := range n {
		out = append(out, testNode(fmt.Sprintf("n%02d", i+1), 1))
	}
	return out
}

// foundedGroup is the control group of a cluster of n nodes.
func foundedGroup(t testing.TB, n int, shards uint32) *group {
	t.Helper()
	g := newGroup(t)
	if r := g.one(&catalog.FoundCluster{Incarnation: 7, Shards: shards, Founders: founders(n)}); r.Err != nil || !r.Changed {
		t.Fatalf("founding: %+v", r)
	}
	return g
}

func (g *group) placement(number uint32) catalog.Placement {
	g.t.Helper()
	p, ok, err := catalog.GetPlacement(g.st, number)
	if err != nil || !ok {
		g.t.Fatalf("placement of group %d: %v %v", number, ok, err)
	}
	return p
}

func (g *group) node(id string) catalog.Node {
	g.t.Helper()
	n, ok, err := catalog.GetNode(g.st, id)
	if err != nil || !ok {
		g.t.Fatalf("node %s: %v %v", id, ok, err)
	}
	return n
}

// refused checks that a command has a verdict and changes nothing.
func (g *group) refused(c catalog.Command, want error) {
	g.t.Helper()
	before := g.dump()
	if r := g.one(c); !errors.Is(r.Err, want) || r.Changed {
		g.t.Errorf("%+v: got %+v, want %v", c, r, want)
	}
	if after := g.dump(); !slices.Equal(before, after) {
		g.t.Errorf("%+v was refused and changed the state", c)
	}
}

// dump gives the state but for the group's own clock and counters.
func (g *group) dump() (out []string) {
	g.t.Helper()
	err := g.st.Scan([]byte{0x02}, nil, false, func(k, v []byte) (bool, error) {
		out = append(out, fmt.Sprintf("%x %s", k, v))
		return true, nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

func TestVoters(t *testing.T) {
	for _, c := range []struct{ nodes, factor, want int }{
		{0, 3, 1}, {1, 3, 1}, {2, 3, 1}, {3, 3, 3}, {4, 3, 3}, {64, 3, 3}, {4, 5, 3}, {5, 5, 5}, {6, 5, 5}, {3, 1, 1},
	} {
		if got := catalog.Voters(c.nodes, c.factor); got != c.want {
			t.Errorf("%d nodes, factor %d: %d voters, want %d", c.nodes, c.factor, got, c.want)
		}
	}
}

// TestFounding: three founders hold every shard, each votes everywhere, and leaders are spread.
func TestFounding(t *testing.T) {
	g := foundedGroup(t, 3, 4)
	c, ok, err := catalog.GetCluster(g.st)
	if err != nil || !ok || c != (catalog.Cluster{Incarnation: 7, Shards: 4, FoundedAt: 1000, ReplicationFactor: 3}) {
		t.Errorf("cluster %+v %v %v", c, ok, err)
	}
	nodes, err := catalog.Nodes(g.st)
	if err != nil || len(nodes) != 3 || nodes[0].State != catalog.NodeActive || nodes[0].RegisteredAt != 1000 {
		t.Errorf("nodes %+v %v", nodes, err)
	}
	placements, err := catalog.Placements(g.st)
	if err != nil || len(placements) != 5 {
		t.Fatalf("%d placements, %v", len(placements), err)
	}
	var leaders []string
	for i, p := range placements {
		if p.Group != uint32(i) || p.Version != 1 || p.Changed != 1 || p.Count(catalog.ReplicaVoter) != 3 || len(p.Founding) != 3 {
			t.Errorf("placement %+v", p)
		}
		leaders = append(leaders, p.Leader)
	}
	if !slices.Equal(leaders, []string{"", "n01", "n02", "n03", "n01"}) {
		t.Errorf("preferred leaders %q", leaders)
	}
}

// TestFoundingSpreads: whatever the founders and shards, the first placement is even, odd in votes, and does not depend on the order in which
// the founders are named.
func TestFoundingSpreads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "nodes")
		shards := rapid.Uint32Range(1, 64).Draw(t, "shards")
		factor := rapid.SampledFrom([]uint32{1, 3, 5}).Draw(t, "factor")
		var ids []string
		for _, f := range founders(n) {
			ids = append(ids, f.Replica)
		}
		placements := catalog.FoundingPlacements(ids, shards, factor)
		mixed := rapid.Permutation(ids).Draw(t, "order")
		if !reflect.DeepEqual(placements, catalog.FoundingPlacements(mixed, shards, factor)) {
			t.Fatal("the order of the founders matters")
		}
		copies, voters, leads := map[string]int{}, map[string]int{}, map[string]int{}
		for _, p := range placements[1:] {
			if got, want := len(p.Replicas), min(n, int(factor)); got != want {
				t.Fatalf("group %d has %d replicas, want %d", p.Group, got, want)
			}
			if got := p.Count(catalog.ReplicaVoter); got%2 == 0 || got != len(p.Founding) || got != catalog.Voters(n, int(factor)) {
				t.Fatalf("group %d has %d voters", p.Group, got)
			}
			for _, r := range p.Replicas {
				copies[r.ID]++
				if r.State == catalog.ReplicaVoter {
					voters[r.ID]++
				}
				if catalog.NodeOf(r.ID) == p.Leader {
					leads[r.ID]++
				}
			}
		}
		for what, counts := range map[string]map[string]int{"replicas": copies, "voters": voters, "leaders": leads} {
			low, high := int(shards), 0
			for _, id := range ids {
				low, high = min(low, counts[id]), max(high, counts[id])
			}
			if high-low > 1 {
				t.Fatalf("%d nodes, %d shards, factor %d: a node has %d %s and another %d", n, shards, factor, high, what, low)
			}
		}
		control := placements[0]
		if len(control.Replicas) != n || !slices.Equal(control.Founding, catalog.FoundingVoters(ids)) || control.Leader != "" {
			t.Fatalf("control group %+v", control)
		}
	})
}

// TestFoundingRefused: a cluster is founded once, and only by founders that make sense.
func TestFoundingRefused(t *testing.T) {
	twice := append(founders(2), testNode("n01", 2))
	noAddress := founders(1)
	noAddress[0].PeerAddress = ""
	for name, c := range map[string]struct {
		cmd  catalog.FoundCluster
		want error
	}{
		"too many founders":  {catalog.FoundCluster{Founders: founders(catalog.MaxNodes + 1)}, catalog.ErrTooManyNodes},
		"an even factor":     {catalog.FoundCluster{Founders: founders(2), ReplicationFactor: 2}, catalog.ErrInvalid},
		"a factor too large": {catalog.FoundCluster{Founders: founders(2), ReplicationFactor: 7}, catalog.ErrInvalid},
		"one founder twice":  {catalog.FoundCluster{Founders: twice}, catalog.ErrInvalid},
		"no peer address":    {catalog.FoundCluster{Founders: noAddress}, catalog.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			c.cmd.Incarnation, c.cmd.Shards = 7, 4
			newGroup(t).refused(&c.cmd, c.want)
		})
	}
	g := foundedGroup(t, 3, 4)
	g.refused(&catalog.FoundCluster{Incarnation: 8, Shards: 4, Founders: founders(3)}, catalog.ErrForeignState)
	if r := g.one(&catalog.FoundCluster{Incarnation: 7, Shards: 4}); r.Err != nil || r.Changed {
		t.Errorf("the same again: %+v", r)
	}
}

// TestFoundingWithoutFounders: logs from before there were clusters still replay; such a cluster has no nodes.
func TestFoundingWithoutFounders(t *testing.T) {
	g := newGroup(t)
	g.one(&catalog.FoundCluster{Incarnation: 7, Shards: 4})
	if nodes, err := catalog.Nodes(g.st); err != nil || len(nodes) != 0 {
		t.Errorf("nodes %v %v", nodes, err)
	}
	if b, ok, err := g.st.Get([]byte{0x02}); err != nil || !ok || string(b) != `{"incarnation":7,"shards":4,"founded_at":1000}` {
		t.Errorf("the record is %s %v %v", b, ok, err)
	}
}
