package plan_test

import (
	"testing"

	"github.com/sealane/sealane/catalog/plan"
)

// BenchmarkNext is one round's planning at rest, in a usual cluster and in the largest one.
func BenchmarkNext(b *testing.B) {
	for _, size := range []struct {
		name   string
		nodes  int
		shards uint32
	}{{"3-nodes-16-shards", 3, 16}, {"64-nodes-64-shards", 64, 64}} {
		b.Run(size.name, func(b *testing.B) {
			w := newWorld(b, 1, size.nodes, size.shards)
			w.settle()
			v := w.view()
			if steps := plan.Next(v); len(steps) != 0 {
				b.Fatalf("%d steps at rest", len(steps))
			}
			for b.Loop() {
				plan.Next(v)
			}
		})
	}
}
