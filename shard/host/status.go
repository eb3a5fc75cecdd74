package host

import (
	"context"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// LaneStatus is the runtime state of a lane on the leader: what is not in the log.
type LaneStatus struct {
	Lane     shard.LaneID
	InFlight int // connections in hand: claimed or sending
	Claimed  int // of those, not yet admitted
	// Unsettled outcomes have returned and wait for the log; OpenElsewhere are attempts of earlier terms without an outcome.
	Unsettled     int
	OpenElsewhere int
	Targets       []TargetStatus // by target, those with work
	Why           Why            // of the target that is nearest to sending
	BlockedReason string
	Readiness     lane.Readiness
}

// TargetStatus is the runtime state of one target.
type TargetStatus struct {
	Target        shard.TargetID
	Readiness     lane.Readiness
	Why           Why
	BlockedReason string // why no connection can be made, empty when READY
	InFlight      int
	Windowed      int         // due references in memory
	NextDue       policy.Time // 0: none known
}

// LaneStatus reports on one lane. It returns ErrNotLeading where there is no runtime, and shard.ErrLaneNotFound for a lane that does not
// exist.
func (h *Host) LaneStatus(ctx context.Context, id shard.LaneID) (LaneStatus, error) {
	var st LaneStatus
	var err error
	if e := h.ask(ctx, func() { st, err = h.laneStatus(id) }); e != nil {
		return LaneStatus{}, e
	}
	return st, err
}

func (h *Host) laneStatus(id shard.LaneID) (LaneStatus, error) {
	st := LaneStatus{Lane: id, Readiness: lane.Recovering}
	if h.failed != nil {
		return st, h.failed
	}
	if h.leading == 0 {
		return st, ErrNotLeading
	}
	rec, ok, err := shard.GetLane(h.opt.Store.Reader(), id)
	if err != nil {
		return st, err
	}
	if !ok {
		return st, shard.ErrLaneNotFound
	}
	l := h.lanes[id]
	if l == nil {
		st.Why = idleWhy(rec.Gate, h.recovery.phase != recoveryDone)
		return st, nil
	}
	st.InFlight, st.Unsettled, st.OpenElsewhere = l.inFlight, l.unsettled, l.open
	st.Why = idleWhy(l.gate, false)
	for _, t := range l.targets {
		if t == nil {
			continue
		}
		ts := h.targetStatus(t, rec.Counts.Scheduled)
		st.Claimed += t.claimed
		st.Targets = append(st.Targets, ts)
		if t.win.next() <= h.stamp || len(st.Targets) == 1 {
			st.Readiness, st.BlockedReason = ts.Readiness, ts.BlockedReason
			if ts.Why != WhyNothingDue {
				st.Why = ts.Why
			}
		}
	}
	return st, nil
}

// idleWhy explains a lane without due work.
func idleWhy(g lane.Gate, recovering bool) Why {
	switch {
	case g == lane.GateClosed:
		return WhyClosed
	case g == lane.GatePaused:
		return WhyPaused
	case recovering:
		return WhyRecovering
	}
	return WhyNothingDue
}

func (h *Host) targetStatus(t *target, scheduled uint64) TargetStatus {
	ts := TargetStatus{Target: t.id, Readiness: t.readiness, BlockedReason: t.detail, InFlight: t.inFlight, Windowed: len(t.win.heap)}
	if due := t.win.next(); due < policy.MaxTime {
		ts.NextDue = due
	}
	ts.Why = t.why
	if ts.Why == "" || t.active || t.poked {
		ts.Why = h.look(t)
	}
	if ts.Why != WhyNothingDue && ts.Why != WhyPaused && ts.Why != WhyClosed {
		ts.Why = h.general(ts.Why)
	}
	if ts.Why == WhyNothingDue && t.win.next() == policy.MaxTime && scheduled > 0 && t.inFlight+t.lane.unsettled == 0 {
		ts.Why = WhyOrder
	}
	return ts
}

// general is what holds up every lane of the shard, if anything does.
func (h *Host) general(why Why) Why {
	switch {
	case h.draining:
		return WhyDraining
	case h.recovering():
		return WhyRecovering
	case !h.clockOpen:
		return WhyClock
	case h.mono < h.admitAfter:
		return WhyLogBusy
	case h.sending >= h.opt.MaxInFlight:
		return WhyMaxInFlight
	}
	return why
}

// look is obstacle without its consequences: it starts no readiness check and proposes nothing.
func (h *Host) look(t *target) Why {
	switch {
	case t.lane.gate == lane.GateClosed:
		return WhyClosed
	case t.lane.gate == lane.GatePaused:
		return WhyPaused
	case t.win.next() > h.stamp:
		return WhyNothingDue
	case t.circuit.Phase == lane.CircuitOpen:
		return WhyCircuitOpen
	}
	return WhySending
}

// Status is the runtime state of the whole shard.
type Status struct {
	Leading    uint64 // term, 0 when not leading
	Recovering bool
	Draining   bool
	InFlight   int // connections in hand
	Unsettled  int // outcomes without a verdict
	Waiting    int // attempts of other processes that may still report
	Lanes      int // lanes with work in memory
	Windowed   int // due references in memory
	Connecting int
	Clock      ClockState
	Err        error // why the Host has failed
}

// Status reports on the shard.
func (h *Host) Status(ctx context.Context) (Status, error) {
	var st Status
	err := h.ask(ctx, func() {
		left := h.unfinished()
		st = Status{
			Leading: h.leading, Recovering: h.leading != 0 && h.recovering(), Draining: h.draining, InFlight: left.InFlight,
			Unsettled: left.Unsettled, Waiting: len(h.recovery.waiting), Lanes: len(h.lanes), Windowed: h.windowed,
			Connecting: h.dialing, Clock: h.opt.Stamper.State(), Err: h.failed,
		}
	})
	return st, err
}
