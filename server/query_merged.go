package server

import (
	"bytes"
	"context"
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
		return nil, answered(err)
	}
	out := &sealanev1.ListDeadLettersResponse{}
	vs, reads, pending, err := s.viewsOf(ctx, f, fresh)
	if err != nil {
		return nil, answered(err)
	}
	defer closeViews(vs)
	out.Reads = reads
	if pending {
		return out, nil
	}
	parts := make([]part, len(vs))
	for i, v := range vs {
		if parts[i], err = deadLetterPart(v, f, cursor, limit); err != nil {
			return nil, answered(err)
		}
	}
	rows, next := merged(parts, limit, descending)
	for _, row := range rows {
		mv, err := shard.GetMessage(row.v.state, row.ref.ID, false)
		if err != nil {
			return nil, answered(err)
		}
		if g := generationNumber(mv, row.ref.Generation); g != nil && g.DeadLetter != nil {
			out.DeadLetters = append(out.DeadLetters, deadLetterOf(mv.Message, g, g.DeadLetter, row.v.sh.shard, false))
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
	replicas, err := s.n.shardsOf(f.namespace, f.destination)
	if err != nil {
		return nil, nil, false, err
	}
	if !f.message.IsZero() {
		r, err := s.n.shardFor(f.message)
		if err != nil {
			return nil, nil, false, fieldError("message_id", err)
		}
		replicas = []*shardRef{r}
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
		return nil, answered(err)
	}
	out := &sealanev1.ListUncertainAttemptsResponse{}
	vs, reads, pending, err := s.viewsOf(ctx, f, fresh)
	if err != nil {
		return nil, answered(err)
	}
	defer closeViews(vs)
	out.Reads = reads
	if pending {
		return out, nil
	}
	parts := make([]part, len(vs))
	for i, v := range vs {
		if parts[i], err = uncertainPart(v, f, cursor, limit); err != nil {
			return nil, answered(err)
		}
	}
	rows, next := merged(parts, limit, ascending)
	for _, row := range rows {
		u, err := uncertainRow(row)
		if err != nil {
			return nil, answered(err)
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
	latest := v.now
	if f.minAge > 0 {
		latest -= policy.Time(min(f.minAge, int64(v.now)))
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
