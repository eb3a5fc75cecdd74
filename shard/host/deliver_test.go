package host

import (
	"testing"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

func TestDelivery(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", nil)
		ids := r.submit("a", 100, nil)
		r.until("all delivered", time.Second, func() bool { return r.delivered(ids) })
		r.audit(ids)
		if n := rc.count(); n != 100 {
			t.Errorf("%d requests for 100 messages", n)
		}
		if most, _ := rc.peak(); most > DefaultMaxInFlight {
			t.Errorf("%d requests at a time, the lane allows %d", most, DefaultMaxInFlight)
		}
		for _, q := range rc.seen() {
			if q.attempt != 1 || q.generation != 1 || q.payload == "" {
				t.Fatalf("request %+v", q)
			}
		}
		r.wantWhy("a", WhyNothingDue)
	})
}

func TestRetryIsNeverEarly(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		rc := r.destination("a", nil)
		rc.answer = func(n int, d *Delivery) shard.Outcome {
			if d.Attempt < 4 {
				return refused(policy.MessageRetriable)
			}
			return published()
		}
		ids := r.submit("a", 10, nil)
		r.until("all delivered", time.Minute, func() bool { return r.delivered(ids) })
		r.audit(ids)
		for _, id := range ids {
			as := r.attempts(id)
			if len(as) != 4 {
				t.Fatalf("%d attempts, want 4", len(as))
			}
			for i := 1; i < len(as); i++ {
				wait := as[i].AdmittedAt.Sub(as[i-1].OutcomeAt)
				if want := time.Second << (i - 1); wait < want || wait > want+20*time.Millisecond {
					t.Errorf("attempt %d came %s after the one before, want %s", i+1, wait, want)
				}
			}
		}
	})
}
