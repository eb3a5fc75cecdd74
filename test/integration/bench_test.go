package integration

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// BenchmarkDeliver is one message from SubmitStream to a durable outcome, over sixteen lanes, with client and receiver in the same process: for
// profiles and allocations. Rates are measured by test/bench, with processes of their own.
func BenchmarkDeliver(b *testing.B) {
	n := open(b, b.TempDir())
	var received atomic.Int64
	url := serve(b, func(http.ResponseWriter, *http.Request) { received.Add(1) })
	names := make([]string, 16)
	for i := range names {
		names[i] = fmt.Sprintf("d%d", i)
		n.apply(b, webhook(names[i], url))
	}
	stream, err := n.delivery.SubmitStream(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		payload := make([]byte, 256)
		for i := 0; i < b.N; i += 32 {
			q := &sealanev1.SubmitStreamRequest{}
			for j := i; j < min(i+32, b.N); j++ {
				q.Items = append(q.Items, &sealanev1.SubmitStreamItem{Sequence: uint64(j), Message: &sealanev1.SubmitRequest{
					Destination: names[j%16], Payload: payload, IdempotencyKey: fmt.Sprintf("k%d", j),
				}})
			}
			if stream.Send(q) != nil {
				return // Recv says why
			}
		}
		_ = stream.CloseSend() // as above
	}()
	for got := 0; got < b.N; {
		r, err := stream.Recv()
		if err != nil {
			b.Fatal(err)
		}
		got += len(r.Results)
	}
	for received.Load() < int64(b.N) {
		wait := time.NewTimer(time.Millisecond)
		<-wait.C
	}
	b.StopTimer()
}
