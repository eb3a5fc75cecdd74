package host

import (
	"context"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// Backlogs far larger than the window are delivered in order of their due times, from a bounded memory.
func TestOverflowedWindowRefills(t *testing.T) {
	inBubble(t, func(o *Options) { o.WindowPerTarget = 16 }, func(r *rig) {
		rc := r.destination("a", func(d *shard.Destination) { d.Limits.MaxInFlight = 1 })
		base := time.Now().Add(time.Minute)
		due := map[string]time.Time{}
		var ids []shard.MessageID
		for range 20 {
			for i, id := range r.submit("a", 50, func(i int, s *shard.Submit) {
				at := base.Add(time.Duration((i*7919+int(r.sent)*104729)%1000) * time.Millisecond)
				s.DeliverAt = policy.Time(at.UnixNano())
				due[s.ID.String()] = at
			}) {
				_ = i
				ids = append(ids, id)
			}
		}
		st, err := r.nodes[0].host.Status(context.Background())
		if err != nil || st.Windowed > 32 {
			t.Errorf("%d references in memory, want at most two windows of 16 (%v)", st.Windowed, err)
		}
		r.until("all delivered", 10*time.Minute, func() bool { return r.delivered(ids) })
		q := rc.seen()
		for i := range q {
			if q[i].at.Before(due[q[i].id]) {
				t.Fatalf("request %d came %s early", i, due[q[i].id].Sub(q[i].at))
			}
			if i > 0 && due[q[i].id].Add(20*time.Millisecond).Before(due[q[i-1].id]) {
				t.Errorf("request %d was due %s before the one ahead of it", i, due[q[i-1].id].Sub(due[q[i].id]))
			}
		}
		r.audit(ids)
	})
}

// Work that the inbox could not hold is found by index.
func TestOverflowedInbox(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxQueued = 16 }, func(r *rig) {
		r.destination("a", nil)
		r.destination("b", nil)
		first := append(r.submit("a", 5, nil), r.submit("b", 1, nil)...)
		r.until("first", time.Second, func() bool { return r.delivered(first) })
		at := time.Now().Add(time.Minute)
		ids := append(r.submit("a", 100, nil), r.submit("b", 100, func(_ int, s *shard.Submit) {
			s.DeliverAt, s.ExpireAt = policy.Time(at.UnixNano()), policy.Time(at.Add(time.Hour).UnixNano())
		})...)
		r.until("a is delivered", time.Second, func() bool { return r.delivered(ids[:100]) })
		r.control("p", shard.ActionPauseLane, "b")
		elapse(time.Hour + 2*time.Minute)
		for _, id := range ids[100:] {
			r.wantState(id, shard.StateExpired) // the deadlines were not queued either
		}
		r.audit(append(ids, first...))
	})
}

// With MaxWindowed reached every target keeps a few references and still delivers everything.
func TestMaxWindowed(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxWindowed, o.WindowPerTarget = 1024, 64 }, func(r *rig) {
		at := policy.Time(time.Now().Add(time.Hour).UnixNano())
		var ids []shard.MessageID
		for i := range 30 {
			name := "d-" + string(rune('a'+i%26)) + string(rune('a'+i/26))
			r.destination(name, nil)
			ids = append(ids, r.submit(name, 200, func(_ int, s *shard.Submit) { s.DeliverAt = at })...)
		}
		st, err := r.nodes[0].host.Status(context.Background())
		if err != nil || st.Windowed > 1024+2*64+30*2*minWindow {
			t.Errorf("%d references in memory (%v)", st.Windowed, err)
		}
		elapse(time.Hour)
		r.until("all delivered", time.Minute, func() bool { return r.delivered(ids) })
		r.audit(ids)
	})
}

// A leader that starts with a great many lanes finds those with work, and holds no others in memory. Idle ones are let go.
func TestManyLanes(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.destination("template", nil)
		const lanes = 1000
		rc := r.receivers.make("shared")
		rc.quiet = true
		var later []shard.MessageID
		for i := range lanes {
			name := "n" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
			r.destination(name, func(d *shard.Destination) { d.TargetKey = "shared" })
			r.submit(name, 1, nil)
			if i%100 == 0 {
				later = append(later, r.submit(name, 1, func(_ int, s *shard.Submit) {
					s.DeliverAt = policy.Time(time.Now().Add(24 * time.Hour).UnixNano())
				})...)
			}
		}
		elapse(time.Second)
		n := r.nodes[0]
		st, err := n.host.Status(context.Background())
		if err != nil || st.Lanes != lanes {
			t.Errorf("%d lanes in memory (%v)", st.Lanes, err)
		}
		elapse(laneIdle + 2*sweepEvery)
		if st, err = n.host.Status(context.Background()); err != nil || st.Lanes != len(later) {
			t.Errorf("%d lanes in memory after a while, want the %d with work (%v)", st.Lanes, len(later), err)
		}
		r.log.lead(n)
		elapse(time.Second)
		if st, err = n.host.Status(context.Background()); err != nil || st.Lanes != len(later) || st.Recovering {
			t.Errorf("%d lanes in memory after a new term, want %d (%v)", st.Lanes, len(later), err)
		}
		elapse(24 * time.Hour)
		if !r.delivered(later) {
			t.Error("what was scheduled was not delivered")
		}
	})
}

// The heaps keep their order and their positions under any sequence of changes.
func TestHeapProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &Host{opt: Options{WindowPerTarget: 8, MaxWindowed: 1 << 20}, work: map[shard.Ref]*item{}, stamp: 1}
		tg := &target{lane: &laneState{}, wakePos: -1, win: window{complete: true}}
		var wakes wakeHeap
		targets := make([]*target, 12)
		for i := range targets {
			targets[i] = &target{wakePos: -1}
		}
		for i := range 200 {
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				h.seq++
				it := &item{ref: shard.Ref{Generation: uint32(i)}, target: tg, due: policy.Time(rapid.IntRange(0, 20).Draw(t, "due")), seq: h.seq}
				if tg.win.complete || it.due < tg.win.unseen {
					h.work[it.ref] = it
					h.insert(it)
				}
			case 2:
				if n := len(tg.win.heap); n > 0 {
					h.forgetItem(tg.win.heap[rapid.IntRange(0, n-1).Draw(t, "which")])
				}
			case 3:
				w := targets[rapid.IntRange(0, len(targets)-1).Draw(t, "target")]
				wakes.set(w, []time.Duration{never, 1, 5, 9}[rapid.IntRange(0, 3).Draw(t, "at")])
				if rapid.Bool().Draw(t, "complete") && len(tg.win.heap) == 0 {
					tg.win.complete = true
				}
			}
			for j, it := range tg.win.heap {
				if it.pos != j || h.work[it.ref] != it || j > 0 && it.before(tg.win.heap[(j-1)/2]) {
					t.Fatalf("window broken at %d", j)
				}
				if !tg.win.complete && it.due > tg.win.unseen && len(tg.win.heap) > 16 {
					t.Fatal("kept what should be left to the index")
				}
			}
			for j, w := range wakes {
				if w.wakePos != j || j > 0 && w.wakeAt < wakes[(j-1)/2].wakeAt {
					t.Fatalf("wakes broken at %d", j)
				}
			}
			if h.windowed != len(tg.win.heap) || len(h.work) != h.windowed || h.windowed > 16 {
				t.Fatalf("%d windowed, %d in the heap, %d known", h.windowed, len(tg.win.heap), len(h.work))
			}
		}
		var got []policy.Time
		for len(tg.win.heap) > 0 {
			got = append(got, tg.win.heap[0].due)
			h.forgetItem(tg.win.heap[0])
		}
		if !sort.SliceIsSorted(got, func(i, j int) bool { return got[i] < got[j] }) {
			t.Fatalf("popped %v", got)
		}
	})
}
