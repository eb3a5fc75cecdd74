package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Listings that are merged over shards: dead letters, newest first, and the inbox of uncertain attempts, oldest first. Their index keys
// begin with a time and name no shard, so the key of the last row is the place to go on from in every shard.

// found is one row before it is converted.
type found struct {
	v    *view
	key  []byte
	ref  shard.Ref
	num  uint32 // attempt
	lane shard.LaneID
}

// part is what one shard gave for a page: rows in order, and how far it looked if it did not reach its end.
type part struct {
	rows     []found
	frontier []byte // nil: nothing is left behind the rows
}

// merged puts parts together in the order of cmp. Rows behind the nearest frontier are left for the next page, since what another shard
// has not looked at yet might come before them. next is the key to go on from, nil at the end.
func merged(parts []part, limit int, order func(a, b []byte) int) (rows []found, next []byte) {
	for _, p := range parts {
		if p.frontier != nil && (next == nil || order(p.frontier, next) < 0) {
			next = p.frontier
		}
	}
	for _, p := range parts {
		for _, row := range p.rows {
			if next == nil || order(row.key, next) <= 0 {
				rows = append(rows, row)
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b found) int { return order(a.key, b.key) })
	if len(rows) > limit {
		rows = rows[:limit]
		next = rows[limit-1].key
	}
	return rows, next
}

func ascending(a, b []byte) int  { return bytes.Compare(a, b) }
func descending(a, b []byte) int { return bytes.Compare(b, a) }

// filter is what dead letters and uncertain attempts can be selected by.
type filter struct {
	namespace, destination string
	state                  shard.GenerationState
	reason                 shard.TerminalReason
	errorClass             string
	after, till            policy.Time
	message                shard.MessageID
	minAge                 int64 // nanoseconds
}

// laneNames remembers, for one page and one shard, whether a lane belongs to the filter.
type laneNames struct {
	f     *filter
	r     shard.Reader
	known map[shard.LaneID]bool
	err   error
}

func (n *laneNames) wanted(id shard.LaneID) bool {
	if ok, known := n.known[id]; known {
		return ok
	}
	l, ok, err := shard.GetLane(n.r, id)
	if err != nil {
		n.err = err
	}
	ok = ok && l.Namespace == n.f.namespace && (n.f.destination == "" || l.Destination == n.f.destination)
	if n.known == nil {
		n.known = make(map[shard.LaneID]bool)
	}
	n.known[id] = ok
	return ok
}

// ListDeadLetters lists dead letters of all shards, newest failure first.
func (s *queryService) ListDeadLetters(ctx context.Context, m *sealanev1.ListDeadLettersRequest) (*sealanev1.ListDeadLettersResponse, error) {
	f := &filter{namespace: namespaceOf(ctx), destination: m.GetDestination(), errorClass: m.GetErrorClass()}
	limit, cursor, fresh, err := s.deadLetterRequest(m, f)
	if err != nil {
		return nil, statusOf(err).Err()
	}
	out := &sealanev1.ListDeadLettersResponse{}
	vs, reads, pending, err := s.viewsOf(ctx, f, fresh)
	if err != nil {
		return nil, statusOf(err).Err()
	}
	defer closeViews(vs)
	out.Reads = reads
	if pending {
		return out, nil
	}
	parts := make([]part, len(vs))
	for i, v := range vs {
		if parts[i], err = deadLetterPart(v, f, cursor, limit); err != nil {
			return nil, statusOf(err).Err()
		}
	}
	rows, next := merged(parts, limit, descending)
	for _, row := range rows {
		mv, err := shard.GetMessage(row.v.state, row.ref.ID, false)
		if err != nil {
			return nil, statusOf(err).Err()
		}
		if g := generationNumber(mv, row.ref.Generation); g != nil && g.DeadLetter != nil {
			out.DeadLetters = append(out.DeadLetters, deadLetterOf(mv.Message, g, g.DeadLetter, row.v.r.shard, false))
		}
	}
	if next != nil {
		out.NextPageToken = pageToken(listDeadLetters, filtersOf(m), next)
	}
	return out, nil
}

func generationNumber(mv *shard.MessageView, number uint32) *shard.GenerationView {
	if mv == nil {
		return nil
	}
	for i := range mv.Generations {
		if mv.Generations[i].Generation.Number == number {
			return &mv.Generations[i]
		}
	}
	return nil
}

func (s *queryService) deadLetterRequest(m *sealanev1.ListDeadLettersRequest, f *filter) (limit int, cursor []byte, fresh freshness, err error) {
	var c checker
	if f.destination != "" {
		c.destination("destination", f.destination)
	}
	switch m.GetState() {
	case sealanev1.GenerationState_STATE_UNSPECIFIED, sealanev1.GenerationState_DEAD_LETTERED:
		f.state = shard.StateDeadLettered
	case sealanev1.GenerationState_EXPIRED:
		f.state = shard.StateExpired
	default:
		c.bad("state", "is %s, want DEAD_LETTERED or EXPIRED", m.GetState())
	}
	if r := m.GetReason(); r < 0 || shard.TerminalReason(r) > shard.ReasonReplayed {
		c.bad("reason", "is %d, which is no reason", int32(r))
	} else {
		f.reason = shard.TerminalReason(r)
	}
	c.key("error_class", f.errorClass)
	f.after = c.time("failed_after", m.GetFailedAfter(), false)
	f.till = c.time("failed_before", m.GetFailedBefore(), false)
	if err = c.err(); err != nil {
		return 0, nil, fresh, err
	}
	if limit, err = pageSize(m.GetPageSize()); err != nil {
		return 0, nil, fresh, err
	}
	if fresh, err = s.n.freshnessOf(m.GetConsistency(), "positions", m.GetPositions(), m.GetWait()); err != nil {
		return 0, nil, fresh, err
	}
	cursor, err = parsePageToken(listDeadLetters, filtersOf(m), m.GetPageToken())
	return limit, cursor, fresh, err
}

// viewsOf opens the shards that a filter can find something in.
func (s *queryService) viewsOf(ctx context.Context, f *filter, fresh freshness) ([]*view, []*sealanev1.ReadMetadata, bool, error) {
	replicas, err := s.n.replicasOf(f.namespace, f.destination)
	if err != nil {
		return nil, nil, false, err
	}
	if !f.message.IsZero() {
		r, err := s.n.replicaFor(f.message)
		if err != nil {
			return nil, nil, false, fieldError("message_id", err)
		}
		replicas = []*replica{r}
	}
	return s.n.views(ctx, replicas, fresh)
}

func deadLetterPart(v *view, f *filter, cursor []byte, limit int) (part, error) {
	names := &laneNames{f: f, r: v.state}
	past := false // what follows is older than the filter wants
	items, more, err := shard.ListDeadLetters(v.state, cursor, limit, func(it shard.ListItem) bool {
		past = past || f.after != 0 && it.At < f.after
		if past || it.State != f.state || f.reason != shard.ReasonNone && it.Reason != f.reason || f.till != 0 && it.At >= f.till {
			return false
		}
		if !names.wanted(it.Lane) {
			return false
		}
		if f.errorClass == "" || names.err != nil {
			return true
		}
		d, err := shard.GetDeadLetter(v.state, it.Ref)
		if err != nil {
			names.err = err
		}
		return d != nil && d.LastErrorClass == f.errorClass
	})
	if err == nil {
		err = names.err
	}
	if past {
		more = nil
	}
	p := part{frontier: more}
	for _, it := range items {
		p.rows = append(p.rows, found{v: v, key: it.Cursor, ref: it.Ref, lane: it.Lane})
	}
	return p, err
}

// ListUncertainAttempts lists the inbox, oldest first over all shards.
func (s *queryService) ListUncertainAttempts(ctx context.Context, m *sealanev1.ListUncertainAttemptsRequest) (*sealanev1.ListUncertainAttemptsResponse, error) {
	f := &filter{namespace: namespaceOf(ctx), destination: m.GetDestination()}
	limit, cursor, fresh, err := s.uncertainRequest(m, f)
	if err != nil {
		return nil, statusOf(err).Err()
	}
	out := &sealanev1.ListUncertainAttemptsResponse{}
	vs, reads, pending, err := s.viewsOf(ctx, f, fresh)
	if err != nil {
		return nil, statusOf(err).Err()
	}
	defer closeViews(vs)
	out.Reads = reads
	if pending {
		return out, nil
	}
	parts := make([]part, len(vs))
	for i, v := range vs {
		if parts[i], err = uncertainPart(v, f, cursor, limit); err != nil {
			return nil, statusOf(err).Err()
		}
	}
	rows, next := merged(parts, limit, ascending)
	for _, row := range rows {
		u, err := uncertainRow(row)
		if err != nil {
			return nil, statusOf(err).Err()
		}
		if u != nil {
			out.UncertainAttempts = append(out.UncertainAttempts, u)
		}
	}
	if next != nil {
		out.NextPageToken = pageToken(listUncertain, filtersOf(m), next)
	}
	return out, nil
}

func uncertainRow(row found) (*sealanev1.UncertainAttempt, error) {
	mv, err := shard.GetMessage(row.v.state, row.ref.ID, false)
	if err != nil {
		return nil, err
	}
	g := generationNumber(mv, row.ref.Generation)
	if g == nil {
		return nil, nil
	}
	for _, a := range g.Attempts {
		if a.Number == row.num {
			return uncertainOf(row.v, mv, g, a)
		}
	}
	return nil, nil
}

func (s *queryService) uncertainRequest(m *sealanev1.ListUncertainAttemptsRequest, f *filter) (limit int, cursor []byte, fresh freshness, err error) {
	var c checker
	if f.destination != "" {
		c.destination("destination", f.destination)
	}
	if d := m.GetMinAge(); d != nil {
		if f.minAge = int64(d.AsDuration()); d.CheckValid() != nil || f.minAge < 0 {
			c.bad("min_age", "must not be negative")
		}
	}
	if err = c.err(); err != nil {
		return 0, nil, fresh, err
	}
	if m.GetMessageId() != "" {
		if f.message, err = messageID("message_id", m.GetMessageId()); err != nil {
			return 0, nil, fresh, err
		}
	}
	if limit, err = pageSize(m.GetPageSize()); err != nil {
		return 0, nil, fresh, err
	}
	if fresh, err = s.n.freshnessOf(m.GetConsistency(), "positions", m.GetPositions(), m.GetWait()); err != nil {
		return 0, nil, fresh, err
	}
	cursor, err = parsePageToken(listUncertain, filtersOf(m), m.GetPageToken())
	return limit, cursor, fresh, err
}

// uncertainPart looks through the inbox of one shard until the page is full or the scan has reached its bound.
func uncertainPart(v *view, f *filter, cursor []byte, limit int) (part, error) {
	names := &laneNames{f: f, r: v.state}
	latest := v.clock
	if f.minAge > 0 {
		latest -= policy.Time(min(f.minAge, int64(v.clock)))
	}
	var p part
	for looked := 0; looked < shard.MaxListScan; {
		items, err := shard.ScanUncertain(v.state, cursor, limit)
		if err != nil {
			return p, err
		}
		for _, it := range items {
			cursor = it.Cursor
			if f.minAge > 0 && it.Since > latest {
				return p, names.err
			}
			if !f.message.IsZero() && it.Ref.ID != f.message || !names.wanted(it.Lane) {
				continue
			}
			p.rows = append(p.rows, found{v: v, key: it.Cursor, ref: it.Ref, num: it.Attempt, lane: it.Lane})
			if len(p.rows) >= limit {
				p.frontier = cursor
				return p, names.err
			}
		}
		if len(items) < limit {
			return p, names.err
		}
		looked += len(items)
	}
	p.frontier = cursor
	return p, names.err
}

// ListLanes lists lanes by destination and slot, over all shards.
func (s *queryService) ListLanes(ctx context.Context, m *sealanev1.ListLanesRequest) (*sealanev1.ListLanesResponse, error) {
	l, fresh, err := s.laneRequest(ctx, m)
	if err != nil {
		return nil, statusOf(err).Err()
	}
	replicas, err := s.n.replicasOf(l.namespace, m.GetDestination())
	if err != nil {
		return nil, statusOf(err).Err()
	}
	out := &sealanev1.ListLanesResponse{}
	vs, reads, pending, err := s.n.views(ctx, replicas, fresh)
	if err != nil {
		return nil, statusOf(err).Err()
	}
	defer closeViews(vs)
	out.Reads = reads
	if pending {
		return out, nil
	}
	if out.Lanes, err = l.page(ctx, vs); err != nil {
		return nil, statusOf(err).Err()
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
