package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard"
)

// ErrDestinationInUse: the destination still has messages that are pending; it can be deleted when they are delivered, cancelled or dead.
var ErrDestinationInUse = errors.New("server: destination still has pending messages")

// adapterHTTP is the adapter kind of webhooks.
const adapterHTTP = "http"

// applyDestination records a definition in the control group and brings the version it makes into every shard that can hold its lanes
// before it answers: whoever got the answer can submit.
func (n *Node) applyDestination(ctx context.Context, namespace string, spec catalog.Destination) (catalog.Version, bool, error) {
	r, err := n.control.do(ctx, &catalog.ApplyDestination{Namespace: namespace, Spec: spec})
	if err != nil {
		return catalog.Version{}, false, err
	}
	if err := n.install(ctx, r.Version); err != nil {
		return catalog.Version{}, false, err
	}
	n.destinations.put(r.Version)
	return r.Version, r.Changed, nil
}

// deleteDestination closes a destination to new messages, unless something of it is pending.
func (n *Node) deleteDestination(ctx context.Context, namespace, name string) error {
	last, err := n.destination(namespace, name)
	if err != nil {
		return err
	}
	if err := n.nothingPending(last); err != nil {
		return err
	}
	r, err := n.control.do(ctx, &catalog.DeleteDestination{Namespace: namespace, Name: name})
	if err != nil {
		return err
	}
	n.destinations.put(r.Version)
	if err := n.install(ctx, r.Version); err != nil {
		return err
	}
	// A message accepted between the check and the install keeps its pinned version and is delivered; the destination opens again, so that
	// it is not hidden while it has work.
	pending := n.nothingPending(last)
	if pending == nil {
		return nil
	}
	if _, _, err := n.applyDestination(ctx, namespace, last.Spec); err != nil {
		return err
	}
	return pending
}

func (n *Node) nothingPending(v catalog.Version) error {
	for slot := range v.Spec.Lane.Spread {
		r := n.replicaOfSlot(v.Namespace, v.Spec.Name, slot)
		l, ok, err := shard.LaneByName(r.Reader(), v.Namespace, v.Spec.Name, slot)
		if err != nil {
			return err
		}
		if ok && l.Counts.Pending() > 0 {
			return fmt.Errorf("%w: %q has %d", ErrDestinationInUse, v.Spec.Name, l.Counts.Pending())
		}
	}
	return nil
}

// install makes a version known to the shards of its slots.
func (n *Node) install(ctx context.Context, v catalog.Version) error {
	d, err := shardDestination(v)
	if err != nil {
		return err
	}
	done := map[uint16]bool{}
	for slot := range v.Spec.Lane.Spread {
		r := n.replicaOfSlot(v.Namespace, v.Spec.Name, slot)
		if done[r.shard] {
			continue
		}
		done[r.shard] = true
		if _, err := r.do(ctx, replication.Engine, &shard.InstallDestination{Destination: d}); err != nil {
			return fmt.Errorf("install %q version %d in shard %d: %w", v.Spec.Name, v.Version, r.shard, err)
		}
	}
	return nil
}

// reconcile installs, at start, what the control group has and a shard lacks: the node may have stopped between the two.
func (n *Node) reconcile(ctx context.Context) error {
	var missing []catalog.Version
	err := catalog.All(n.control.state, func(v catalog.Version) error {
		for slot := range v.Spec.Lane.Spread {
			r := n.replicaOfSlot(v.Namespace, v.Spec.Name, slot)
			_, ok, err := shard.GetDestination(r.Reader(), v.Namespace, v.Spec.Name, v.Version)
			if err != nil {
				return err
			}
			if !ok {
				missing = append(missing, v)
				break
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, v := range missing {
		if err := n.install(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// shardDestination turns a recorded version into what the shards hold. Rate, concurrency and backlog are split evenly over the slots.
func shardDestination(v catalog.Version) (shard.Destination, error) {
	s := v.Spec
	target, err := json.Marshal(s.HTTP)
	if err != nil {
		return shard.Destination{}, err
	}
	spread := max(s.Lane.Spread, 1)
	d := shard.Destination{
		Namespace: v.Namespace, Name: s.Name, Version: v.Version, Adapter: adapterHTTP, Target: target, Retry: s.Retry,
		Uncertainty: s.Uncertainty, Spread: spread, Circuit: s.Circuit, Retention: s.Retention, DeadLetterRetention: s.DeadLetter.Retention,
		IdempotencyWindow: s.IdempotencyWindow, ExportTo: s.DeadLetter.Export, Deleted: v.Deleted,
		Limits: shard.LaneLimits{
			MaxInFlight: max(s.Lane.MaxInFlight/spread, 1), RatePerSecond: s.Lane.RatePerSecond / spread,
			MaxPending: max(s.Lane.MaxPending/uint64(spread), 1), MaxPendingBytes: max(s.Lane.MaxPendingBytes/uint64(spread), 1),
			MaxBytesInFly: max(s.Lane.MaxBytesInFlight/uint64(spread), 1),
		},
	}
	if s.HTTP != nil {
		d.Timeout = s.HTTP.Timeout
		d.TargetKey = "http " + s.HTTP.URL + " " + s.HTTP.TLSPin
	}
	return d, nil
}
