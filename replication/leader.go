package replication

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// leadershipEvents counts what Raft's observer reports, and wakes who waits for a leader.
type leadershipEvents struct {
	elections atomic.Uint64 // this replica stood for election
	leaders   atomic.Uint64 // a leader became known

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change; nil while nobody has asked
}

// observe is called on Raft's own goroutines and only reads.
func (e *leadershipEvents) observe(o *raft.Observation) bool {
	switch data := o.Data.(type) {
	case raft.RaftState:
		if data == raft.Candidate {
			e.elections.Add(1)
		}
	case raft.LeaderObservation:
		if data.LeaderID != "" {
			e.leaders.Add(1)
		}
		e.notify()
	}
	return false // nothing is sent on: there is no channel
}

func (e *leadershipEvents) notify() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// next is closed at the next change after the call.
func (e *leadershipEvents) next() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return e.changed
}

// watch makes an instance of Raft report to e.
func (e *leadershipEvents) watch(r *raft.Raft) {
	r.RegisterObserver(raft.NewObserver(nil, false, e.observe))
	e.notify() // whatever happened before
}

// WaitLeader returns the replica id of the leader as soon as this replica knows one; if that is itself, as soon as it accepts proposals. It is a
// hint: leadership may be elsewhere by the time it is used. Errors: the context's, ErrStopped, ErrFailed.
func (g *Group) WaitLeader(ctx context.Context) (string, error) {
	for {
		changed := g.events.next()
		if f := g.failure.Load(); f != nil {
			return "", *f
		}
		if g.led.Load() != nil {
			return g.opts.ReplicaID, nil
		}
		if _, leader := g.current().LeaderWithID(); leader != "" && string(leader) != g.opts.ReplicaID {
			return string(leader), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", ctx.Err()
		case <-g.stop:
			return "", ErrStopped
		}
	}
}

// setPace changes Raft's timeouts to those of a role. Lowering them makes a follower look for its leader at once.
func (g *Group) setPace(heartbeat, election time.Duration) {
	r := g.current()
	c := r.ReloadableConfig()
	if c.HeartbeatTimeout == heartbeat && c.ElectionTimeout == election {
		return
	}
	c.HeartbeatTimeout, c.ElectionTimeout = heartbeat, election
	if err := r.ReloadConfig(c); err != nil {
		g.logger.Warn("cannot change raft's timeouts", "error", err) // those of the other role remain
	}
}

// watchLeader makes Raft notice a silent leader soon after followerTimeout, and gives the time until it wants to be called again. Voters elect
// nobody while they believe in a leader, so an election succeeds when the last one needed notices; left to Raft's own timers that takes one to
// three timeouts. Each voter has its own moment, by rank, because two that notice at once split the vote and wait for another timeout.
func (g *Group) watchLeader() time.Duration {
	r := g.current()
	_, leader := r.LeaderWithID()
	if r.State() != raft.Follower || leader == "" {
		return followerTimeout
	}
	silent := time.Since(r.LastContact())
	if silent < followerTimeout/2 {
		g.setPace(followerTimeout, followerTimeout) // it led before; not while it is silent, since that would start an election out of turn
	}
	rank, votes := g.rank(string(leader))
	if !votes {
		return followerTimeout
	}
	due := followerTimeout + time.Duration(rank)*noticeStep + rand.N(noticeStep/3)
	if silent < due {
		return due - silent
	}
	if err := lookNow(r.Raft); err != nil {
		g.logger.Warn("cannot look for a silent leader", "error", err) // Raft's own timers remain
	}
	return followerTimeout
}

// rank is this replica's place among the voters that could follow the leader. False if it has no vote.
func (g *Group) rank(leader string) (int, bool) {
	var voters []string
	for _, s := range g.current().GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter && string(s.ID) != leader {
			voters = append(voters, string(s.ID))
		}
	}
	return rankOf(voters, g.opts.ReplicaID, g.opts.Group)
}

// rankOf is a place in the order of ids, turned by the group's number so that the leaderships which one node held go to several.
func rankOf(ids []string, self string, group uint32) (int, bool) {
	slices.Sort(ids)
	at := slices.Index(ids, self)
	if at < 0 {
		return 0, false
	}
	return (at + int(group)) % len(ids), true
}
