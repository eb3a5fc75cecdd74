//go:build faults

package fault

import (
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard/host"
)

// Clock wraps the node's clock: its wall time steps and drifts as the control says.
func Clock(inner host.Clock) host.Clock { return &clock{inner, process} }

type clock struct {
	inner host.Clock
	c     *control
}

// Read gives the inner monotonic time and the wall time that the node is to believe.
func (k *clock) Read() (time.Duration, policy.Time) {
	mono, wall := k.inner.Read()
	s := k.c.now.Load()
	if w := s.spec.Clock; w != (Wall{}) {
		gained := int64(time.Since(s.since)) / 1000 * w.DriftPPM / 1000
		wall = wall.Add(w.Step + time.Duration(gained))
	}
	return mono, wall
}
