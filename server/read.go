package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/host"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// How long a read waits for a position.
const (
	defaultWait = 5 * time.Second
	maxWait     = 60 * time.Second
)

// freshness is how new an answer must be (DESIGN 10).
type freshness struct {
	consistency sealanev1.Consistency_Value
	positions   map[uint16]uint64 // shard to index
	wait        time.Duration
	// confirm: the caller asked for nothing in particular. A message that is not found then is looked for at the leader before it is said to be
	// unknown, since it may have been accepted a moment ago on another node.
	confirm bool
}

// freshnessOf reads the options that every read has.
func (n *Node) freshnessOf(c sealanev1.Consistency_Value, field string, positions []string, wait *durationpb.Duration) (freshness, error) {
	f := freshness{consistency: c}
	var err error
	if f.wait, err = waitOf(wait); err != nil {
		return f, err
	}
	for _, text := range positions {
		if text == "" {
			continue
		}
		p, err := shard.ParsePosition(text)
		if err != nil {
			return f, fieldError(field, err)
		}
		if _, err := n.shardAt(p.Shard); err != nil {
			return f, fieldError(field, err)
		}
		if f.positions == nil {
			f.positions = make(map[uint16]uint64)
		}
		if _, twice := f.positions[p.Shard]; twice {
			return f, invalid(field, "names shard %d twice", p.Shard)
		}
		f.positions[p.Shard] = p.Index
	}
	switch c {
	case sealanev1.Consistency_CONSISTENCY_UNSPECIFIED:
		f.consistency, f.confirm = sealanev1.Consistency_local, true
		if len(f.positions) > 0 {
			f.consistency, f.confirm = sealanev1.Consistency_position, false
		}
	case sealanev1.Consistency_local, sealanev1.Consistency_linearizable:
	case sealanev1.Consistency_position:
		if len(f.positions) == 0 {
			return f, invalid(field, "is required with consistency position")
		}
	default:
		return f, invalid("consistency", "is %d, want local, position or linearizable", int32(c))
	}
	return f, nil
}

func waitOf(d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return defaultWait, nil
	}
	if w := d.AsDuration(); d.CheckValid() == nil && w >= 0 && w <= maxWait {
		return w, nil
	}
	return 0, invalid("wait", "must be from 0s to %s", maxWait)
}

// single is freshnessOf for a read of one shard: a position of another one is a mistake.
func (n *Node) single(sh *shardRef, c sealanev1.Consistency_Value, position string, wait *durationpb.Duration) (freshness, error) {
	f, err := n.freshnessOf(c, "position", []string{position}, wait)
	if err != nil {
		return f, err
	}
	for number := range f.positions {
		if number != sh.shard {
			return f, invalid("position", "is of shard %d, and what is read is in shard %d", number, sh.shard)
		}
	}
	return f, nil
}

// need is what a read asks of one shard.
type need struct {
	linearizable bool
	index        uint64 // 0: none
	wait         time.Duration
}

func (f *freshness) need(shardNumber uint16) need {
	w := need{linearizable: f.consistency == sealanev1.Consistency_linearizable, wait: f.wait}
	if f.consistency != sealanev1.Consistency_local {
		w.index = f.positions[shardNumber]
	}
	return w
}

// view is what a read works on: a state that does not move, and how old it is.
type view struct {
	sh      *shardRef
	state   shard.Reader
	applied uint64
	leader  bool          // the node that holds the state leads
	contact time.Duration // since that node heard from the leader
	clock   policy.Time   // the shard clock
	now     policy.Time   // what it would be if something were applied now; an idle shard's clock stands still
	close   func()
	read    *sealanev1.ReadMetadata
	runtime map[shard.LaneID]host.LaneStatus // of lanes that were asked for
}

// view waits until a replica is as new as the read asks and takes a snapshot there: of the replica here, or, where there is none, of one on
// another node. pending means that the position was not reached in time: the view then has nothing but its metadata.
func (n *Node) view(ctx context.Context, sh *shardRef, f freshness) (v *view, pending bool, err error) {
	w := f.need(sh.shard)
	if r := sh.replica.Load(); r != nil {
		v, pending, err = n.localView(ctx, r, w)
	} else {
		v, pending, err = n.remoteView(ctx, sh, w)
	}
	if err != nil {
		return nil, false, err
	}
	v.sh = sh
	v.read.Status = sealanev1.ReadStatus_ANSWERED
	if pending {
		v.read.Status = sealanev1.ReadStatus_PENDING
	}
	v.read.AppliedPosition, v.read.ShardClock = positionText(sh.shard, v.applied), timestamp(v.clock)
	v.read.Leader = v.leader
	if !v.leader {
		v.read.LeaderContact = durationpb.New(v.contact)
	}
	return v, pending, nil
}

// localView reads the replica here. A linearizable read asks the leader, wherever it is, for the index to wait for.
func (n *Node) localView(ctx context.Context, r *replica, w need) (v *view, pending bool, err error) {
	if w.linearizable {
		bounded, cancel := context.WithTimeout(ctx, max(w.wait, linearizableWait))
		index, err := r.ref.readIndex(bounded)
		if err == nil {
			err = r.group.WaitApplied(bounded, index)
		}
		cancel()
		if err != nil {
			return nil, false, readError(ctx, err)
		}
	}
	if w.index > 0 {
		if pending, err = waitApplied(ctx, r, w.index, w.wait); err != nil {
			return nil, false, err
		}
	}
	v = &view{applied: r.group.Applied(), leader: r.leading(), read: &sealanev1.ReadMetadata{Node: n.cfg.NodeID}}
	if !v.leader {
		v.contact = sinceContact(r.group.Status().LastContact, n.started)
	}
	v.state, v.close = r.snapshot() // after applied was read: it holds at least as much
	meta, err := shard.ReadMeta(v.state)
	if err != nil {
		v.close()
		return nil, false, err
	}
	v.clock, v.now = meta.Clock, meta.Clock
	if v.leader {
		v.now = max(v.now, n.stamper.Stamp())
	}
	return v, pending, nil
}

// sinceContact is how long ago a replica heard from a leader; since the start of the process where it never did.
func sinceContact(last, started time.Time) time.Duration {
	if last.IsZero() {
		last = started
	}
	return max(time.Since(last), 0)
}

// linearizableWait is how long a linearizable read waits for a leader to confirm itself when it names no wait of its own.
const linearizableWait = 5 * time.Second

// readError says that a read was not confirmed in time, unless it was the caller who gave up.
func readError(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: no leader confirmed itself in time", replication.ErrBarrier)
	}
	return err
}

// remoteView reads a replica on another node: the leader if it is known, else any that answers.
func (n *Node) remoteView(ctx context.Context, sh *shardRef, w need) (v *view, pending bool, err error) {
	open := &peerv1.OpenView{Group: sh.ref.number, Linearizable: w.linearizable, Index: w.index, Wait: durationpb.New(w.wait)}
	err = fmt.Errorf("%w: shard %d", ErrNoReplica, sh.shard)
	for _, node := range n.holders(sh.ref) {
		l, linkErr := n.link(node)
		if linkErr != nil {
			err = errors.Join(err, linkErr)
			continue
		}
		state, opened, openErr := openRemote(ctx, l, open)
		if openErr != nil {
			err = errors.Join(err, fmt.Errorf("node %s: %w", node, openErr))
			continue
		}
		v = &view{
			applied: opened.GetApplied(), leader: opened.GetLeader(), contact: time.Duration(opened.GetLeaderContactMillis()) * time.Millisecond,
			state: state, close: state.close, now: policy.Time(opened.GetNow()), read: &sealanev1.ReadMetadata{Node: node},
		}
		if opened.GetPending() {
			return v, true, nil
		}
		meta, err := shard.ReadMeta(state)
		if err != nil {
			state.close()
			return nil, false, err
		}
		v.clock = meta.Clock
		return v, false, nil
	}
	return nil, false, err
}

// waitApplied waits at most so long. The caller's own deadline is an error, this one is the answer PENDING.
func waitApplied(ctx context.Context, r *replica, index uint64, wait time.Duration) (pending bool, err error) {
	if r.group.Applied() >= index {
		return false, nil
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err = r.group.WaitApplied(bounded, index)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return true, nil
	}
	return false, err
}

// views opens one view per shard. On PENDING all are closed and only their metadata is kept.
func (n *Node) views(ctx context.Context, shards []*shardRef, f freshness) (vs []*view, reads []*sealanev1.ReadMetadata, pending bool, err error) {
	for _, sh := range shards {
		v, late, err := n.view(ctx, sh, f)
		if err != nil {
			closeViews(vs)
			return nil, nil, false, err
		}
		pending = pending || late
		vs = append(vs, v)
		reads = append(reads, v.read)
	}
	if pending {
		closeViews(vs)
		vs = nil
	}
	return vs, reads, pending, nil
}

func closeViews(vs []*view) {
	for _, v := range vs {
		v.close()
	}
}

// timestamp converts a shard time; unset stays absent.
func timestamp(t policy.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, int64(t)))
}
