package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/host"
)

// followEvery is how often a node compares itself with the control group's state even when nothing was applied.
const followEvery = time.Second

// follow makes this node what the control group's state says: registered, with the replicas it shall hold and no other, and with destinations
// installed in the shards it leads.
func (n *Node) follow(ctx context.Context) {
	n.background.Go(func() { n.installLoop(ctx) })
	n.background.Go(func() { n.registerLoop(ctx) })
	for {
		if err := n.careForReplicas(ctx); err != nil && ctx.Err() == nil {
			n.fail(err)
			return
		}
		n.steward.poke()
		signal(n.installs.wake)
		if !n.idle(ctx, n.control.changed, followEvery) {
			return
		}
	}
}

// registerLoop keeps this process registered; it may have to wait for the control group, and nothing else waits with it.
func (n *Node) registerLoop(ctx context.Context) {
	for {
		n.keepRegistered(ctx)
		if !n.idle(ctx, nil, followEvery) {
			return
		}
	}
}

// idle waits for a signal or a while; false when the node stops.
func (n *Node) idle(ctx context.Context, wake <-chan struct{}, most time.Duration) bool {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-wake:
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// careForReplicas opens the replicas that the control group has placed here and removes those whose removal it has recorded. A replica that it
// says nothing about is left alone: nothing is ever deleted because a record is missing (I19).
func (n *Node) careForReplicas(ctx context.Context) error {
	n.caring.Lock()
	defer n.caring.Unlock()
	for _, sh := range n.shards() {
		if ctx.Err() != nil {
			return nil
		}
		p, ok, err := catalog.GetPlacement(n.control.state, sh.ref.number)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		mine := p.State(n.self)
		switch {
		case mine == catalog.ReplicaTombstone:
			if !sh.leaving.Swap(true) {
				n.background.Go(func() { n.dropReplica(sh) })
			}
		case mine.Open() && sh.replica.Load() == nil && !sh.leaving.Load():
			if err := n.openReplica(sh, n.bootstrapOf(&p)); err != nil {
				return fmt.Errorf("shard %d: %w", sh.shard, err)
			}
		}
	}
	return nil
}

// bootstrapOf are the voters that this node's replica of a shard begins with: those of the founding where it is itself of the founding and has
// been since. Every other replica is filled by the leader.
func (n *Node) bootstrapOf(p *catalog.Placement) []string {
	for _, r := range p.Replicas {
		if r.ID == n.self && r.Since == 0 && slices.Contains(p.Founding, n.self) {
			return p.Founding
		}
	}
	return nil
}

// openReplica brings up this node's replica of a shard.
func (n *Node) openReplica(sh *shardRef, voters []string) error {
	state := n.store.State(sh.ref.number)
	state.KeepRecent(shard.HotKinds()...)
	meta, err := shard.ReadMeta(state)
	if err != nil {
		return err
	}
	n.stamper.Anchor(meta.Clock)
	r := &replica{
		shard: sh.shard, ref: sh.ref, state: state, machine: shard.NewMachine(sh.shard, n.cluster.Incarnation), watch: newWatchers(),
		metrics: n.metrics, took: func(*replica) { n.installs.all(sh.shard) },
	}
	r.host, err = host.New(host.Options{
		Log: r, Store: r, Carrier: n.carrier, Stamper: n.stamper, Observer: n.metrics.host(), Node: n.cfg.NodeID, Boot: n.boot,
		StillLeads: r.stillLeads, ProcessGone: n.processGone, Failed: n.fail,
	})
	if err != nil {
		return err
	}
	r.group, r.unplug, err = n.openGroup(sh.ref.number, r, voters)
	if err != nil {
		return errors.Join(err, r.host.Close())
	}
	sh.ref.local.Store(r.group)
	sh.replica.Store(r)
	return nil
}

// leaveWithin bounds how long a removed replica waits for its requests in flight and for their outcomes to be taken by the leader. It covers the
// longest timeouts that are sensible; what is still out after it is recovered as UNKNOWN.
const leaveWithin = 2 * time.Minute

// dropReplica lets the host of a removed replica finish, and then closes and destroys the replica. Until that is done the node reports the
// replica, so that nobody takes the node for done with it.
func (n *Node) dropReplica(sh *shardRef) {
	defer sh.leaving.Store(false)
	if r := sh.replica.Load(); r != nil {
		ctx, cancel := context.WithTimeout(n.running, leaveWithin)
		left, err := r.host.Drain(ctx)
		cancel()
		if n.running.Err() != nil {
			return // the node stops, and closes the replica itself; the next start destroys it
		}
		if err != nil {
			n.log.Warn("a removed replica had requests in flight", "shard", sh.shard, "left", left, "error", err)
		}
		sh.replica.Store(nil)
		sh.ref.local.Store(nil)
		ctx, cancel = context.WithTimeout(context.WithoutCancel(n.running), closeGrace)
		defer cancel()
		if err := r.close(ctx); err != nil {
			n.fail(fmt.Errorf("shard %d: close a removed replica: %w", sh.shard, err))
			return
		}
	}
	if err := n.destroy(sh); err != nil {
		n.fail(fmt.Errorf("shard %d: destroy a removed replica: %w", sh.shard, err))
	}
}

func (n *Node) destroy(sh *shardRef) error {
	groups, err := n.store.Groups()
	if err != nil || !slices.Contains(groups, sh.ref.number) {
		return err
	}
	n.log.Info("destroying a removed replica", "shard", sh.shard)
	return n.store.DestroyGroup(sh.ref.number)
}
