package host

import (
	"context"
	"testing"
	"time"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// DESIGN 7: a lane whose receiver never answers reaches its own cap and stops.
func TestHangIsolatesItsLane(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		bad := r.destination("bad", func(d *shard.Destination) { d.Limits.MaxInFlight = 8 })
		good := r.destination("good", nil)
		bad.hang = func(int) bool { return true }
		hung := r.submit("bad", 200, nil)
		ids := r.submit("good", 200, nil)
		r.until("the good lane is done", time.Second, func() bool { return r.delivered(ids) })
		if most, _ := bad.peak(); most != 8 {
			t.Errorf("%d requests at a time in the hung lane, want its cap 8", most)
		}
		if good.count() != 200 {
			t.Errorf("%d requests in the good lane", good.count())
		}
		r.wantWhy("bad", WhyMaxInFlight)
		r.audit(append(hung, ids...))
	})
}

// R197: the logical timeout frees the waiter, the physical charge stays.
func TestZombieKeepsItsPermit(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", func(d *shard.Destination) {
			d.Limits.MaxInFlight = 2
			d.Circuit.FailureThreshold = 100
		})
		rc.zombie = make(chan struct{})
		ids := r.submit("a", 5, nil)
		elapse(10*time.Second + sendGrace + 2*time.Second)
		uncertain := 0
		for _, id := range ids {
			if r.state(id) == shard.StateUncertain {
				uncertain++
				if rule := r.attempts(id)[0].Outcome.Evidence.Rule; rule != RuleSendOverdue {
					t.Errorf("rule %s", rule)
				}
			}
		}
		if uncertain != 2 || rc.count() != 2 {
			t.Errorf("%d uncertain after %d requests, want the two that never returned", uncertain, rc.count())
		}
		r.wantWhy("a", WhyMaxInFlight)
		zombie := rc.zombie
		rc.set(func(r *receiver) { r.zombie = nil })
		close(zombie)
		r.until("the rest is delivered", time.Second, func() bool { return rc.count() == 5 })
		r.audit(ids)
	})
}

// DESIGN 7: one lane with a great many overdue messages does not delay the others by more than a round.
func TestManyOverdueBesideFew(t *testing.T) {
	if testing.Short() {
		t.Skip("submits 100 000 messages")
	}
	inBubble(t, nil, func(r *rig) {
		big := r.destination("big", func(d *shard.Destination) { d.Limits.MaxInFlight = 64 })
		big.quiet = true
		names := make([]string, 99)
		for i := range names {
			names[i] = "small-" + string(rune('a'+i/26)) + string(rune('a'+i%26))
			r.destination(names[i], nil)
		}
		due := policy.Time(time.Now().Add(time.Minute).UnixNano())
		for range 100 {
			r.submit("big", 1000, func(_ int, s *shard.Submit) { s.DeliverAt = due })
		}
		var ids []shard.MessageID
		for _, name := range names {
			ids = append(ids, r.submit(name, 1, func(_ int, s *shard.Submit) { s.DeliverAt = due })...)
		}
		st, err := r.nodes[0].host.Status(context.Background())
		if err != nil || st.Windowed > 2*1024+99 {
			t.Errorf("%d references in memory (%v), want no more than two windows of 1024 beside the 99", st.Windowed, err)
		}
		elapse(time.Minute + 50*time.Millisecond)
		if !r.delivered(ids) {
			t.Error("a lane with one message waited for the one with 100 000")
		}
		if c := r.lane("big").Counts; c.Scheduled < 50_000 {
			t.Errorf("the big lane is down to %d: the test proves nothing", c.Scheduled)
		}
	})
}

func TestRefused(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", nil)
		rc.answer = func(int, *Delivery) shard.Outcome { return refused(policy.MessagePermanent) }
		ids := r.submit("a", 20, nil)
		r.until("all dead-lettered", time.Second, func() bool { return r.lane("a").Counts.Terminal[1] == 20 })
		if rc.count() != 20 {
			t.Errorf("%d requests, want one each", rc.count())
		}
		r.audit(ids)
	})
}

// R178: a target that refuses its lane burns no budgets: the circuit opens after its threshold and no message is dead-lettered.
func TestUnauthorized(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", nil)
		rc.answer = func(int, *Delivery) shard.Outcome { return refused(policy.LaneUnavailable) }
		ids := r.submit("a", 1000, nil)
		elapse(20 * time.Second)
		if c := r.lane("a").Targets[0].Circuit; c.Phase != lane.CircuitOpen {
			t.Errorf("circuit is %s", c.Phase)
		}
		if n := rc.count(); n < 5 || n > DefaultMaxInFlight+5 {
			t.Errorf("%d requests before the circuit opened, want 5 to one flight of %d more", n, DefaultMaxInFlight)
		}
		r.wantWhy("a", WhyCircuitOpen)
		elapse(time.Hour)
		if c := r.lane("a").Counts; c.Terminal[1] != 0 || c.Pending() != 1000 {
			t.Errorf("after an hour: %+v", c)
		}
		if n := rc.count(); n > DefaultMaxInFlight+5+20 {
			t.Errorf("%d requests in an hour of refusals", n)
		}
		rc.set(func(r *receiver) { r.answer = nil })
		r.until("all delivered", 30*time.Minute, func() bool { return r.lane("a").Counts.Terminal[0] == 1000 })
		r.audit(ids)
	})
}

func TestThrottled(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", func(d *shard.Destination) { d.Limits.MaxInFlight = 1 })
		rc.answer = func(n int, _ *Delivery) shard.Outcome {
			if n == 1 {
				o := refused(policy.LaneThrottled)
				o.RetryAfter, o.HasRetryAfter = 40*time.Second, true
				return o
			}
			return published()
		}
		ids := r.submit("a", 3, nil)
		start := time.Now()
		r.until("all delivered", 2*time.Minute, func() bool { return r.delivered(ids) })
		q := rc.seen()
		if wait := q[1].at.Sub(q[0].at); wait < 40*time.Second || wait > 42*time.Second {
			t.Errorf("the second request came %s after the throttle, want 40s", wait)
		}
		if took := time.Since(start); took > 60*time.Second {
			t.Errorf("took %s", took)
		}
		r.audit(ids)
	})
}

// DESIGN 7: the circuit leaves OPEN through the readiness check and a half-open trial, one message at a time, never by a timer alone.
func TestCircuitRecovers(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", nil)
		rc.answer = func(int, *Delivery) shard.Outcome { return refused(policy.LaneUnavailable) }
		ids := r.submit("a", 50, nil)
		r.until("open", 5*time.Second, func() bool { return r.lane("a").Targets[0].Circuit.Phase == lane.CircuitOpen })
		elapse(time.Second)
		before, opened := rc.count(), time.Now()
		rc.set(func(r *receiver) {
			r.idle = 0
			r.connect = func(int) error { return &ConnectFailure{Class: "DIAL_REFUSED"} }
		})
		elapse(2 * time.Minute)
		if rc.count() != before || r.lane("a").Targets[0].Circuit.Phase != lane.CircuitOpen {
			t.Fatalf("%d requests and %s while no connection could be made", rc.count()-before, r.lane("a").Targets[0].Circuit.Phase)
		}
		rc.set(func(r *receiver) {
			r.connect, r.answer, r.most, r.latency = nil, nil, 0, 100*time.Millisecond
		})
		r.until("half open", time.Minute, func() bool { return r.lane("a").Targets[0].Circuit.Phase == lane.CircuitHalfOpen })
		r.until("closed", time.Minute, func() bool {
			if r.lane("a").Targets[0].Circuit.Phase == lane.CircuitClosed {
				return true
			}
			if most, _ := rc.peak(); most > 1 {
				t.Error("more than one trial at a time")
			}
			return false
		})
		r.until("all delivered", time.Minute, func() bool { return r.delivered(ids) })
		if time.Since(opened) < 30*time.Second {
			t.Errorf("recovered after %s, before the open time passed", time.Since(opened))
		}
		r.audit(ids)
	})
}

// DESIGN 7: an uncertain message whose policy permits a retry is the trial.
func TestTrialPrefersUncertain(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", func(d *shard.Destination) {
			d.Limits.MaxInFlight = 1
			d.Uncertainty = policy.Uncertainty{OnUncertain: policy.UncertainRetry, MaxRetries: 3, AcceptDuplicates: true}
			d.Circuit.FailureThreshold = 1
		})
		rc.answer = func(n int, _ *Delivery) shard.Outcome {
			if n == 3 {
				return unknown()
			}
			return published()
		}
		ids := r.submit("a", 10, nil)
		r.until("all delivered", 2*time.Minute, func() bool { return r.delivered(ids) })
		q := rc.seen()
		if q[3].id != q[2].id || q[3].attempt != 2 {
			t.Errorf("the trial was attempt %d of %s, want the uncertain %s", q[3].attempt, q[3].id, q[2].id)
		}
		r.audit(ids)
	})
}

// A trial whose outcome never comes is reported when its deadline has passed; the circuit opens again.
func TestTrialOverdue(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", func(d *shard.Destination) {
			d.Timeout = 5 * time.Minute
			d.Circuit.FailureThreshold = 1
		})
		rc.answer = func(int, *Delivery) shard.Outcome { return refused(policy.LaneUnavailable) }
		r.submit("a", 3, nil)
		r.until("open", 5*time.Second, func() bool { return r.lane("a").Targets[0].Circuit.Phase == lane.CircuitOpen })
		rc.set(func(r *receiver) { r.hang = func(int) bool { return true } })
		r.until("half open", time.Minute, func() bool { return r.lane("a").Targets[0].Circuit.TrialInFlight })
		r.wantWhy("a", WhyTrial)
		elapse(5*time.Minute + time.Second) // a trial is overdue at the later of trial_timeout and the attempt's own timeout
		c := r.lane("a").Targets[0].Circuit
		if c.Phase != lane.CircuitOpen || c.Openings != 2 {
			t.Errorf("circuit is %s after %d openings, want OPEN again", c.Phase, c.Openings)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", nil)
		first := r.submit("a", 1, nil)
		r.until("delivered", time.Second, func() bool { return r.delivered(first) })
		r.control("p", shard.ActionPauseLane, "a")
		ids := r.submit("a", 10, nil)
		elapse(time.Hour)
		if rc.count() != 1 {
			t.Errorf("%d requests of a paused lane", rc.count()-1)
		}
		r.wantWhy("a", WhyPaused)
		r.control("r", shard.ActionResumeLane, "a")
		r.until("delivered", time.Second, func() bool { return r.delivered(ids) })
		r.audit(append(ids, first...))
	})
}

func (r *rig) control(id string, a shard.ControlAction, dest string) {
	r.Helper()
	res := r.log.do(&shard.ControlStep{OperationID: id, Hash: [32]byte{byte(len(id)), id[0]}, Action: a, Namespace: "default", Destination: dest})
	if res[0].Rejected != nil {
		r.Fatal(res[0].Rejected)
	}
}

// DESIGN 7: a paused, blocked or open lane still expires its messages on time.
func TestExpiresOnTime(t *testing.T) {
	for name, prepare := range map[string]func(r *rig, rc *receiver){
		"paused": func(r *rig, rc *receiver) {
			r.submit("a", 1, nil)
			elapse(time.Second)
			r.control("p", shard.ActionPauseLane, "a")
		},
		"blocked": func(_ *rig, rc *receiver) {
			rc.connect = func(int) error { return &ConnectFailure{Class: "TLS_PIN", Detail: "old x, new y", Blocked: true} }
		},
		"open": func(_ *rig, rc *receiver) {
			rc.answer = func(int, *Delivery) shard.Outcome { return refused(policy.LaneUnavailable) }
		},
		"unreachable": func(_ *rig, rc *receiver) {
			rc.connect = func(int) error { return &ConnectFailure{Class: "DIAL_REFUSED"} }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(r *rig) {
				rc := r.destination("a", nil)
				prepare(r, rc)
				at := time.Now().Add(10 * time.Minute)
				ids := r.submit("a", 300, func(_ int, s *shard.Submit) { s.ExpireAt = policy.Time(at.UnixNano()) })
				elapse(10*time.Minute - time.Second)
				if n := r.lane("a").Counts.Terminal[3]; n != 0 {
					t.Fatalf("%d expired early", n)
				}
				elapse(2 * time.Second)
				for _, id := range ids {
					r.wantState(id, shard.StateExpired)
				}
			})
		})
	}
}

func TestBlockedLaneSaysWhy(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", nil)
		rc.connect = func(n int) error {
			if n < 4 {
				return &ConnectFailure{Class: "TLS_PIN", Detail: "pinned x, found y", Blocked: true}
			}
			return nil
		}
		ids := r.submit("a", 10, nil)
		elapse(2 * time.Second)
		st := r.status(r.nodes[0], "a")
		if st.Why != WhyBlocked || st.Readiness != lane.Blocked || st.BlockedReason != "TLS_PIN: pinned x, found y" {
			t.Errorf("%+v", st)
		}
		if c := r.lane("a").Targets[0].Circuit; c.ConsecutiveFailures != 0 {
			t.Errorf("the circuit counted %d", c.ConsecutiveFailures)
		}
		if _, most := rc.peak(); most != 1 {
			t.Errorf("%d connects at a time", most)
		}
		r.until("delivered", time.Minute, func() bool { return r.delivered(ids) })
		r.audit(ids)
	})
}

// A target that cannot be reached is tried at once, then after 1 s doubling to 30 s, one attempt at a time; no attempt number is used.
func TestConnectBackoff(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", func(d *shard.Destination) { d.Circuit.FailureThreshold = 1000 })
		var at []time.Duration
		start := time.Now()
		rc.connect = func(int) error {
			at = append(at, time.Since(start).Round(10*time.Millisecond))
			return &ConnectFailure{Class: "DIAL_REFUSED"}
		}
		ids := r.submit("a", 10, nil)
		elapse(2 * time.Minute)
		want := []time.Duration{0, 1, 3, 7, 15, 31, 61, 91}
		if len(at) != len(want) {
			t.Fatalf("connects at %v", at)
		}
		for i := range want {
			if at[i] != want[i]*time.Second {
				t.Errorf("connect %d at %s, want %s", i, at[i], want[i]*time.Second)
			}
		}
		if len(r.attempts(ids[0])) != 0 {
			t.Error("an attempt was used")
		}
		if c := r.lane("a").Targets[0].Circuit; int(c.ConsecutiveFailures) != len(want) {
			t.Errorf("the circuit counted %d of %d failures", c.ConsecutiveFailures, len(want))
		}
	})
}

// Connecting never holds up other lanes, however many targets do not answer.
func TestStuckConnectsLeaveRoom(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConnecting = 8 }, func(r *rig) {
		r.destination("good", nil)
		first := r.submit("good", 1, nil)
		r.until("ready", time.Second, func() bool { return r.delivered(first) })
		var stuck []string
		for i := range 30 {
			name := "stuck-" + string(rune('a'+i))
			r.destination(name, nil).dialStuck = true
			r.submit(name, 1, nil)
			stuck = append(stuck, name)
		}
		r.receivers.get("good").set(func(r *receiver) { r.idle = 0 })
		ids := r.submit("good", 100, nil)
		r.until("the good lane is done", time.Second, func() bool { return r.delivered(ids) })
		for _, name := range stuck {
			if n := len(r.receivers.get(name).seen()); n != 0 {
				t.Errorf("%s saw %d requests", name, n)
			}
		}
	})
}

func TestRateLimit(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", func(d *shard.Destination) { d.Limits.RatePerSecond = 100 })
		ids := r.submit("a", 500, nil)
		start := time.Now()
		r.until("delivered", 10*time.Second, func() bool { return r.delivered(ids) })
		if took := time.Since(start); took < 4900*time.Millisecond || took > 5100*time.Millisecond {
			t.Errorf("500 messages at 100/s took %s", took)
		}
		q := rc.seen()
		for i := range q {
			n := 0
			for j := i; j < len(q) && q[j].at.Sub(q[i].at) < time.Second; j++ {
				n++
			}
			if n > 106 {
				t.Fatalf("%d requests within a second", n)
			}
		}
		r.audit(ids)
	})
}

// Ordering keys: one head at a time, and the lane says when everything waits for heads.
func TestOrderingKeys(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", func(d *shard.Destination) { d.Limits.MaxInFlight = 16 })
		rc.latency = 7 * time.Millisecond
		ids := r.submit("a", 60, func(i int, s *shard.Submit) { s.OrderingKey = string(rune('a' + i%3)) })
		r.until("delivered", 10*time.Second, func() bool { return r.delivered(ids) })
		if most, _ := rc.peak(); most > 3 {
			t.Errorf("%d at a time for three keys", most)
		}
		last := map[int]int{}
		for _, q := range rc.seen() {
			for i, id := range ids {
				if id.String() == q.id {
					if i < last[i%3] {
						t.Errorf("message %d of key %d overtook %d", i, i%3, last[i%3])
					}
					last[i%3] = i
				}
			}
		}
		r.audit(ids)
	})
}

func TestOrderWait(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", nil)
		rc.answer = func(int, *Delivery) shard.Outcome { return unknown() }
		ids := r.submit("a", 3, func(_ int, s *shard.Submit) { s.OrderingKey = "k" })
		elapse(time.Minute)
		r.wantState(ids[0], shard.StateUncertain)
		r.wantWhy("a", WhyOrder)
		if rc.count() != 1 {
			t.Errorf("%d requests", rc.count())
		}
	})
}
