package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sealane/sealane/server/fault"
)

// diskFaults are slow, hanging, failing and full disks, clocks that move, and goroutines that stall.
func diskFaults() []Fault {
	return []Fault{
		{Name: "F14 slow disk", Weight: 4, Hold: span2(3*time.Second, 8*time.Second), Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			delay := time.Duration(10+random.IntN(490)) * time.Millisecond
			members := r.several(random, 1+(random.IntN(2)*(len(r.Members())-1)))
			return r.suffer(ctx, members, delay.String(), false, func(s *fault.Spec) { s.Disk = fault.Disk{SyncDelay: delay} })
		}},
		{Name: "F15 hanging disk", Weight: 3, Hold: span2(2*time.Second, 8*time.Second), Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			return r.suffer(ctx, r.several(random, 1), "", true, func(s *fault.Spec) { s.Disk = fault.Disk{Hang: true} })
		}},
		{Name: "F15 disk hangs for good", Weight: 1, Hold: span2(25*time.Second, 26*time.Second), Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			return r.suffer(ctx, r.several(random, 1), "", true, func(s *fault.Spec) { s.Disk = fault.Disk{Hang: true} })
		}},
		{Name: "F16 EIO once", Weight: 3, Hold: span2(time.Second, 3*time.Second), Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			disk := fault.Disk{FailSyncs: 1}
			if random.IntN(2) == 0 {
				disk = fault.Disk{FailWrites: 1}
			}
			return r.suffer(ctx, r.several(random, 1), fmt.Sprintf("%+v", disk), true, func(s *fault.Spec) { s.Disk = disk })
		}},
		{Name: "F17 full disk", Weight: 3, Hold: span2(time.Second, 6*time.Second), Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			return r.suffer(ctx, r.several(random, 1), "", true, func(s *fault.Spec) { s.Disk = fault.Disk{Full: true} })
		}},
		{Name: "F17 nearly full disk", Weight: 2, Hold: span2(2*time.Second, 5*time.Second), Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			members := r.several(random, 1+random.IntN(len(r.Members())))
			return r.suffer(ctx, members, "", false, func(s *fault.Spec) { s.Disk = fault.Disk{FreeBytes: 1 << 20} })
		}},
		{Name: "F25 clock step", Weight: 3, Hold: span2(3*time.Second, 10*time.Second), Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			step := time.Hour
			if random.IntN(2) == 0 {
				step = -time.Hour
			}
			return r.suffer(ctx, r.several(random, 1), step.String(), false, func(s *fault.Spec) { s.Clock = fault.Wall{Step: step} })
		}},
		{Name: "F25 clock drift", Weight: 2, Hold: span2(3*time.Second, 10*time.Second), Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			ppm := int64(random.IntN(400_000) - 200_000)
			return r.suffer(ctx, r.several(random, 1), fmt.Sprint(ppm, " ppm"), false, func(s *fault.Spec) { s.Clock = fault.Wall{DriftPPM: ppm} })
		}},
		{Name: "F35 stall", Weight: 4, Hold: span2(time.Second, 6*time.Second), Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			points := []string{fault.PointPropose, fault.PointApply, fault.PointEffects, fault.PointReply, fault.PointGate, fault.PointSend}
			point := points[random.IntN(len(points))]
			pause := fault.Pause{For: time.Duration(1+random.IntN(3000)) * time.Millisecond, Times: int64(1 + random.IntN(3))}
			members := r.several(random, 1+random.IntN(len(r.Members())))
			return r.suffer(ctx, members, fmt.Sprintf("%s %s x%d", point, pause.For, pause.Times), false, func(s *fault.Spec) { s.Stalls = map[string]fault.Pause{point: pause} })
		}},
	}
}

// suffer makes something wrong inside some nodes; undoing it touches nothing else that may be wrong with them. mayEnd says that the process may stop for it.
func (r *Run) suffer(
	ctx context.Context, members []*Member, what string, mayEnd bool, change func(*fault.Spec),
) (string, func(context.Context) error, error) {
	var touched fault.Spec
	change(&touched)
	clear := func(s *fault.Spec) {
		if touched.Disk != (fault.Disk{}) {
			s.Disk = fault.Disk{}
		}
		if touched.Clock != (fault.Wall{}) {
			s.Clock = fault.Wall{}
		}
		if touched.Stalls != nil {
			s.Stalls = nil
		}
	}
	undo := func(ctx context.Context) error {
		var last error
		for _, m := range members {
			if err := m.Faults.Set(ctx, clear); err != nil && m.Running() {
				last = fmt.Errorf("%s: %w", m.ID, err)
			}
		}
		return last
	}
	for _, m := range members {
		if mayEnd {
			m.MayEnd.Store(true)
		}
		if err := m.Faults.Set(ctx, change); err != nil {
			return m.ID, undo, err
		}
	}
	return fmt.Sprintf("%s: %s", idsOf(members), what), undo, nil
}
