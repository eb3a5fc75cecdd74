package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Member is one replica of a group's configuration.
type Member struct {
	ID    string // replica id
	Voter bool   // else a learner: it receives every entry and counts for nothing
}

// configurations keeps the newest configuration that is known to be committed. Raft itself tells the newest one, committed or not, and in
// this version never its index, without which a change is not a compare-and-set.
type configurations struct {
	mu      sync.Mutex
	index   uint64 // 0 while none is known
	servers []raft.Server
}

// set keeps c unless a newer one is known.
func (k *configurations) set(c raft.Configuration, index uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if index >= k.index {
		k.index, k.servers = index, c.Clone().Servers
	}
}

func (k *configurations) get() (servers []raft.Server, index uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.servers, k.index // replaced as a whole, never changed
}

// Members gives the newest configuration that this replica knows to be committed, sorted by id, and the index of its entry; nothing and 0 before
// the first. On a leader that is ready it is the group's, except for a change under way; elsewhere it may be old.
func (g *Group) Members() (members []Member, index uint64) {
	servers, index := g.fsm.members.get()
	for _, s := range servers {
		members = append(members, Member{ID: string(s.ID), Voter: s.Suffrage == raft.Voter})
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return members, index
}

// AddLearner adds a replica without a vote. It is then sent the log, or the state if the log no longer reaches back. Nothing happens if it
// is a member, learner or voter. Like all changes of the configuration it must be asked of the leader, is one at a time, and returns nil
// once it is committed or found to hold in a configuration that is.
//
// Errors of all of them: ErrNotLeader, ErrTransferring, ErrChangeInProgress, ErrStopped, ErrFailed, ErrInvalid, ErrContext: nothing was changed
// (NotAccepted is true). ErrMaybeAccepted: it may have been, now or later; ask again, since what holds already is left alone.
func (g *Group) AddLearner(ctx context.Context, id string) error {
	if _, _, ok := SplitReplicaID(id); !ok {
		return fmt.Errorf("%w: %q is not a replica id", ErrInvalid, id)
	}
	return g.change(ctx, func(members []Member) (change, error) {
		if at := find(members, id); at >= 0 {
			return nil, nil
		}
		return func(r *raft.Raft, prev uint64, patience time.Duration) raft.IndexFuture {
			return r.AddNonvoter(raft.ServerID(id), raft.ServerAddress(id), prev, patience)
		}, nil
	})
}

// Promote gives a learner a vote, at once: whoever asks has made sure that it has caught up, because from here on commits may wait for it.
// Nothing happens if it is a voter. Errors: ErrNotMember, and those of AddLearner.
func (g *Group) Promote(ctx context.Context, id string) error {
	return g.change(ctx, func(members []Member) (change, error) {
		at := find(members, id)
		if at < 0 {
			return nil, fmt.Errorf("%w: %q", ErrNotMember, id)
		}
		if members[at].Voter {
			return nil, nil
		}
		return func(r *raft.Raft, prev uint64, patience time.Duration) raft.IndexFuture {
			return r.AddVoter(raft.ServerID(id), raft.ServerAddress(id), prev, patience)
		}, nil
	})
}

// Demote takes a voter's vote away; it stays as a learner. Nothing happens if it is one. Errors: ErrNotMember, ErrLastVoter, ErrLeaderStays,
// and those of AddLearner.
func (g *Group) Demote(ctx context.Context, id string) error {
	return g.change(ctx, func(members []Member) (change, error) {
		at := find(members, id)
		if at < 0 {
			return nil, fmt.Errorf("%w: %q", ErrNotMember, id)
		}
		if !members[at].Voter {
			return nil, nil
		}
		return func(r *raft.Raft, prev uint64, patience time.Duration) raft.IndexFuture {
			return r.DemoteVoter(raft.ServerID(id), prev, patience)
		}, g.expendable(members, id)
	})
}

// Remove takes a replica out of the configuration. Nothing happens if it is not in it. The removed replica may never hear of it: it goes on as a
// follower that nobody votes for, until its group is closed. Errors: ErrLastVoter, ErrLeaderStays, and those of AddLearner.
func (g *Group) Remove(ctx context.Context, id string) error {
	return g.change(ctx, func(members []Member) (change, error) {
		at := find(members, id)
		if at < 0 {
			return nil, nil
		}
		ask := func(r *raft.Raft, prev uint64, patience time.Duration) raft.IndexFuture {
			return r.RemoveServer(raft.ServerID(id), prev, patience)
		}
		if !members[at].Voter {
			return ask, nil
		}
		return ask, g.expendable(members, id)
	})
}

// change asks Raft for a new configuration, given that the newest one is still that at index prev. patience bounds the wait to be heard.
type change func(r *raft.Raft, prev uint64, patience time.Duration) raft.IndexFuture

// change runs one change of the configuration. decide looks at the newest one; nil without an error means that there is nothing to do.
func (g *Group) change(ctx context.Context, decide func([]Member) (change, error)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrContext, err)
	}
	if err := g.mayChange(); err != nil {
		return err
	}
	if !g.changing.TryLock() {
		return fmt.Errorf("%w: this replica is making one", ErrChangeInProgress)
	}
	defer g.changing.Unlock()
	members, index := g.Members()
	if index == 0 {
		return fmt.Errorf("%w: the configuration is not known yet", ErrChangeInProgress) // index 0 would not be a compare-and-set
	}
	if !g.settled() {
		return fmt.Errorf("%w: it is not committed", ErrChangeInProgress)
	}
	ask, err := decide(members)
	if err != nil {
		return err
	}
	if ask == nil {
		return g.confirm(ctx)
	}
	instance := g.current()
	outcome := make(chan error, 1)
	go func() { outcome <- ask(instance.Raft, index, changePatience).Error() }()
	select {
	case err = <-outcome:
	case <-ctx.Done():
		return maybeAccepted(ctx.Err())
	case <-instance.ended:
		// Raft answers what it still can; what it abandons (498) is answered here.
		select {
		case err = <-outcome:
		default:
			return maybeAccepted(raft.ErrRaftShutdown)
		}
	}
	return fromConfigurationChange(err)
}

// settled reports whether Raft's newest configuration is the newest committed one.
func (g *Group) settled() bool {
	committed, _ := g.fsm.members.get()
	return slices.Equal(committed, g.current().GetConfiguration().Configuration().Servers)
}

// mayChange tells why no change may be asked for.
func (g *Group) mayChange() error {
	if f := g.failure.Load(); f != nil {
		return *f
	}
	if g.stopping() {
		return ErrStopped
	}
	g.gate.Lock()
	defer g.gate.Unlock()
	if g.transferring {
		return ErrTransferring
	}
	if g.led.Load() == nil {
		return ErrNotLeader
	}
	return nil
}

// confirm makes sure that this replica still leads, and so that the configuration it found to hold already is not an old one.
func (g *Group) confirm(ctx context.Context) error {
	if _, err := g.ReadIndex(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	return nil
}

// expendable tells why the voter id may not lose its vote. A leader could append the change itself and step down once it is committed, as the
// library does, but what it had under way then would end without a verdict: leadership has to be moved first.
func (g *Group) expendable(members []Member, id string) error {
	voters := 0
	for _, m := range members {
		if m.Voter {
			voters++
		}
	}
	if voters == 1 {
		return fmt.Errorf("%w: %q", ErrLastVoter, id)
	}
	if id == g.opts.ReplicaID {
		return fmt.Errorf("%w: %q", ErrLeaderStays, id)
	}
	return nil
}

func find(members []Member, id string) int {
	return slices.IndexFunc(members, func(m Member) bool { return m.ID == id })
}

// fromConfigurationChange sorts the error of a configuration future. Raft gives the first three only when nothing was appended.
func fromConfigurationChange(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: raft did not take it within %v", ErrChangeInProgress, changePatience)
	default:
		return fromRaft(err)
	}
}
