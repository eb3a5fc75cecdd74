package server

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// ListLanes lists lanes by destination and slot, over all shards.
func (s *queryService) ListLanes(ctx context.Context, m *sealanev1.ListLanesRequest) (*sealanev1.ListLanesResponse, error) {
	l, fresh, err := s.laneRequest(ctx, m)
	if err != nil {
		return nil, answered(err)
	}
	replicas, err := s.n.shardsOf(l.namespace, m.GetDestination())
	if err != nil {
		return nil, answered(err)
	}
	out := &sealanev1.ListLanesResponse{}
	vs, reads, pending, err := s.n.views(ctx, replicas, fresh)
	if err != nil {
		return nil, answered(err)
	}
	defer closeViews(vs)
	out.Reads = reads
	if pending {
		return out, nil
	}
	if out.Lanes, err = l.page(ctx, vs); err != nil {
		return nil, answered(err)
	}
	if l.next != nil {
		out.NextPageToken = pageToken(listLanes, filtersOf(m), l.next.bytes())
	}
	return out, nil
}

// lanePlace is the name of a lane: what a listing of lanes goes on after.
type lanePlace struct {
	destination string
	slot        uint32
}

func (p lanePlace) bytes() []byte {
	return append(binary.BigEndian.AppendUint32(nil, p.slot), p.destination...)
}

func (p lanePlace) compare(q lanePlace) int {
	return cmp.Or(compareNames(p.destination, q.destination), cmp.Compare(p.slot, q.slot))
}

// compareNames is the order of the shards' index of names: by length first.
func compareNames(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

type laneLister struct {
	req       *sealanev1.ListLanesRequest
	namespace string
	from      lanePlace
	limit     int
	next      *lanePlace
}

func (s *queryService) laneRequest(ctx context.Context, m *sealanev1.ListLanesRequest) (*laneLister, freshness, error) {
	l := &laneLister{req: m, namespace: namespaceOf(ctx)}
	var c checker
	if m.GetDestination() != "" {
		c.destination("destination", m.GetDestination())
	}
	if m.Slot != nil && m.GetDestination() == "" {
		c.bad("slot", "needs a destination")
	}
	if _, known := sealanev1.Gate_Value_name[int32(m.GetGate())]; !known {
		c.bad("gate", "is %d, want OPEN, PAUSED or CLOSED", int32(m.GetGate()))
	}
	if err := c.err(); err != nil {
		return nil, freshness{}, err
	}
	var err error
	if l.limit, err = pageSize(m.GetPageSize()); err != nil {
		return nil, freshness{}, err
	}
	fresh, err := s.n.freshnessOf(m.GetConsistency(), "positions", m.GetPositions(), m.GetWait())
	if err != nil {
		return nil, freshness{}, err
	}
	state, err := parsePageToken(listLanes, filtersOf(m), m.GetPageToken())
	if err != nil {
		return nil, freshness{}, err
	}
	if len(state) > 0 {
		if len(state) < 5 {
			return nil, freshness{}, fieldError("page_token", fmt.Errorf("%w: it is damaged", ErrPageToken))
		}
		l.from = lanePlace{destination: string(state[4:]), slot: binary.BigEndian.Uint32(state)}
	}
	return l, fresh, nil
}

// page reads the next lanes of all shards in the order of their names, at most maxPageLanes of them.
func (l *laneLister) page(ctx context.Context, vs []*view) ([]*sealanev1.Lane, error) {
	type named struct {
		v   *view
		rec shard.LaneRecord
		at  lanePlace
	}
	var all []named
	var frontier *lanePlace
	for _, v := range vs {
		recs, more, err := l.read(v)
		if err != nil {
			return nil, err
		}
		for _, rec := range recs {
			all = append(all, named{v, rec, lanePlace{rec.Destination, rec.Slot}})
		}
		if more {
			last := all[len(all)-1].at
			if frontier == nil || last.compare(*frontier) < 0 {
				frontier = &last
			}
		}
	}
	for _, v := range vs {
		var ids []shard.LaneID
		for _, n := range all {
			if n.v == v {
				ids = append(ids, n.rec.ID)
			}
		}
		if err := v.askRuntime(ctx, ids); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b named) int { return a.at.compare(b.at) })
	var out []*sealanev1.Lane
	for looked, n := range all {
		if frontier != nil && n.at.compare(*frontier) > 0 {
			break
		}
		if len(out) >= l.limit || looked >= maxPageLanes {
			l.next = &all[looked-1].at
			return out, nil
		}
		lane, err := laneOf(ctx, n.v, &n.rec)
		if err != nil {
			return nil, err
		}
		if l.keep(lane) {
			out = append(out, lane)
		}
	}
	l.next = frontier
	return out, nil
}

// read gives the next lanes of one shard, and whether there may be more behind them.
func (l *laneLister) read(v *view) ([]shard.LaneRecord, bool, error) {
	if l.req.GetDestination() == "" {
		want := l.limit
		if l.filtered() {
			want = maxPageLanes
		}
		recs, err := shard.ScanLaneNames(v.state, l.namespace, l.from.destination, l.from.slot, want)
		return recs, len(recs) == want, err
	}
	recs, err := lanesOf(v.state, l.namespace, l.req.GetDestination())
	kept := recs[:0]
	for _, rec := range recs {
		if l.req.Slot != nil && rec.Slot != l.req.GetSlot() {
			continue
		}
		if l.from.destination == "" || (lanePlace{rec.Destination, rec.Slot}).compare(l.from) > 0 {
			kept = append(kept, rec)
		}
	}
	return kept, false, err
}

func (l *laneLister) filtered() bool {
	return l.req.GetGate() != sealanev1.Gate_GATE_UNSPECIFIED || l.req.GetTroubledOnly()
}

func (l *laneLister) keep(lane *sealanev1.Lane) bool {
	if g := l.req.GetGate(); g != sealanev1.Gate_GATE_UNSPECIFIED && lane.Gate != g {
		return false
	}
	return !l.req.GetTroubledOnly() || troubled(lane)
}

func troubled(lane *sealanev1.Lane) bool {
	if lane.Gate != sealanev1.Gate_OPEN {
		return true
	}
	return slices.ContainsFunc(lane.Targets, func(t *sealanev1.LaneTarget) bool {
		return t.Blocked != nil || t.Readiness == sealanev1.Readiness_BLOCKED || t.Circuit.GetPhase() != sealanev1.CircuitPhase_CLOSED
	})
}
