package replication

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// instance is one run of hashicorp/raft over the group's log. The supervisor replaces it when a transfer is stuck (696).
type instance struct {
	*raft.Raft
	transport Transport
	once      sync.Once
	ended     chan struct{} // closed when Raft's own goroutines have ended
}

// interrupter is a Transport that lets calls wait for replicas that cannot be reached. Raft waits for its calls when it shuts down.
type interrupter interface{ Interrupt() }

// shutdown starts the end of the instance and gives the channel that tells when it has come. Raft's own future cannot be asked twice:
// the second one answers at once.
func (i *instance) shutdown() <-chan struct{} {
	i.once.Do(func() {
		ended := i.Raft.Shutdown()
		if t, ok := i.transport.(interrupter); ok {
			t.Interrupt()
		}
		go func() {
			defer close(i.ended)
			if err := ended.Error(); err != nil {
				panic(fmt.Sprintf("raft shutdown: %v", err)) // it has no way to fail: the transport is shielded
			}
		}()
	})
	return i.ended
}

// raftConfig gives the settings of REPLICATION.md. Raft's own snapshot schedule is put out of reach: ours counts bytes as well.
func (g *Group) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(g.opts.ReplicaID)
	c.HeartbeatTimeout = followerTimeout
	c.ElectionTimeout = followerTimeout
	c.LeaderLeaseTimeout = leaseTimeout
	c.CommitTimeout = commitTimeout
	c.MaxAppendEntries = maxAppendEntries
	c.BatchApplyCh = true
	c.ShutdownOnRemove = false
	c.TrailingLogs = g.opts.TrailingEntries
	c.SnapshotInterval = 10 * 365 * 24 * time.Hour
	c.SnapshotThreshold = 1 << 62
	c.NoSnapshotRestoreOnStart = true
	c.NoLegacyTelemetry = true
	c.RestoreCommittedLogs = false
	c.Logger = &raftLogger{to: g.logger, alone: g.soleVoter}
	return c
}

// bootstrap writes the first configuration if the group has no state at all.
func (g *Group) bootstrap() error {
	if len(g.opts.Bootstrap) == 0 {
		return nil
	}
	var c raft.Configuration
	for _, id := range g.opts.Bootstrap {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	exists, err := raft.HasExistingState(g.log, g.log, g.snaps)
	if err != nil {
		return err
	}
	if exists {
		return g.finishBootstrap(c)
	}
	return raft.BootstrapCluster(g.raftConfig(), g.log, g.log, g.snaps, shield{g.opts.Transport, g.opts.Store.LogStalled}, c)
}

// finishBootstrap writes the first entry where a crash left only the term that Raft writes before it, or a vote: Raft takes that for a group that
// exists and would wait for ever. The entry is the same on every founder, whatever terms have been since.
func (g *Group) finishBootstrap(c raft.Configuration) error {
	last, err := g.log.LastIndex()
	if err != nil || last > 0 || g.snaps.index.Load() > 0 || g.index.index.Load() > 0 {
		return err
	}
	return g.log.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(c)})
}

// startInstance begins a run of Raft.
func (g *Group) startInstance() error {
	r, err := raft.NewRaft(g.raftConfig(), g.fsm, g.log, g.log, g.snaps, shield{g.opts.Transport, g.opts.Store.LogStalled})
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	g.instance.Store(&instance{Raft: r, transport: g.opts.Transport, ended: make(chan struct{})})
	g.events.watch(r)
	if g.soleVoter() {
		return lookNow(r)
	}
	return nil
}

// lookNow makes a follower look at once whether its leader is overdue, and stand for election if so. Raft itself looks only when a timer of one
// to two heartbeat timeouts, which nothing aligns with the leader's last message, happens to fire. Lowering the heartbeat timeout makes it
// look; both timeouts are as before afterwards. A fresh follower never heard of a leader and is overdue at once: so a single voter leads
// within milliseconds of its start without short timers that would run, and cost, for as long as it leads. With more voters it must not be
// used at the start, where it would make elections collide; watchLeader gives each voter a time of its own.
func lookNow(r *raft.Raft) error {
	c := r.ReloadableConfig()
	c.HeartbeatTimeout -= time.Millisecond
	if err := r.ReloadConfig(c); err != nil {
		return fmt.Errorf("make raft look for its leader: %w", err)
	}
	c.HeartbeatTimeout += time.Millisecond
	if err := r.ReloadConfig(c); err != nil {
		return fmt.Errorf("restore the election timeout: %w", err)
	}
	return nil
}

// current gives the running instance.
func (g *Group) current() *instance { return g.instance.Load() }

// soleVoter reports whether this replica is the only voter of the newest configuration.
func (g *Group) soleVoter() bool {
	voters, self := g.voters()
	return voters == 1 && self
}

// voters counts the voters of the newest configuration and tells whether this replica is one.
func (g *Group) voters() (count int, self bool) {
	r := g.current()
	if r == nil {
		return 0, false
	}
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		count++
		self = self || string(s.ID) == g.opts.ReplicaID
	}
	return count, self
}
