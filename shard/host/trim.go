package host

import (
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// trimmer walks over the lanes and has the log remove what has been kept long enough. It works through one page of lanes per turn and has one
// Trim in the log at a time, so that retention never delays deliveries by more than one bounded batch.
type trimmer struct {
	at     time.Duration // when the next step is due
	busy   bool          // a Trim is in the log
	after  shard.LaneID  // lanes up to here are done in this sweep
	lane   shard.LaneRecord
	dest   shard.Destination
	state  shard.GenerationState // next state of lane to look at, 0: take the next lane
	oldest policy.Time           // earliest time at which something kept may go, seen in this sweep
	early  bool                  // look again soon whatever was seen
}

// trimStates are the terminal states, each with its retention.
const firstTrimState, lastTrimState = shard.StateDelivered, shard.StateSuperseded

func (tr *trimmer) next() time.Duration {
	if tr.busy {
		return never
	}
	return tr.at
}

// soon has the next sweep begin after the short pause: retention settings may have changed.
func (tr *trimmer) soon(now time.Duration) {
	if tr.after == 0 && tr.state == 0 {
		tr.at = now + trimPause
	}
	tr.early = true
}

// trim does one bounded step of a sweep.
func (h *Host) trim() {
	tr := &h.timers.trim
	if h.leading == 0 || tr.busy || h.mono < tr.at || !h.clockOpen {
		return
	}
	if tr.state == 0 && tr.after == 0 {
		tr.oldest, tr.early = policy.MaxTime, false
	}
	for range lanePage {
		if tr.state == 0 {
			more, err := h.nextTrimLane()
			if err != nil {
				h.fail(err)
				return
			}
			if !more {
				h.sweptLanes()
				return
			}
			continue
		}
		if h.trimState() {
			return
		}
	}
	tr.at = h.mono
}

func (h *Host) nextTrimLane() (bool, error) {
	tr := &h.timers.trim
	reader := h.opt.Store.Reader()
	page, err := shard.ScanLanes(reader, tr.after, 1)
	if err != nil || len(page) == 0 {
		return false, err
	}
	tr.lane = page[0]
	tr.after = tr.lane.ID
	if tr.lane.Counts.Terminal == [5]uint64{} {
		return true, nil
	}
	d, _, err := shard.NewestDestination(reader, tr.lane.Namespace, tr.lane.Destination)
	tr.dest, tr.state = d, firstTrimState
	return true, err
}

// trimState looks at one state of the current lane and tells whether it proposed a Trim.
func (h *Host) trimState() bool {
	tr := &h.timers.trim
	s := tr.state
	if tr.state++; tr.state > lastTrimState {
		tr.state = 0
	}
	if tr.lane.Counts.Terminal[s-firstTrimState] == 0 {
		return false
	}
	at, any, err := shard.OldestTerminal(h.opt.Store.Reader(), tr.lane.ID, s)
	if err != nil {
		h.fail(err)
		return true
	}
	keep := retentionOf(&tr.dest, s)
	if !any || at.Add(keep) > h.stamp {
		if any {
			tr.oldest = min(tr.oldest, at.Add(keep))
		}
		return false
	}
	h.proposeTrim(s, h.stamp.Add(-keep))
	return true
}

func (h *Host) proposeTrim(s shard.GenerationState, before policy.Time) {
	tr := &h.timers.trim
	tr.busy = true
	term := h.leading
	done := func(h *Host, results []shard.Result, err error) {
		if h.leading != term {
			return
		}
		tr := &h.timers.trim
		tr.busy, tr.at = false, h.mono
		switch {
		case err != nil:
			tr.at, tr.early = h.mono+proposeMost, true
		case results[0].Rejected == nil && results[0].Removed >= shard.MaxTrim:
			tr.state = s // there may be more of the same
		case results[0].Rejected == nil && results[0].Removed == 0:
			// What is old enough is held, for example for an idempotency key: looked at again in a later sweep.
			tr.oldest = min(tr.oldest, h.stamp.Add(trimIdle))
		default:
			tr.early = true
		}
	}
	cmd := &shard.Trim{Lane: tr.lane.ID, State: s, Before: before, Max: shard.MaxTrim}
	if err := h.propose([]shard.Command{cmd}, ClassEngine, done); err != nil {
		done(h, nil, err)
	}
}

// sweptLanes ends a sweep and chooses when the next begins.
func (h *Host) sweptLanes() {
	tr := &h.timers.trim
	wait := trimIdle
	if tr.early {
		wait = trimPause
	} else if tr.oldest < policy.MaxTime {
		wait = min(max(tr.oldest.Sub(h.stamp), trimPause), trimIdle)
	}
	tr.after, tr.state, tr.at = 0, 0, h.mono+wait
}
