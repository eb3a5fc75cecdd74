package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sealane/sealane/replication"
)

// Bounds of stopping, beside the drain timeout.
const (
	// closeGrace is what closing the groups and flushing may take beyond the drain.
	closeGrace = 20 * time.Second
	// handOverTimeout bounds handing one group's leadership over; a sound transfer takes a fraction of it.
	handOverTimeout = 3 * time.Second
)

// Close stops a node without a trace in the ledger: it hands its leaderships over while the doors still forward, stops taking calls, waits for
// requests in flight (at most the drain timeout, or until the context ends) and hands their outcomes to the new leaders, and closes groups and
// store. What is still in flight is recovered later as UNKNOWN. Safe to call more than once.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(func() { n.closeErr = n.close(ctx) })
	return n.closeErr
}

func (n *Node) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DrainTimeout+closeGrace)
	defer cancel()
	n.draining.Store(true)
	n.handOver(ctx)
	var errs []error
	if n.doors != nil {
		errs = append(errs, n.doors.close(ctx))
	} else if n.bound != nil {
		errs = append(errs, n.bound.close())
	}
	n.drain(ctx)
	n.steward.stop()
	n.stop()
	n.background.Wait()
	for _, ref := range n.refs() {
		ref.close()
	}
	running := n.closeGroups(ctx)
	errs = append(errs, running, n.peers.close())
	if n.store != nil && running == nil {
		errs = append(errs, n.store.Close())
	}
	return errors.Join(errs...)
}

// closeGroups ends all groups. After an error some may still use the store, which must then stay open: the end of the process closes it, and what
// was acknowledged is in the log.
func (n *Node) closeGroups(ctx context.Context) error {
	var errs []error
	for r := range n.replicas() {
		errs = append(errs, r.close(ctx))
	}
	if n.control != nil && n.control.group != nil {
		errs = append(errs, n.control.group.Close(ctx))
	}
	return errors.Join(errs...)
}

// handOver moves every leadership to another node, all at once. Where there is none to take it, or it fails, the others elect.
func (n *Node) handOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for number, ref := range n.refs() {
		group := ref.local.Load()
		if group == nil || !ref.leads() {
			continue
		}
		wg.Go(func() {
			err := group.TransferLeadership(ctx)
			if err != nil && !errors.Is(err, replication.ErrNotLeader) && !errors.Is(err, replication.ErrNoTransferTarget) {
				n.log.Warn("leadership was not handed over; the others will elect", "group", number, "error", err)
			}
		})
	}
	wg.Wait()
}

// drain lets requests in flight return and their outcomes be recorded, in all shards at once, by this node or by the leaders it handed over to.
func (n *Node) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DrainTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for r := range n.replicas() {
		wg.Go(func() {
			if left, err := r.host.Drain(ctx); err != nil {
				n.log.Warn("requests were still in flight at the end; they are recovered as UNKNOWN", "shard", r.shard, "left", left, "error", err)
			}
		})
	}
	wg.Wait()
}
