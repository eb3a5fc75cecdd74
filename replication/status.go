package replication

import (
	"time"

	"github.com/hashicorp/raft"
)

// Role is what a replica does in its group.
type Role uint8

// Roles of a replica.
const (
	RoleStopped Role = iota
	RoleFollower
	RoleCandidate
	RoleLeader
)

func (r Role) String() string {
	return [...]string{"STOPPED", "FOLLOWER", "CANDIDATE", "LEADER"}[r]
}

// Status is a snapshot of a group's numbers; they are read one after the other.
type Status struct {
	Role        Role
	Term        uint64
	LeaderID    string    // replica id; empty when not known
	LeaderNode  string    // its node
	Ready       bool      // leads and has announced it by Led
	LeaderSince time.Time // of the leadership announced by Led; zero without one
	LastContact time.Time // a follower: when it last heard from a leader; zero if never. The leader: now

	CommitIndex   uint64
	AppliedIndex  uint64 // visible in the state
	LastIndex     uint64 // of the log
	SnapshotIndex uint64 // of the newest marker; 0 without one

	Voter            bool   // this replica has a vote in the newest configuration it knows, committed or not
	Voters, Learners int    // in that configuration
	ConfigIndex      uint64 // of the newest configuration known to be committed; 0 without one
	Changing         bool   // they differ: a change is not yet committed

	ClientQueue, EngineQueue int    // commands that wait
	InFlight                 int    // entries handed over and not answered
	Entries, Commands        uint64 // handed over since the start

	// Counters since the start of the process.
	Elections       uint64 // times this replica stood for election
	LeaderChanges   uint64 // times it learned of a leader, itself included
	Transfers       uint64 // leadership handed over
	FailedTransfers uint64
	Restarts        uint64 // of Raft, by the supervisor
	Installs        uint64 // states received from another replica
	DigestBytes     uint64 // hashed for digest marks

	Failure error // why the group stopped by itself; nil if it did not
}

// Status reads the group's numbers. Cheap enough to be polled every second.
func (g *Group) Status() Status {
	r := g.current()
	_, leader := r.LeaderWithID()
	s := Status{
		Term: r.CurrentTerm(), LeaderID: string(leader), LastContact: r.LastContact(),
		CommitIndex: r.CommitIndex(), AppliedIndex: g.Applied(), LastIndex: r.LastIndex(), SnapshotIndex: g.snaps.index.Load(),
		InFlight: MaxEntriesInFlight - len(g.proposer.free),
		Entries:  g.proposer.entries.Load(), Commands: g.proposer.commands.Load(), Restarts: g.restarts.Load(),
		Elections: g.events.elections.Load(), LeaderChanges: g.events.leaders.Load(),
		Transfers: g.transfers.Load(), FailedTransfers: g.failedTransfers.Load(),
		Installs: g.fsm.installs.Load(), DigestBytes: g.fsm.digests.hashed.Load(),
	}
	s.LeaderNode, _, _ = SplitReplicaID(s.LeaderID)
	s.ClientQueue, s.EngineQueue = g.queue.depth()
	g.describeMembers(&s, r.Raft)
	switch r.State() {
	case raft.Follower:
		s.Role = RoleFollower
	case raft.Candidate:
		s.Role = RoleCandidate
	case raft.Leader:
		s.Role = RoleLeader
		s.LastContact = time.Now()
	case raft.Shutdown:
		s.Role = RoleStopped
	}
	if l := g.led.Load(); l != nil {
		s.Ready, s.LeaderSince = true, l.since
	}
	if f := g.failure.Load(); f != nil {
		s.Failure = *f
	}
	return s
}

func (g *Group) describeMembers(s *Status, r *raft.Raft) {
	for _, m := range r.GetConfiguration().Configuration().Servers {
		if m.Suffrage != raft.Voter {
			s.Learners++
			continue
		}
		s.Voters++
		s.Voter = s.Voter || string(m.ID) == g.opts.ReplicaID
	}
	_, s.ConfigIndex = g.fsm.members.get()
	s.Changing = !g.settled()
}
