package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/server/fault"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/logcodec"
)

// ErrNoReplica: no node that holds a replica of the shard could be reached for a read. Try again, or ask another node.
var ErrNoReplica = errors.New("server: no replica of the shard can be reached")

// shardRef is one shard as the doors see it, whether this node holds a replica or not.
type shardRef struct {
	shard   uint16
	n       *Node
	ref     *groupRef
	replica atomic.Pointer[replica] // nil without one
	leaving atomic.Bool             // its removal is under way here
}

// submitAsync proposes a submit without waiting; done is called once, unless an error is returned.
func (s *shardRef) submitAsync(c *shard.Submit, done func(shard.Result, error)) error {
	b, err := logcodec.Append(nil, c)
	if err != nil {
		return err
	}
	r := s.replica.Load()
	if r == nil || !r.leading() {
		s.submitElsewhere(b, done)
		return nil
	}
	if s.n.space.low.Load() {
		return ErrNoSpace
	}
	fault.Stall(fault.PointPropose)
	err = r.group.Propose(context.Background(), replication.Client, b, func(v any, _ uint64, err error) {
		fault.Stall(fault.PointReply)
		switch {
		case err == nil:
			done(*v.(*shard.Result), nil)
		case worthHolding(err):
			s.submitElsewhere(b, done)
		default:
			done(shard.Result{}, err)
		}
	})
	if worthHolding(err) {
		s.submitElsewhere(b, done)
		return nil
	}
	return err
}

// submitElsewhere takes the way that can wait for a leader.
func (s *shardRef) submitElsewhere(b []byte, done func(shard.Result, error)) {
	s.ref.propose(&proposal{
		class: replication.Client, submit: true, cmds: [][]byte{b}, until: time.Now().Add(holdFor),
		done: func(results []any, _ uint64, err error) {
			if err == nil && len(results) != 1 {
				err = fmt.Errorf("%w: %d results for one submit", replication.ErrMaybeAccepted, len(results))
			}
			if err != nil {
				done(shard.Result{}, err)
				return
			}
			done(*results[0].(*shard.Result), nil)
		},
	})
}

// do proposes one command and waits for its verdict. A replica here shows the effect once do has returned; others follow the position.
func (s *shardRef) do(ctx context.Context, class replication.Class, c shard.Command) (shard.Result, error) {
	b, err := logcodec.Append(nil, c)
	if err != nil {
		return shard.Result{}, err
	}
	v, _, err := s.ref.do(ctx, class, b)
	if err != nil {
		return shard.Result{}, err
	}
	return *v.(*shard.Result), nil
}

// submit is do for a submit, which a node with a full disk refuses.
func (s *shardRef) submit(ctx context.Context, c *shard.Submit) (shard.Result, error) {
	type verdict struct {
		res shard.Result
		err error
	}
	if err := ctx.Err(); err != nil {
		return shard.Result{}, fmt.Errorf("%w: %w", replication.ErrContext, err)
	}
	out := make(chan verdict, 1)
	if err := s.submitAsync(c, func(res shard.Result, err error) { out <- verdict{res, err} }); err != nil {
		return shard.Result{}, err
	}
	select {
	case a := <-out:
		return a.res, a.err
	case <-ctx.Done():
		return shard.Result{}, fmt.Errorf("%w: %w", replication.ErrMaybeAccepted, ctx.Err())
	}
}

// replicas walks the shards of which this node holds a replica.
func (n *Node) replicas() iter.Seq[*replica] {
	return func(yield func(*replica) bool) {
		for _, s := range n.shards() {
			if r := s.replica.Load(); r != nil && !yield(r) {
				return
			}
		}
	}
}

// shards are all shards of the cluster, by number; none before the cluster is known.
func (n *Node) shards() []*shardRef {
	if s := n.shardRefs.Load(); s != nil {
		return *s
	}
	return nil
}

// refs walks the groups by their numbers, the control group first.
func (n *Node) refs() iter.Seq2[uint32, *groupRef] {
	return func(yield func(uint32, *groupRef) bool) {
		if n.control != nil && !yield(controlGroup, n.control.ref) {
			return
		}
		for _, s := range n.shards() {
			if !yield(s.ref.number, s.ref) {
				return
			}
		}
	}
}

// ref finds a group by its number.
func (n *Node) ref(number uint32) (*groupRef, error) {
	if number == controlGroup {
		return n.control.ref, nil
	}
	if shards := n.shards(); int(number) <= len(shards) {
		return shards[number-1].ref, nil
	}
	return nil, fmt.Errorf("%w: group %d", ErrUnknownShard, number)
}

// group finds this node's replica of a group.
func (n *Node) group(number uint32) (*replication.Group, error) {
	ref, err := n.ref(number)
	if err != nil {
		return nil, err
	}
	if g := ref.local.Load(); g != nil {
		return g, nil
	}
	return nil, fmt.Errorf("%w: group %d", errNoSuchGroup, number)
}

// replicaOfGroup finds this node's replica of a shard's group.
func (n *Node) replicaOfGroup(number uint32) (*replica, error) {
	if shards := n.shards(); number != controlGroup && int(number) <= len(shards) {
		if r := shards[number-1].replica.Load(); r != nil {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%w: group %d", errNoSuchGroup, number)
}

// leaderOf is the node that leads a group, as far as this one knows; empty where it does not.
func (n *Node) leaderOf(number uint32) string {
	ref, err := n.ref(number)
	if err != nil {
		return ""
	}
	return ref.leader()
}
