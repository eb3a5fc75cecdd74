package replication

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// The order to take over reaches its target after the old leader has given up on it and accepts commands again. A new leader then exists of which the
// old one has not heard, and answers to its own earlier heartbeats still arrive. Raft's VerifyLeader takes one of them for a confirmation;
// ReadIndex must not, since the new leader has acknowledged a command that the old one has not seen.
func TestDeposedLeaderConfirmsNoRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late atomic.Bool
		var slow atomic.Pointer[replica] // the answers to its messages take long
		c := newClusterWith(t, 3, 3, func(c *cluster) {
			for _, r := range c.replicas {
				r.transport.setHook(func(kind string, _ raft.ServerID, call func() error) error {
					if kind == "transfer" && late.Load() {
						go func() {
							<-time.After(2 * electionTimeout)
							_ = call() // nobody waits for the answer
						}()
						return errors.New("time-out")
					}
					err := call()
					if slow.Load() == r {
						<-time.After(300 * time.Millisecond)
					}
					return err
				})
			}
		})
		defer c.close(t)
		old := c.leader(t, -1)
		g, next := c.replicas[old].group, c.replicas[(old+1)%3]
		do(t, g, "before")
		late.Store(true)
		if err := g.TransferLeadershipTo(t.Context(), next.id); !errors.Is(err, ErrTransferFailed) {
			t.Fatalf("the transfer: %v", err)
		}
		eventually(t, "the old leader to accept reads again", func() bool {
			_, err := g.ReadIndex(t.Context())
			return err == nil
		})
		<-time.After(2*electionTimeout - 600*time.Millisecond)
		slow.Store(c.replicas[old])
		<-time.After(400 * time.Millisecond)
		// The new leader cannot reach the old one.
		next.transport.Disconnect(c.replicas[old].transport.LocalAddr())
		eventually(t, "the new leader", func() bool { return next.group.Status().Role == RoleLeader })
		if st := g.Status(); !st.Ready {
			t.Fatalf("the old leader knows already: %+v", st)
		}
		verified := make(chan error, 1)
		go func() { verified <- g.current().VerifyLeader().Error() }()
		unchanged := make(chan error, 1)
		go func() { unchanged <- g.AddLearner(t.Context(), next.id) }()
		read := make(chan error, 1)
		go func() {
			_, err := g.ReadIndex(t.Context())
			read <- err
		}()
		do(t, next.group, "after")
		if err := <-read; !errors.Is(err, ErrBarrier) {
			t.Errorf("the old leader confirmed a read: %v", err)
		}
		if err := <-unchanged; !errors.Is(err, ErrNotLeader) {
			t.Errorf("the old leader confirmed that nothing had to be changed: %v", err)
		}
		if err := <-verified; err != nil {
			t.Errorf("VerifyLeader noticed (%v): the test shows nothing", err)
		}
		c.connect(old)
	})
}

// Linearizability of ReadIndex under partitions, transfers and pauses: whatever was acknowledged before a read began is in the state of any replica
// that waited for the read's index.
func TestReadIndexIsNeverOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowCluster(t, 2*time.Millisecond)
		defer c.close(t)
		c.leader(t, -1)
		var newest atomic.Int64 // number of the newest acknowledged command, written in order by one writer
		quit := make(chan struct{})
		var work sync.WaitGroup
		work.Go(func() { c.writeInOrder(&newest, quit) })
		var reads, refused atomic.Int64
		for i := range 6 {
			work.Go(func() { c.readAnywhere(t, i, &newest, quit, &reads, &refused) })
		}
		for round := range 12 {
			<-time.After(500 * time.Millisecond)
			old := c.leader(t, -1)
			switch round % 3 {
			case 0:
				_ = c.replicas[old].group.TransferLeadership(t.Context())
			case 1:
				c.cutOff(old)
				<-time.After(2 * electionTimeout)
				c.connect(old)
			case 2: // the leader hears nobody, but is heard
				for k, r := range c.replicas {
					if k != old {
						r.transport.Disconnect(c.replicas[old].transport.LocalAddr())
					}
				}
				<-time.After(2 * electionTimeout)
				c.connect(old)
			}
		}
		close(quit)
		work.Wait()
		if reads.Load() < 100 || refused.Load() == 0 || newest.Load() < 100 {
			t.Fatalf("%d reads, %d refused, %d writes: the test shows little", reads.Load(), refused.Load(), newest.Load())
		}
		t.Logf("%d reads, %d refused, %d writes", reads.Load(), refused.Load(), newest.Load())
	})
}

// writeInOrder proposes numbered commands, each after the one before was acknowledged.
func (c *cluster) writeInOrder(newest *atomic.Int64, quit chan struct{}) {
	for n := int64(1); ; {
		for _, r := range c.replicas {
			select {
			case <-quit:
				return
			case <-time.After(time.Millisecond):
			}
			ctx, cancel := contextFor(500 * time.Millisecond)
			if _, _, err := r.group.Do(ctx, Client, fmt.Appendf(nil, "w%d", n)); err == nil {
				newest.Store(n)
				n++
			}
			cancel()
		}
	}
}

// readAnywhere asks one replica for an index and reads at another.
func (c *cluster) readAnywhere(t *testing.T, i int, newest *atomic.Int64, quit chan struct{}, reads, refused *atomic.Int64) {
	asked, at := c.replicas[i%3], c.replicas[i/2]
	for {
		select {
		case <-quit:
			return
		case <-time.After(3 * time.Millisecond):
		}
		want := newest.Load()
		ctx, cancel := contextFor(500 * time.Millisecond)
		index, err := asked.group.ReadIndex(ctx)
		if err == nil {
			err = at.group.WaitApplied(ctx, index)
		}
		cancel()
		if err != nil {
			refused.Add(1)
			continue
		}
		reads.Add(1)
		if want > 0 && count(t, at.store, 1, fmt.Sprintf("w%d", want)) == 0 {
			t.Errorf("command %d was acknowledged before the read at index %d and is not there", want, index)
			return
		}
	}
}

// Readers that wait together share one entry, and it names an index.
func TestReadIndexIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowCluster(t, 5*time.Millisecond)
		defer c.close(t)
		g := c.replicas[c.leader(t, -1)].group
		_, acked, err := g.Do(t.Context(), Client, []byte("a"))
		must(t, "do", err)
		before := g.Status().Entries
		var readers sync.WaitGroup
		for range 200 {
			readers.Go(func() {
				if index, err := g.ReadIndex(t.Context()); err != nil || index <= acked {
					t.Errorf("index %d, %v", index, err)
				}
			})
		}
		readers.Wait()
		if n := g.Status().Entries - before; n > 20 {
			t.Fatalf("200 readers made %d entries", n)
		}
		follower := c.replicas[(c.leader(t, -1)+1)%3].group
		if _, err := follower.ReadIndex(t.Context()); !errors.Is(err, ErrBarrier) || !errors.Is(err, ErrNotLeader) || !strings.Contains(err.Error(), "leader") {
			t.Fatalf("a follower: %v", err)
		}
	})
}
