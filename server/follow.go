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
			if err := n.dropReplica(ctx, sh); err != nil {
				return fmt.Errorf("shard %d: %w", sh.shard, err)
			}
		case mine.Open() && sh.replica.Load() == nil:
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

// dropReplica closes and destroys this node's replica of a shard, whose removal is recorded.
func (n *Node) dropReplica(ctx context.Context, sh *shardRef) error {
	r := sh.replica.Swap(nil)
	sh.ref.local.Store(nil)
	if r != nil {
		if left, err := r.host.Drain(ctx); err != nil {
			n.log.Warn("a removed replica had requests in flight", "shard", sh.shard, "left", left, "error", err)
		}
		if err := r.close(ctx); err != nil {
			return err
		}
	}
	groups, err := n.store.Groups()
	if err != nil {
		return err
	}
	for _, g := range groups {
		if g == sh.ref.number {
			n.log.Info("destroying a removed replica", "shard", sh.shard)
			return n.store.DestroyGroup(g)
		}
	}
	return nil
}
