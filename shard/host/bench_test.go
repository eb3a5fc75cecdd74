package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/sealane/sealane/shard"
)

// BenchmarkDeliver is the whole life of a message with the real machine over an in-memory state and receivers that answer at once: what the
// runtime, the machine and the state cost together. The log's packing is the test log's.
func BenchmarkDeliver(b *testing.B) {
	for _, lanes := range []int{1, 16} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			r := newRig(b)
			n := r.node("n1", nil)
			r.log.lead(n)
			names := make([]string, lanes)
			for i := range names {
				names[i] = fmt.Sprintf("d%d", i)
				rc := r.destination(names[i], func(d *shard.Destination) { d.Limits.MaxInFlight = 256 })
				rc.quiet, rc.latency = true, 0
			}
			const batch, ahead = 128, 2048
			b.ReportAllocs()
			b.ResetTimer()
			for sent := 0; sent < b.N; sent += batch {
				for int64(sent)-n.seen.returned.Load() > ahead {
					<-time.After(50 * time.Microsecond)
				}
				r.submit(names[sent/batch%lanes], min(batch, b.N-sent), nil)
			}
			for n.seen.returned.Load() < int64(b.N) {
				<-time.After(50 * time.Microsecond)
			}
			b.StopTimer()
			r.close()
		})
	}
}

// BenchmarkApplyOnly is the part of BenchmarkDeliver that is not the runtime's: the same three commands per message.
func BenchmarkApplyOnly(b *testing.B) {
	r := newRig(b)
	defer r.log.stop()
	n := &testNode{name: "n1", boot: 1, clock: &steppedClock{base: time.Now()}}
	n.stamper = NewStamper(n.clock, 0)
	r.log.leader = n
	r.destination("a", nil)
	b.ReportAllocs()
	b.ResetTimer()
	for sent := 0; sent < b.N; sent += 128 {
		m := min(128, b.N-sent)
		ids := r.submit("a", m, nil)
		admits, outcomes := make([]shard.Command, m), make([]shard.Command, m)
		for i, id := range ids {
			admits[i] = &shard.Admit{ID: id, Generation: 1, Attempt: 1}
			outcomes[i] = &shard.RecordOutcome{ID: id, Generation: 1, Attempt: 1, Outcome: published()}
		}
		r.log.do(admits...)
		r.log.do(outcomes...)
	}
}
