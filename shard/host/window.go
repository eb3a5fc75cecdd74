package host

import (
	"cmp"
	"slices"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// item is one generation with work, as the Host knows it: waiting in its target's window, or claimed.
type item struct {
	ref     shard.Ref
	target  *target
	due     policy.Time
	seq     uint64        // order of arrival among equal due times
	attempt uint32        // the number its next attempt will have, 0 if it must be read
	version uint64        // destination version it is pinned to, 0 if it must be read
	era     uint32        // of its lane when it arrived
	submit  *shard.Submit // set while the message need not be read back
	claim   *claim        // set while claimed; the item is then not in the window
	pos     int           // in the window's heap
}

func (it *item) before(o *item) bool {
	return it.due < o.due || it.due == o.due && it.seq < o.seq
}

// window holds a bounded part of one target's due work, earliest first. Everything due before unseen is here or claimed; what is due at
// unseen or later may be in the index only, unless complete.
type window struct {
	heap     []*item
	complete bool
	unseen   policy.Time
	cursor   shard.DueCursor // where the next refill continues, nil for the start
}

// next is the earliest time at which something may be due; MaxTime if there is no work.
func (w *window) next() policy.Time {
	at := policy.MaxTime
	if len(w.heap) > 0 {
		at = w.heap[0].due
	}
	if !w.complete {
		at = min(at, w.unseen)
	}
	return at
}

func (w *window) push(it *item) {
	it.pos = len(w.heap)
	w.heap = append(w.heap, it)
	w.up(it.pos)
}

func (w *window) remove(it *item) {
	last := len(w.heap) - 1
	i := it.pos
	w.swap(i, last)
	w.heap[last] = nil
	w.heap = w.heap[:last]
	if i < last {
		w.fix(i)
	}
	it.pos = -1
}

func (w *window) fix(i int) {
	if !w.up(i) {
		w.down(i)
	}
}

func (w *window) up(i int) bool {
	moved := false
	for i > 0 {
		p := (i - 1) / 2
		if !w.heap[i].before(w.heap[p]) {
			break
		}
		w.swap(i, p)
		i, moved = p, true
	}
	return moved
}

func (w *window) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(w.heap) {
			return
		}
		if c+1 < len(w.heap) && w.heap[c+1].before(w.heap[c]) {
			c++
		}
		if !w.heap[c].before(w.heap[i]) {
			return
		}
		w.swap(i, c)
		i = c
	}
}

func (w *window) swap(i, j int) {
	w.heap[i], w.heap[j] = w.heap[j], w.heap[i]
	w.heap[i].pos, w.heap[j].pos = i, j
}

// windowCap is how many references a target may keep now.
func (h *Host) windowCap() int {
	if h.windowed >= h.opt.MaxWindowed {
		return minWindow
	}
	return h.opt.WindowPerTarget
}

// insert puts an item into its window.
func (h *Host) insert(it *item) {
	w := &it.target.win
	w.push(it)
	h.windowed++
	if limit := h.windowCap(); len(w.heap) > 2*limit {
		w.evict(h, limit)
	}
}

// take removes an item from its window; it stays known.
func (h *Host) take(it *item) {
	it.target.win.remove(it)
	h.windowed--
}

// forgetItem drops everything known of an item.
func (h *Host) forgetItem(it *item) {
	if it.pos >= 0 {
		h.take(it)
	}
	h.dropSubmit(it)
	delete(h.work, it.ref)
}

func (h *Host) dropSubmit(it *item) {
	if it.submit != nil {
		h.held -= heldCost(it.submit)
		it.submit = nil
	}
}

func heldCost(s *shard.Submit) int { return len(s.Payload) + 1024 }

// evict keeps the n earliest items; the rest is left to the index.
func (w *window) evict(h *Host, n int) {
	if len(w.heap) <= n {
		return
	}
	slices.SortFunc(w.heap, func(a, b *item) int {
		if c := cmp.Compare(a.due, b.due); c != 0 {
			return c
		}
		return cmp.Compare(a.seq, b.seq)
	})
	gone := w.heap[n:]
	w.miss(gone[0].due)
	for i, it := range gone {
		h.dropSubmit(it)
		delete(h.work, it.ref)
		gone[i] = nil
	}
	h.windowed -= len(gone)
	w.heap = w.heap[:n]
	for i, it := range w.heap {
		it.pos = i
	}
}

// miss notes that items due at this time or later may be in the index only, anywhere in it.
func (w *window) miss(due policy.Time) {
	if w.complete || due < w.unseen {
		w.unseen = due
	}
	w.complete = false
	w.cursor = nil
}

// workArrived takes an EffectWork.
func (h *Host) workArrived(e *shard.Effect) {
	t := h.target(e.Lane, e.Target)
	if t == nil {
		return
	}
	if it := h.work[e.Ref]; it != nil && (it.claim != nil || it.target == t) {
		if it.claim == nil {
			it.due, it.attempt = e.Due, e.Attempt
			t.win.fix(it.pos)
			h.poke(t)
		}
		return // a claim on the older work will be refused as stale, and the item is read again
	} else if it != nil {
		h.forgetItem(it) // it was given another target
	}
	if !t.win.complete && e.Due >= t.win.unseen {
		h.poke(t)
		return
	}
	h.seq++
	it := &item{ref: e.Ref, target: t, due: e.Due, seq: h.seq, attempt: e.Attempt, era: t.lane.era}
	if e.Submit != nil {
		it.version = t.lane.submitVersion
		h.holdSubmit(it, e.Submit)
	}
	h.work[e.Ref] = it
	h.insert(it)
	h.poke(t)
}

// holdSubmit keeps a message that is about to be sent. One that must wait is read back: it would keep the whole entry it came in.
func (h *Host) holdSubmit(it *item, s *shard.Submit) {
	t, cost := it.target, heldCost(s)
	soon := it.due <= h.stamp && len(t.win.heap) < h.opt.WindowPerTarget/2 && t.lane.gate == lane.GateOpen &&
		t.circuit.Phase == lane.CircuitClosed && t.readiness != lane.Blocked
	if soon && h.held+cost <= h.opt.MaxHeldBytes {
		it.submit = s
		h.held += cost
	}
}

// workGone takes back an item that is not claimed. A claim already proposed is refused by the log.
func (h *Host) workGone(ref shard.Ref) {
	if it := h.work[ref]; it != nil && it.claim == nil {
		h.forgetItem(it)
	}
}

// refill reads the index if something due may be there only. Its cost is bounded by the window, not by the backlog.
func (h *Host) refill(t *target) error {
	w := &t.win
	limit := h.windowCap()
	if w.complete || w.unseen > h.stamp {
		return nil
	}
	if len(w.heap) > limit/4 && w.heap[0].due <= w.unseen {
		return nil
	}
	w.evict(h, limit/2)
	room := limit - len(w.heap)
	want := room
	if w.cursor == nil {
		want += len(w.heap) + t.claimed // these are in the index too
	}
	items, err := shard.ScanDue(h.opt.Store.Reader(), t.lane.id, t.id, w.cursor, want)
	if err != nil {
		return err
	}
	for i := range items {
		if room == 0 {
			return nil
		}
		d := &items[i]
		w.cursor, w.unseen = d.Cursor, d.Due
		if h.work[d.Ref] != nil {
			continue
		}
		h.seq++
		it := &item{ref: d.Ref, target: t, due: d.Due, seq: h.seq, era: t.lane.era}
		h.work[d.Ref] = it
		w.push(it)
		h.windowed++
		room--
	}
	if len(items) < want {
		w.complete, w.cursor = true, nil
	}
	return nil
}
