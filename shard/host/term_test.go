package host

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// D.2: an old leader's requests go on, and their outcomes are the initial ones: a change of leadership makes no RECOVERY unknown.
func TestDeposeMidFlight(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", nil)
		rc.latency = 3 * time.Second
		ids := r.submit("a", 10, nil)
		elapse(time.Second)
		if n := rc.now(); n != 10 {
			t.Fatalf("%d in flight", n)
		}
		r.log.lead(nil)
		elapse(5 * time.Second)
		st, err := r.nodes[0].host.Status(context.Background())
		if err != nil || st.Unsettled != 10 || st.Leading != 0 {
			t.Errorf("while nobody leads: %+v, %v", st, err)
		}
		if _, err := r.nodes[0].host.LaneStatus(context.Background(), 1); !errors.Is(err, ErrNotLeading) {
			t.Errorf("lane status while not leading: %v", err)
		}
		r.log.lead(r.nodes[0])
		r.until("all delivered", 5*time.Second, func() bool { return r.delivered(ids) })
		for _, id := range ids {
			if a := r.attempts(id); len(a) != 1 || a[0].Outcome.Evidence.Rule != "TEST_OK" {
				t.Errorf("%s: %d attempts", id, len(a))
			}
		}
		if n := r.nodes[0].seen.recovered.Load(); n != 0 {
			t.Errorf("%d recovered", n)
		}
		r.audit(ids)
	})
}

// A claim whose admission is applied after the term ended is never sent; its own process says so.
func TestAdmissionAfterDepose(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", nil)
		n := r.nodes[0]
		r.log.hold = func(effects []shard.Effect) time.Duration {
			for _, e := range effects {
				if e.Kind == shard.EffectAdmitted {
					return time.Second
				}
			}
			return 0
		}
		ids := r.submit("a", 5, nil)
		elapse(500 * time.Millisecond)
		n.host.Depose()
		elapse(time.Second)
		if rc.count() != 0 {
			t.Fatalf("%d requests after the term", rc.count())
		}
		r.log.mu.Lock()
		r.log.hold = nil
		r.log.mu.Unlock()
		elapse(time.Second)
		for _, id := range ids {
			a := r.attempts(id)
			if len(a) != 1 || a[0].Outcome.SideEffect != policy.NotPublished || a[0].Outcome.Evidence.Statement != StatementBeforeOwnership {
				t.Errorf("%s: %+v", id, a)
			}
			if v := r.view(id).Generations[0].Generation; v.Counted != 0 {
				t.Error("it counted towards the budget")
			}
		}
		r.log.lead(n)
		r.until("delivered", 5*time.Second, func() bool { return r.delivered(ids) })
		r.audit(ids)
	})
}

// DESIGN 4: an admission that is applied later than the send window is never sent.
func TestSendWindow(t *testing.T) {
	for _, c := range []struct {
		late time.Duration
		sent bool
	}{{SendWindow - 100*time.Millisecond, true}, {SendWindow + 100*time.Millisecond, false}} {
		t.Run(c.late.String(), func(t *testing.T) {
			inBubble(t, nil, func(r *rig) {
				rc := r.destination("a", nil)
				n := r.nodes[0]
				first := r.submit("a", 1, nil)
				r.until("first", time.Second, func() bool { return rc.count() == 1 })
				stuck := make(chan struct{})
				once := false
				// The loop stops for a while between the effect and the send.
				r.log.mu.Lock()
				r.log.applied = func(e *shard.Entry, _ []shard.Result) {
					if _, ok := e.Commands[0].(*shard.Admit); ok && !once {
						once = true
						n.host.inbox.put(message{call: func() { <-stuck }})
					}
				}
				r.log.mu.Unlock()
				ids := r.submit("a", 1, nil)
				synctest.Wait()
				<-time.After(c.late)
				close(stuck)
				synctest.Wait()
				if sent := rc.count() == 2; sent != c.sent {
					t.Errorf("%s after it was applied: sent %v", c.late, sent)
				}
				elapse(5 * time.Second)
				r.wantState(ids[0], shard.StateDelivered)
				if a := r.attempts(ids[0]); !c.sent && (len(a) != 2 || a[0].Outcome.Evidence.Rule != RuleSendGate) {
					t.Errorf("%+v", a)
				}
				r.audit(append(ids, first...))
			})
		})
	}
}

// DESIGN 4, failover: what a dead process left is UNKNOWN: at once when it was this node's earlier boot or is known to be gone, else when
// its deadline and the send window have passed. Nothing else becomes unknown, and no attempt is sent twice.
func TestRecovery(t *testing.T) {
	for name, c := range map[string]struct {
		node string
		gone bool
		wait time.Duration
	}{
		"same node, new boot": {"n1", false, 0},
		"other node, gone":    {"n2", true, goneEvery},
		"other node, silent":  {"n2", false, 10*time.Second + SendWindow - time.Second + goneEvery},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(r *rig) {
				rc := r.destination("a", nil)
				rc.hang = func(n int) bool { return n <= 4 }
				ids := r.submit("a", 4, nil)
				later := r.submit("a", 3, func(_ int, s *shard.Submit) { s.DeliverAt = policy.Time(time.Now().Add(time.Hour).UnixNano()) })
				elapse(time.Second)
				r.crash(r.nodes[0])
				n := r.node(c.node, func(o *Options) {
					o.ProcessGone = func(node string, boot uint64) bool { return c.gone && node == "n1" && boot == 1 }
					o.Boot = 99
				})
				n.boot = 99
				r.log.lead(n)
				if c.wait > 2*time.Second {
					elapse(c.wait - 1500*time.Millisecond)
					r.wantState(ids[0], shard.StateInFlight)
					elapse(1500 * time.Millisecond)
				} else {
					elapse(c.wait + 10*time.Millisecond)
				}
				for _, id := range ids {
					r.wantState(id, shard.StateUncertain)
					if a := r.attempts(id); len(a) != 1 || a[0].Outcome.Evidence.Rule != RuleRecovery {
						t.Errorf("%s: %+v", id, a)
					}
				}
				elapse(time.Hour)
				if !r.delivered(later) {
					t.Error("what was not in flight did not go on")
				}
				r.audit(append(ids, later...))
			})
		})
	}
}

// A transfer between living processes: the old leader's outcome is the initial one, through the new leader's log.
func TestTransferMakesNoUnknown(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", nil)
		rc.latency = 3 * time.Second
		other := r.node("n2", nil)
		ids := r.submit("a", 40, nil)
		elapse(time.Second)
		r.log.lead(other)
		elapse(time.Second)
		if st := r.status(other, "a"); st.OpenElsewhere != 32 || st.InFlight != 0 || st.Why != WhyMaxInFlight {
			t.Errorf("the other process's requests hold their permits: %+v", st)
		}
		if most, _ := rc.peak(); most > DefaultMaxInFlight {
			t.Errorf("%d at a time over two leaders", most)
		}
		elapse(2 * time.Second)
		// The old leader may not propose; it hands its outcomes over when it leads again or through an RPC. Here it leads again.
		r.log.lead(r.nodes[0])
		r.until("delivered", 10*time.Second, func() bool { return r.delivered(ids) })
		for _, n := range r.nodes {
			if n.seen.recovered.Load() != 0 {
				t.Errorf("%s recovered %d", n.name, n.seen.recovered.Load())
			}
		}
		r.audit(ids)
	})
}

// DESIGN 3: a wall step closes admission and expiry on this node for a minute; nothing is sent early and nothing expires early.
func TestClockStep(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", nil)
		n := r.nodes[0]
		in := func(d time.Duration) policy.Time { return policy.Time(time.Now().Add(d).UnixNano()) }
		soon := r.submit("a", 5, func(_ int, s *shard.Submit) { s.DeliverAt = in(30 * time.Minute) })
		dying := r.submit("a", 5, func(_ int, s *shard.Submit) { s.DeliverAt, s.ExpireAt = in(35*time.Minute), in(40*time.Minute) })
		elapse(time.Second)
		n.clock.step.Store(int64(time.Hour))
		elapse(clockSample)
		if !n.stamper.State().GateClosed {
			t.Fatal("the gate is open after a step of an hour")
		}
		now := r.submit("a", 5, nil)
		elapse(WallStable - 2*clockSample)
		if rc.count() != 0 {
			t.Errorf("%d requests while the gate was closed", rc.count())
		}
		r.wantWhy("a", WhyClock)
		n.clock.step.Store(0) // the clock is put right
		elapse(WallStable + clockSample)
		if n.stamper.State().GateClosed {
			t.Error("the gate is closed after a stable minute")
		}
		r.until("sent when the gate opened", time.Second, func() bool { return r.delivered(now) })
		for _, id := range append(soon, dying...) {
			r.wantState(id, shard.StateScheduled)
		}
		r.audit(now)
	})
}

func TestTickOnlyWhenADeadlinePassed(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.destination("a", nil)
		ids := r.submit("a", 1, nil)
		r.until("delivered", time.Second, func() bool { return r.delivered(ids) })
		r.log.mu.Lock()
		before := r.log.entries
		r.log.mu.Unlock()
		elapse(time.Hour)
		r.log.mu.Lock()
		defer r.log.mu.Unlock()
		if r.log.entries != before {
			t.Errorf("%d entries by an idle leader", r.log.entries-before)
		}
	})
}

func TestTrimsWhatWasKeptLongEnough(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.destination("a", func(d *shard.Destination) { d.Retention = 2 * time.Hour })
		ids := r.submit("a", 1000, nil)
		r.until("delivered", 5*time.Second, func() bool { return r.delivered(ids) })
		elapse(time.Hour + 50*time.Minute)
		if n := r.lane("a").Counts.Terminal[0]; n != 1000 {
			t.Fatalf("%d left before the retention has passed", n)
		}
		elapse(time.Hour + 15*time.Minute)
		if n := r.lane("a").Counts.Terminal[0]; n != 0 {
			t.Errorf("%d left", n)
		}
	})
}

func TestDrain(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", func(d *shard.Destination) { d.Limits.MaxInFlight = 4 })
		rc.latency = 2 * time.Second
		ids := r.submit("a", 10, nil)
		elapse(time.Second)
		h := r.nodes[0].host
		short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if left, err := h.Drain(short); !errors.Is(err, context.DeadlineExceeded) || left.InFlight != 4 {
			t.Errorf("short drain: %+v, %v", left, err)
		}
		if left, err := h.Drain(context.Background()); err != nil || left != (Drained{}) {
			t.Errorf("drain: %+v, %v", left, err)
		}
		done := 0
		for _, id := range ids {
			if r.state(id) == shard.StateDelivered {
				done++
			}
		}
		if done != 4 || rc.count() != 4 {
			t.Errorf("%d delivered by %d requests, want the 4 in flight", done, rc.count())
		}
		r.wantWhy("a", WhyDraining)
		r.audit(ids)
	})
}

func TestStateFailure(t *testing.T) {
	broken := errors.New("disk gone")
	var told error
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := r.node("n1", func(o *Options) { o.Failed = func(err error) { told = err } })
		r.log.lead(n)
		r.destination("a", nil)
		synctest.Wait()
		r.log.store.mu.Lock()
		r.log.store.fault = broken
		r.log.store.mu.Unlock()
		r.submit("a", 1, nil)
		synctest.Wait()
		if !errors.Is(told, broken) {
			t.Errorf("told %v", told)
		}
		if err := n.host.Close(); !errors.Is(err, broken) {
			t.Errorf("close: %v", err)
		}
		if r.receivers.get("a").count() != 0 {
			t.Error("sent")
		}
		r.log.stop()
	})
}

// While the clock gate is closed nothing expires, and one tick moves the shard clock past the deadline.
func TestTickWhileTheGateIsClosed(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.destination("a", nil)
		at := policy.Time(time.Now().Add(time.Minute).UnixNano())
		ids := r.submit("a", 3, func(_ int, s *shard.Submit) { s.DeliverAt, s.ExpireAt = at-policy.Time(time.Second), at })
		ticks := 0
		r.log.mu.Lock()
		r.log.applied = func(e *shard.Entry, _ []shard.Result) {
			for _, c := range e.Commands {
				if c.Kind() == shard.KindTick {
					ticks++
				}
			}
		}
		r.log.mu.Unlock()
		elapse(50 * time.Second)
		r.nodes[0].clock.step.Store(int64(time.Hour))
		elapse(40 * time.Second)
		r.wantState(ids[0], shard.StateScheduled)
		meta, err := shard.ReadMeta(r.log.store)
		if err != nil || meta.Clock < at || meta.Clock > at.Add(time.Minute) {
			t.Errorf("shard clock is %s past the deadline (%v)", meta.Clock.Sub(at), err)
		}
		r.log.mu.Lock()
		if ticks == 0 || ticks > 2 {
			t.Errorf("%d ticks", ticks)
		}
		r.log.mu.Unlock()
		elapse(time.Minute)
		for _, id := range ids {
			r.wantState(id, shard.StateExpired)
		}
	})
}
