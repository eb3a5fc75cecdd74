package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
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
	last, err := n.destination(ctx, namespace, name)
	if err != nil {
		return err
	}
	if err := n.nothingPending(ctx, last); err != nil {
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
	pending := n.nothingPending(ctx, last)
	if pending == nil {
		return nil
	}
	if _, _, err := n.applyDestination(ctx, namespace, last.Spec); err != nil {
		return err
	}
	return pending
}

func (n *Node) nothingPending(ctx context.Context, v catalog.Version) error {
	fresh := freshness{consistency: sealanev1.Consistency_linearizable, wait: defaultWait}
	for slot := range v.Spec.Lane.Spread {
		look, _, err := n.view(ctx, n.shardOfSlot(v.Namespace, v.Spec.Name, slot), fresh)
		if err != nil {
			return err
		}
		l, ok, err := shard.LaneByName(look.state, v.Namespace, v.Spec.Name, slot)
		look.close()
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
		sh := n.shardOfSlot(v.Namespace, v.Spec.Name, slot)
		if done[sh.shard] {
			continue
		}
		done[sh.shard] = true
		if _, err := sh.do(ctx, replication.Engine, &shard.InstallDestination{Destination: d}); err != nil {
			return fmt.Errorf("install %q version %d in shard %d: %w", v.Spec.Name, v.Version, sh.shard, err)
		}
	}
	return nil
}

// installs remembers which destinations may not have reached the shards that this node leads.
type installs struct {
	wake chan struct{} // holds one

	mu      sync.Mutex
	shards  map[uint16]bool // all destinations of these
	changed []catalog.Version
}

// maxChanged bounds the versions kept one by one; beyond it everything is compared.
const maxChanged = 4096

// all asks for a comparison of everything in one shard.
func (i *installs) all(number uint16) {
	i.mu.Lock()
	if i.shards == nil {
		i.shards = make(map[uint16]bool)
	}
	i.shards[number] = true
	i.mu.Unlock()
	signal(i.wake)
}

// one notes a version that was made.
func (i *installs) one(v catalog.Version) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.changed) < maxChanged {
		i.changed = append(i.changed, v)
	}
}

func (i *installs) take() (shards map[uint16]bool, changed []catalog.Version) {
	i.mu.Lock()
	defer i.mu.Unlock()
	shards, changed = i.shards, i.changed
	i.shards, i.changed = nil, nil
	return shards, changed
}

// installLoop brings into the shards that this node leads what the control group has and they lack: whoever recorded a version may have stopped
// before its install. Whatever it could not do it tries again.
func (n *Node) installLoop(ctx context.Context) {
	for n.idle(ctx, n.installs.wake, followEvery) {
		shards, changed := n.installs.take()
		full := len(changed) >= maxChanged
		for _, sh := range n.shards() {
			if !sh.ref.leads() {
				continue // its leader compares when it begins to lead
			}
			var err error
			if full || shards[sh.shard] {
				err = catalog.All(n.control.state, func(v catalog.Version) error { return n.installIn(ctx, sh, v) })
			} else {
				for _, v := range changed {
					if err = n.installIn(ctx, sh, v); err != nil {
						break
					}
				}
			}
			if err != nil && ctx.Err() == nil && sh.ref.leads() {
				n.log.Warn("destinations could not be installed; trying again", "shard", sh.shard, "error", err)
				n.installs.all(sh.shard)
			}
		}
	}
}

// installIn makes a version known to one shard, if it is one of the version's shards and lacks it.
func (n *Node) installIn(ctx context.Context, sh *shardRef, v catalog.Version) error {
	r := sh.replica.Load()
	if r == nil {
		return nil
	}
	for slot := range v.Spec.Lane.Spread {
		if n.shardOfSlot(v.Namespace, v.Spec.Name, slot) != sh {
			continue
		}
		_, ok, err := shard.GetDestination(r.Reader(), v.Namespace, v.Spec.Name, v.Version)
		if err != nil || ok {
			return err
		}
		d, err := shardDestination(v)
		if err != nil {
			return err
		}
		_, err = sh.do(ctx, replication.Engine, &shard.InstallDestination{Destination: d})
		return err
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
