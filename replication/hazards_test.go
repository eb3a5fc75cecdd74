package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// The hazards of hashicorp/raft 1.8 that this package lives with, by number of the upstream issue where there is one, and the test that fails
// without the remedy. "storage" and "peer" mark those whose remedy is in that package.
//
//	hazard                                                          remedy                                     test
//	695  heartbeats off the main loop make replicas diverge         shield swallows the handler                TestTransportIsShielded; peer
//	697  install keeps a stale tail, livelocks, or panics           InstalledSnapshot, sentinel                TestPartitions; storage: TestInstalledSnapshot
//	248  a snapshot taken during an install goes back               one turn for both                          TestPartitions
//	696  a transfer that never ends refuses writes for ever         the supervisor restarts Raft               TestStuckTransferRestartsRaft, TestTransferCutByAPartition
//	581  a transfer fails under writes                              proposals stop and drain first             TestTransfersUnderLoad
//	487  a transfer picks a voter that is down                      the others are tried in turn               TestTransferAroundADeadVoter
//	503  a leader whose disk hangs stays leader                     a deadline on log writes                   storage: TestLogWriteDeadline
//	614  a failing log keeps winning elections                      the first failure is fatal                 TestNothingIsAcknowledgedAfterALogFailure; storage: TestSyncErrorIsFatal
//	661  a vote is written in two steps                             one batch                                  storage: TestVoteIsAtomic
//	612  the stock pipeline wedges a follower                       a pipeline of our own                      peer
//	498  futures never return after a shutdown                      contexts, linger, abandon                  TestAbandonedFuture, TestCloseWhileProposing, TestChangeThatIsNeverAnswered
//	603  VerifyLeader confirms a deposed leader                     a read takes an entry                      TestDeposedLeaderConfirmsNoRead, TestReadIndexIsNeverOld
//	     RestoreCommittedLogs loses the configuration               never enabled                              TestRestoreCommittedLogsStaysOff
//	     the index of a configuration reads 0: no compare-and-set   kept from entries and installs             TestChangeIsACompareAndSet
//	472  removed or demoted replicas disturb elections              pre-vote                                   TestRemovedReplicaDoesNotDisturb, TestDemotedReplicaDoesNotStand
//	524  ShutdownOnRemove ends the process's replica                off                                        TestLibraryLeaderRemovesItself
//	     a leader that removes itself abandons what is under way    refused                                    TestOneGrowsToThreeAndShrinksToOne
//	     a second change waits without bound                        refused                                    TestChangeWithoutAQuorum
//	     AppliedIndex means handed over                             our own index                              TestCommittedBeforeAnswer
//	     no-ops and barriers do not reach the machine               leader-start entry, never Barrier          TestThreeReplicasAndAnIsolatedLeader
//	     entries are replayed after a restart                       those applied change nothing               TestReplayChangesNothing
//	     a failed machine's entry counts as applied                 no snapshot after a failure                TestNoSnapshotOfAFailedMachine
//	     errors mix "never" and "maybe"                             sorted                                     TestVerdictsByKindOfError, TestNotAccepted
//	     followers notice a lost leader after one to three timeouts watchLeader                                TestElectionTimes
//	     "unexpected command" in an error is a granted pre-vote     no such text                               TestLoopbackHasNoPeers; peer

// The new switch of 1.8 would have to be asked for by the store too; neither side does.
func TestRestoreCommittedLogsStaysOff(t *testing.T) {
	s := newStore(t)
	g, _ := lead(t, options(s, newCounter()))
	if g.raftConfig().RestoreCommittedLogs {
		t.Error("the switch is on")
	}
	if _, tracks := any(g.log).(raft.CommitTrackingLogStore); tracks {
		t.Error("the log store offers to track commits")
	}
}

// Leadership as the machine is told of it, through transfers, cut-offs and restarts: Led and Deposed take turns, terms rise, no term has two
// leaders, and followers are told of every commit as leaders are.
func TestLedAndDeposedTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowCluster(t, time.Millisecond)
		defer c.close(t)
		w := &leaderWitness{terms: map[uint64]string{}}
		c.leader(t, -1)
		load := c.loadEvery(t, 4, 3*time.Millisecond)
		for round := range 24 {
			<-time.After(time.Duration(100+37*round) * time.Millisecond)
			old := c.leader(t, -1)
			switch round % 4 {
			case 0:
				_ = c.replicas[old].group.TransferLeadership(t.Context())
			case 1:
				c.cutOff(old)
				c.leader(t, old)
				c.connect(old)
			case 2:
				c.restartWitnessed(t, w, old)
			case 3:
				c.restartWitnessed(t, w, (old+1)%3)
			}
		}
		acked := load.stop()
		leader := c.leader(t, -1)
		c.same(t, leader, acked)
		for i, r := range c.replicas {
			m := r.machine
			m.mu.Lock()
			if n := len(m.committed); n == 0 || m.committed[n-1] != r.group.Applied() || !slices.IsSorted(m.committed) {
				t.Errorf("replica %d applied %d and its machine was told of %d commits", i, r.group.Applied(), n)
			}
			m.mu.Unlock()
			w.look(t, fmt.Sprintf("replica %d at the end", i), m)
		}
		if len(w.terms) < 10 {
			t.Fatalf("%d leaderships: the test shows little", len(w.terms))
		}
	})
}

// leaderWitness collects who led in which term.
type leaderWitness struct{ terms map[uint64]string }

func (w *leaderWitness) look(t *testing.T, who string, m *counter) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, event := range m.history {
		if (event == "led") != (i%2 == 0) {
			t.Fatalf("%s: %v", who, m.history)
		}
	}
	if !slices.IsSorted(m.terms) || len(slices.Compact(slices.Clone(m.terms))) != len(m.terms) {
		t.Fatalf("%s led in terms %v", who, m.terms)
	}
	for _, term := range m.terms {
		if other, ok := w.terms[term]; ok {
			t.Fatalf("%s led in term %d, as did %s", who, term, other)
		}
		w.terms[term] = who
	}
}

// restartWitnessed restarts a replica and looks at what its machine was told; an ended one must have been deposed.
func (c *cluster) restartWitnessed(t *testing.T, w *leaderWitness, i int) {
	t.Helper()
	m := c.replicas[i].machine
	c.restart(t, i)
	if len(m.history)%2 != 0 {
		t.Fatalf("replica %d was closed and not deposed: %v", i, m.history)
	}
	w.look(t, fmt.Sprintf("replica %d boot %d", i, c.replicas[i].boots-1), m)
}

// A replica that joins without a bootstrap list starts nothing by itself, however long it waits, and says what it knows.
func TestJoinerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, 2, 1)
		defer c.close(t)
		c.leader(t, -1)
		<-time.After(time.Minute)
		g := c.replicas[1].group
		members, index := g.Members()
		if st := g.Status(); len(members) != 0 || index != 0 || st.Role != RoleFollower || st.Elections != 0 || st.Term != 0 || st.Voter || st.LeaderID != "" {
			t.Fatalf("members %v at %d, %+v", members, index, st)
		}
		for name, call := range changes(c.replicas[1].id) {
			if err := call(g, t.Context()); !errors.Is(err, ErrNotLeader) {
				t.Errorf("%s: %v", name, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if id, err := g.WaitLeader(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("leader %q, %v", id, err)
		}
	})
}

func TestReplicaID(t *testing.T) {
	store := [16]byte{0x01, 0xab, 0, 0, 0, 0, 0, 0xff, 9, 9}
	id := ReplicaID("n1", store)
	if id != "n1@01ab0000000000ff" {
		t.Fatalf("got %q", id)
	}
	if node, digits, ok := SplitReplicaID(id); !ok || node != "n1" || digits != "01ab0000000000ff" {
		t.Fatalf("%q %q %v", node, digits, ok)
	}
	for _, bad := range []string{"", "n1", "@01ab0000000000ff", "n1@", "n1@01ab0000000000f", "n1@01ab0000000000fff", "n1@01AB0000000000ff",
		"n1@01ab0000000000fg", "n@1@01ab0000000000ff", "\xff@01ab0000000000ff", strings.Repeat("n", maxReplicaNodeBytes+1) + "@01ab0000000000ff"} {
		if node, digits, ok := SplitReplicaID(bad); ok || node != "" || digits != "" {
			t.Errorf("%q was taken apart: %q %q", bad, node, digits)
		}
	}
	longest := ReplicaID(strings.Repeat("n", maxReplicaNodeBytes), store)
	if _, _, ok := SplitReplicaID(longest); !ok || len(longest) != maxNodeIDBytes {
		t.Errorf("the longest id has %d bytes, taken apart: %v", len(longest), ok)
	}
}

// Options with a transport of another replica, a node id that would not survive in a replica id, or a foreign replica id.
func TestOptionsOfAReplica(t *testing.T) {
	s := newStore(t)
	for want, adjust := range map[string]func(*Options){
		"Transport has local address": func(o *Options) { o.Transport = newLoopback("n1") },
		"NodeID has 3 bytes":          func(o *Options) { o.NodeID = "n@1" },
		"ReplicaID is":                func(o *Options) { o.ReplicaID = rid("n2") },
	} {
		o := options(s, newCounter())
		adjust(&o)
		if _, err := NewGroup(o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The bytes of a mark are part of the format.
func TestMarkGolden(t *testing.T) {
	got := AppendEntry(nil, &Entry{Stamp: 1, NodeID: "n1", BootID: 2, Digest: 1})
	want := []byte{0x09, 1, 0, 0, 0, 0, 0, 0, 0, 0x12, 2, 'n', '1', 0x19, 2, 0, 0, 0, 0, 0, 0, 0, 0x28, 1}
	if !bytes.Equal(got, want) {
		t.Fatalf("got  %x\nwant %x", got, want)
	}
}
