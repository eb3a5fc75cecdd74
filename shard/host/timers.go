package host

import (
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// timers are the times at which the loop has something to do beside the targets' own.
type timers struct {
	deadline policy.Time // no generation's admission window closes before, on the shard clock
	expiring bool        // a vector of expiries is in the log
	expireAt time.Duration

	passed policy.Time // the latest stored time that passed without anything being proposed for it
	ticked time.Duration

	watch time.Duration
	sweep time.Duration
	trim  trimmer
}

func (tm *timers) start(h *Host) {
	tm.deadline = 0 // the first look at the index finds the real one
	tm.sweep = h.mono + sweepEvery
	tm.trim.soon(h.mono)
}

func (tm *timers) next(h *Host) time.Duration {
	if !h.clockOpen {
		return never // neither expiry nor retention trusts the time; the clocks are sampled in any case
	}
	at := tm.trim.next()
	if !tm.expiring && tm.deadline < policy.MaxTime {
		at = min(at, max(tm.expireAt, h.when(tm.deadline)))
	}
	return at
}

// expire closes the admission windows whose deadlines have passed, by index and in bounded vectors, whatever state their lanes are in (R196).
func (h *Host) expire() {
	tm := &h.timers
	if h.leading == 0 || !h.clockOpen || tm.expiring || tm.deadline > h.stamp || h.mono < tm.expireAt {
		return
	}
	reader := h.opt.Store.Reader()
	items, err := shard.ScanDeadlines(reader, h.stamp, expiryPage)
	if err != nil {
		h.fail(err)
		return
	}
	if len(items) == 0 {
		at, any, err := shard.NextDeadline(reader)
		if err != nil {
			h.fail(err)
			return
		}
		if !any {
			at = policy.MaxTime
		}
		tm.deadline = at
		return
	}
	cmds := make([]shard.Command, len(items))
	for i := range items {
		cmds[i] = &shard.Expire{ID: items[i].Ref.ID, Generation: items[i].Ref.Generation}
	}
	tm.expiring = true
	term := h.leading
	done := func(h *Host, results []shard.Result, err error) {
		if h.leading == term {
			h.expired(results, err)
		}
	}
	if err := h.propose(cmds, ClassEngine, done); err != nil {
		done(h, nil, err)
	}
}

// expired looks for more, unless nothing took effect: then after a pause.
func (h *Host) expired(results []shard.Result, err error) {
	tm := &h.timers
	tm.expiring = false
	effect := false
	for i := range results {
		h.sawClock(results[i].At)
		effect = effect || results[i].Rejected == nil
	}
	if err != nil || !effect {
		tm.expireAt = h.mono + proposeMost/2
	}
}

// sawClock learns the shard clock from a result.
func (h *Host) sawClock(at policy.Time) { h.shardClock = max(h.shardClock, at) }

// tick moves the shard clock when a stored time has passed and nothing else did: work of a lane that cannot send, a deadline while the clock
// gate is closed. Otherwise an idle leader writes nothing.
func (h *Host) tick() {
	tm := &h.timers
	passed := tm.passed
	if tm.deadline <= h.stamp {
		passed = max(passed, tm.deadline)
	}
	if h.leading == 0 || passed <= h.shardClock || tm.expiring || h.mono < tm.ticked {
		return
	}
	tm.ticked = h.mono + time.Second
	term := h.leading
	done := func(h *Host, results []shard.Result, err error) {
		if err == nil && h.leading == term && len(results) == 1 {
			h.sawClock(results[0].At)
		}
	}
	// A tick that is refused is made again when the loop next wakes: nothing depends on it.
	if err := h.propose([]shard.Command{&shard.Tick{}}, ClassEngine, done); err != nil {
		tm.ticked = h.mono + clockSample
	}
}
