package host

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// DESIGN 5: target and timeout are pinned with a message; limits come from the newest version, at once.
func TestPinnedAndLive(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		old := r.destination("a", func(d *shard.Destination) { d.TargetKey, d.Limits.MaxInFlight = "old", 2 })
		old.latency = time.Second
		before := r.submit("a", 6, nil)
		elapse(100 * time.Millisecond)
		// The install and the submits after it come in one entry: no effect of the install is seen before theirs.
		fresh := r.receivers.make("new")
		fresh.latency = time.Second
		d := shard.Destination{
			Namespace: "default", Name: "a", Version: 99, Adapter: "test", TargetKey: "new", Timeout: 10 * time.Second,
			Retry: policy.DefaultRetry(), Circuit: policy.DefaultCircuit(),
		}
		d.Limits.MaxInFlight = 4
		cmds := []shard.Command{r.newSubmit("a"), &shard.InstallDestination{Destination: d}, r.newSubmit("a"), r.newSubmit("a")}
		r.log.do(cmds...)
		after := r.submit("a", 5, nil)
		elapse(200 * time.Millisecond)
		if st := r.status(r.nodes[0], "a"); st.InFlight != 4 {
			t.Errorf("%d in flight under the new limit of 4", st.InFlight)
		}
		r.until("delivered", time.Minute, func() bool { return r.delivered(append(before, after...)) })
		if old.count() != 7 || fresh.count() != 7 {
			t.Errorf("the old target saw %d and the new one %d, want 7 and 7", old.count(), fresh.count())
		}
		seen := map[string]bool{}
		for _, q := range old.seen() {
			seen[q.id] = true
		}
		for _, id := range append(before, cmds[0].(*shard.Submit).ID) {
			if !seen[id.String()] {
				t.Errorf("%s was accepted under the old version and sent to the new target", id)
			}
		}
		hash := map[[32]byte]bool{}
		for _, id := range append(before, after...) {
			hash[r.attempts(id)[0].RequestHash] = true
		}
		if len(hash) != len(before)+len(after) || hash[[32]byte{}] {
			t.Error("the admissions do not record the request's hash")
		}
	})
}

func TestBytesInFlight(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", func(d *shard.Destination) { d.Limits.MaxBytesInFly = 10_000 })
		rc.latency = time.Second
		ids := r.submit("a", 9, func(i int, s *shard.Submit) {
			s.Payload = make([]byte, 4000)
			if i == 8 {
				s.Payload = make([]byte, 20_000) // larger than the limit: alone
			}
		})
		r.until("delivered", time.Minute, func() bool {
			if n := rc.now(); n > 2 {
				t.Fatalf("%d at a time", n)
			}
			return r.delivered(ids)
		})
		r.audit(ids)
	})
}

func TestShardWideMaxInFlight(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxInFlight = 10 }, func(r *rig) {
		var ids []shard.MessageID
		for _, name := range []string{"a", "b", "c"} {
			r.destination(name, nil).latency = 100 * time.Millisecond
			ids = append(ids, r.submit(name, 20, nil)...)
		}
		r.until("delivered", time.Minute, func() bool {
			if n := r.receivers.get("a").now() + r.receivers.get("b").now() + r.receivers.get("c").now(); n > 10 {
				t.Errorf("%d at a time", n)
			}
			return r.delivered(ids)
		})
		r.audit(ids)
	})
}

// A destination's spread splits its limits over its lanes.
func TestSpreadSplitsLimits(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", func(d *shard.Destination) { d.Spread, d.Limits.MaxInFlight, d.Limits.RatePerSecond = 3, 8, 30 })
		rc.latency = 900 * time.Millisecond
		start := time.Now()
		ids := r.submit("a", 90, func(i int, s *shard.Submit) { s.Slot = uint32(i % 3) })
		r.until("delivered", time.Minute, func() bool { return r.delivered(ids) })
		if most, _ := rc.peak(); most != 8 {
			t.Errorf("%d at a time over three slots, want 8 together", most)
		}
		if took := time.Since(start); took < 9*time.Second {
			t.Errorf("90 messages at 30/s and 8 in flight took %s", took)
		}
	})
}

// The rate of a claim that came to nothing is given back, and STALE costs nothing else (R173).
func TestStaleClaimCostsNothing(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", func(d *shard.Destination) { d.Limits.RatePerSecond = 10 })
		ids := r.submit("a", 2, func(_ int, s *shard.Submit) { s.DeliverAt = policy.Time(time.Now().Add(time.Minute).UnixNano()) })
		// The admission is held up; the cancel gets a smaller index.
		r.log.mu.Lock()
		r.log.decide = func(cmds []shard.Command, c Class) fate {
			if c == ClassAdmission {
				r.log.decide = nil
				r.log.queue = append(r.log.queue, queued{r.nodes[0], []shard.Command{&shard.Cancel{ID: ids[0]}}, fateApply, func([]shard.Result, error) {}})
			}
			return fateApply
		}
		r.log.mu.Unlock()
		elapse(time.Minute + time.Second)
		r.wantState(ids[0], shard.StateCancelled)
		r.wantState(ids[1], shard.StateDelivered)
		if n := r.nodes[0].seen.dropped.Load(); n != 1 || len(r.attempts(ids[0])) != 0 || rc.count() != 1 {
			t.Errorf("%d claims dropped, %d attempts, %d requests", n, len(r.attempts(ids[0])), rc.count())
		}
		r.audit(ids)
	})
}

// An admission whose proposal was answered with "maybe" and then applied is sent by the claim that took its place, or reported as not sent;
// never twice.
func TestMaybeAdmitted(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", nil)
		n := 0
		r.log.mu.Lock()
		r.log.decide = func(_ []shard.Command, c Class) fate {
			if c == ClassAdmission {
				if n++; n <= 3 {
					return []fate{fateMaybe, fateLose, fateRefuse}[n-1]
				}
			}
			return fateApply
		}
		r.log.mu.Unlock()
		ids := r.submit("a", 50, nil)
		r.until("delivered", time.Minute, func() bool { return r.delivered(ids) })
		if rc.count() < 50 {
			t.Errorf("%d requests", rc.count())
		}
		r.audit(ids)
	})
}

// The gate asks whether the process still leads, beside what Depose told it.
func TestStillLeads(t *testing.T) {
	leads := true
	inBubble(t, func(o *Options) { o.StillLeads = func(uint64) bool { return leads } }, func(r *rig) {
		rc := r.destination("a", nil)
		leads = false
		ids := r.submit("a", 3, nil)
		elapse(500 * time.Millisecond)
		if rc.count() != 0 || r.nodes[0].seen.notSent.Load() != 3 {
			t.Errorf("%d requests, %d reported as not sent", rc.count(), r.nodes[0].seen.notSent.Load())
		}
		synctest.Wait()
		leads = true
		r.until("delivered", 10*time.Second, func() bool { return r.delivered(ids) })
		r.audit(ids)
	})
}

// The gate is checked right before the first byte, not when the request is handed over (DESIGN 4).
func TestGateIsCheckedLast(t *testing.T) {
	for name, c := range map[string]struct {
		slow   time.Duration
		depose bool
		cause  error
	}{
		"deposed meanwhile": {time.Second, true, ErrDeposed},
		"too slow":          {SendWindow + time.Second, false, ErrSendWindow},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(r *rig) {
				rc := r.destination("a", nil)
				rc.beforeGate = c.slow
				ids := r.submit("a", 1, nil)
				elapse(c.slow / 2)
				if c.depose {
					r.nodes[0].host.Depose()
				}
				elapse(c.slow/2 + 500*time.Millisecond)
				a := r.attempts(ids[0])
				if rc.count() != 0 || len(a) != 1 || a[0].Outcome.Evidence.Detail != c.cause.Error() {
					t.Errorf("%d requests; %+v", rc.count(), a[0].Outcome)
				}
			})
		})
	}
}

// R195: after a start no lane is served twice before each lane with due work was served once.
func TestFirstRoundServesEachLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		n := r.node("n1", func(o *Options) { o.MaxInFlight = 65536 })
		r.log.mu.Lock()
		r.log.leader, r.log.term = n, 1
		r.log.mu.Unlock()
		rc := r.receivers.make("all")
		rc.latency, rc.idle = time.Hour, 1<<20 // every lane is able at once
		const lanes, visit = 3 * lanePage, fairQuantum/costPerMessage + 1
		for i := range lanes {
			name := "l" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
			r.destination(name, func(d *shard.Destination) { d.TargetKey, d.Timeout = "all", 2*time.Hour })
			r.submit(name, 40, nil)
		}
		n.host.Lead(1)
		elapse(0)
		first := map[shard.LaneID]int{}
		open, err := shard.ScanOpenAttempts(r.log.store, nil, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		at := map[shard.Ref]uint64{}
		for _, o := range open {
			v := r.view(o.Ref.ID)
			at[o.Ref] = v.Generations[0].Attempts[0].AdmittedIndex
		}
		slices.SortStableFunc(open, func(a, b shard.OpenAttempt) int { return int(at[a.Ref]) - int(at[b.Ref]) })
		var lastFirst uint64            // the entry in which the last lane had its first turn
		again := uint64(math.MaxUint64) // the entry in which some lane had its second
		for _, o := range open {
			if first[o.Lane]++; first[o.Lane] == 1 {
				lastFirst = at[o.Ref]
			}
			if first[o.Lane] > visit {
				again = min(again, at[o.Ref])
			}
		}
		if len(open) <= lanes*visit*3/2 {
			t.Errorf("%d admissions over %d lanes: nothing was served twice, so the test proves nothing", len(open), lanes)
		}
		if len(first) != lanes {
			t.Errorf("%d lanes were served, want %d", len(first), lanes)
		}
		// A visit admits several messages of a lane; a second visit may come only after every lane had one. One entry may hold the end of the
		// first round and the beginning of the second.
		if again < lastFirst {
			t.Errorf("a lane was served again at index %d, before the last had its turn at %d", again, lastFirst)
		}
	})
}

func TestQueriesAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := r.node("n1", nil)
		ctx := context.Background()
		if _, err := n.host.LaneStatus(ctx, 1); !errors.Is(err, ErrNotLeading) {
			t.Errorf("before leading: %v", err)
		}
		r.log.lead(n)
		if _, err := n.host.LaneStatus(ctx, 77); !errors.Is(err, shard.ErrLaneNotFound) {
			t.Errorf("a lane that is not there: %v", err)
		}
		r.destination("a", nil)
		r.submit("a", 1, nil)
		elapse(laneIdle + 2*sweepEvery)
		if st := r.status(n, "a"); st.Why != WhyNothingDue || st.Readiness != lane.Recovering || len(st.Targets) != 0 {
			t.Errorf("a lane without work: %+v", st)
		}
		r.log.lead(n) // again, without a Depose of its own making
		n.host.Lead(r.log.term)
		ids := r.submit("a", 3, nil)
		r.until("delivered", time.Second, func() bool { return r.delivered(ids) })
		r.close()
		r.nodes[0].host.Effects([]shard.Effect{{Kind: shard.EffectAdmitted, Owner: shard.Epoch{Node: "n1", Boot: 1}}})
		if _, err := n.host.LaneStatus(ctx, 1); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if _, err := n.host.Drain(ctx); !errors.Is(err, ErrClosed) {
			t.Errorf("drain after Close: %v", err)
		}
	})
}

// A request that ignores its context holds up Close for a bounded time only, and Close says so.
func TestCloseWithStuckRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := r.node("n1", nil)
		r.log.lead(n)
		rc := r.destination("a", nil)
		rc.zombie = make(chan struct{})
		r.submit("a", 1, nil)
		elapse(time.Second)
		start := time.Now()
		if err := n.host.Close(); !errors.Is(err, ErrStillSending) || time.Since(start) != closeWait {
			t.Errorf("close after %s: %v", time.Since(start), err)
		}
		close(rc.zombie)
		r.log.stop()
	})
}
