package host

import (
	"fmt"

	"github.com/sealane/sealane/shard"
)

// proposeAdmissions proposes the admissions of one pass as one vector.
func (h *Host) proposeAdmissions(batch []*claim) {
	if len(batch) == 0 {
		return
	}
	cmds := make([]shard.Command, len(batch))
	for i, c := range batch {
		cmds[i] = &c.admit
	}
	done := func(h *Host, results []shard.Result, err error) { h.admissionsDone(batch, results, err) }
	h.opt.Observer.Claimed(len(batch))
	if err := h.propose(cmds, ClassAdmission, done); err != nil {
		done(h, nil, err)
	}
}

// admissionsDone takes the verdicts of one vector. What was admitted is sent when its effect comes, which may have happened already. A
// refused claim costs nothing. Without a verdict the claims are released too: if their admissions were accepted after all, they are found
// to have no claim, or a newer claim on the very same attempt sends them.
func (h *Host) admissionsDone(batch []*claim, results []shard.Result, err error) {
	if err == nil && len(results) != len(batch) {
		err = fmt.Errorf("host: %d results for %d admissions", len(results), len(batch))
	}
	if err != nil {
		h.admitPause = min(max(2*h.admitPause, proposeFirst), proposeMost)
		h.admitAfter = h.mono + h.admitPause
	} else {
		h.admitPause = 0
	}
	for i, c := range batch {
		t := c.target
		if t.trial == c {
			t.trial = nil
			h.reloadLane(t.lane.id)
			h.poke(t)
		}
		if c.item == nil || c.item.claim != c {
			continue // admitted and on its way, or released by a change of leadership
		}
		switch {
		case err != nil:
			h.releaseClaim(c)
			h.returnItem(c)
		case results[i].Rejected != nil:
			h.sawClock(results[i].At)
			h.opt.Observer.ClaimDropped(results[i].Rejected.Field)
			h.releaseClaim(c)
			h.reread(c)
		default:
			h.sawClock(results[i].At)
		}
	}
}

// releaseClaim gives back everything a claim holds. The message was not touched.
func (h *Host) releaseClaim(c *claim) {
	c.item.claim = nil
	c.target.claimed--
	c.target.lane.rate.giveBack()
	h.letGo(c)
}

// letGo ends a claim's hold on its connection and permits.
func (h *Host) letGo(c *claim) {
	if c.conn != nil {
		c.conn.Release()
		c.conn = nil
	}
	c.carried.users--
	c.carried.usedAt = h.mono
	t := c.target
	t.inFlight--
	t.lane.inFlight--
	t.lane.bytes -= c.size
	h.sending--
	if h.lanes[t.lane.id] == t.lane {
		h.pokeLane(t.lane)
	}
}

// returnItem puts the item of a released claim back as it was.
func (h *Host) returnItem(c *claim) {
	it := c.item
	if h.work[it.ref] != it {
		return
	}
	if !it.target.win.complete && it.due >= it.target.win.unseen {
		delete(h.work, it.ref) // the next refill finds it
		it.target.win.miss(it.due)
	} else {
		h.insert(it)
	}
	h.poke(it.target)
}

// reread looks up what became of a claim that the log refused: the claim was built on something that had changed.
func (h *Host) reread(c *claim) {
	it := c.item
	h.reloadLane(it.target.lane.id)
	if h.work[it.ref] != it {
		return
	}
	delete(h.work, it.ref)
	g, err := shard.GetGeneration(h.opt.Store.Reader(), it.ref)
	if err != nil {
		h.fail(err)
		return
	}
	if g == nil || g.Work == shard.WorkNone || g.Ordered && !g.OrderHead {
		return // if it gets work again, an effect says so
	}
	t := h.target(g.Lane, g.Target)
	if t == nil {
		return
	}
	t.win.miss(g.NextAt)
	h.poke(t)
}
