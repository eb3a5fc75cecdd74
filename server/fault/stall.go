//go:build faults

package fault

import "time"

// Stall waits if the point is stalled.
func Stall(point string) { process.stall(point) }

func (c *control) stall(point string) {
	s := c.now.Load()
	p, ok := s.spec.Stalls[point]
	if !ok || p.Times > 0 && !take(s.passed[point]) {
		return
	}
	c.count("stall." + point)
	if p.For < 0 {
		<-s.changed
		return
	}
	t := time.NewTimer(p.For)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.changed:
	}
}
