package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"

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
		if _, err := n.replicaAt(p.Shard); err != nil {
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
		f.consistency = sealanev1.Consistency_local
		if len(f.positions) > 0 {
			f.consistency = sealanev1.Consistency_position
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
func (n *Node) single(r *replica, c sealanev1.Consistency_Value, position string, wait *durationpb.Duration) (freshness, error) {
	f, err := n.freshnessOf(c, "position", []string{position}, wait)
	if err != nil {
		return f, err
	}
	for number := range f.positions {
		if number != r.shard {
			return f, invalid("position", "is of shard %d, and what is read is in shard %d", number, r.shard)
		}
	}
	return f, nil
}

// view is what a read works on: a state that does not move, and how old it is.
type view struct {
	r     *replica
	state shard.Reader
	clock policy.Time // the shard clock
	now   policy.Time // what it would be if something were applied now; an idle shard's clock stands still
	close func()
	read  *sealanev1.ReadMetadata
}

// view waits until the replica is as new as the read asks and takes a snapshot. pending means that the position was not reached in time:
// the view then has nothing but its metadata.
func (n *Node) view(ctx context.Context, r *replica, f freshness) (v *view, pending bool, err error) {
	if f.consistency == sealanev1.Consistency_linearizable {
		if err := r.group.ReadBarrier(ctx); err != nil {
			return nil, false, err
		}
	}
	if index, ok := f.positions[r.shard]; ok && f.consistency != sealanev1.Consistency_local {
		if pending, err = waitApplied(ctx, r, index, f.wait); err != nil {
			return nil, false, err
		}
	}
	applied := r.group.Applied() // before the snapshot, which then holds at least as much
	v = &view{r: r}
	v.state, v.close = r.snapshot()
	meta, err := shard.ReadMeta(v.state)
	if err != nil {
		v.close()
		return nil, false, err
	}
	v.clock, v.now = meta.Clock, meta.Clock
	if r.leading() {
		v.now = max(v.now, n.stamper.Stamp())
	}
	v.read = &sealanev1.ReadMetadata{
		Status: sealanev1.ReadStatus_ANSWERED, AppliedPosition: positionText(r.shard, applied), ShardClock: timestamp(meta.Clock),
		Node: n.cfg.NodeID, Leader: r.leading(),
	}
	if pending {
		v.read.Status = sealanev1.ReadStatus_PENDING
	}
	return v, pending, nil
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

// views opens one view per replica. On PENDING all are closed and only their metadata is kept.
func (n *Node) views(ctx context.Context, replicas []*replica, f freshness) (vs []*view, reads []*sealanev1.ReadMetadata, pending bool, err error) {
	for _, r := range replicas {
		v, late, err := n.view(ctx, r, f)
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
