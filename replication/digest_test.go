package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
)

func mark(t *testing.T, g *Group) uint64 {
	t.Helper()
	index, err := g.Digest(t.Context())
	if err != nil {
		t.Fatalf("mark: %v", err)
	}
	return index
}

func digestAt(t *testing.T, g *Group, index uint64) ([32]byte, DigestState) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	sum, state, err := g.DigestAt(ctx, index)
	if err != nil {
		t.Fatalf("digest at %d: %v in state %v", index, err, state)
	}
	return sum, state
}

// Every replica, learners included, computes the digest exactly at the mark, whatever is applied around it; and a state that differs shows.
func TestDigestsAgreeUntilAStateDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, 4, 3)
		defer c.close(t)
		leader := c.leader(t, -1)
		g := c.replicas[leader].group
		must(t, "add", g.AddLearner(t.Context(), c.replicas[3].id))
		load := c.load(t, 8)
		seen := map[[32]byte]bool{}
		for range 10 {
			<-time.After(10 * time.Millisecond)
			index := mark(t, g)
			want, state := digestAt(t, g, index)
			if state != DigestDone || want == [32]byte{} || seen[want] {
				t.Fatalf("leader: %v, %x", state, want)
			}
			seen[want] = true
			for i, r := range c.replicas {
				if sum, state := digestAt(t, r.group, index); state != DigestDone || sum != want {
					t.Fatalf("replica %d at %d: %v, %x, want %x", i, index, state, sum, want)
				}
			}
		}
		load.stop()
		if g.Status().DigestBytes == 0 {
			t.Error("no progress was counted")
		}
		// One bit of one value, on one replica.
		bad := c.replicas[(leader+1)%3]
		c.caughtUp(t, (leader+1)%3)
		bad.machine.spoil.Store(true)
		do(t, g, "spoilt")
		index := mark(t, g)
		want, _ := digestAt(t, g, index)
		for i, r := range c.replicas {
			if sum, state := digestAt(t, r.group, index); state != DigestDone || (sum == want) != (r != bad) {
				t.Errorf("replica %d: %v, equal to the leader's %v", i, state, sum == want)
			}
		}
	})
}

// A mark changes nothing but the applied index, and the machine never sees it.
func TestMarkChangesNothing(t *testing.T) {
	s := newStore(t)
	g, m := lead(t, options(s, newCounter()))
	do(t, g, "a")
	entries, applied := len(m.entries()), g.Applied()
	first := mark(t, g)
	second := mark(t, g)
	if first <= applied || second <= first || g.Applied() != second || len(m.entries()) != entries {
		t.Fatalf("marks at %d and %d, applied %d then %d, %d entries then %d", first, second, applied, g.Applied(), entries, len(m.entries()))
	}
	a, _ := digestAt(t, g, first)
	b, _ := digestAt(t, g, second)
	if a != b {
		t.Fatal("a mark changed the digest")
	}
	do(t, g, "b")
	if c, _ := digestAt(t, g, mark(t, g)); c == a {
		t.Fatal("a command did not change the digest")
	}
}

// What a replica can say about marks: those of before its start are unknown, those it has not applied pending, those too old forgotten.
func TestDigestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close(t)
		leader := c.leader(t, -1)
		g, away := c.replicas[leader].group, (leader+1)%3
		old := mark(t, g)
		c.caughtUp(t, away)
		if _, state := digestAt(t, c.replicas[away].group, old); state != DigestDone {
			t.Fatalf("%v before the restart", state)
		}
		c.restart(t, away)
		c.caughtUp(t, away)
		if _, state := digestAt(t, c.replicas[away].group, old); state != DigestUnknown {
			t.Fatalf("%v after the restart", state)
		}
		if _, state := digestAt(t, g, old-1); state != DigestUnknown {
			t.Fatalf("an ordinary entry: %v", state)
		}
		c.cutOff(away)
		index := mark(t, g)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, state, err := c.replicas[away].group.DigestAt(ctx, index); state != DigestPending || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a mark that did not arrive: %v, %v", state, err)
		}
		c.connect(away)
		if _, state := digestAt(t, c.replicas[away].group, index); state != DigestDone {
			t.Fatalf("after its arrival: %v", state)
		}
		for range digestsKept {
			last := mark(t, g)
			digestAt(t, g, last)
		}
		if _, state := digestAt(t, g, index); state != DigestUnknown {
			t.Fatalf("a forgotten mark: %v", state)
		}
		if _, err := c.replicas[away].group.Digest(t.Context()); !errors.Is(err, ErrNotLeader) || !NotAccepted(err) {
			t.Fatalf("a follower's mark: %v", err)
		}
		closeGroup(t, g)
		if _, _, err := g.DigestAt(t.Context(), index+1000); !errors.Is(err, ErrStopped) {
			t.Fatalf("a closed group: %v", err)
		}
		if _, err := g.Digest(t.Context()); !errors.Is(err, ErrStopped) {
			t.Fatalf("a mark on a closed group: %v", err)
		}
		c.open(t, leader)
	})
}

// Callers that wait together share a mark.
func TestMarksAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowCluster(t, 5*time.Millisecond)
		defer c.close(t)
		g := c.replicas[c.leader(t, -1)].group
		before := g.Status().Entries
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				if _, err := g.Digest(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if n := g.Status().Entries - before; n > 20 {
			t.Fatalf("100 callers made %d entries", n)
		}
	})
}

// Who waits for a mark is told when the queue begins to refuse.
func TestRefusedMark(t *testing.T) {
	q := openQueue()
	b, err := q.mark()
	must(t, "mark", err)
	q.refuse(ErrTransferring, false).answer()
	<-b.done
	if !errors.Is(b.err, ErrTransferring) || q.waitingLocked() {
		t.Fatalf("got %v; still waiting: %v", b.err, q.waitingLocked())
	}
	if _, err := q.mark(); !errors.Is(err, ErrTransferring) {
		t.Fatalf("a later mark got %v", err)
	}
}

// bareFSM is the state machine side alone, without Raft.
func bareFSM(t *testing.T, s *storage.Store, m StateMachine) *fsm {
	t.Helper()
	f := &fsm{machine: m, state: s.State(1), store: s, watch: NopObserver{}, index: &appliedIndex{}, onTerm: func() {},
		onFail: func(err error) { t.Error(err) }, onGrow: func() {}, maxBytes: 1 << 40, maxCount: 1 << 40}
	f.digests.open()
	return f
}

func logOf(index uint64, e Entry) *raft.Log {
	e.NodeID = "n1"
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: AppendEntry(nil, &e)}
}

// The state batch ends at the mark even if Raft brings it in the middle of a run.
func TestMarkCutsTheBatch(t *testing.T) {
	s := newStore(t)
	m := newCounter()
	f := bareFSM(t, s, m)
	cmd := func(i int) Entry { return Entry{Commands: [][]byte{[]byte(id(i))}} }
	f.ApplyBatch([]*raft.Log{logOf(1, cmd(1)), logOf(2, cmd(2)), logOf(3, Entry{Digest: 1}), logOf(4, cmd(4))})
	if len(m.committed) != 2 || m.committed[0] != 3 || m.committed[1] != 4 {
		t.Fatalf("committed at %v", m.committed)
	}
	at3 := <-f.digests.work
	if applied, err := at3.state.Applied(); err != nil || applied != 3 {
		t.Fatalf("the state to be hashed stands at %d, %v", applied, err)
	}
	if _, ok, err := at3.state.Get(countKey([]byte(id(4)))); ok || err != nil {
		t.Fatalf("it holds what came later: %v, %v", ok, err)
	}
	f.digests.work <- at3
	f.digests.drop()
}

// A burst of marks must not hold the state of each open: those above the bound are skipped, and say so.
func TestTooManyMarksAreSkipped(t *testing.T) {
	s := newStore(t)
	f := bareFSM(t, s, newCounter())
	for i := range uint64(digestsQueued + 3) {
		f.ApplyBatch([]*raft.Log{logOf(i+1, Entry{Digest: 1})})
	}
	if len(f.digests.work) != digestsQueued {
		t.Fatalf("%d states are open, want %d", len(f.digests.work), digestsQueued)
	}
	for i := range uint64(digestsQueued + 3) {
		d := f.digests.find(i + 1)
		if d == nil {
			t.Fatalf("mark %d is not known", i+1)
		}
		skipped := i >= digestsQueued
		select {
		case <-d.done:
			if !skipped || d.state != DigestSkipped {
				t.Errorf("mark %d: %v", i+1, d.state)
			}
		default:
			if skipped {
				t.Errorf("mark %d is pending", i+1)
			}
		}
	}
	f.digests.drop() // closes what was held; newStore's Close would fail otherwise
	if d := f.digests.find(1); d.state != DigestSkipped || !errors.Is(d.err, context.Canceled) {
		t.Errorf("a digest that was cancelled: %v, %v", d.state, d.err)
	}
}

// An install moves the state over marks that the replica will never meet.
func TestJumpedMarksAreSkipped(t *testing.T) {
	s := newStore(t)
	m := newCounter()
	f := bareFSM(t, s, m)
	f.ApplyBatch([]*raft.Log{logOf(1, Entry{}), logOf(2, Entry{})})
	g := &Group{fsm: f, stop: make(chan struct{})}
	waiting := make(chan DigestState, 1)
	ready := make(chan struct{})
	go func() {
		close(ready)
		_, state, err := g.DigestAt(t.Context(), 7)
		if err != nil {
			t.Error(err)
		}
		waiting <- state
	}()
	<-ready
	configuration := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(rid("n7")), Address: "x"}}}
	g.index.index.Store(2)
	f.index = &g.index
	f.jumped(10, configuration, 5)
	if state := <-waiting; state != DigestSkipped {
		t.Errorf("who waited got %v", state)
	}
	for index, want := range map[uint64]DigestState{2: DigestUnknown, 3: DigestSkipped, 10: DigestSkipped} {
		if _, state := digestAt(t, g, index); state != want {
			t.Errorf("at %d: %v, want %v", index, state, want)
		}
	}
	if got := membersOf(g); got != "n7" || f.applied != 10 || g.Applied() != 10 || len(m.installed) != 1 || m.installed[0] != 10 || f.installs.Load() != 1 {
		t.Errorf("members %s, applied %d, published %d, installed %v", got, f.applied, g.Applied(), m.installed)
	}
	f.ApplyBatch([]*raft.Log{logOf(9, Entry{}), logOf(11, Entry{Digest: 1})})
	if d := f.digests.find(11); d == nil {
		t.Error("marks behind the jump are not met")
	}
	f.digests.drop()
}

// Hashing a large state stops soon after it is told to.
func TestDigestIsCancelled(t *testing.T) {
	s := newStore(t)
	b := s.State(1).NewBatch()
	for i := range 64 {
		must(t, "set", b.Set(fmt.Appendf(nil, "k%02d", i), make([]byte, 256<<10)))
	}
	b.SetApplied(1)
	must(t, "commit", b.Commit())
	b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	snapshot := s.State(1).NewSnapshot()
	defer func() { must(t, "close", snapshot.Close()) }()
	var whole, partial atomic.Uint64
	if _, err := hashState(ctx, snapshot, &whole); err != nil || whole.Load() < 16<<20 {
		t.Fatalf("%d bytes, %v", whole.Load(), err)
	}
	cancel()
	if _, err := hashState(&lateCancel{Context: ctx, looks: 3}, snapshot, &partial); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if n := partial.Load(); n == 0 || n > 5*digestStep {
		t.Fatalf("%d bytes were hashed after the third look", n)
	}
}

// lateCancel is a cancelled context that shows it only after some looks.
type lateCancel struct {
	context.Context
	looks int
}

func (c *lateCancel) Err() error {
	if c.looks--; c.looks >= 0 {
		return nil
	}
	return c.Context.Err()
}
