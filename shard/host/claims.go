package host

import (
	"time"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

type claimState uint8

const (
	claimProposed claimState = iota // its admission is in the log
	claimSending                    // admitted and handed to its connection
	claimReturned                   // its outcome is known here and not yet in the state
)

// claim is one attempt from the moment a connection is in hand until the log has its outcome. Before admission it is reversible and costs
// nothing; after it, it is settled whatever happens to the leadership.
type claim struct {
	host    *Host
	item    *item // while not admitted
	target  *target
	carried *carried
	conn    Conn // nil once released
	state   claimState
	term    uint64

	admit    shard.Admit
	delivery Delivery
	size     uint64
	due      policy.Time
	applied  time.Duration // mono time at which the admission was applied here
	expires  time.Duration // mono time by which its request must have returned
	overdue  bool          // its outcome was recorded without waiting any longer
	outcome  shard.Outcome
	effect   policy.CircuitEffect // counted in the target while unsettled
	settle   settlement
}

func (c *claim) key() attemptKey {
	return attemptKey{shard.Ref{ID: c.admit.ID, Generation: c.admit.Generation}, c.admit.Attempt}
}

// claimPass looks at the targets that something happened to, then serves those that are due and able in fair order, and proposes the
// admissions of the whole pass as one vector.
func (h *Host) claimPass() {
	if h.leading == 0 || h.draining || !h.clockOpen || h.recovering() || h.mono < h.admitAfter {
		return
	}
	h.consider()
	batch := make([]*claim, 0, min(h.fair.Len()*2, h.opt.MaxClaimsPerTurn))
	for len(batch) < h.opt.MaxClaimsPerTurn && h.sending < h.opt.MaxInFlight {
		id, budget, ok := h.fair.Next()
		if !ok {
			break
		}
		t := h.fairIDs[id]
		var cost int64
		batch, cost = h.serve(t, budget, batch)
		h.fair.Served(id, cost, t.active)
		if h.leading == 0 {
			return // the state could not be read
		}
	}
	h.again = h.again || len(batch) == h.opt.MaxClaimsPerTurn || len(h.poked) > 0
	h.proposeAdmissions(batch)
}

// consider brings poked targets into the fair schedule, or notes what they wait for.
func (h *Host) consider() {
	for len(h.poked) > 0 {
		poked := h.poked
		h.poked = nil
		for _, t := range poked {
			t.poked = false
			if t.active {
				continue
			}
			why, at := h.obstacle(t)
			if why != WhySending {
				h.park(t, why, at)
				continue
			}
			h.wakes.clear(t)
			t.active, t.why = true, WhySending
			h.fair.Activate(t.lane.name.Namespace, t.fairID, 1)
		}
		if len(h.poked) == len(poked) {
			h.again = true
			return // looked at again in the next turn
		}
	}
}

// park notes why a target is not in the schedule and when to look again. Connections nobody claimed go back.
func (h *Host) park(t *target, why Why, at time.Duration) {
	t.why = why
	if why != WhyNothingDue {
		h.timers.passed = max(h.timers.passed, min(t.win.next(), h.stamp))
	}
	t.releaseReady()
	h.wakes.set(t, at)
}

func (h *Host) deactivate(t *target) {
	if t.active {
		t.active = false
		h.fair.Deactivate(t.fairID)
	}
}

// serve claims for one target until its budget for this visit is used or something stands in the way. What stands in the way takes it out
// of the schedule.
func (h *Host) serve(t *target, budget int64, batch []*claim) ([]*claim, int64) {
	var cost int64
	for cost < budget && len(batch) < h.opt.MaxClaimsPerTurn && h.sending < h.opt.MaxInFlight {
		why, at := h.obstacle(t)
		if why == WhySending {
			var c *claim
			if c, why, at = h.claim(t); c != nil {
				batch = append(batch, c)
				cost += int64(c.size) + costPerMessage
				continue
			}
			if why == WhySending {
				continue // an item that was gone
			}
		}
		t.active = false
		h.park(t, why, at)
		break
	}
	return batch, cost
}

// claim makes one claim, or says what is in the way. WhySending without a claim means: look again.
func (h *Host) claim(t *target) (*claim, Why, time.Duration) {
	if err := h.refill(t); err != nil {
		h.fail(err)
		return nil, WhyFailed, never
	}
	if len(t.win.heap) == 0 || t.win.heap[0].due > h.stamp {
		return nil, WhySending, never // the index had less than expected; obstacle knows now
	}
	it, err := h.choose(t)
	if err != nil {
		h.fail(err)
		return nil, WhyFailed, never
	}
	if it.version == 0 && !h.identify(it) {
		return nil, WhySending, never
	}
	carried, conn := h.hold(t, it.version)
	if conn == nil {
		if why, at := t.dialObstacle(h.mono); why != WhySending {
			return nil, why, at
		}
		return nil, WhyConnecting, never
	}
	c := &claim{host: h, item: it, target: t, carried: carried, conn: conn, term: h.leading, due: it.due}
	if !h.fill(c) {
		conn.Release()
		carried.users--
		return nil, WhySending, never // the item was gone, or is pinned to another version
	}
	if l := t.lane; l.maxBytes > 0 && l.inFlight > 0 && l.bytes+c.size > l.maxBytes {
		conn.Release()
		carried.users--
		return nil, WhyMaxInFlight, never
	}
	c.admit.RequestHash = carried.target.RequestHash(&c.delivery)
	h.take(it)
	h.dropSubmit(it)
	it.claim = c
	if t.circuit.Phase == lane.CircuitHalfOpen {
		t.trial = c
	}
	t.inFlight++
	t.claimed++
	t.lane.inFlight++
	t.lane.bytes += c.size
	t.lane.rate.take(h.mono)
	t.lane.usedAt = h.mono
	h.sending++
	return c, WhySending, never
}

// choose takes the earliest item; for a half-open trial an uncertain retry that is due goes first (DESIGN 7).
func (h *Host) choose(t *target) (*item, error) {
	first := t.win.heap[0]
	if t.circuit.Phase != lane.CircuitHalfOpen {
		return first, nil
	}
	items, err := shard.ScanDue(h.opt.Store.Reader(), t.lane.id, t.id, nil, trialScan)
	if err != nil {
		return nil, err
	}
	for i := range items {
		d := &items[i]
		if d.Due > h.stamp {
			break
		}
		if d.Work != shard.WorkUncertainRetry {
			continue
		}
		it := h.work[d.Ref]
		if it == nil {
			h.seq++
			it = &item{ref: d.Ref, target: t, due: d.Due, seq: h.seq, era: t.lane.era}
			h.work[d.Ref] = it
			h.insert(it)
		}
		if it.claim == nil {
			return it, nil
		}
	}
	return first, nil
}

// identify reads what the window does not know of an item; false when its work is gone, and then the item is forgotten.
func (h *Host) identify(it *item) bool {
	g, err := shard.GetGeneration(h.opt.Store.Reader(), it.ref)
	if err != nil {
		h.fail(err)
		return false
	}
	if g == nil || g.Work == shard.WorkNone || g.Ordered && !g.OrderHead || g.Target != it.target.id || g.NextAt > h.stamp {
		h.forgetItem(it)
		if g != nil && g.Work != shard.WorkNone && g.NextAt > h.stamp {
			it.target.win.miss(g.NextAt)
		}
		h.poke(it.target)
		return false
	}
	it.version, it.attempt = g.DestinationVersion, g.Attempts+1
	if l := it.target.lane; it.submit != nil && it.era == l.era {
		l.submitVersion = g.DestinationVersion
	}
	return true
}

// fill renders the delivery of a claim, from memory or from state; false when the item is gone.
func (h *Host) fill(c *claim) bool {
	it := c.item
	if it.submit == nil {
		return h.load(c)
	}
	s := it.submit
	c.delivery = Delivery{
		MessageID: s.ID.String(), Generation: it.ref.Generation, Attempt: it.attempt, Payload: s.Payload, ContentType: s.ContentType,
		Attributes: s.Attributes, TraceParent: s.TraceParent, OrderingKey: s.OrderingKey,
	}
	c.admitted(it)
	return true
}

func (h *Host) load(c *claim) bool {
	it := c.item
	d, ok, err := shard.LoadDelivery(h.opt.Store.Reader(), it.ref)
	if err != nil {
		h.fail(err)
		return false
	}
	if !ok || d.Generation.Work == shard.WorkNone {
		h.forgetItem(it)
		return false
	}
	if d.Generation.DestinationVersion != it.version {
		it.version = d.Generation.DestinationVersion
		return false // the connection in hand is for another version
	}
	it.attempt = d.Generation.Attempts + 1
	m := d.Message
	c.delivery = Delivery{
		MessageID: m.ID.String(), Generation: it.ref.Generation, Attempt: it.attempt, Payload: d.Payload, ContentType: m.ContentType,
		Attributes: m.Attributes, TraceParent: m.TraceParent, OrderingKey: m.OrderingKey,
	}
	c.admitted(it)
	return true
}

// admitted fills in the command that would admit the claim.
func (c *claim) admitted(it *item) {
	c.size = uint64(len(c.delivery.Payload))
	c.admit = shard.Admit{ID: it.ref.ID, Generation: it.ref.Generation, Attempt: it.attempt}
}
