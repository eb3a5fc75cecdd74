package membership_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/catalog/plan"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/server/membership"
	"github.com/sealane/sealane/shard/shardtest"
)

// fake is a cluster behind the driver's ports: the real control state machine, and a model of each Raft group. Nodes obey the recorded
// placements at once; a replica is filled a while after it was opened.
type fake struct {
	t    testing.TB
	mu   sync.Mutex
	st   *shardtest.Mem
	raft map[uint32]*fakeRaft
	node map[string]*fakeNode
	fill time.Duration // from opening to having caught up

	// before is asked before each call that changes something, with its number and what it is; after is asked when it was made. Their errors
	// are the call's.
	before, after func(call int, what string) error
	calls         int
	log           []string

	digests map[string]fakeDigest // by replica id; missing: the group's own
	hang    func(group uint32) bool
}

type fakeNode struct {
	replica string
	dead    bool
	opened  map[uint32]time.Time
}

type fakeRaft struct {
	members []plan.Member
	at      uint64
	leader  string
	term    uint64
	commit  uint64
}

type fakeDigest struct {
	sum   [32]byte
	state membership.DigestState
	err   error
}

func replicaID(node string, directory int) string { return fmt.Sprintf("%s@%016x", node, directory) }

func registration(node string) catalog.Node {
	return catalog.Node{ID: node, Replica: replicaID(node, 1), PeerAddress: node + ":7452", Boot: 1}
}

// newFake founds a cluster of the nodes named, with shards.
func newFake(t testing.TB, shards uint32, nodes ...string) *fake {
	t.Helper()
	f := &fake{t: t, st: shardtest.NewMem(), raft: map[uint32]*fakeRaft{}, node: map[string]*fakeNode{}}
	var ids []string
	var founders []catalog.Node
	for _, n := range nodes {
		f.node[n] = &fakeNode{replica: replicaID(n, 1), opened: map[uint32]time.Time{0: {}}}
		ids, founders = append(ids, replicaID(n, 1)), append(founders, registration(n))
	}
	f.raft[0] = newFakeRaft(catalog.FoundingVoters(ids))
	f.mustApply(&catalog.FoundCluster{Incarnation: 7, Shards: shards, Founders: founders})
	for group := uint32(1); group <= shards; group++ {
		p, _, err := catalog.GetPlacement(f.st, group)
		if err != nil {
			t.Fatal(err)
		}
		f.raft[group] = newFakeRaft(p.Founding)
		for _, id := range p.Founding {
			f.node[catalog.NodeOf(id)].opened[group] = time.Time{}
		}
	}
	f.obey()
	return f
}

func newFakeRaft(voters []string) *fakeRaft {
	r := &fakeRaft{at: 1, commit: 1, term: 1, leader: voters[0]}
	for _, id := range voters {
		r.members = append(r.members, plan.Member{Replica: id, Voter: true})
	}
	return r
}

// join registers a node and opens its control group.
func (f *fake) join(node string) {
	f.t.Helper()
	f.mu.Lock()
	f.node[node] = &fakeNode{replica: replicaID(node, 1), opened: map[uint32]time.Time{0: time.Now()}}
	f.mu.Unlock()
	f.mustApply(&catalog.RegisterNode{Node: registration(node)})
}

// mustApply runs a command that is not the driver's.
func (f *fake) mustApply(c catalog.Command) catalog.Result {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.apply(c)
	if r.Err != nil {
		f.t.Fatal(r.Err)
	}
	return r
}

func (f *fake) apply(c catalog.Command) catalog.Result {
	control := f.raft[0]
	control.commit++
	e := &catalog.Entry{Index: control.commit, Stamp: now(), Commands: []catalog.Command{c}}
	r, err := catalog.Apply(f.st, e)
	if err != nil {
		f.t.Error(err)
		return catalog.Result{Err: err}
	}
	return r[0]
}

func now() policy.Time { return policy.Time(time.Now().UnixNano()) }

// obey lets every living node do what is recorded. The caller holds the lock.
func (f *fake) obey() {
	placements, err := catalog.Placements(f.st)
	if err != nil {
		f.t.Error(err)
	}
	for _, p := range placements {
		for _, n := range f.node {
			_, open := n.opened[p.Group]
			switch state := p.State(n.replica); {
			case n.dead || p.Group == 0:
			case state.Open() && !open:
				n.opened[p.Group] = time.Now()
			case state == catalog.ReplicaTombstone && open:
				if slices.ContainsFunc(f.raft[p.Group].members, func(m plan.Member) bool { return m.Replica == n.replica }) {
					f.t.Errorf("%s has a tombstone in group %d and is a member of it", n.replica, p.Group)
				}
				delete(n.opened, p.Group)
			}
		}
	}
}

// call counts a call that changes something and lets make happen, unless the hooks say otherwise.
func (f *fake) call(ctx context.Context, what string, make func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	call := f.calls
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.before != nil {
		if err := f.before(call, what); err != nil {
			return err
		}
	}
	if err := make(); err != nil {
		return err
	}
	f.log = append(f.log, what)
	f.obey()
	if f.after != nil {
		return f.after(call, what)
	}
	return nil
}

func (f *fake) Read(ctx context.Context, fn func(catalog.Reader) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	return fn(f.st)
}

func (f *fake) Propose(ctx context.Context, c catalog.Command) (r catalog.Result, err error) {
	what := fmt.Sprintf("propose %T", c)
	if p, ok := c.(*catalog.ChangePlacement); ok {
		what = fmt.Sprintf("group %d record %s %s", p.Group, p.Replica, p.State)
	}
	err = f.call(ctx, what, func() error {
		r = f.apply(c)
		return nil
	})
	return r, err
}

func (f *fake) Report(ctx context.Context, node catalog.Node) (plan.NodeView, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.node[node.ID]
	if n == nil || n.dead {
		return plan.NodeView{}, errors.New("it does not answer")
	}
	v := plan.NodeView{Replica: n.replica, Boot: 1}
	for group := range uint32(len(f.raft)) {
		opened, ok := n.opened[group]
		if !ok {
			continue
		}
		r := f.raft[group]
		g := plan.GroupView{Group: group, Term: r.term, Leader: r.leader, Leads: r.leader == n.replica, Applied: r.commit}
		if time.Since(opened) < f.fill {
			g.Applied = 0
		}
		if g.Leads {
			g.Members, g.MembersAt, g.Commit = slices.Clone(r.members), r.at, r.commit
		}
		v.Groups = append(v.Groups, g)
	}
	return v, ctx.Err()
}

func (f *fake) Change(ctx context.Context, node string, group uint32, c membership.Change) error {
	if f.hang != nil && f.hang(group) {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.call(ctx, fmt.Sprintf("group %d %s %s", group, c.Kind, c.Replica), func() error { return f.change(node, group, c) })
}

func (f *fake) change(node string, group uint32, c membership.Change) error {
	r := f.raft[group]
	if catalog.NodeOf(r.leader) != node {
		return fmt.Errorf("node %s does not lead group %d", node, group)
	}
	i := slices.IndexFunc(r.members, func(m plan.Member) bool { return m.Replica == c.Replica })
	switch c.Kind {
	case plan.AddLearner:
		if i < 0 {
			r.members = append(r.members, plan.Member{Replica: c.Replica})
		}
	case plan.Promote:
		if time.Since(f.node[catalog.NodeOf(c.Replica)].opened[group]) < f.fill {
			f.t.Errorf("%s votes in group %d before it has caught up", c.Replica, group)
		}
		r.members[i].Voter = true
	case plan.Demote:
		r.members[i].Voter = false
	case plan.RemoveMember:
		if i >= 0 {
			r.members = slices.Delete(r.members, i, i+1)
		}
	case plan.TransferTo:
		r.leader = c.Replica
		r.term++
	}
	slices.SortFunc(r.members, func(a, b plan.Member) int { return strings.Compare(a.Replica, b.Replica) })
	r.commit++
	if c.Kind != plan.TransferTo {
		r.at = r.commit
	}
	return nil
}

func (f *fake) Snapshot(ctx context.Context, node string, group uint32) (index uint64, err error) {
	err = f.call(ctx, fmt.Sprintf("group %d snapshot on %s", group, node), func() error {
		index = f.raft[group].commit
		return nil
	})
	return index, err
}

func (f *fake) Digest(ctx context.Context, node string, group uint32) (index uint64, err error) {
	err = f.call(ctx, fmt.Sprintf("group %d digest on %s", group, node), func() error {
		f.raft[group].commit++
		index = f.raft[group].commit
		return nil
	})
	return index, err
}

func (f *fake) DigestAt(ctx context.Context, node string, group uint32, index uint64) ([32]byte, membership.DigestState, error) {
	f.mu.Lock()
	d, ok := f.digests[replicaID(node, 1)]
	f.mu.Unlock()
	switch {
	case !ok:
		return [32]byte{byte(group)}, membership.DigestDone, nil
	case d.err != nil:
		<-ctx.Done() // it never answers
		return d.sum, d.state, ctx.Err()
	}
	return d.sum, d.state, nil
}

// records counts log records by level.
type records struct {
	mu     sync.Mutex
	counts map[slog.Level]int
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }

func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[slog.Level]int{}
	}
	r.counts[rec.Level]++
	return nil
}

func (r *records) count(l slog.Level) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[l]
}

func (r *records) WithAttrs([]slog.Attr) slog.Handler { return r }
func (r *records) WithGroup(string) slog.Handler      { return r }

// drive runs a driver until stop is called; stop returns what Run returned.
func (f *fake) drive(change func(*membership.Options)) (d *membership.Driver, stop func() error) {
	f.t.Helper()
	o := membership.Options{Node: "n1", Control: f, Nodes: f, Groups: f, Now: now}
	if change != nil {
		change(&o)
	}
	d, err := membership.New(o)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return d, func() error {
		cancel()
		return <-ended
	}
}

// settle waits until nothing has changed for a while.
func (f *fake) settle() {
	f.t.Helper()
	for quiet, last := 0, -1; quiet < 30; {
		pass(time.Second)
		f.mu.Lock()
		n := f.calls
		f.mu.Unlock()
		if n == last {
			quiet++
		} else {
			quiet, last = 0, n
		}
		if n > 5000 {
			f.t.Fatal("it never comes to rest")
		}
	}
}

// shape gives the placement of every group in one line each, with Raft's configuration checked against it.
func (f *fake) shape() (out []string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	placements, err := catalog.Placements(f.st)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, p := range placements {
		line := fmt.Sprintf("%d:", p.Group)
		for i, r := range p.Replicas {
			line += fmt.Sprintf(" %s=%s", catalog.NodeOf(r.ID), r.State)
			m := f.raft[p.Group].members
			if i >= len(m) || m[i].Replica != r.ID || m[i].Voter != (r.State == catalog.ReplicaVoter) {
				f.t.Errorf("group %d is recorded as %+v and is %+v", p.Group, p.Replicas, m)
			}
		}
		out = append(out, line)
	}
	return out
}

func (f *fake) operation(id string) catalog.Operation {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	o, ok, err := catalog.GetOperation(f.st, id)
	if err != nil || !ok {
		f.t.Fatalf("operation %s: %v %v", id, ok, err)
	}
	return o
}

func (f *fake) order(id string, kind catalog.OperationKind, p catalog.OperationParams) {
	f.t.Helper()
	f.mustApply(&catalog.RegisterOperation{ID: id, Hash: catalog.OperationHash(kind, p, "why"), Kind: kind, Params: p, Actor: "ann", Reason: "why"})
}
