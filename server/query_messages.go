package server

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// What one page of messages may cost, whatever it finds. A page that reaches a bound is short and has a token.
const (
	// maxPageLanes bounds the lanes that a page looks into.
	maxPageLanes = 1000
	// maxPageScan bounds the index entries it looks at.
	maxPageScan = 2 * shard.MaxListScan
	lanePage    = 256
)

// messagesPlace is where a listing of messages goes on: a shard, a lane in it, and the place in the lane's index.
type messagesPlace struct {
	shard  uint16
	lane   shard.LaneID
	cursor []byte
}

func (p messagesPlace) bytes() []byte {
	b := binary.BigEndian.AppendUint16(nil, p.shard)
	b = binary.BigEndian.AppendUint32(b, uint32(p.lane))
	return append(b, p.cursor...)
}

func messagesPlaceOf(b []byte) (messagesPlace, error) {
	if len(b) == 0 {
		return messagesPlace{}, nil
	}
	if len(b) < 6 {
		return messagesPlace{}, fieldError("page_token", fmt.Errorf("%w: it is damaged", ErrPageToken))
	}
	return messagesPlace{shard: binary.BigEndian.Uint16(b), lane: shard.LaneID(binary.BigEndian.Uint32(b[2:])), cursor: b[6:]}, nil
}

// messageLister fills one page.
type messageLister struct {
	n           *Node
	req         *sealanev1.ListMessagesRequest
	namespace   string
	state       shard.GenerationState
	after, till policy.Time
	limit       int
	lanesLeft   int
	scanLeft    int
	rows        []*sealanev1.MessageSummary
	next        *messagesPlace
}

// ListMessages lists messages, shard by shard and lane by lane, newest first inside each lane.
func (s *queryService) ListMessages(ctx context.Context, m *sealanev1.ListMessagesRequest) (*sealanev1.ListMessagesResponse, error) {
	l, place, f, err := s.messageLister(ctx, m)
	if err != nil {
		return nil, answered(err)
	}
	replicas, err := s.n.shardsOf(l.namespace, m.GetDestination())
	if err != nil {
		return nil, answered(err)
	}
	out := &sealanev1.ListMessagesResponse{}
	for _, r := range replicas {
		if r.shard < place.shard {
			continue
		}
		if r.shard > place.shard {
			place = messagesPlace{shard: r.shard}
		}
		vs, reads, pending, err := s.n.views(ctx, []*shardRef{r}, f)
		if err != nil {
			return nil, answered(err)
		}
		out.Reads = append(out.Reads, reads...)
		if pending {
			return &sealanev1.ListMessagesResponse{Reads: out.Reads}, nil
		}
		err = l.fill(vs[0], place)
		closeViews(vs)
		if err != nil {
			return nil, answered(err)
		}
		if l.next != nil {
			out.NextPageToken = pageToken(listMessages, filtersOf(m), l.next.bytes())
			break
		}
	}
	out.Messages = l.rows
	return out, nil
}

func (s *queryService) messageLister(ctx context.Context, m *sealanev1.ListMessagesRequest) (*messageLister, messagesPlace, freshness, error) {
	l := &messageLister{n: s.n, req: m, namespace: namespaceOf(ctx), state: shard.GenerationState(m.GetState()), lanesLeft: maxPageLanes, scanLeft: maxPageScan}
	var c checker
	if m.GetDestination() != "" {
		c.destination("destination", m.GetDestination())
	}
	if m.GetState() < 0 || l.state > shard.StateSuperseded {
		c.bad("state", "is %d, which is no state", int32(m.GetState()))
	}
	l.after = c.time("accepted_after", m.GetAcceptedAfter(), false)
	l.till = c.time("accepted_before", m.GetAcceptedBefore(), false)
	if err := c.err(); err != nil {
		return nil, messagesPlace{}, freshness{}, err
	}
	var err error
	if l.limit, err = pageSize(m.GetPageSize()); err != nil {
		return nil, messagesPlace{}, freshness{}, err
	}
	f, err := s.n.freshnessOf(m.GetConsistency(), "positions", m.GetPositions(), m.GetWait())
	if err != nil {
		return nil, messagesPlace{}, freshness{}, err
	}
	state, err := parsePageToken(listMessages, filtersOf(m), m.GetPageToken())
	if err != nil {
		return nil, messagesPlace{}, freshness{}, err
	}
	place, err := messagesPlaceOf(state)
	return l, place, f, err
}

// shardsOf are the shards that can hold something of a destination, in the order of their numbers; all where none is named.
func (n *Node) shardsOf(namespace, destination string) ([]*shardRef, error) {
	if destination == "" {
		return n.shards(), nil
	}
	v, ok, err := catalog.Newest(n.control.state, namespace, destination) // deleted ones have messages too
	if err != nil || !ok {
		return nil, err
	}
	holds := make(map[*shardRef]bool)
	for slot := range v.Spec.Lane.Spread {
		holds[n.shardOfSlot(namespace, destination, slot)] = true
	}
	var out []*shardRef
	for _, sh := range n.shards() {
		if holds[sh] {
			out = append(out, sh)
		}
	}
	return out, nil
}

// fill adds the messages of one shard from a place on, and sets next where the page is full.
func (l *messageLister) fill(v *view, place messagesPlace) error {
	if l.req.GetDestination() != "" {
		lanes, err := lanesOf(v.state, l.namespace, l.req.GetDestination())
		if err != nil {
			return err
		}
		_, err = l.lanes(v, lanes, &place)
		return err
	}
	// The lane that the place is in was not finished, so it is read again.
	for at := max(place.lane, 1) - 1; ; {
		lanes, err := shard.ScanLanes(v.state, at, lanePage)
		if err != nil {
			return err
		}
		if more, err := l.lanes(v, lanes, &place); err != nil || !more || len(lanes) < lanePage {
			return err
		}
		at = lanes[len(lanes)-1].ID
	}
}

// lanesOf are the lanes of a destination in one shard, by number.
func lanesOf(r shard.Reader, namespace, destination string) ([]shard.LaneRecord, error) {
	var lanes []shard.LaneRecord
	for slot := range uint32(catalog.MaxSpread) {
		l, ok, err := shard.LaneByName(r, namespace, destination, slot)
		if err != nil {
			return nil, err
		}
		if ok {
			lanes = append(lanes, l)
		}
	}
	return lanes, nil
}

// lanes looks into lanes from the place on; false means that the page is full.
func (l *messageLister) lanes(v *view, lanes []shard.LaneRecord, place *messagesPlace) (bool, error) {
	for i := range lanes {
		rec := &lanes[i]
		if rec.ID < place.lane || rec.Namespace != l.namespace {
			continue
		}
		cursor := place.cursor
		if rec.ID > place.lane {
			cursor = nil
		}
		if l.lanesLeft--; l.lanesLeft < 0 {
			l.next = &messagesPlace{shard: v.sh.shard, lane: rec.ID, cursor: cursor}
			return false, nil
		}
		if more, err := l.one(v, rec, cursor); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// one looks into one lane; false means that the page is full.
func (l *messageLister) one(v *view, rec *shard.LaneRecord, cursor []byte) (bool, error) {
	for holds(rec, l.state) {
		if len(l.rows) >= l.limit || l.scanLeft <= 0 {
			l.next = &messagesPlace{shard: v.sh.shard, lane: rec.ID, cursor: cursor}
			return false, nil
		}
		items, more, err := shard.ListMessages(v.state, rec.ID, l.state, cursor, l.limit-len(l.rows))
		if err != nil {
			return false, err
		}
		// Only the shard knows how many entries it looked at; a short answer with more behind it stands for a full scan.
		looked := len(items)
		if len(items) < l.limit-len(l.rows) {
			looked = shard.MaxListScan
			if more == nil {
				looked = int(min(rec.Counts.Pending(), shard.MaxListScan)) + len(items)
			}
		}
		l.scanLeft -= looked
		for _, it := range items {
			if err := l.add(v, it); err != nil {
				return false, err
			}
		}
		if more == nil {
			return true, nil
		}
		cursor = more
	}
	return true, nil
}

// holds tells from a lane's counters whether it can hold a message in a state.
func holds(rec *shard.LaneRecord, s shard.GenerationState) bool {
	c := &rec.Counts
	switch {
	case s.Terminal():
		return c.Terminal[s-shard.StateDelivered] > 0
	case s == shard.StateScheduled || s == shard.StateRetryWait:
		return c.Scheduled > 0
	case s == shard.StateInFlight:
		return c.InFlight > 0
	case s == shard.StateUncertain:
		return c.Uncertain > 0
	}
	return true
}

func (l *messageLister) add(v *view, it shard.ListItem) error {
	mv, err := shard.GetMessage(v.state, it.Ref.ID, false)
	if err != nil || mv == nil {
		return err
	}
	m := mv.Message
	if it.Ref.Generation != m.Current { // an older generation that ended in this state
		return nil
	}
	if l.after != 0 && m.AcceptedAt < l.after || l.till != 0 && m.AcceptedAt >= l.till {
		return nil
	}
	l.rows = append(l.rows, summaryOf(mv))
	return nil
}
