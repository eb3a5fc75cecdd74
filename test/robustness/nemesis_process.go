package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"
)

// victim picks a running member: any, or, half of the time, the leader of some shard.
func (r *Run) victim(ctx context.Context, random *rand.Rand) *Member {
	if random.IntN(2) == 0 {
		if m := r.Leader(ctx, uint32(random.IntN(int(r.o.Shards)))); m != nil {
			return m
		}
	}
	return r.Pick(random)
}

var errNobody = errors.New("no node runs")

// several picks n different running members in a random order.
func (r *Run) several(random *rand.Rand, n int) []*Member {
	var out []*Member
	members := r.Members()
	for _, i := range random.Perm(len(members)) {
		if members[i].Running() && len(out) < n {
			out = append(out, members[i])
		}
	}
	return out
}

func idsOf(members []*Member) string {
	var ids []string
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, ", ")
}

// processFaults are kills, restarts and pauses.
func processFaults() []Fault {
	return []Fault{
		{Name: "F1 kill one", Weight: 8, Hold: span2(0, 4*time.Second), Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			m := r.victim(ctx, random)
			if m == nil {
				return "", nil, errNobody
			}
			return m.ID, nil, r.Kill(m)
		}},
		{Name: "F1 kill the majority", Weight: 3, Hold: span2(0, 3*time.Second), Do: func(_ context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			return r.killSeveral(random, len(r.Members())/2+1)
		}},
		{Name: "F33 kill all", Weight: 3, Hold: span2(0, 2*time.Second), Do: func(_ context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			return r.killSeveral(random, len(r.Members()))
		}},
		{Name: "F33 stop all softly", Alone: true, Weight: 1, Hold: span2(0, time.Second), Do: stopAll},
		{Name: "F8 short pause", Weight: 4, Hold: span2(100*time.Millisecond, 500*time.Millisecond), Do: freeze},
		{Name: "F8 long pause", Weight: 5, Hold: span2(3*time.Second, 8*time.Second), Do: freeze},
		{Name: "rolling restart", Weight: 2, Planned: true, Alone: true, Do: func(ctx context.Context, r *Run, _ *rand.Rand) (string, func(context.Context) error, error) {
			return "all, one by one", nil, r.RollingRestart(ctx)
		}},
	}
}

// span2 says how long a fault lasts.
func span2(from, to time.Duration) [2]time.Duration { return [2]time.Duration{from, to} }

func (r *Run) killSeveral(random *rand.Rand, n int) (string, func(context.Context) error, error) {
	members := r.several(random, n)
	for _, m := range members {
		m.MayEnd.Store(true)
		if err := m.Signal(syscall.SIGKILL); err != nil { // all at the same moment, and only then waited for
			return m.ID, nil, err
		}
	}
	for _, m := range members {
		if err := r.Kill(m); err != nil {
			return m.ID, nil, err
		}
	}
	return idsOf(members), nil, nil
}

// stopAll sends SIGTERM to all at once: the last ones have no majority to hand anything over to, and must come to their end all the same.
func stopAll(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
	members := r.several(random, len(r.Members()))
	for _, m := range members {
		m.MayEnd.Store(true)
		if err := m.Signal(syscall.SIGTERM); err != nil {
			return m.ID, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, m := range members {
		if err := m.AwaitEnd(ctx); err != nil {
			return m.ID, nil, errors.Join(err, r.Kill(m))
		}
	}
	return idsOf(members), nil, nil
}

func freeze(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
	m := r.victim(ctx, random)
	if m == nil {
		return "", nil, errNobody
	}
	return m.ID, func(context.Context) error { return m.Signal(syscall.SIGCONT) }, m.Signal(syscall.SIGSTOP)
}

// RollingRestart stops each member softly and starts it again, and waits each time until every shard takes writes.
func (r *Run) RollingRestart(ctx context.Context) error {
	for _, m := range r.Members() {
		stopping, cancel := context.WithTimeout(ctx, time.Minute)
		err := r.Terminate(stopping, m)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", m.ID, err, lastLines(m.Output(), 10))
		}
		if err := r.Launch(m); err != nil {
			return err
		}
		if err := m.Ready(ctx); err != nil {
			return fmt.Errorf("%s: %w\n%s", m.ID, err, lastLines(m.Output(), 10))
		}
		if err := r.AwaitCaughtUp(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// AwaitCaughtUp waits until a member's own view says that it has applied what the leaders had when it was asked first.
func (c *Cluster) AwaitCaughtUp(ctx context.Context, m *Member) error {
	want := map[uint32]uint64{}
	for _, v := range c.View(ctx) {
		for _, s := range v.GetShards() {
			want[s.GetNumber()] = max(want[s.GetNumber()], positionIndex(s.GetAppliedPosition()))
		}
	}
	for {
		behind := ""
		for _, v := range c.View(ctx) {
			if v.GetAnsweredBy() != m.ID {
				continue
			}
			behind = "nothing"
			for _, s := range v.GetShards() {
				if at := positionIndex(s.GetAppliedPosition()); s.GetAppliedPosition() != "" && at < want[s.GetNumber()] {
					behind = fmt.Sprintf("shard %d is at %d, want %d", s.GetNumber(), at, want[s.GetNumber()])
				}
			}
		}
		if behind == "nothing" {
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%s does not catch up: %s: %w", m.ID, behind, ctx.Err())
		}
	}
}
