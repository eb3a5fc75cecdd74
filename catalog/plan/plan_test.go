package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/catalog/plan"
	"github.com/sealane/sealane/policy"
)

// scene is a View written in a few words: nodes, and one shard's group beside a control group that every node follows.
type scene struct {
	nodes    []string           // "n1", "n2 draining", "n3 removed", "n4 dead", "n5 leaving"
	replicas []string           // of group 1: "n1 VOTER"
	raft     []string           // of group 1: "n1 voter", "n2 learner", "n2 learner behind"
	leader   string             // of group 1
	prefers  string             // of group 1
	edit     func(v *plan.View) // last changes
}

const sceneNow = policy.Time(time.Hour)

func has(words []string, word string) bool { return slices.Contains(words, word) }

func (s *scene) view() *plan.View {
	v := &plan.View{Cluster: catalog.Cluster{Shards: 1, ReplicationFactor: 3}, Now: sceneNow}
	control := catalog.Placement{Group: 0, Version: 1}
	members := map[string][]plan.Member{}
	first := ""
	for _, line := range s.nodes {
		w := strings.Fields(line)
		n := catalog.Node{ID: w[0], Replica: replicaID(w[0], 1), State: catalog.NodeActive}
		switch {
		case has(w, "draining") || has(w, "leaving"):
			n.State = catalog.NodeDraining
		case has(w, "removed"):
			n.State = catalog.NodeRemoved
		}
		if has(w, "leaving") {
			v.Operations = append(v.Operations, catalog.Operation{
				ID: "remove-" + n.ID, Kind: catalog.RemoveNode, State: catalog.OperationApplying, Params: catalog.OperationParams{Node: n.ID},
				Targets: []catalog.OperationTarget{
					{Group: 0, State: catalog.TargetApplying, Node: n.Replica, Detail: "the replica is LEARNER"},
					{Group: 1, State: catalog.TargetApplying, Node: n.Replica, Detail: "the replica is VOTER"},
				},
			})
		}
		v.Nodes = append(v.Nodes, n)
		if n.State != catalog.NodeRemoved {
			state := catalog.ReplicaLearner
			if control.Count(catalog.ReplicaVoter) < catalog.ControlVoters && !has(w, "leaving") {
				state = catalog.ReplicaVoter
			}
			control.Replicas = append(control.Replicas, catalog.PlacedReplica{ID: n.Replica, State: state})
			members["0"] = append(members["0"], plan.Member{Replica: n.Replica, Voter: state == catalog.ReplicaVoter})
		}
		o := plan.NodeView{Node: n.ID, Replica: n.Replica, Reachable: !has(w, "dead") && !has(w, "removed"), Since: sceneNow - policy.Time(time.Minute)}
		if !o.Reachable {
			o.Replica = ""
		} else {
			if first == "" && n.State == catalog.NodeActive {
				first = n.ID
			}
			o.Groups = append(o.Groups, plan.GroupView{Group: 0, Term: 1, Commit: 50, CommitAsked: 50, Applied: 50, Leads: n.ID == first})
		}
		v.Observed = append(v.Observed, o)
	}
	for i := range v.Observed {
		if len(v.Observed[i].Groups) > 0 && v.Observed[i].Groups[0].Leads {
			v.Observed[i].Groups[0].Members = members["0"]
		}
	}
	if votes := catalog.Voters(len(members["0"]), 3); len(members["0"]) == 2 && votes == 1 {
		control.Replicas[1].State, members["0"][1].Voter = catalog.ReplicaLearner, false
	}
	shard := catalog.Placement{Group: 1, Version: 5, Leader: s.prefers}
	for _, line := range s.replicas {
		w := strings.Fields(line)
		shard.Replicas = append(shard.Replicas, catalog.PlacedReplica{ID: replicaID(w[0], 1), State: stateOf(w[1]), Since: 40})
	}
	s.addShard(v)
	v.Placements = []catalog.Placement{control, shard}
	if s.edit != nil {
		s.edit(v)
	}
	return v
}

func stateOf(name string) catalog.ReplicaState {
	for s := catalog.ReplicaNone; s <= catalog.ReplicaTombstone; s++ {
		if s.String() == name {
			return s
		}
	}
	panic("no replica state " + name)
}

func (s *scene) addShard(v *plan.View) {
	var members []plan.Member
	for _, line := range s.raft {
		w := strings.Fields(line)
		members = append(members, plan.Member{Replica: replicaID(w[0], 1), Voter: w[1] == "voter"})
	}
	for i := range v.Observed {
		o := &v.Observed[i]
		for _, line := range slices.Concat(s.raft, s.replicas) {
			w := strings.Fields(line)
			open := o.Reachable && w[0] == o.Node && !has(w, "TOMBSTONE")
			if !open || slices.ContainsFunc(o.Groups, func(g plan.GroupView) bool { return g.Group == 1 }) {
				continue
			}
			g := plan.GroupView{Group: 1, Term: 2, Applied: 100}
			if has(w, "behind") {
				g.Applied = 10
			}
			if o.Node == s.leader {
				g.Leads, g.Members, g.MembersAt, g.Commit, g.CommitAsked = true, members, 90, 110, 100
			}
			o.Groups = append(o.Groups, g)
		}
	}
}

// steps are the planned ones of group 1, and those that concern nobody but a node, in a few words.
func (s *scene) steps() (out []string) {
	steps := plan.Next(s.view())
	for i := range steps {
		st := &steps[i]
		word := fmt.Sprintf("%s %s", st.Kind, st.Node)
		if c, ok := st.Command.(*catalog.ChangePlacement); ok {
			word += " " + c.State.String()
		}
		if st.Group != 1 {
			word = fmt.Sprintf("%d: %s", st.Group, word)
		}
		out = append(out, word)
	}
	return out
}

// observe changes what is seen of a node's group.
func observe(v *plan.View, node string, group uint32, change func(*plan.GroupView)) {
	for i := range v.Observed {
		for j := range v.Observed[i].Groups {
			if g := &v.Observed[i].Groups[j]; v.Observed[i].Node == node && g.Group == group {
				change(g)
			}
		}
	}
}

// TestRules has one scene for each sentence of the rules.
func TestRules(t *testing.T) {
	three := []string{"n1", "n2", "n3"}
	voters := []string{"n1 VOTER", "n2 VOTER", "n3 VOTER"}
	raft := []string{"n1 voter", "n2 voter", "n3 voter"}
	for _, c := range []struct {
		name string
		scene
		want []string
	}{
		{"at rest nothing is done", scene{nodes: three, replicas: voters, raft: raft, leader: "n1", prefers: "n1"}, nil},
		{"without a leader nothing is done", scene{nodes: three, replicas: voters, raft: raft, prefers: "n1"}, nil},

		// Two nodes.
		{"the second node learns", scene{nodes: three[:2], replicas: voters[:1], raft: raft[:1], leader: "n1", prefers: "n1"}, []string{"record n2 LEARNER"}},
		{"and goes on learning", scene{nodes: three[:2], replicas: []string{"n1 VOTER", "n2 LEARNER"}, raft: []string{"n1 voter", "n2 learner"}, leader: "n1", prefers: "n1"}, nil},
		{"two that vote stay two", scene{nodes: []string{"n1", "n2", "n3 removed"}, replicas: voters[:2], raft: raft[:2], leader: "n1", prefers: "n1"}, nil},
		{"a vote that is not wanted any more is dropped", scene{nodes: three[:2], replicas: []string{"n1 VOTER", "n2 ADDING"}, raft: []string{"n1 voter", "n2 learner"}, leader: "n1", prefers: "n1"}, []string{"record n2 LEARNER"}},

		// From one to three.
		{"the learner is to vote when the third has come", scene{nodes: three, replicas: []string{"n1 VOTER", "n2 LEARNER", "n3 ADDING"}, raft: []string{"n1 voter", "n2 learner", "n3 learner"}, leader: "n1", prefers: "n1"}, []string{"record n2 ADDING"}},
		{"one alone is not promoted to two", scene{nodes: three, replicas: []string{"n1 VOTER", "n2 ADDING", "n3 ADDING"}, raft: []string{"n1 voter", "n2 learner", "n3 learner behind"}, leader: "n1", prefers: "n1"}, nil},
		{"when both have caught up the first is", scene{nodes: three, replicas: []string{"n1 VOTER", "n2 ADDING", "n3 ADDING"}, raft: []string{"n1 voter", "n2 learner", "n3 learner"}, leader: "n1", prefers: "n1"}, []string{"promote n2"}},
		{"what votes is recorded", scene{nodes: three, replicas: []string{"n1 VOTER", "n2 ADDING", "n3 ADDING"}, raft: []string{"n1 voter", "n2 voter", "n3 learner"}, leader: "n1", prefers: "n1"}, []string{"record n2 VOTER"}},
		{"and the second follows", scene{nodes: three, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 ADDING"}, raft: []string{"n1 voter", "n2 voter", "n3 learner"}, leader: "n1", prefers: "n1"}, []string{"promote n3"}},

		// Filling.
		{"a recorded replica is added when its node has opened it", scene{nodes: three, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 ADDING"}, raft: raft[:2], leader: "n1", prefers: "n1"}, []string{"add_learner n3"}},
		{"and not before", scene{nodes: three, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 ADDING"}, raft: raft[:2], leader: "n1", prefers: "n1", edit: func(v *plan.View) {
			v.Observed[2].Groups = v.Observed[2].Groups[:1]
		}}, nil},
		{"what is behind is not promoted", scene{nodes: three, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 ADDING"}, raft: []string{"n1 voter", "n2 voter", "n3 learner behind"}, leader: "n1", prefers: "n1"}, nil},
		{"nor is anything before the leader was asked twice", scene{nodes: three, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 ADDING"}, raft: []string{"n1 voter", "n2 voter", "n3 learner"}, leader: "n1", prefers: "n1", edit: func(v *plan.View) {
			observe(v, "n1", 1, func(g *plan.GroupView) { g.CommitAsked = 0 })
		}}, nil},
		{"a configuration that is not committed is left alone", scene{nodes: three, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 ADDING"}, raft: []string{"n1 voter", "n2 voter", "n3 learner"}, leader: "n1", prefers: "n1", edit: func(v *plan.View) {
			observe(v, "n1", 1, func(g *plan.GroupView) { g.MembersAt = g.Commit + 1 })
		}}, nil},
		{"a group that has a step is left alone", scene{nodes: three, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 ADDING"}, raft: []string{"n1 voter", "n2 voter", "n3 learner"}, leader: "n1", prefers: "n1", edit: func(v *plan.View) {
			v.Running = []plan.Step{{Kind: plan.Promote, Group: 1}}
		}}, nil},
		{"the leader of the higher term is believed", scene{nodes: three, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 ADDING"}, raft: []string{"n1 voter", "n2 voter", "n3 voter"}, leader: "n2", prefers: "n2", edit: func(v *plan.View) {
			observe(v, "n1", 1, func(g *plan.GroupView) { g.Leads, g.Term, g.Commit = true, 1, 90 })
		}}, []string{"record n3 VOTER"}},
		{"a new replica needs a node that follows the control group", scene{nodes: three, replicas: voters[:2], raft: raft[:2], leader: "n1", prefers: "n1", edit: func(v *plan.View) {
			observe(v, "n3", 0, func(g *plan.GroupView) { g.Applied = 0 })
		}}, nil},
		{"and one that answers", scene{nodes: []string{"n1", "n2", "n3 dead"}, replicas: voters[:2], raft: raft[:2], leader: "n1", prefers: "n1"}, nil},
		{"a stuck one goes to another node", scene{nodes: []string{"n1", "n2", "n3 dead", "n4"}, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 ADDING"}, raft: []string{"n1 voter", "n2 voter", "n3 learner"}, leader: "n1", prefers: "n1"}, []string{"record n3 REMOVING"}},
		{"if there is one", scene{nodes: []string{"n1", "n2", "n3 dead"}, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 ADDING"}, raft: []string{"n1 voter", "n2 voter", "n3 learner"}, leader: "n1", prefers: "n1"}, nil},

		// Dead and removed nodes.
		{"a dead voter is kept", scene{nodes: []string{"n1", "n2", "n3 dead", "n4"}, replicas: voters, raft: raft, leader: "n1", prefers: "n1"}, nil},
		{"a removed one is replaced first", scene{nodes: []string{"n1", "n2", "n3 removed", "n4"}, replicas: voters, raft: raft, leader: "n1", prefers: "n1"}, []string{"record n4 ADDING"}},
		{"and stays until that votes", scene{nodes: []string{"n1", "n2", "n3 removed", "n4"}, replicas: append(slices.Clone(voters), "n4 ADDING"), raft: append(slices.Clone(raft), "n4 learner behind"), leader: "n1", prefers: "n1"}, nil},
		{"by a voter", scene{nodes: []string{"n1", "n2", "n3 removed", "n4"}, replicas: append(slices.Clone(voters), "n4 ADDING"), raft: append(slices.Clone(raft), "n4 learner"), leader: "n1", prefers: "n1"}, []string{"promote n4"}},
		{"then it goes", scene{nodes: []string{"n1", "n2", "n3 removed", "n4"}, replicas: append(slices.Clone(voters), "n4 VOTER"), raft: append(slices.Clone(raft), "n4 voter"), leader: "n1", prefers: "n1"}, []string{"record n3 REMOVING"}},
		{"out of the configuration", scene{nodes: []string{"n1", "n2", "n3 removed", "n4"}, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 REMOVING", "n4 VOTER"}, raft: append(slices.Clone(raft), "n4 voter"), leader: "n1", prefers: "n1"}, []string{"remove_member n3"}},
		{"and is buried", scene{nodes: []string{"n1", "n2", "n3 removed", "n4"}, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 REMOVING", "n4 VOTER"}, raft: []string{"n1 voter", "n2 voter", "n4 voter"}, leader: "n1", prefers: "n1"}, []string{"record n3 TOMBSTONE"}},
		{"and forgotten", scene{nodes: []string{"n1", "n2", "n3 removed", "n4"}, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 TOMBSTONE", "n4 VOTER"}, raft: []string{"n1 voter", "n2 voter", "n4 voter"}, leader: "n1", prefers: "n1"}, []string{"record n3 NONE"}},
		{"with nobody to replace it it goes too", scene{nodes: []string{"n1", "n2", "n3 removed"}, replicas: voters, raft: raft, leader: "n1", prefers: "n1"}, []string{"record n3 REMOVING"}},
		{"no removal takes the living majority", scene{nodes: []string{"n1", "n2 dead", "n3 leaving"}, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 REMOVING"}, raft: raft, leader: "n1", prefers: "n1", edit: func(v *plan.View) {
			v.Operations[0].Targets[1].Detail = "the replica is REMOVING"
		}}, nil},
		{"nor does a demotion", scene{nodes: []string{"n1", "n2 dead", "n3"}, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 LEARNER"}, raft: raft, leader: "n1", prefers: "n1"}, []string{"record n3 ADDING"}},
		{"nor a promotion of one among many dead", scene{nodes: []string{"n1", "n2", "n3 dead", "n4 removed", "n5"}, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 VOTER", "n4 VOTER", "n5 ADDING"}, raft: []string{"n1 voter", "n2 voter", "n3 voter", "n5 learner"}, leader: "n1", prefers: "n1", edit: func(v *plan.View) {
			observe(v, "n2", 1, func(g *plan.GroupView) { g.Failure = "its disk" })
		}}, nil},

		// Tombstones.
		{"a tombstone stays while its node holds the replica", scene{nodes: []string{"n1", "n2", "n3", "n4"}, replicas: append(slices.Clone(voters), "n4 TOMBSTONE"), raft: raft, leader: "n1", prefers: "n1", edit: func(v *plan.View) {
			v.Observed[3].Groups = append(v.Observed[3].Groups, plan.GroupView{Group: 1})
		}}, nil},
		{"or has not applied it", scene{nodes: []string{"n1", "n2", "n3", "n4"}, replicas: append(slices.Clone(voters), "n4 TOMBSTONE"), raft: raft, leader: "n1", prefers: "n1", edit: func(v *plan.View) {
			observe(v, "n4", 0, func(g *plan.GroupView) { g.Applied = 39 })
		}}, nil},
		{"or does not answer", scene{nodes: []string{"n1", "n2", "n3", "n4 dead"}, replicas: append(slices.Clone(voters), "n4 TOMBSTONE"), raft: raft, leader: "n1", prefers: "n1"}, nil},
		{"then it is forgotten, without a leader too", scene{nodes: []string{"n1", "n2", "n3", "n4"}, replicas: append(slices.Clone(voters), "n4 TOMBSTONE"), raft: raft, prefers: "n1"}, []string{"record n4 NONE"}},

		// Leaders.
		{"leadership leaves a draining node", scene{nodes: []string{"n1 draining", "n2", "n3"}, replicas: voters, raft: raft, leader: "n1", prefers: "n1"}, []string{"transfer n2"}},
		{"and one that is about to stop", scene{nodes: three, replicas: voters, raft: raft, leader: "n1", prefers: "n1", edit: func(v *plan.View) {
			v.Observed[0].Draining = true
		}}, []string{"transfer n2"}},
		{"but not for one that is behind", scene{nodes: []string{"n1 draining", "n2", "n3"}, replicas: voters, raft: []string{"n1 voter", "n2 voter behind", "n3 voter"}, leader: "n1", prefers: "n1"}, []string{"transfer n3"}},
		{"nor soon after the last one", scene{nodes: []string{"n1 draining", "n2", "n3"}, replicas: voters, raft: raft, leader: "n1", prefers: "n1", edit: func(v *plan.View) {
			v.Transfers = []plan.Transfer{{Group: 1, From: "n2", To: "n1", At: sceneNow - policy.Time(4*time.Second)}}
		}}, nil},
		{"nor while another leadership moves off the node", scene{nodes: []string{"n1 draining", "n2", "n3"}, replicas: voters, raft: raft, leader: "n1", prefers: "n1", edit: func(v *plan.View) {
			v.Running = []plan.Step{{Kind: plan.TransferTo, Group: 7, Leader: "n1", Node: "n9"}}
		}}, nil},
		{"it goes to the preferred node", scene{nodes: three, replicas: voters, raft: raft, leader: "n1", prefers: "n3"}, []string{"transfer n3"}},
		{"when that has been there for a while", scene{nodes: three, replicas: voters, raft: raft, leader: "n1", prefers: "n3", edit: func(v *plan.View) {
			v.Observed[2].Since = sceneNow - policy.Time(4*time.Second)
		}}, nil},
		{"a leader that is removed hands over first", scene{nodes: []string{"n1", "n2", "n3", "n4"}, replicas: []string{"n1 REMOVING", "n2 VOTER", "n3 VOTER", "n4 VOTER"}, raft: append(slices.Clone(raft), "n4 voter"), leader: "n1", prefers: "n4"}, []string{"transfer n4"}},
		{"to a draining node if there is no other", scene{nodes: []string{"n1", "n2 draining", "n3 draining", "n4 draining"}, replicas: []string{"n1 REMOVING", "n2 VOTER", "n3 VOTER", "n4 VOTER"}, raft: append(slices.Clone(raft), "n4 voter"), leader: "n1"}, []string{"transfer n2"}},
		{"a group without a preferred leader gets one", scene{nodes: three, replicas: voters, raft: raft, leader: "n2"}, []string{"prefer n2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.steps(); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestGoneIsNotSlow: the word that a node is gone is believed when it has been silent for a while.
func TestGoneIsNotSlow(t *testing.T) {
	for _, c := range []struct {
		silent time.Duration
		want   []string
	}{{9 * time.Second, nil}, {10 * time.Second, []string{"0: set_node n3"}}} {
		s := scene{nodes: []string{"n1", "n2", "n3 dead"}, replicas: []string{"n1 VOTER", "n2 VOTER", "n3 VOTER"}, raft: []string{"n1 voter", "n2 voter", "n3 voter"}, leader: "n1", prefers: "n1"}
		s.edit = func(v *plan.View) {
			v.Observed[2].Since = sceneNow - policy.Time(c.silent)
			v.Operations = append(v.Operations, catalog.Operation{
				ID: "gone", Kind: catalog.RemoveNode, State: catalog.OperationApplying, Params: catalog.OperationParams{Node: "n3", Gone: true},
				Targets: []catalog.OperationTarget{{Group: 0, State: catalog.TargetPending, Node: replicaID("n3", 1)}},
			})
		}
		if got := s.steps(); !slices.Equal(got, c.want) {
			t.Errorf("silent for %s: %q, want %q", c.silent, got, c.want)
		}
	}
}

// TestFillingIsBounded: a node that fills two replicas gets no third, whether they are recorded or only on their way.
func TestFillingIsBounded(t *testing.T) {
	w := newWorld(t, 1, 2, 8)
	w.settle()
	n := simNodeOf("n3", 1)
	n.open[0] = 0
	if err := w.propose(&catalog.RegisterNode{Node: registration(n)}); err != nil {
		t.Fatal(err)
	}
	w.nodes = append(w.nodes, n)
	w.quiet = true
	most := 0
	for range 200 {
		w.tick()
		for group := range n.open {
			if group != 0 && !slices.ContainsFunc(w.raft[group].members, func(m plan.Member) bool { return m.Replica == n.replica && m.Voter }) {
				n.open[group] = 0 // it is never filled
			}
		}
		w.round()
		filling := 0
		placements, err := catalog.Placements(w.st)
		if err != nil {
			t.Fatal(err)
		}
		for i := range placements {
			if placements[i].Group != 0 && placements[i].State(n.replica) == catalog.ReplicaAdding {
				filling++
			}
		}
		most = max(most, filling)
	}
	if most != 2 {
		t.Errorf("%d at once, want 2", most)
	}
	v := w.view()
	for i := range v.Placements {
		for j := range v.Placements[i].Replicas {
			if r := &v.Placements[i].Replicas[j]; v.Placements[i].Group != 0 && r.ID == n.replica {
				v.Running = append(v.Running, plan.Step{
					Kind: plan.Record, Group: v.Placements[i].Group,
					Command: &catalog.ChangePlacement{Group: v.Placements[i].Group, Replica: r.ID, State: catalog.ReplicaAdding},
				})
				v.Placements[i].Replicas = slices.Delete(v.Placements[i].Replicas, j, j+1) // not recorded yet, but on its way
				break
			}
		}
	}
	for _, s := range plan.Next(v) {
		if c, ok := s.Command.(*catalog.ChangePlacement); ok && c.Replica == n.replica && s.Group != 0 {
			t.Errorf("%s while two are on their way", &s)
		}
	}
}

// TestQuiet: at rest, and with a node that comes and goes, nothing is moved back and forth.
func TestQuiet(t *testing.T) {
	w := newWorld(t, 3, 4, 7)
	w.settle()
	w.quiet = true
	before := w.steps
	for range 10 {
		w.nodes[3].alive, w.nodes[3].since = false, w.now
		for range 30 {
			w.tick()
			w.round()
		}
		w.nodes[3].alive, w.nodes[3].since = true, w.now
		for range 60 {
			w.tick()
			w.round()
		}
	}
	led := 0
	for _, r := range w.raft {
		if r.leader == w.nodes[3].replica {
			led++
		}
	}
	// Each time its leaderships come back, one transfer each; a few more while the living share them.
	if took := w.steps - before; took > 10*3*max(led, 1) || led == 0 {
		t.Errorf("%d steps for ten failures of a node that leads %d groups", took, led)
	}
}
