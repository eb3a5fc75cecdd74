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
	Role          Role
	Term          uint64
	LeaderID      string // empty when not known
	LeaderAddress string
	Ready         bool      // leads and has announced it by Led
	LeaderSince   time.Time // of the leadership announced by Led; zero without one

	CommitIndex   uint64
	AppliedIndex  uint64 // visible in the state
	LastIndex     uint64 // of the log
	SnapshotIndex uint64 // of the newest marker; 0 without one
	Voters        int

	ClientQueue, EngineQueue int    // commands that wait
	InFlight                 int    // entries handed over and not answered
	Entries, Commands        uint64 // handed over since the start
	Restarts                 uint64 // of Raft, by the supervisor
	Failure                  error  // why the group stopped by itself; nil if it did not
}

// Status reads the group's numbers. Cheap enough to be polled every second.
func (g *Group) Status() Status {
	r := g.current()
	address, id := r.LeaderWithID()
	s := Status{
		Term: r.CurrentTerm(), LeaderID: string(id), LeaderAddress: string(address),
		CommitIndex: r.CommitIndex(), AppliedIndex: g.Applied(), LastIndex: r.LastIndex(), SnapshotIndex: g.snaps.index.Load(),
		InFlight: MaxEntriesInFlight - len(g.proposer.free),
		Entries:  g.proposer.entries.Load(), Commands: g.proposer.commands.Load(), Restarts: g.restarts.Load(),
	}
	s.Voters, _ = g.voters()
	s.ClientQueue, s.EngineQueue = g.queue.depth()
	switch r.State() {
	case raft.Follower:
		s.Role = RoleFollower
	case raft.Candidate:
		s.Role = RoleCandidate
	case raft.Leader:
		s.Role = RoleLeader
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
