package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestOptionsNameEveryProblem(t *testing.T) {
	_, err := NewGroup(Options{
		Bootstrap:       []string{"a", "a"},
		NodeID:          strings.Repeat("n", 256),
		TrailingEntries: 1,
	})
	for _, want := range []string{"Store", "NodeID has 256 bytes", "BootID", "Stamp", "Machine", "ReplicaID is \"\"", "Bootstrap[1] is \"a\", not a replica id", "appears twice",
		"does not name this replica", "TrailingEntries is 1, want at least 32"} {
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q: %v", want, err)
		}
	}
}

func TestProposeApplyRestart(t *testing.T) {
	s := newStore(t)
	g, m := lead(t, options(s, newCounter()))
	for i := range 50 {
		if n := do(t, g, id(i)); n != 1 {
			t.Fatalf("command %d was applied %d times", i, n)
		}
	}
	for i, e := range m.entries() {
		if e.NodeID != "n1" || e.BootID != 7 || e.Stamp == 0 || e.Index == 0 || e.Term == 0 {
			t.Fatalf("entry %d is %+v", i, e)
		}
	}
	applied := g.Applied()
	closeGroup(t, g)
	if m.deposed != 1 {
		t.Fatalf("deposed %d times, want 1", m.deposed)
	}

	g2, m2 := lead(t, options(s, newCounter()))
	for _, e := range m2.entries() {
		if e.Index <= applied {
			t.Fatalf("entry %d was applied again; %d was stored", e.Index, applied)
		}
	}
	for i := range 50 {
		if n := count(t, s, 1, id(i)); n != 1 {
			t.Fatalf("command %d counts %d after a restart", i, n)
		}
	}
	if n := do(t, g2, id(3)); n != 2 {
		t.Fatalf("second use of an id counted %d, want 2", n)
	}
}

// The quick first election of a single voter (timed in TestSingleReplicaLeadsWithoutWaiting) must leave the timeouts as they are.
func TestSoleVoterKeepsItsTimeouts(t *testing.T) {
	s := newStore(t)
	g, _ := lead(t, options(s, newCounter()))
	c := g.current().ReloadableConfig()
	if c.HeartbeatTimeout != heartbeatTimeout || c.ElectionTimeout != electionTimeout {
		t.Fatalf("timeouts are %v and %v, want those of every group", c.HeartbeatTimeout, c.ElectionTimeout)
	}
	if st := g.Status(); st.Role != RoleLeader || !st.Ready || st.LeaderID != rid("n1") || st.LeaderNode != "n1" || st.Voters != 1 || st.LeaderSince.IsZero() {
		t.Fatalf("status %+v", st)
	}
}

func TestCommittedBeforeAnswer(t *testing.T) {
	s := newStore(t)
	g, m := lead(t, options(s, newCounter()))
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Add(1)
		err := g.Propose(context.Background(), Client, []byte(id(i)), func(_ any, index uint64, err error) {
			defer wg.Done()
			if err != nil {
				t.Errorf("command %d: %v", i, err)
				return
			}
			m.mu.Lock()
			last := m.committed[len(m.committed)-1]
			m.mu.Unlock()
			if last < index || g.Applied() < index {
				t.Errorf("answered for %d when committed said %d and applied %d", index, last, g.Applied())
			}
			if n := count(t, s, 1, id(i)); n != 1 {
				t.Errorf("answered before the state showed it: %d", n)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

func TestVectors(t *testing.T) {
	s := newStore(t)
	g, m := lead(t, options(s, newCounter()))
	for _, n := range []int{1, 2, 256, 257, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			commands := make([][]byte, n)
			for i := range commands {
				commands[i] = fmt.Appendf(nil, "v%d-%d", n, i)
			}
			got := make(chan answer, 1)
			err := g.ProposeVector(context.Background(), Engine, commands, func(results []any, index uint64, err error) {
				got <- answer{results, index, err}
			})
			if err != nil {
				t.Fatal(err)
			}
			a := <-got
			if a.err != nil || len(a.result.([]any)) != n || a.index != g.Applied() {
				t.Fatalf("answer %v at %d (applied %d), %v", a.result, a.index, g.Applied(), a.err)
			}
			var order []string
			used := 0
			for _, e := range m.entries() {
				mine := 0
				for _, c := range e.Commands {
					if strings.HasPrefix(string(c), fmt.Sprintf("v%d-", n)) {
						order = append(order, string(c))
						mine++
					}
				}
				used += min(mine, 1)
			}
			for i := range order {
				if order[i] != string(commands[i]) {
					t.Fatalf("position %d holds %s", i, order[i])
				}
			}
			if want := (n + MaxEntryCommands - 1) / MaxEntryCommands; used != want || len(order) != n {
				t.Fatalf("%d commands in %d entries, want %d in %d", len(order), used, n, want)
			}
		})
	}
}

func TestInvalidProposals(t *testing.T) {
	s := newStore(t)
	g, _ := lead(t, options(s, newCounter()))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	never := func(any, uint64, error) { t.Error("a refused proposal was answered") }
	cases := map[string]struct {
		err  error
		want error
	}{
		"empty":        {g.Propose(context.Background(), Client, nil, never), ErrInvalid},
		"too large":    {g.Propose(context.Background(), Client, make([]byte, MaxCommandBytes+1), never), ErrInvalid},
		"class":        {g.Propose(context.Background(), 9, []byte("x"), never), ErrInvalid},
		"context":      {g.Propose(ended, Client, []byte("x"), never), ErrContext},
		"empty vector": {g.ProposeVector(context.Background(), Client, nil, nil), ErrInvalid},
		"hole":         {g.ProposeVector(context.Background(), Client, [][]byte{{1}, {}}, nil), ErrInvalid},
	}
	for name, c := range cases {
		if !errors.Is(c.err, c.want) || !NotAccepted(c.err) {
			t.Errorf("%s: got %v, want %v, not accepted", name, c.err, c.want)
		}
	}
	if n := do(t, g, strings.Repeat("L", MaxEntryBytes*2)); n != 1 {
		t.Fatalf("a large command was applied %d times", n)
	}
}

func TestReadBarrier(t *testing.T) {
	s := newStore(t)
	g, m := lead(t, options(s, newCounter()))
	before := len(m.entries())
	const readers = 64
	var wg sync.WaitGroup
	for i := range readers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, index, err := g.Do(context.Background(), Client, []byte(id(i)))
			if err != nil {
				t.Error(err)
				return
			}
			if err := g.ReadBarrier(context.Background()); err != nil {
				t.Error(err)
			}
			if g.Applied() < index || count(t, s, 1, id(i)) != 1 {
				t.Errorf("a barrier did not see the write at %d", index)
			}
		}()
	}
	wg.Wait()
	if used := len(m.entries()) - before; used > 2*readers {
		t.Fatalf("%d entries for %d writes and as many reads", used, readers)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.ReadBarrier(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestWaitApplied(t *testing.T) {
	s := newStore(t)
	g, _ := lead(t, options(s, newCounter()))
	target := g.Applied() + 5
	done := make(chan error, 3)
	for range 2 {
		go func() { done <- g.WaitApplied(context.Background(), target) }()
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- g.WaitApplied(ctx, target+1000) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	for i := range 5 {
		do(t, g, id(i))
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	go func() { done <- g.WaitApplied(context.Background(), target+1000) }()
	eventually(t, "a waiter", func() bool { return g.index.waiting.Load() == 1 })
	closeGroup(t, g)
	if err := <-done; !errors.Is(err, ErrStopped) {
		t.Fatalf("a waiter of a closed group got %v", err)
	}
}

// The group stops at what it cannot apply, says so, and starts again at the same place.
func TestStopsAtAnEntryItCannotApply(t *testing.T) {
	s := newStore(t)
	o := options(s, newCounter())
	failed := make(chan error, 1)
	o.OnFailure = func(err error) { failed <- err }
	g, m := lead(t, o)
	do(t, g, "a")
	applied := g.Applied()
	_, _, err := g.Do(context.Background(), Client, []byte("poison"))
	if !errors.Is(err, ErrMaybeAccepted) || !errors.Is(err, errPoison) || NotAccepted(err) {
		t.Fatalf("the refused command got %v", err)
	}
	if err := <-failed; !errors.Is(err, ErrFailed) || !errors.Is(err, errPoison) {
		t.Fatalf("OnFailure got %v", err)
	}
	if _, _, err := g.Do(context.Background(), Client, []byte("b")); !errors.Is(err, ErrFailed) || !NotAccepted(err) {
		t.Fatalf("a command after the failure got %v", err)
	}
	if err := g.ReadBarrier(context.Background()); !errors.Is(err, ErrBarrier) {
		t.Fatalf("a read after the failure got %v", err)
	}
	if err := g.WaitApplied(context.Background(), applied+1); !errors.Is(err, ErrFailed) {
		t.Fatalf("a waiter after the failure got %v", err)
	}
	if g.Applied() != applied || m.deposed != 1 || g.Status().Failure == nil {
		t.Fatalf("applied %d, want %d; deposed %d; %+v", g.Applied(), applied, m.deposed, g.Status())
	}
	if err := g.Snapshot(context.Background()); err == nil {
		t.Fatal("a failed group took a snapshot, which could truncate the entry it failed at")
	}
	closeGroup(t, g)

	again := options(s, newCounter())
	again.OnFailure = func(err error) { failed <- err }
	start(t, again)
	if err := <-failed; !errors.Is(err, errPoison) {
		t.Fatalf("after a restart OnFailure got %v", err)
	}
	if n := count(t, s, 1, "a"); n != 1 {
		t.Fatalf("command a counts %d", n)
	}
}

// An entry that is not an envelope must not be skipped.
func TestStopsAtAnEntryItCannotRead(t *testing.T) {
	s := newStore(t)
	o := options(s, newCounter())
	failed := make(chan error, 1)
	o.OnFailure = func(err error) { failed <- err }
	g, _ := lead(t, o)
	do(t, g, "a")
	g.current().Apply(append(AppendEntry(nil, &Entry{NodeID: "n1"}), 0x78, 0x01), 0)
	if err := <-failed; !errors.Is(err, ErrEntry) || !errors.Is(err, ErrFailed) {
		t.Fatalf("OnFailure got %v", err)
	}
}

func TestNotLeaderBeforeItLeads(t *testing.T) {
	s := newStore(t)
	o := options(s, newCounter())
	o.Bootstrap = nil // joins later: nobody has told it of a configuration
	g := start(t, o)
	_, _, err := g.Do(context.Background(), Client, []byte("a"))
	if !errors.Is(err, ErrNotLeader) || !NotAccepted(err) {
		t.Fatalf("got %v", err)
	}
	if err := g.TransferLeadership(context.Background()); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("got %v", err)
	}
}

func TestTransferWithoutAnotherVoter(t *testing.T) {
	s := newStore(t)
	g, _ := lead(t, options(s, newCounter()))
	if err := g.TransferLeadership(context.Background()); !errors.Is(err, ErrNoTransferTarget) {
		t.Fatalf("got %v", err)
	}
	if n := do(t, g, "a"); n != 1 {
		t.Fatalf("applied %d times", n)
	}
}

func TestBootstrapOnlyOnce(t *testing.T) {
	s := newStore(t)
	g, _ := lead(t, options(s, newCounter()))
	closeGroup(t, g)
	o := options(s, newCounter())
	o.Bootstrap = []string{rid("n1"), rid("n2")}
	g, _ = lead(t, o) // two voters could not elect a leader here
	if voters, self := g.voters(); voters != 1 || !self {
		t.Fatalf("%d voters, self %v", voters, self)
	}
}

// Every callback of an accepted proposal runs once, whatever Close meets; what was acknowledged is in the state, what was refused is not.
func TestCloseWhileProposing(t *testing.T) {
	for round := range 8 {
		s := newStore(t)
		m := newCounter()
		g := open(t, options(s, m))
		waitLed(t, m)
		got := newAnswers()
		accepted := map[string]bool{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := range 100000 {
					name := fmt.Sprintf("w%d-%d", w, i)
					err := g.Propose(context.Background(), Class(i%2), []byte(name), got.done(name))
					if errors.Is(err, ErrStopped) {
						return
					}
					if err != nil && !errors.Is(err, ErrQueueFull) {
						t.Errorf("%s: %v", name, err)
						return
					}
					if err == nil {
						mu.Lock()
						accepted[name] = true
						mu.Unlock()
					}
				}
			}()
		}
		eventually(t, "some answers", func() bool { return got.len() > 100*round })
		ctx := context.Background()
		if round%2 == 1 {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			ctx = ended
		}
		if err := g.Close(ctx); err != nil && round%2 == 0 {
			t.Fatal(err)
		}
		wg.Wait()
		<-g.current().shutdown()
		eventually(t, "every answer", func() bool { return got.len() == len(accepted) })
		for name := range accepted {
			a := got.of(name)
			if len(a) != 1 {
				t.Fatalf("%s was answered %d times", name, len(a))
			}
			n := count(t, s, 1, name)
			if a[0].err == nil && n != 1 || NotAccepted(a[0].err) && n != 0 || n > 1 {
				t.Fatalf("%s was answered %v and counts %d", name, a[0].err, n)
			}
		}
	}
}

func TestGroupsShareAStore(t *testing.T) {
	s := newStore(t)
	var groups []*Group
	for i := range 5 {
		o := options(s, newCounter())
		o.Group = uint32(i + 1)
		g, _ := lead(t, o)
		groups = append(groups, g)
	}
	var wg sync.WaitGroup
	for i, g := range groups {
		for w := range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for k := range 50 {
					if _, _, err := g.Do(context.Background(), Client, fmt.Appendf(nil, "g%d-%d-%d", i, w, k)); err != nil {
						t.Error(err)
						return
					}
				}
			}()
		}
	}
	wg.Wait()
	for i, g := range groups {
		closeGroup(t, g)
		for w := range 4 {
			for k := range 50 {
				for other := range groups {
					want := uint64(0)
					if other == i {
						want = 1
					}
					if n := count(t, s, uint32(other+1), fmt.Sprintf("g%d-%d-%d", i, w, k)); n != want {
						t.Fatalf("group %d counts %d of a command of group %d", other, n, i)
					}
				}
			}
		}
	}
}

func TestNotAccepted(t *testing.T) {
	for _, err := range notAccepted {
		if !NotAccepted(fmt.Errorf("x: %w", err)) {
			t.Errorf("%v must be definite", err)
		}
		if NotAccepted(maybeAccepted(err)) {
			t.Errorf("%v inside a maybe must not be definite", err)
		}
	}
	for _, err := range []error{nil, ErrMaybeAccepted, ErrEntry, ErrBarrier, context.Canceled} {
		if NotAccepted(err) {
			t.Errorf("%v must not be definite", err)
		}
	}
	for err, definite := range map[error]bool{
		raft.ErrNotLeader: true, raft.ErrLeadershipTransferInProgress: true, raft.ErrEnqueueTimeout: true,
		raft.ErrLeadershipLost: false, raft.ErrRaftShutdown: false, raft.ErrAbortedByRestore: false, errors.New("disk"): false,
	} {
		if got := fromRaft(err); NotAccepted(got) != definite || errors.Is(got, ErrMaybeAccepted) == definite {
			t.Errorf("%v became %v", err, got)
		}
	}
}

// Relations between the limits that the code relies on.
func TestLimits(t *testing.T) {
	if MaxEntriesInFlight > maxAppendEntries {
		t.Error("handing over an entry could block on Raft's channel")
	}
	if defaultTrailingEntries < 4*MaxEntriesInFlight {
		t.Error("the trailing log is shorter than four times what may be uncommitted")
	}
	if leaseTimeout > followerTimeout-time.Millisecond || electionTimeout < heartbeatTimeout {
		t.Error("Raft refuses these timeouts")
	}
	if followerTimeout < 3*heartbeatTimeout/5 {
		t.Error("a follower gives up after fewer than three of its leader's longest pauses")
	}
	if MaxCommandBytes > ClientQueueBytes || ClientQueueBytes > EngineQueueBytes || ClientQueueCommands >= EngineQueueCommands {
		t.Error("queues do not fit their commands, or the engine has less room than clients")
	}
	if transferStuck < 2*electionTimeout {
		t.Error("a sound transfer could be taken for a stuck one")
	}
}
