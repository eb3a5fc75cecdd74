package client

import (
	"cmp"
	"slices"
	"time"
)

// enterOrderLocked joins an item to those of its ordering key.
func (s *Stream) enterOrderLocked(it *item) {
	if it.req.GetOrderingKey() == "" {
		return
	}
	key := keyed(it.req.GetDestination(), it.req.GetOrderingKey())
	o := s.orders[key]
	if o == nil {
		o = &order{key: key}
		s.orders[key] = o
	}
	o.count++
	it.order = o
}

// dispatchLocked gives items to the calls of the nodes that are best for them, and opens calls where there are none.
func (s *Stream) dispatchLocked(items []*item) {
	for _, it := range items {
		e := s.placeLocked(it)
		if e == nil {
			continue // the client was closed; the item ends after a moment
		}
		k := s.calls[e]
		if k == nil {
			k = newStreamCall(s, e)
			s.calls[e] = k
			s.live++
			go k.run()
		}
		it.call = k
		k.queue = append(k.queue, it)
		k.wake()
	}
}

// placeLocked chooses the node for an item.
func (s *Stream) placeLocked(it *item) *endpoint {
	o := it.order
	if o != nil && o.count > 1 && o.e != nil && o.e != it.not {
		return o.e
	}
	e, err := s.client.nodes.choose(s.client.wanted(it.req), it.not)
	if err != nil {
		s.lastErr = err
		s.parkLocked([]*item{it}, firstPause)
		return nil
	}
	if o != nil {
		o.e = e
	}
	return e
}

// againLocked finds another place for items that their node did not take: at once where another node is left to try, else after a pause.
// Those whose time is over are returned to be answered.
func (s *Stream) againLocked(items []*item, at bool, pause time.Duration) (over []answered) {
	left := items[:0:0]
	for _, it := range items {
		if s.expiredLocked(it) {
			over = append(over, s.giveUpLocked(it))
			continue
		}
		left = append(left, it)
	}
	switch {
	case len(left) == 0:
	case at:
		s.dispatchLocked(left)
	default:
		s.parkLocked(left, pause)
	}
	return over
}

// parkLocked dispatches items after a pause. They stay in waiting meanwhile, so that the stream's end finds them.
func (s *Stream) parkLocked(items []*item, pause time.Duration) {
	time.AfterFunc(pause, func() {
		s.mu.Lock()
		items := slices.DeleteFunc(items, func(it *item) bool { return s.waiting[it.number] != it })
		if s.ctx.Err() != nil {
			s.mu.Unlock()
			return
		}
		over := s.againLocked(items, true, 0)
		s.live++
		s.mu.Unlock()
		s.handOut(over)
	})
}

// endedLocked takes back what a call that has ended still owes: what was sent may have been accepted.
func (s *Stream) endedLocked(k *streamCall, err error) (over []answered) {
	if s.calls[k.e] == k {
		delete(s.calls, k.e)
	}
	var open []*item
	for _, it := range s.waiting {
		if it.call != k {
			continue
		}
		if it.sent {
			it.verdicts.lost(err)
		}
		it.sent, it.call, it.not = false, nil, k.e
		open = append(open, it)
	}
	k.queue = nil
	if err == nil && len(open) == 0 {
		return nil
	}
	s.lastErr = err
	nodes := s.client.nodes.size()
	if nodes <= 1 {
		for _, it := range open {
			it.not = nil
		}
	}
	slices.SortFunc(open, func(a, b *item) int { return cmp.Compare(a.number, b.number) })
	s.failures++
	return s.againLocked(open, s.failures < nodes, retryPause(max(1, s.failures-nodes+1)))
}
