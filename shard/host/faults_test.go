package host

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// The invariants under a log that delays, refuses, loses and forgets to answer, while leadership moves and destinations misbehave.
func TestFaults(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { faults(t, seed) })
		})
	}
}

func faults(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	r := newRig(t)
	defer r.close()
	n1 := r.node("n1", nil)
	n2 := r.node("n2", func(o *Options) { o.WindowPerTarget, o.MaxQueued = 8, 32 })
	logRng, recvRng := newDice(seed, 2), newDice(seed, 3)
	var calm atomic.Bool
	r.log.delay = func() time.Duration { return time.Duration(logRng.IntN(30)) * time.Millisecond }
	r.log.decide = func(cmds []shard.Command, _ Class) fate {
		if calm.Load() || logRng.IntN(4) > 0 {
			return fateApply
		}
		return fate(logRng.IntN(5))
	}
	r.log.hold = func([]shard.Effect) time.Duration {
		if !calm.Load() && logRng.IntN(40) == 0 {
			return time.Duration(logRng.IntN(3000)) * time.Millisecond
		}
		return 0
	}
	r.log.lead(n1)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		rc := r.destination(name, func(d *shard.Destination) {
			d.Limits.MaxInFlight = uint32(1 + rng.IntN(20))
			d.Timeout = 3 * time.Second
			d.Retry.MaxAttempts = 20
			d.Uncertainty = policy.Uncertainty{OnUncertain: policy.UncertainRetry, MaxRetries: 2, AcceptDuplicates: true}
		})
		rc.answer = func(int, *Delivery) shard.Outcome {
			switch k := recvRng.IntN(20); {
			case calm.Load() || k < 14:
				return published()
			case k < 16:
				return unknown()
			case k < 18:
				return refused(policy.MessageRetriable)
			case k < 19:
				return refused(policy.LaneUnavailable)
			}
			return refused(policy.MessagePermanent)
		}
		rc.hang = func(int) bool { return !calm.Load() && recvRng.IntN(30) == 0 }
	}
	ids := r.trouble(rng, names, n1, n2)
	calm.Store(true)
	r.log.lead(r.nodes[0])
	r.until("everything has ended or is held", time.Hour, func() bool { return r.ended(ids) })
	r.audit(ids)
	for _, name := range names {
		if c := r.lane(name).Counts; c.OpenAttempts != 0 || c.InFlight != 0 || c.Scheduled != 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if wrong, err := shard.Check(r.log.store); err != nil || len(wrong) > 0 {
		t.Errorf("recount: %v %v", wrong, err)
	}
}

// trouble submits for a while, moving the leadership between two nodes and ending processes.
func (r *rig) trouble(rng *rand.Rand, names []string, leader, other *testNode) (ids []shard.MessageID) {
	for range 60 {
		for _, name := range names {
			ids = append(ids, r.submit(name, rng.IntN(12), nil)...)
		}
		<-time.After(time.Duration(rng.IntN(400)) * time.Millisecond)
		switch rng.IntN(16) {
		case 0: // the same process leads again
			r.log.lead(leader)
		case 1, 2:
			leader, other = other, leader
			r.log.lead(leader)
		case 3: // a process ends and comes back; the other one leads
			r.crash(leader)
			leader, other = other, r.node(leader.name, nil)
			r.log.lead(leader)
		case 4: // a process ends and leads again at once
			r.crash(leader)
			leader = r.node(leader.name, nil)
			r.log.lead(leader)
		}
	}
	return ids
}

// dice is a random source that goroutines share.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(seed, stream uint64) *dice { return &dice{rng: rand.New(rand.NewPCG(seed, stream))} }

func (d *dice) IntN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

func (r *rig) ended(ids []shard.MessageID) bool {
	for _, name := range []string{"a", "b", "c"} {
		l, ok, _ := shard.LaneByName(r.log.store, "default", name, 0)
		if ok && (l.Counts.Scheduled > 0 || l.Counts.InFlight > 0 || l.Counts.OpenAttempts > 0) {
			return false
		}
	}
	for _, id := range ids {
		g := r.view(id).Generations[0].Generation
		if !g.State.Terminal() && (g.State != shard.StateUncertain || g.Work != shard.WorkNone) {
			return false
		}
	}
	return true
}
