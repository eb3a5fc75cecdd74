package integration

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// scale is how many messages a troubled lane holds: thousands in every run, more in nightly.
func scale(t *testing.T, name string, small int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return small
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a number", name, v)
	}
	return n
}

// fill submits n messages through one stream.
func (n *node) fill(t *testing.T, destination string, count int, at time.Time) {
	t.Helper()
	stream, err := n.delivery.SubmitStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var due *timestamppb.Timestamp
	if !at.IsZero() {
		due = timestamppb.New(at)
	}
	go func() {
		for i := 0; i < count; i += 100 {
			q := &sealanev1.SubmitStreamRequest{}
			for j := i; j < min(i+100, count); j++ {
				q.Items = append(q.Items, &sealanev1.SubmitStreamItem{Sequence: uint64(j), Message: &sealanev1.SubmitRequest{Destination: destination, Payload: []byte("x"), DeliverAt: due}})
			}
			if stream.Send(q) != nil {
				return // Recv below says why
			}
		}
		_ = stream.CloseSend() // as above
	}()
	for got := 0; got < count; {
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r.Results {
			if x.GetError() != nil {
				t.Fatalf("%s: %v", destination, x.GetError())
			}
		}
		got += len(r.Results)
	}
}

// TestIsolation: one lane hangs, one is refused, one answers 401 to everything, one has everything overdue at once. The healthy lane beside them
// delivers every message; nothing behind the trouble is dead-lettered; goroutines stay bounded (P8, R178, R194, R197).
func TestIsolation(t *testing.T) {
	n := open(t, t.TempDir())
	hung, release := context.WithCancel(t.Context())
	defer release()
	hanging := serve(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-hung.Done():
		case <-r.Context().Done():
		}
	})
	var denied, overdue, healthy atomic.Int64
	unauthorised := serve(t, func(w http.ResponseWriter, r *http.Request) { denied.Add(1); w.WriteHeader(http.StatusUnauthorized) })
	slow := serve(t, func(http.ResponseWriter, *http.Request) { overdue.Add(1) })
	fine := serve(t, func(http.ResponseWriter, *http.Request) { healthy.Add(1) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + l.Addr().String()
	l.Close()
	for name, url := range map[string]string{"hanging": hanging, "denied": unauthorised, "refused": refused, "overdue": slow, "healthy": fine} {
		n.apply(t, webhook(name, url))
	}
	backlog := scale(t, "SEALANE_TEST_OVERDUE", 20_000)
	soon := time.Now().Add(3 * time.Second)
	n.fill(t, "overdue", backlog, soon)
	n.fill(t, "denied", scale(t, "SEALANE_TEST_DENIED", 10_000), time.Time{})
	n.fill(t, "hanging", 2000, time.Time{})
	n.fill(t, "refused", 2000, time.Time{})
	const count = 500
	for i := range count {
		n.submit(t, "healthy", []byte(fmt.Sprint(i)))
	}
	eventually(t, "the healthy lane delivered everything", func() bool { return healthy.Load() == count && n.lane(t, "healthy").Kept.GetDelivered() == count })
	if overdue.Load() >= int64(backlog) {
		t.Log("the backlog was already through; isolation from it was not exercised")
	}
	for _, name := range []string{"hanging", "denied", "refused"} {
		lane := n.lane(t, name)
		if lane.Kept.GetDeadLettered() != 0 {
			t.Errorf("%s: %d dead letters", name, lane.Kept.GetDeadLettered())
		}
		t.Logf("%-8s held by %-16s in flight %d uncertain %d %s", name, lane.Hold, lane.InFlight, lane.Uncertain, lane.GetBlocked().GetClass())
	}
	if lane := n.lane(t, "hanging"); lane.InFlight > 64 {
		t.Errorf("the hanging lane has %d in flight, its limit is 32", lane.InFlight)
	}
	if d := denied.Load(); d > 64 {
		t.Errorf("the lane that answers 401 saw %d requests; its circuit should have opened after five failures and what was in flight", d)
	}
	if g := runtime.NumGoroutine(); g > 1500 {
		t.Errorf("%d goroutines", g)
	}
	if backlog <= 50_000 { // a larger one takes longer than a test should; that the others were not held up is what this is about
		eventually(t, "the overdue lane caught up", func() bool { return overdue.Load() == int64(backlog) })
	}
	release()
}

// TestRestart: what was acknowledged is there after a clean stop, delivered once and not again.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	var requests atomic.Int64
	url := serve(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	n := open(t, dir)
	n.apply(t, webhook("d", url))
	now := n.submit(t, "d", []byte("now"))
	later, err := n.delivery.Submit(t.Context(), &sealanev1.SubmitRequest{
		Destination: "d", Payload: []byte("later"), DeliverAt: timestamppb.New(time.Now().Add(2 * time.Second)), IdempotencyKey: "once",
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first was delivered", func() bool { return n.lane(t, "d").Kept.GetDelivered() == 1 })
	n.close(t)
	n = open(t, dir)
	again, err := n.delivery.Submit(t.Context(), &sealanev1.SubmitRequest{Destination: "d", Payload: []byte("other"), IdempotencyKey: "once"})
	if err == nil {
		t.Errorf("another body under the key was accepted as %s", again.MessageId)
	}
	eventually(t, "the second was delivered", func() bool { return n.lane(t, "d").Kept.GetDelivered() == 2 })
	for _, id := range []string{now.MessageId, later.MessageId} {
		m, err := n.query.GetMessage(t.Context(), &sealanev1.GetMessageRequest{Id: id})
		if err != nil || m.Message.State != sealanev1.GenerationState_DELIVERED || len(m.Message.Generations[0].Attempts) != 1 {
			t.Errorf("%s: %v, %v", id, m, err)
		}
	}
	if requests.Load() != 2 {
		t.Errorf("the receiver saw %d requests", requests.Load())
	}
}
