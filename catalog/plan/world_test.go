package plan_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/catalog/plan"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard/shardtest"
)

// world is a cluster in memory: the real control state machine, a model of each Raft group's configuration and leadership, and nodes that open
// and destroy replicas as the recorded placements say. It checks each step as it is made.
type world struct {
	t       testing.TB
	rand    *rand.Rand
	st      *shardtest.Mem
	now     policy.Time
	nodes   []*simNode // by id
	raft    []*simRaft // by group
	asked   map[uint32]uint64
	moved   map[uint32]plan.Transfer
	history []string
	steps   int
	quiet   bool // no faults: every step is made and every replica follows
}

type simNode struct {
	id, replica string
	alive       bool
	since       policy.Time
	open        map[uint32]uint64 // applied index of each open replica
}

type simRaft struct {
	number       uint32
	members      []plan.Member // by replica id
	at           uint64
	leader       string
	term, commit uint64
}

func replicaID(node string, directory int) string { return fmt.Sprintf("%s@%016x", node, directory) }

func simNodeOf(id string, directory int) *simNode {
	return &simNode{id: id, replica: replicaID(id, directory), alive: true, open: map[uint32]uint64{}}
}

func registration(n *simNode) catalog.Node {
	return catalog.Node{ID: n.id, Replica: n.replica, PeerAddress: n.id + ":7452", Boot: 1}
}

// newWorld founds a cluster.
func newWorld(t testing.TB, seed uint64, founders int, shards uint32) *world {
	t.Helper()
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 7)), st: shardtest.NewMem(), now: policy.Time(time.Hour), asked: map[uint32]uint64{},
		moved: map[uint32]plan.Transfer{},
	}
	var ids []string
	var nodes []catalog.Node
	for i := range founders {
		n := simNodeOf(fmt.Sprintf("n%d", i+1), 1)
		n.open[0] = 0
		w.nodes = append(w.nodes, n)
		ids, nodes = append(ids, n.replica), append(nodes, registration(n))
	}
	w.raft = append(w.raft, newRaft(0, catalog.FoundingVoters(ids)))
	w.elect()
	if err := w.propose(&catalog.FoundCluster{Incarnation: 7, Shards: shards, Founders: nodes}); err != nil {
		t.Fatal(err)
	}
	for group := uint32(1); group <= shards; group++ {
		p, _, err := catalog.GetPlacement(w.st, group)
		if err != nil {
			t.Fatal(err)
		}
		w.raft = append(w.raft, newRaft(group, p.Founding))
		for _, id := range p.Founding {
			w.holder(id).open[group] = 1
		}
	}
	return w
}

func newRaft(number uint32, founding []string) *simRaft {
	r := &simRaft{number: number, at: 1, commit: 1, term: 1}
	for _, id := range founding {
		r.members = append(r.members, plan.Member{Replica: id, Voter: true})
	}
	return r
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	tail := w.history[max(0, len(w.history)-60):]
	w.t.Fatalf("%s\nthe last steps:\n%s", fmt.Sprintf(format, args...), strings.Join(tail, "\n"))
}

func (w *world) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

func (w *world) node(id string) *simNode {
	for _, n := range w.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

func (w *world) holder(replica string) *simNode {
	for _, n := range w.nodes {
		if n.replica == replica {
			return n
		}
	}
	return nil
}

// works says whether a replica is open on a living node.
func (w *world) works(r *simRaft, replica string) bool {
	n := w.holder(replica)
	if n == nil || !n.alive {
		return false
	}
	_, open := n.open[r.number]
	return open
}

// majority says whether a majority of a configuration's voters works.
func (w *world) majority(r *simRaft, members []plan.Member) bool {
	voters, working := 0, 0
	for _, m := range members {
		if m.Voter {
			voters++
			if w.works(r, m.Replica) {
				working++
			}
		}
	}
	return working > voters/2
}

// elect gives every group that can have one a leader, and takes it from those that cannot.
func (w *world) elect() {
	for _, r := range w.raft {
		var able []string
		leads := false
		for _, m := range r.members {
			if m.Voter && w.works(r, m.Replica) {
				able = append(able, m.Replica)
				leads = leads || m.Replica == r.leader
			}
		}
		switch {
		case !w.majority(r, r.members):
			r.leader = ""
		case !leads:
			r.leader, r.term = able[w.rand.IntN(len(able))], r.term+1
		}
	}
}

var errRefused = errors.New("refused")

// propose runs a command in the control group.
func (w *world) propose(c catalog.Command) error {
	control := w.raft[0]
	if control.leader == "" {
		return fmt.Errorf("%w: the control group has no leader", errRefused)
	}
	control.commit++
	r, err := catalog.Apply(w.st, &catalog.Entry{Index: control.commit, Stamp: w.now, Commands: []catalog.Command{c}})
	if err != nil {
		w.t.Fatal(err)
	}
	return r[0].Err
}

// tick lets a second pass: elections, writes, replication, and nodes that follow the control group.
func (w *world) tick() {
	w.now = w.now.Add(time.Second)
	w.elect()
	for _, r := range w.raft {
		if r.leader == "" {
			continue
		}
		if r.number != 0 {
			r.commit++
		}
		for _, m := range r.members {
			if w.works(r, m.Replica) && (w.quiet || m.Replica == r.leader || w.rand.IntN(3) > 0) {
				w.holder(m.Replica).open[r.number] = r.commit
			}
		}
	}
	for _, n := range w.nodes {
		if n.alive && n.open[0] == w.raft[0].commit {
			w.obey(n)
		}
	}
	w.elect()
}

// obey does what a node does that has applied the whole control log: it opens what it shall hold, and destroys what has a tombstone.
func (w *world) obey(n *simNode) {
	placements, err := catalog.Placements(w.st)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range placements {
		if p.Group == 0 {
			continue
		}
		_, open := n.open[p.Group]
		switch state := p.State(n.replica); {
		case state.Open() && !open:
			n.open[p.Group] = 0
		case state == catalog.ReplicaTombstone && open:
			if slices.ContainsFunc(w.raft[p.Group].members, func(m plan.Member) bool { return m.Replica == n.replica }) {
				w.fatalf("%s destroys its replica of group %d and is a member of it", n.id, p.Group)
			}
			delete(n.open, p.Group)
		}
	}
}

// view is what the driver sees.
func (w *world) view() *plan.View {
	w.t.Helper()
	v := &plan.View{Now: w.now}
	var err error
	if v.Cluster, _, err = catalog.GetCluster(w.st); err != nil {
		w.t.Fatal(err)
	}
	if v.Nodes, err = catalog.Nodes(w.st); err != nil {
		w.t.Fatal(err)
	}
	if v.Placements, err = catalog.Placements(w.st); err != nil {
		w.t.Fatal(err)
	}
	if v.Operations, err = catalog.OpenOperations(w.st); err != nil {
		w.t.Fatal(err)
	}
	for _, rec := range v.Nodes {
		o := plan.NodeView{Node: rec.ID}
		if n := w.holder(rec.Replica); n != nil && rec.State != catalog.NodeRemoved {
			if o.Reachable, o.Since = n.alive, n.since; n.alive {
				o.Replica, o.Groups = n.replica, w.groups(n)
			}
		}
		v.Observed = append(v.Observed, o)
	}
	for _, r := range w.raft {
		w.asked[r.number] = r.commit
		if tr, ok := w.moved[r.number]; ok {
			v.Transfers = append(v.Transfers, tr)
		}
	}
	return v
}

func (w *world) groups(n *simNode) (out []plan.GroupView) {
	for _, r := range w.raft {
		applied, open := n.open[r.number]
		if !open {
			continue
		}
		g := plan.GroupView{Group: r.number, Term: r.term, Leader: r.leader, Applied: applied, Leads: r.leader == n.replica}
		if g.Leads {
			g.Members, g.MembersAt, g.Commit, g.CommitAsked = slices.Clone(r.members), r.at, r.commit, w.asked[r.number]
		}
		out = append(out, g)
	}
	return out
}

// execute makes one step and checks it.
func (w *world) execute(s *plan.Step) error {
	w.steps++
	if s.Command != nil {
		return w.propose(s.Command)
	}
	r := w.raft[s.Group]
	leader := w.holder(r.leader)
	if leader == nil || leader.id != s.Leader {
		return fmt.Errorf("%w: %s does not lead", errRefused, s.Leader)
	}
	switch s.Kind {
	case plan.TakeSnapshot, plan.CompareDigests:
		o, _, err := catalog.GetOperation(w.st, s.Operation)
		if err != nil {
			return err
		}
		t := *o.Target(s.Group)
		t.State, t.Matched, t.Applied = catalog.TargetCompleted, 1, 1
		return w.propose(&catalog.AdvanceOperation{ID: o.ID, ExpectVersion: o.Version, Target: &t})
	case plan.TransferTo:
		w.moved[s.Group] = plan.Transfer{Group: s.Group, From: s.Leader, To: s.Node, At: w.now}
		if !w.works(r, s.Replica) {
			return fmt.Errorf("%w: %s does not work", errRefused, s.Replica)
		}
		r.leader, r.term = s.Replica, r.term+1
		return nil
	}
	return w.reconfigure(r, s)
}

// reconfigure changes a configuration, as Raft does: one member at a time.
func (w *world) reconfigure(r *simRaft, s *plan.Step) error {
	if r.at != s.MembersAt {
		return fmt.Errorf("%w: another configuration", errRefused)
	}
	before := slices.Clone(r.members)
	i := slices.IndexFunc(r.members, func(m plan.Member) bool { return m.Replica == s.Replica })
	switch s.Kind {
	case plan.AddLearner:
		if i < 0 {
			r.members = append(r.members, plan.Member{Replica: s.Replica})
		}
	case plan.Promote:
		if n := w.holder(s.Replica); i < 0 || n.open[r.number] == 0 {
			w.fatalf("%s would vote without anything of group %d", s.Replica, r.number)
		}
		r.members[i].Voter = true
	case plan.Demote:
		r.members[i].Voter = false
	case plan.RemoveMember:
		if i >= 0 {
			r.members = slices.Delete(r.members, i, i+1)
		}
	default:
		w.t.Fatalf("a step of kind %s", s.Kind)
	}
	slices.SortFunc(r.members, func(a, b plan.Member) int { return strings.Compare(a.Replica, b.Replica) })
	if w.majority(r, before) && !w.majority(r, r.members) {
		w.fatalf("%s takes the living majority of group %d: %+v", s, r.number, r.members)
	}
	if s.Replica == r.leader && (s.Kind == plan.Demote || s.Kind == plan.RemoveMember) {
		w.fatalf("%s takes the leader of group %d itself", s, r.number)
	}
	r.commit++
	r.at = r.commit
	return nil
}

// round plans, and makes all steps or, with faults, only some: the others are those of a driver that died.
func (w *world) round() (planned int) {
	v := w.view()
	steps := plan.Next(v)
	w.check(v, steps)
	drained := false
	for i := range steps {
		s := &steps[i]
		drained = drained || s.Kind == plan.SetNode
		if !w.quiet && w.rand.IntN(4) == 0 {
			w.note("lost: %s", s)
			continue
		}
		if err := w.execute(s); err != nil {
			w.note("failed: %s: %v", s, err)
			if w.quiet && !drained { // a node that began to drain in this round may refuse what was planned for it
				w.fatalf("%s: %v", s, err)
			}
			continue
		}
		w.note("%s", s)
	}
	return len(steps)
}

// check checks a plan as a whole.
func (w *world) check(v *plan.View, steps []plan.Step) {
	seen := map[uint32]bool{}
	moving := map[string]int{}
	for i := range steps {
		s := &steps[i]
		if seen[s.Group] {
			w.fatalf("two steps for group %d", s.Group)
		}
		seen[s.Group] = true
		if s.Why == "" {
			w.fatalf("%s has no reason", s)
		}
		if s.Kind == plan.TransferTo {
			moving[s.Leader]++
			moving[s.Node]++
		}
	}
	for node, n := range moving {
		if n > 1 {
			w.fatalf("%d leaderships move off or onto %s at once", n, node)
		}
	}
	again := plan.Next(v)
	if len(again) != len(steps) {
		w.fatalf("the same view gives %d steps, then %d", len(steps), len(again))
	}
	for i := range steps {
		if steps[i].String() != again[i].String() {
			w.fatalf("the same view gives %s, then %s", &steps[i], &again[i])
		}
	}
}

// settle lets everything calm down without faults and says after how many rounds nothing was planned for a while.
func (w *world) settle() int {
	w.t.Helper()
	w.quiet = true
	defer func() { w.quiet = false }()
	idle := 0
	for round := range 4000 {
		w.tick()
		if w.round() > 0 {
			idle = 0
			continue
		}
		if idle++; idle > 80 { // longer than every waiting time of the plan
			return round
		}
	}
	w.fatalf("it never comes to rest; nodes %+v", w.describe())
	return 0
}

func (w *world) describe() string {
	var b strings.Builder
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "%s alive=%v open=%v\n", n.replica, n.alive, n.open)
	}
	placements, _ := catalog.Placements(w.st)
	for _, p := range placements {
		fmt.Fprintf(&b, "group %d prefers %q:", p.Group, p.Leader)
		for _, r := range p.Replicas {
			fmt.Fprintf(&b, " %s=%s", r.ID, r.State)
		}
		fmt.Fprintf(&b, "; raft %+v led by %s\n", w.raft[p.Group].members, w.raft[p.Group].leader)
	}
	nodes, _ := catalog.Nodes(w.st)
	for _, n := range nodes {
		fmt.Fprintf(&b, "node %s %s\n", n.Replica, n.State)
	}
	open, _ := catalog.OpenOperations(w.st)
	for _, o := range open {
		fmt.Fprintf(&b, "operation %s %s %s %+v\n", o.ID, o.Kind, o.State, o.Targets)
	}
	return b.String()
}
