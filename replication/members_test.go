package replication

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// membersOf renders the configuration a replica knows to be committed: node ids, learners in parentheses.
func membersOf(g *Group) string {
	members, _ := g.Members()
	out := ""
	for _, m := range members {
		node, _, _ := SplitReplicaID(m.ID)
		if !m.Voter {
			node = "(" + node + ")"
		}
		out += node
	}
	return out
}

// must fails the test on an error of a change.
func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// caughtUp waits until replica i has applied what the leader has committed by now.
func (c *cluster) caughtUp(t testing.TB, i int) {
	t.Helper()
	index, err := c.replicas[c.leader(t, -1)].group.ReadIndex(t.Context())
	must(t, "read index", err)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	must(t, "catching up", c.replicas[i].group.WaitApplied(ctx, index))
}

// One replica grows to three and shrinks to another one, under load, and every acknowledged command is in every member's state.
func TestOneGrowsToThreeAndShrinksToOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, 3, 1)
		defer c.close(t)
		ctx := t.Context()
		c.leader(t, -1)
		first := c.replicas[0].group
		load := c.load(t, 2)
		for i := 1; i < 3; i++ {
			<-time.After(20 * time.Millisecond)
			must(t, "add", first.AddLearner(ctx, c.replicas[i].id))
			c.caughtUp(t, i)
			if st := c.replicas[i].group.Status(); st.Voter || st.Learners != 1 || c.replicas[i].group.Status().Role != RoleFollower {
				t.Fatalf("a learner says %+v", st)
			}
			must(t, "promote", first.Promote(ctx, c.replicas[i].id))
		}
		if got := membersOf(first); got != "n1n2n3" {
			t.Fatalf("members %s", got)
		}
		acked := load.stop()
		if len(acked) == 0 || load.unknown() > 0 {
			t.Fatalf("%d acknowledged, %d unknown", len(acked), load.unknown())
		}
		c.same(t, 0, acked)

		// Any two must now do: the first leaves.
		if err := first.Remove(ctx, c.replicas[0].id); !errors.Is(err, ErrLeaderStays) || !NotAccepted(err) {
			t.Fatalf("removing the leader: %v", err)
		}
		if err := first.Demote(ctx, c.replicas[0].id); !errors.Is(err, ErrLeaderStays) {
			t.Fatalf("demoting the leader: %v", err)
		}
		must(t, "transfer", first.TransferLeadershipTo(ctx, c.replicas[2].id))
		c.leader(t, 0)
		third := c.replicas[2].group
		must(t, "demote", third.Demote(ctx, c.replicas[1].id))
		if got := membersOf(third); got != "n1(n2)n3" {
			t.Fatalf("members %s", got)
		}
		must(t, "remove a voter", third.Remove(ctx, c.replicas[0].id))
		must(t, "remove a learner", third.Remove(ctx, c.replicas[1].id))
		if got := membersOf(third); got != "n3" || !third.soleVoter() {
			t.Fatalf("members %s, alone %v", got, third.soleVoter())
		}
		do(t, third, "alone")
		if err := third.Remove(ctx, c.replicas[2].id); !errors.Is(err, ErrLastVoter) {
			t.Fatalf("removing the last voter: %v", err)
		}
		if err := third.Demote(ctx, c.replicas[2].id); !errors.Is(err, ErrLastVoter) {
			t.Fatalf("demoting the last voter: %v", err)
		}
		// It restarts as the only voter, and leads at once.
		began := time.Now()
		c.restart(t, 2)
		waitLed(t, c.replicas[2].machine)
		if took := time.Since(began); took > heartbeatTimeout/2 {
			t.Fatalf("the only voter led after %v", took)
		}
		if n := count(t, c.replicas[2].store, 1, "alone"); n != 1 {
			t.Fatalf("command counts %d", n)
		}
	})
}

// The founder's bootstrap list does not make it the only voter again: after a restart it must win an election of three.
func TestFounderRestartsIntoThreeVoters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, 3, 1)
		defer c.close(t)
		ctx := t.Context()
		c.leader(t, -1)
		for i := 1; i < 3; i++ {
			must(t, "add", c.replicas[0].group.AddLearner(ctx, c.replicas[i].id))
			must(t, "promote", c.replicas[0].group.Promote(ctx, c.replicas[i].id))
		}
		do(t, c.replicas[0].group, "a")
		c.cutOff(0)
		fresh := c.leader(t, 0)
		do(t, c.replicas[fresh].group, "b")
		c.restart(t, 0) // still cut off
		<-time.After(10 * electionTimeout)
		if st := c.replicas[0].group.Status(); st.Ready || st.Role == RoleLeader || st.Voters != 3 {
			t.Fatalf("a founder that lost its cluster says %+v", st)
		}
		term := c.replicas[fresh].group.Status().Term
		c.connect(0)
		c.caughtUp(t, 0)
		if now := c.replicas[c.leader(t, -1)].group.Status().Term; now != term {
			t.Fatalf("its return moved the term from %d to %d", term, now)
		}
	})
}

func TestChangesAreIdempotentAndChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, 4, 3)
		defer c.close(t)
		ctx := t.Context()
		leader := c.leader(t, -1)
		g, other, spare := c.replicas[leader].group, c.replicas[(leader+1)%3], c.replicas[3]
		for range 2 {
			must(t, "add", g.AddLearner(ctx, spare.id))
		}
		must(t, "add a voter", g.AddLearner(ctx, other.id))
		must(t, "demote a learner", g.Demote(ctx, spare.id))
		must(t, "promote a voter", g.Promote(ctx, other.id))
		_, index := g.Members()
		if got := membersOf(g); got != "n1n2n3(n4)" {
			t.Fatalf("members %s", got)
		}
		for range 2 {
			must(t, "remove", g.Remove(ctx, spare.id))
		}
		if members, now := g.Members(); now <= index || len(members) != 3 {
			t.Fatalf("%d members at index %d, before %d", len(members), now, index)
		}
		for name, call := range map[string]func() error{
			"promote a stranger": func() error { return g.Promote(ctx, spare.id) },
			"demote a stranger":  func() error { return g.Demote(ctx, spare.id) },
		} {
			if err := call(); !errors.Is(err, ErrNotMember) || !NotAccepted(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := g.AddLearner(ctx, "n9"); !errors.Is(err, ErrInvalid) {
			t.Errorf("a node id instead of a replica id: %v", err)
		}
		for name, call := range changes(spare.id) {
			if err := call(other.group, ctx); !errors.Is(err, ErrNotLeader) || !NotAccepted(err) {
				t.Errorf("%s at a follower: %v", name, err)
			}
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if err := call(g, ended); !errors.Is(err, ErrContext) || !NotAccepted(err) {
				t.Errorf("%s with an ended context: %v", name, err)
			}
		}
	})
}

func changes(id string) map[string]func(*Group, context.Context) error {
	return map[string]func(*Group, context.Context) error{
		"add":     func(g *Group, ctx context.Context) error { return g.AddLearner(ctx, id) },
		"promote": func(g *Group, ctx context.Context) error { return g.Promote(ctx, id) },
		"demote":  func(g *Group, ctx context.Context) error { return g.Demote(ctx, id) },
		"remove":  func(g *Group, ctx context.Context) error { return g.Remove(ctx, id) },
	}
}

// Raft reports a configuration without its index, and takes index 0 to mean "whatever it is now". Fails if change passes what Raft reports: the
// configuration that decide saw is then no longer the one that is changed.
func TestChangeIsACompareAndSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, 4, 3)
		defer c.close(t)
		leader := c.leader(t, -1)
		g, spare, other := c.replicas[leader].group, raft.ServerID(c.replicas[3].id), raft.ServerID(c.replicas[(leader+1)%3].id)
		if index := g.current().GetConfiguration().Index(); index != 0 {
			t.Fatalf("raft now reports index %d: configurations may have become needless", index)
		}
		_, before := g.Members()
		err := g.change(t.Context(), func([]Member) (change, error) {
			must(t, "somebody else's change", g.current().AddNonvoter(spare, raft.ServerAddress(spare), 0, changePatience).Error())
			return func(r *raft.Raft, prev uint64, patience time.Duration) raft.IndexFuture {
				return r.RemoveServer(other, prev, patience)
			}, nil
		})
		if !errors.Is(err, ErrMaybeAccepted) {
			t.Fatalf("a change on an old configuration got %v", err)
		}
		if _, after := g.Members(); membersOf(g) != "n1n2n3(n4)" || before == 0 || after <= before {
			t.Fatalf("members %s at index %d, before %d", membersOf(g), after, before)
		}
	})
}

// Without a quorum a change stays open. Others are refused, the asker is released by its context, and once the partition ends the change is either
// made or not, on all replicas alike.
func TestChangeWithoutAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, 4, 3)
		defer c.close(t)
		leader := c.leader(t, -1)
		g := c.replicas[leader].group
		c.cutOff(leader)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		first := make(chan error, 1)
		go func() { first <- g.AddLearner(ctx, c.replicas[3].id) }()
		synctest.Wait()
		if err := g.Remove(ctx, c.replicas[(leader+1)%3].id); !errors.Is(err, ErrChangeInProgress) || !NotAccepted(err) {
			t.Fatalf("a second change: %v", err)
		}
		if err := <-first; !errors.Is(err, ErrMaybeAccepted) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the first change: %v", err)
		}
		if err := g.Remove(t.Context(), c.replicas[(leader+1)%3].id); !errors.Is(err, ErrChangeInProgress) {
			t.Fatalf("a change behind one that is not committed: %v", err)
		}
		if st := g.Status(); !st.Changing {
			t.Fatalf("status %+v", st)
		}
		fresh := c.leader(t, leader)
		must(t, "remove at the new leader", c.replicas[fresh].group.Remove(t.Context(), c.replicas[3].id))
		eventually(t, "the old leader to step down", func() bool { return !g.Status().Ready })
		c.connect(leader)
		c.caughtUp(t, leader)
		if got := membersOf(g); got != "n1n2n3" || g.Status().Changing {
			t.Fatalf("after the partition: %s", got)
		}
	})
}

// silentFuture is one that Raft abandoned (498).
type silentFuture struct {
	raft.IndexFuture
	release chan struct{}
}

func (f silentFuture) Error() error {
	<-f.release
	return nil
}

// A change that Raft never answers is released by the end of the group at the latest.
func TestChangeThatIsNeverAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close(t)
		leader := c.leader(t, -1)
		g := c.replicas[leader].group
		release := make(chan struct{})
		defer close(release)
		result := make(chan error, 1)
		go func() {
			result <- g.change(t.Context(), func([]Member) (change, error) {
				return func(*raft.Raft, uint64, time.Duration) raft.IndexFuture { return silentFuture{release: release} }, nil
			})
		}()
		synctest.Wait()
		closeGroup(t, g)
		if err := <-result; !errors.Is(err, ErrMaybeAccepted) || !errors.Is(err, raft.ErrRaftShutdown) {
			t.Fatalf("got %v", err)
		}
		c.open(t, leader)
	})
}

// A change whose group is closed under it returns, and later ones are refused.
func TestChangeIsReleasedByClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, 4, 3)
		defer c.close(t)
		leader := c.leader(t, -1)
		g := c.replicas[leader].group
		c.cutOff(leader)
		result := make(chan error, 1)
		go func() { result <- g.AddLearner(t.Context(), c.replicas[3].id) }()
		synctest.Wait()
		closeGroup(t, g)
		if err := <-result; !errors.Is(err, ErrMaybeAccepted) {
			t.Fatalf("got %v", err)
		}
		if err := g.AddLearner(t.Context(), c.replicas[3].id); !errors.Is(err, ErrStopped) || !NotAccepted(err) {
			t.Fatalf("after close: %v", err)
		}
		c.open(t, leader)
	})
}

// A replica that was removed while it could not hear of it comes back and stands for election for as long as it lives. Nobody votes for it,
// the term stays, the leader stays, and commands go on. Fails with pre-votes disabled: then its terms depose the leader again and again.
func TestRemovedReplicaDoesNotDisturb(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close(t)
		leader := c.leader(t, -1)
		g, gone := c.replicas[leader].group, (leader+1)%3
		c.cutOff(gone)
		must(t, "remove", g.Remove(t.Context(), c.replicas[gone].id))
		<-time.After(5 * electionTimeout)
		term := g.Status().Term
		c.connect(gone)
		for i := range 30 {
			do(t, g, id(i))
			<-time.After(electionTimeout / 2)
		}
		removed := c.replicas[gone].group.Status()
		if removed.Elections == 0 || removed.Ready {
			t.Fatalf("the removed replica never stood for election, so the test shows nothing: %+v", removed)
		}
		if now := g.Status(); now.Term != term || !now.Ready {
			t.Fatalf("term %d, then %+v", term, now)
		}
		if removed.AppliedIndex >= g.Applied() {
			t.Fatal("a removed replica still gets entries")
		}
		if removed.Term > term {
			t.Fatalf("its term is %d, the group's %d", removed.Term, term)
		}
	})
}

// The same for one that heard of its removal, and for a demoted voter: neither stands for election at all.
func TestDemotedReplicaDoesNotStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close(t)
		leader := c.leader(t, -1)
		g, quiet := c.replicas[leader].group, (leader+1)%3
		must(t, "demote", g.Demote(t.Context(), c.replicas[quiet].id))
		c.caughtUp(t, quiet)
		before := c.replicas[quiet].group.Status().Elections
		c.cutOff(quiet)
		<-time.After(20 * electionTimeout)
		if st := c.replicas[quiet].group.Status(); st.Elections != before || st.Role != RoleFollower {
			t.Fatalf("a learner stood for election: %+v", st)
		}
		c.connect(quiet)
		do(t, g, "a")
		c.caughtUp(t, quiet)
	})
}

// What the library does if the leader is removed by its own entry, which is why ErrLeaderStays exists: it steps down once the entry is
// committed, and what was under way then has no verdict.
func TestLibraryLeaderRemovesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close(t)
		leader := c.leader(t, -1)
		r := c.replicas[leader]
		if err := r.group.current().RemoveServer(raft.ServerID(r.id), 0, changePatience).Error(); err != nil {
			t.Fatal(err)
		}
		fresh := c.leader(t, leader)
		eventually(t, "the removed leader to be deposed", func() bool { return !r.group.Status().Ready })
		do(t, c.replicas[fresh].group, "a")
		if st := r.group.Status(); st.Role == RoleStopped || st.Failure != nil {
			t.Fatalf("the removed leader stopped: %+v", st)
		}
		if got := membersOf(c.replicas[fresh].group); len(got) != 4 {
			t.Fatalf("members %s", got)
		}
	})
}
