package host

import (
	"fmt"
	"time"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// laneState is a lane with work, as the Host knows it. Lanes without work are not in memory.
type laneState struct {
	id      shard.LaneID
	name    LaneName
	gate    lane.Gate
	targets []*target // by TargetID-1; nil where this Host has seen no work

	max      int    // this slot's share of the requests in flight
	maxBytes uint64 // the same of payload bytes, 0: no limit
	rate     rateLimit
	circuit  policy.Circuit

	inFlight  int    // connections in hand: claimed or sending
	bytes     uint64 // payload bytes of those
	unsettled int    // returned, and without a verdict of the log
	open      int    // attempts of earlier terms without an outcome

	// submitVersion is the destination version that newly submitted messages are pinned to, learned from the first one of an era; an era
	// ends when another version is installed. Effects come in log order, so it holds for every message that arrives in the same era.
	submitVersion uint64
	era           uint32

	reloading bool
	usedAt    time.Duration // mono time of the last sign of work
}

// target is one target of a lane: the unit of readiness, circuit and fair scheduling.
type target struct {
	lane    *laneState
	id      shard.TargetID
	fairID  lane.ID
	circuit lane.CircuitState
	win     window

	active  bool // in the fair schedule
	poked   bool // to be looked at in this turn
	wakeAt  time.Duration
	wakePos int

	why    Why    // why it is not sending
	detail string // for people

	inFlight int    // connections in hand
	claimed  int    // of those, admissions the log has not decided
	trial    *claim // proposed as the half-open trial, not yet decided
	failing  int    // returned outcomes that count against the circuit and are not yet in the state
	throttle int    // the same for throttles
	event    bool   // a lane event is in the log

	dialer
}

// lane returns the lane's runtime state, reading it on first use; nil when the Host has failed.
func (h *Host) lane(id shard.LaneID) *laneState {
	if l := h.lanes[id]; l != nil {
		return l
	}
	rec, ok, err := shard.GetLane(h.opt.Store.Reader(), id)
	if err == nil && !ok {
		err = fmt.Errorf("%w: lane %d has work but no record", shard.ErrCorrupt, id)
	}
	if err != nil {
		h.fail(err)
		return nil
	}
	return h.addLane(&rec)
}

func (h *Host) addLane(rec *shard.LaneRecord) *laneState {
	l := &laneState{id: rec.ID, name: LaneName{rec.Namespace, rec.Destination, rec.Slot}, usedAt: h.mono}
	h.lanes[l.id] = l
	n := destinationName{rec.Namespace, rec.Destination}
	h.byName[n] = append(h.byName[n], l)
	h.update(l, rec)
	return l
}

// update takes over what the state says of a lane: gate, circuits, counters, and the live settings of its destination.
func (h *Host) update(l *laneState, rec *shard.LaneRecord) {
	l.gate = rec.Gate
	for len(l.targets) < len(rec.Targets) {
		l.targets = append(l.targets, nil)
	}
	for i, t := range l.targets {
		if t != nil {
			t.circuit = rec.Targets[i].Circuit
			h.poke(t)
		}
	}
	d, ok, err := shard.NewestDestination(h.opt.Store.Reader(), l.name.Namespace, l.name.Destination)
	if err != nil {
		h.fail(err)
		return
	}
	if !ok {
		d.Limits.MaxInFlight, d.Circuit = DefaultMaxInFlight, policy.DefaultCircuit()
	}
	limit := d.Limits.MaxInFlight
	if limit == 0 {
		limit = DefaultMaxInFlight
	}
	l.max = int(share(limit, d.Spread, l.name.Slot))
	l.maxBytes = d.Limits.MaxBytesInFly / uint64(max(d.Spread, 1))
	l.rate.set(limitRate(d.Limits.RatePerSecond, d.Spread))
	l.circuit = d.Circuit
}

// target returns the runtime state of a target; nil when the Host has failed.
func (h *Host) target(id shard.LaneID, n shard.TargetID) *target {
	l := h.lane(id)
	if l == nil {
		return nil
	}
	if n == 0 || int(n) > len(l.targets) || l.targets[n-1] == nil {
		return h.addTarget(l, n)
	}
	return l.targets[n-1]
}

func (h *Host) addTarget(l *laneState, n shard.TargetID) *target {
	rec, ok, err := shard.GetLane(h.opt.Store.Reader(), l.id)
	if err == nil && (!ok || n == 0 || int(n) > len(rec.Targets)) {
		err = fmt.Errorf("%w: lane %d has work for target %d, which it does not have", shard.ErrCorrupt, l.id, n)
	}
	if err != nil {
		h.fail(err)
		return nil
	}
	for len(l.targets) < len(rec.Targets) {
		l.targets = append(l.targets, nil)
	}
	h.nextFair++
	t := &target{lane: l, id: n, fairID: h.nextFair, circuit: rec.Targets[n-1].Circuit, wakePos: -1}
	t.readiness = lane.Recovering
	l.targets[n-1] = t
	h.fairIDs[t.fairID] = t
	return t
}

// reloadLane marks a lane whose record has changed; it is read once in this turn.
func (h *Host) reloadLane(id shard.LaneID) {
	if l := h.lanes[id]; l != nil && !l.reloading {
		l.reloading = true
		h.reload = append(h.reload, l)
	}
}

func (h *Host) reloadLanes() {
	r := h.opt.Store.Reader()
	for _, l := range h.reload {
		l.reloading = false
		rec, ok, err := shard.GetLane(r, l.id)
		if err != nil {
			h.fail(err)
			return
		}
		if ok {
			h.update(l, &rec)
		}
	}
	h.reload = h.reload[:0]
}

// installed: the live settings of a destination have changed, and new messages are pinned to another version.
func (h *Host) installed(n destinationName) {
	for _, l := range h.byName[n] {
		l.era++
		l.submitVersion = 0
		h.reloadLane(l.id)
	}
	h.timers.trim.soon(h.mono)
}

// poke has a target looked at in this turn.
func (h *Host) poke(t *target) {
	if !t.poked {
		t.poked = true
		h.poked = append(h.poked, t)
	}
}

// pokeLane looks at every target of a lane, for example because a permit is free.
func (h *Host) pokeLane(l *laneState) {
	for _, t := range l.targets {
		if t != nil && !t.active {
			h.poke(t)
		}
	}
}

// sweep lets go of lanes and targets that were idle for long, so that memory follows the work and not the number of lanes.
func (h *Host) sweep() {
	if h.mono < h.timers.sweep {
		return
	}
	h.timers.sweep = h.mono + sweepEvery
	for id, l := range h.lanes {
		if l.busy() {
			l.usedAt = h.mono
		} else if h.mono-l.usedAt >= laneIdle {
			h.dropLane(id, l)
		}
	}
	for k, c := range h.carriers {
		if c.users == 0 && h.mono-c.usedAt >= targetIdle {
			c.target.Close()
			delete(h.carriers, k)
		}
	}
}

func (l *laneState) busy() bool {
	if l.inFlight+l.unsettled+l.open > 0 || l.reloading {
		return true
	}
	for _, t := range l.targets {
		if t != nil && (t.win.next() != policy.MaxTime || t.dialing > 0 || t.event || t.poked || t.failing+t.throttle > 0) {
			return true
		}
	}
	return false
}

func (h *Host) dropLane(id shard.LaneID, l *laneState) {
	for _, t := range l.targets {
		if t == nil {
			continue
		}
		h.wakes.clear(t)
		h.deactivate(t)
		t.releaseReady()
		delete(h.fairIDs, t.fairID)
	}
	delete(h.lanes, id)
	n := destinationName{l.name.Namespace, l.name.Destination}
	rest := h.byName[n][:0]
	for _, o := range h.byName[n] {
		if o != l {
			rest = append(rest, o)
		}
	}
	if len(rest) == 0 {
		delete(h.byName, n)
		return
	}
	h.byName[n] = rest
}
