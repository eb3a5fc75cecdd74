package replication

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// Leadership walks around the group under full load. Each transfer takes far less than an election, callers are refused at most, and nothing
// that was under way is left unknown. The library waits until its target has every entry, which makes it committed in a group of three; among
// five, where the target may be ahead of the majority, commands are left unknown without the drain.
func TestTransfersUnderLoad(t *testing.T) {
	around := func(old, round int) int { return (old + 1 + round%2) % 3 }
	for name, test := range map[string]struct {
		open func(*testing.T) *cluster
		next func(old, round int) int
	}{
		"one append at a time": {func(t *testing.T) *cluster { return newSlowCluster(t, time.Millisecond) }, around},
		"pipelined": {func(t *testing.T) *cluster {
			return newPipelinedCluster(t, 3, time.Millisecond, 5*time.Millisecond)
		}, around},
		"ahead of the majority": {func(t *testing.T) *cluster {
			return newPipelinedCluster(t, 5, time.Millisecond, 20*time.Millisecond)
		}, func(old, _ int) int { return 1 - old }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := test.open(t)
				defer c.close(t)
				c.leadBy(t, 0)
				c.walkUnderLoad(t, 20, test.next)
			})
		})
	}
}

// walkUnderLoad transfers leadership so many times while 32 callers propose.
func (c *cluster) walkUnderLoad(t *testing.T, rounds int, pick func(old, round int) int) {
	t.Helper()
	before := c.transfers()
	load := c.load(t, 32)
	for round := range rounds {
		<-time.After(50 * time.Millisecond)
		old := c.leader(t, -1)
		next := c.replicas[pick(old, round)]
		began := time.Now()
		if err := c.replicas[old].group.TransferLeadershipTo(t.Context(), next.id); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if fresh := c.leader(t, old); c.replicas[fresh] != next {
			t.Fatalf("round %d: %d leads", round, fresh)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Fatalf("round %d took %v", round, took)
		}
	}
	acked := load.stop()
	if load.unknown() > 0 {
		t.Fatalf("%d commands are unknown: %v", load.unknown(), load.maybe)
	}
	for err, n := range load.refusals {
		if !errors.Is(err, ErrTransferring) && !errors.Is(err, ErrNotLeader) {
			t.Errorf("%d callers got %v", n, err)
		}
	}
	if load.longestGap > 200*time.Millisecond {
		t.Errorf("nothing was acknowledged for %v", load.longestGap)
	}
	t.Logf("%d acknowledged, longest gap %v, refusals %v", len(acked), load.longestGap, load.refusals)
	c.same(t, c.leader(t, -1), acked)
	if n := c.transfers() - before; n != uint64(rounds) {
		t.Errorf("%d transfers were counted", n)
	}
}

func (c *cluster) transfers() (n uint64) {
	for _, r := range c.replicas {
		n += r.group.Status().Transfers
	}
	return n
}

// newPipelinedCluster leaves appends pipelined. Calls take some time, and answers of all but the first two of n replicas another.
func newPipelinedCluster(t *testing.T, n int, there, back time.Duration) *cluster {
	t.Helper()
	return newClusterWith(t, n, n, func(c *cluster) {
		for i, r := range c.replicas {
			r.transport.delayIncoming(there, time.Duration(min(i/2, 1))*back)
		}
	})
}

func TestTransferTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, 4, 3)
		defer c.close(t)
		leader := c.leader(t, -1)
		g, follower, spare := c.replicas[leader].group, c.replicas[(leader+1)%3], c.replicas[3]
		for name, id := range map[string]string{"a stranger": spare.id, "nobody": "", "a node id": "n1"} {
			if err := g.TransferLeadershipTo(t.Context(), id); !errors.Is(err, ErrNoTransferTarget) {
				t.Errorf("to %s: %v", name, err)
			}
		}
		must(t, "add", g.AddLearner(t.Context(), spare.id))
		if err := g.TransferLeadershipTo(t.Context(), spare.id); !errors.Is(err, ErrNoTransferTarget) {
			t.Errorf("to a learner: %v", err)
		}
		must(t, "to itself", g.TransferLeadershipTo(t.Context(), c.replicas[leader].id))
		if err := follower.group.TransferLeadershipTo(t.Context(), follower.id); !errors.Is(err, ErrNotLeader) {
			t.Errorf("by a follower: %v", err)
		}
		if err := follower.group.TransferLeadership(t.Context()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("by a follower, anywhere: %v", err)
		}
		if st := g.Status(); !st.Ready || st.Transfers != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

// A transfer to a voter that is down fails, and the leader goes on; one to anybody finds the voter that is up, also where Raft would pick the
// other: as long as both have the whole log it takes the first of the configuration.
func TestTransferAroundADeadVoter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close(t)
		const dead = 0
		for range 6 {
			c.leadBy(t, 1)
			g := c.replicas[1].group
			do(t, g, "x")
			c.caughtUp(t, dead)
			c.caughtUp(t, 2)
			c.cutOff(dead)
			failed := g.Status().FailedTransfers
			began := time.Now()
			if err := g.TransferLeadershipTo(t.Context(), c.replicas[dead].id); !errors.Is(err, ErrTransferFailed) {
				t.Fatalf("to a dead voter: %v", err)
			}
			if took := time.Since(began); took > electionTimeout+100*time.Millisecond || g.Status().FailedTransfers != failed+1 {
				t.Fatalf("it failed after %v, %+v", took, g.Status())
			}
			eventually(t, "reads after it", func() bool { return g.ReadBarrier(t.Context()) == nil })
			c.connect(dead)
			c.caughtUp(t, dead)
			c.cutOff(dead)
			must(t, "to anybody", g.TransferLeadership(t.Context()))
			if fresh := c.leader(t, 1); fresh != 2 {
				t.Fatalf("%d leads, want 2", fresh)
			}
			c.connect(dead)
			c.caughtUp(t, dead)
		}
	})
}

// A partition in the middle of a transfer, at each of its steps: some replica accepts commands soon, and none is lost.
func TestTransferCutByAPartition(t *testing.T) {
	for _, step := range []string{"append", "transfer", "vote"} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newSlowCluster(t, time.Millisecond)
				defer c.close(t)
				old := c.leader(t, -1)
				load := c.load(t, 4)
				<-time.After(100 * time.Millisecond)
				cut := make(chan struct{}, 8)
				for _, r := range c.replicas {
					r.transport.setHook(func(kind string, _ raft.ServerID, call func() error) error {
						if kind == step {
							select {
							case cut <- struct{}{}:
							default:
							}
						}
						<-time.After(time.Millisecond)
						return call()
					})
				}
				ended := make(chan error, 1)
				go func() { ended <- c.replicas[old].group.TransferLeadership(t.Context()) }()
				<-cut
				c.cutOff(old)
				if err := <-ended; err != nil && !errors.Is(err, ErrTransferFailed) {
					t.Errorf("the transfer: %v", err)
				}
				fresh := c.leader(t, old)
				do(t, c.replicas[fresh].group, "after")
				c.connect(old)
				c.caughtUp(t, old)
				acked := load.stop()
				c.same(t, c.leader(t, -1), append(acked, "after"))
			})
		})
	}
}

// The caller's context ends a wait for a transfer, not the transfer; and a second one is refused meanwhile.
func TestTransferOutlivesItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowCluster(t, 20*time.Millisecond)
		defer c.close(t)
		old := c.leader(t, -1)
		g := c.replicas[old].group
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		first := make(chan error, 1)
		go func() { first <- g.TransferLeadership(ctx) }()
		synctest.Wait()
		if err := g.TransferLeadership(t.Context()); !errors.Is(err, ErrTransferring) {
			t.Fatalf("a second transfer: %v", err)
		}
		if _, err := g.ReadIndex(t.Context()); !errors.Is(err, ErrBarrier) || !errors.Is(err, ErrTransferring) {
			t.Fatalf("a read: %v", err)
		}
		if err := g.AddLearner(t.Context(), c.replicas[old].id); !errors.Is(err, ErrTransferring) || !NotAccepted(err) {
			t.Fatalf("a change: %v", err)
		}
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the first: %v", err)
		}
		do(t, c.replicas[c.leader(t, old)].group, "x")
	})
}
