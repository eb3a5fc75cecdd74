package host

import (
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

type recoveryPhase uint8

const (
	recoveryOff   recoveryPhase = iota
	recoveryOpen                // reading the open attempts
	recoveryFlush               // their UNKNOWNs are proposed in this turn
	recoveryLanes               // finding the lanes with work
	recoveryDone
)

// recovery is what a new leader does first: it settles the attempts of processes that are gone, waits for those that may still report, and
// finds the lanes with work. It rebuilds from state, never from memory (DESIGN 3, 4).
type recovery struct {
	phase  recoveryPhase
	cursor shard.OpenCursor
	lane   shard.LaneID
	// open are the attempts that other terms admitted and that are not settled: they hold permits of their lanes.
	open map[attemptKey]*openAttempt
	// waiting are those of open that this process must settle unless their owners do.
	waiting map[attemptKey]*openAttempt
	ask     time.Duration // when to look at waiting again
}

type openAttempt struct {
	lane  *laneState
	owner shard.Epoch
	until policy.Time
}

func (r *recovery) start() {
	r.phase = recoveryOpen
	r.open, r.waiting = map[attemptKey]*openAttempt{}, map[attemptKey]*openAttempt{}
}

// recovering tells whether the start of the term is still under way. Nothing is claimed before the outcomes of lost attempts are on their
// way, nor before every lane with work is known, so that the first round serves no lane twice before each once (R195).
func (h *Host) recovering() bool { return h.recovery.phase < recoveryDone }

func (r *recovery) next(h *Host) time.Duration {
	switch {
	case r.phase > recoveryOff && r.phase < recoveryDone:
		return h.mono
	case len(r.waiting) > 0:
		return r.ask
	}
	return never
}

// recover does one bounded step.
func (h *Host) recover() {
	r := &h.recovery
	switch r.phase {
	case recoveryOpen:
		h.readOpen()
	case recoveryFlush:
		r.phase = recoveryLanes // settle proposed them earlier in this turn
	case recoveryLanes:
		h.readLanes()
	}
	if len(r.waiting) > 0 && h.mono >= r.ask {
		h.askOwners()
	}
}

// readOpen takes one page of open attempts.
func (h *Host) readOpen() {
	r := &h.recovery
	page, err := shard.ScanOpenAttempts(h.opt.Store.Reader(), r.cursor, openPage)
	if err != nil {
		h.fail(err)
		return
	}
	lost := 0
	for i := range page {
		o := &page[i]
		r.cursor = o.Cursor
		l := h.lane(o.Lane)
		if l == nil {
			return
		}
		key := attemptKey{o.Ref, o.Attempt}
		a := &openAttempt{lane: l, owner: o.Owner, until: o.Deadline.Add(SendWindow)}
		r.open[key] = a
		l.open++
		switch {
		case h.isMine(o.Owner) && h.flight[key] != nil:
			// this process reports it
		case o.Owner.Node == h.opt.Node && o.Owner.Boot != h.opt.Boot:
			h.lost(key)
			lost++
		default:
			r.waiting[key] = a
		}
	}
	if lost > 0 {
		h.opt.Observer.Recovered(lost)
	}
	if len(page) < openPage {
		r.phase, r.cursor = recoveryFlush, nil
	}
}

// lost records UNKNOWN for an attempt whose process will never report. It is never sent again as the same attempt.
func (h *Host) lost(key attemptKey) {
	h.outbox = append(h.outbox, &settlement{cmd: shard.RecordOutcome{
		ID: key.ref.ID, Generation: key.ref.Generation, Attempt: key.attempt,
		Outcome: shard.Outcome{SideEffect: policy.Unknown, Disposition: policy.Fenced, Evidence: shard.Evidence{
			Rule: RuleRecovery, Statement: StatementNone, ErrorClass: RuleRecovery, At: h.stamp,
			Detail: "the process that admitted the attempt is gone or did not report in time",
		}},
	}})
	h.again = true
}

// askOwners settles the attempts whose owner is known to be gone, or whose time to report has passed.
func (h *Host) askOwners() {
	r := &h.recovery
	r.ask = h.mono + goneEvery
	known := map[shard.Epoch]bool{}
	lost := 0
	for key, a := range r.waiting {
		process := shard.Epoch{Node: a.owner.Node, Boot: a.owner.Boot}
		gone, asked := known[process]
		if !asked && h.opt.ProcessGone != nil && !h.isMine(process) {
			gone = h.opt.ProcessGone(process.Node, process.Boot)
			known[process] = gone
		}
		if gone || h.stamp >= a.until {
			delete(r.waiting, key)
			h.lost(key)
			lost++
		}
	}
	if lost > 0 {
		h.opt.Observer.Recovered(lost)
	}
}

// settled: an open attempt of an earlier term has its outcome, from whomever.
func (r *recovery) settled(h *Host, key attemptKey) {
	a := r.open[key]
	if a == nil {
		return
	}
	delete(r.open, key)
	delete(r.waiting, key)
	a.lane.open--
	h.pokeLane(a.lane)
}

// readLanes finds the lanes with work, one page at a time, with one seek per target.
func (h *Host) readLanes() {
	r := &h.recovery
	reader := h.opt.Store.Reader()
	page, err := shard.ScanLanes(reader, r.lane, lanePage)
	if err != nil {
		h.fail(err)
		return
	}
	for i := range page {
		rec := &page[i]
		r.lane = rec.ID
		if rec.Counts.Scheduled+rec.Counts.Uncertain == 0 {
			continue
		}
		for n := range rec.Targets {
			if err := h.findWork(reader, rec, rec.Targets[n].ID); err != nil {
				h.fail(err)
				return
			}
		}
	}
	h.again = true
	if len(page) < lanePage {
		r.phase = recoveryDone
	}
}

func (h *Host) findWork(reader shard.Reader, rec *shard.LaneRecord, id shard.TargetID) error {
	items, err := shard.ScanDue(reader, rec.ID, id, nil, 1)
	if err != nil || len(items) == 0 {
		return err
	}
	if h.lanes[rec.ID] == nil {
		h.addLane(rec)
	}
	t := h.target(rec.ID, id)
	if t == nil {
		return h.failed
	}
	if !t.win.complete {
		t.win.unseen = items[0].Due // the start of what must be read, and not before
		if len(t.win.heap) > 0 {
			t.win.unseen = min(t.win.unseen, t.win.heap[0].due)
		}
	}
	h.poke(t)
	return nil
}
