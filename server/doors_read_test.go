package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Listings page over lanes and shards and give every row once, filtered or not.
func TestListings(t *testing.T) {
	b := startNode(t)
	ids := make(map[string]bool)
	for i := range 7 {
		name := fmt.Sprintf("d%d", i)
		b.apply(t, name, "http://127.0.0.1:1/never", func(d *sealanev1.Destination) { d.Lane = &sealanev1.LaneLimits{Spread: uint32(1 + i%3)} })
		for range 5 {
			ids[b.submit(t, &sealanev1.SubmitRequest{Destination: name}).GetMessageId()] = true
		}
	}
	for _, c := range []struct {
		name string
		req  *sealanev1.ListMessagesRequest
		want int
	}{
		{"all", &sealanev1.ListMessagesRequest{PageSize: 3}, 35},
		{"scheduled", &sealanev1.ListMessagesRequest{PageSize: 4, State: sealanev1.GenerationState_SCHEDULED}, 35},
		{"delivered", &sealanev1.ListMessagesRequest{State: sealanev1.GenerationState_DELIVERED}, 0},
		{"of a destination with three lanes", &sealanev1.ListMessagesRequest{PageSize: 2, Destination: "d2"}, 5},
		{"accepted in the future", &sealanev1.ListMessagesRequest{AcceptedAfter: timestamppb.New(time.Now().Add(time.Hour))}, 0},
		{"accepted before that", &sealanev1.ListMessagesRequest{PageSize: 8, AcceptedBefore: timestamppb.New(time.Now().Add(time.Hour))}, 35},
		{"of nobody", &sealanev1.ListMessagesRequest{Destination: "nobody"}, 0},
	} {
		seen := make(map[string]bool)
		for page := 0; ; page++ {
			out, err := b.query.ListMessages(t.Context(), c.req)
			if err != nil || page > 50 {
				t.Fatal(c.name, page, err)
			}
			for _, m := range out.GetMessages() {
				if seen[m.GetId()] || !ids[m.GetId()] {
					t.Fatalf("%s: %s appears twice or from nowhere", c.name, m.GetId())
				}
				seen[m.GetId()] = true
			}
			if c.req.PageToken = out.GetNextPageToken(); c.req.PageToken == "" {
				break
			}
		}
		if len(seen) != c.want {
			t.Errorf("%s: %d of %d", c.name, len(seen), c.want)
		}
	}
}

// Lanes and destinations page by name.
func TestListingsByName(t *testing.T) {
	b := startNode(t)
	for i := range 7 {
		name := fmt.Sprintf("d%d", i)
		b.apply(t, name, "http://127.0.0.1:1/never", func(d *sealanev1.Destination) { d.Lane = &sealanev1.LaneLimits{Spread: uint32(1 + i%3)} })
		for range 5 {
			b.submit(t, &sealanev1.SubmitRequest{Destination: name})
		}
	}
	lanes := make(map[string]bool)
	req := &sealanev1.ListLanesRequest{PageSize: 2}
	for {
		out, err := b.query.ListLanes(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range out.GetLanes() {
			key := fmt.Sprintf("%s/%d", l.GetDestination(), l.GetSlot())
			if lanes[key] {
				t.Fatalf("lane %s twice", key)
			}
			lanes[key] = true
		}
		if req.PageToken = out.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if len(lanes) < 7 {
		t.Fatalf("%d lanes", len(lanes))
	}
	destinations := &sealanev1.ListDestinationsRequest{PageSize: 3}
	var names []string
	for {
		out, err := b.destination.ListDestinations(t.Context(), destinations)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range out.GetDestinations() {
			names = append(names, d.GetName())
		}
		if destinations.PageToken = out.GetNextPageToken(); destinations.PageToken == "" {
			break
		}
	}
	if got := strings.Join(names, " "); got != "d0 d1 d2 d3 d4 d5 d6" {
		t.Fatal(got)
	}
}

// A read at a position sees it; a position that is not reached is PENDING with how far the shard is; linearizable sees what was
// acknowledged before (R181, R184).
func TestConsistency(t *testing.T) {
	b := startNode(t)
	b.apply(t, "out", "http://127.0.0.1:1/never")
	for range 20 {
		r := b.submit(t, &sealanev1.SubmitRequest{Destination: "out"})
		got, err := b.query.GetMessage(t.Context(), &sealanev1.GetMessageRequest{Id: r.GetMessageId(), Position: r.GetPosition()})
		if err != nil || got.GetMessage().GetAcceptedPosition() != r.GetPosition() || got.GetRead().GetStatus() != sealanev1.ReadStatus_ANSWERED {
			t.Fatal(got, err)
		}
	}
	r := b.submit(t, &sealanev1.SubmitRequest{Destination: "out"})
	number, _, _ := strings.Cut(r.GetPosition(), ":")
	far := number + ":1000000"
	got, err := b.query.GetMessage(t.Context(), &sealanev1.GetMessageRequest{Id: r.GetMessageId(), Position: far, Wait: durationpb.New(time.Millisecond)})
	if err != nil || got.GetMessage() != nil || got.GetRead().GetStatus() != sealanev1.ReadStatus_PENDING || got.GetRead().GetAppliedPosition() == "" {
		t.Fatal(got, err)
	}
	list, err := b.query.ListMessages(t.Context(), &sealanev1.ListMessagesRequest{Positions: []string{far}, Wait: durationpb.New(0)})
	if err != nil || len(list.GetMessages()) != 0 || !slices.ContainsFunc(list.GetReads(), func(m *sealanev1.ReadMetadata) bool {
		return m.GetStatus() == sealanev1.ReadStatus_PENDING
	}) {
		t.Fatal(list, err)
	}
	local, err := b.query.GetMessage(t.Context(), &sealanev1.GetMessageRequest{Id: r.GetMessageId(), Position: far, Consistency: sealanev1.Consistency_local})
	if err != nil || local.GetMessage() == nil {
		t.Fatal(local, err)
	}
	wait, err := b.query.WaitPosition(t.Context(), &sealanev1.WaitPositionRequest{Position: r.GetPosition()})
	if err != nil || wait.GetRead().GetStatus() != sealanev1.ReadStatus_ANSWERED {
		t.Fatal(wait, err)
	}
	// The caller's own deadline is an error and never PENDING.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err = b.query.WaitPosition(ctx, &sealanev1.WaitPositionRequest{Position: far}); status.Code(err) != codes.DeadlineExceeded {
		t.Fatal(err)
	}
	for name, req := range map[string]*sealanev1.GetMessageRequest{
		"no position": {Consistency: sealanev1.Consistency_position}, "wait too long": {Wait: durationpb.New(61 * time.Second)}, "what": {Consistency: 9},
	} {
		req.Id = r.GetMessageId()
		if _, err := b.query.GetMessage(t.Context(), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A watch sends the present state, then each change, and ends with the generation; over REST as lines of JSON.
func TestWatch(t *testing.T) {
	r := newReceiver(t)
	b := startNode(t)
	b.apply(t, "out", r.URL+"/ok")
	id := b.submit(t, &sealanev1.SubmitRequest{Destination: "out", DeliverAt: timestamppb.New(time.Now().Add(time.Hour)), Payload: []byte("p")}).GetMessageId()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/v1/messages/"+id+":watch?include_payload=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func() map[string]any {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		var line struct {
			Result struct {
				Message map[string]any `json:"message"`
			} `json:"result"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		return line.Result.Message
	}
	if m := next(); m["state"] != "SCHEDULED" || m["payload"] != "cA==" {
		t.Fatal(m)
	}
	if _, err := b.delivery.Reschedule(t.Context(), &sealanev1.RescheduleRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	states := []string{}
	for {
		m := next()
		states = append(states, fmt.Sprint(m["generation"], m["state"]))
		if m["payload"] != "" {
			t.Fatal("the payload was sent again")
		}
		if m["state"] == "DELIVERED" {
			break
		}
	}
	if lines.Scan() {
		t.Fatalf("more after the end: %s", lines.Bytes())
	}
	if states[len(states)-1] != "2DELIVERED" {
		t.Fatal(states)
	}
	// At a position at which it had ended there is nothing to send.
	position := b.get(t, id).GetGenerations()[1].GetEndedPosition()
	stream, err := b.query.WatchMessage(t.Context(), &sealanev1.WatchMessageRequest{Id: id, Position: position})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(m, err)
	}
	code, out := b.call(t, http.MethodGet, "/v1/messages/msg_x:watch", "")
	if got := problemIn(out); code != http.StatusBadRequest || got.reason != "INVALID_ID" {
		t.Fatal(code, out)
	}
}

// A node that stops ends its streams with a reason, answers what it took, and leaves nothing running.
func TestStopWithOpenStreams(t *testing.T) {
	b := startNode(t)
	b.apply(t, "out", "http://127.0.0.1:1/never")
	id := b.submit(t, &sealanev1.SubmitRequest{Destination: "out"}).GetMessageId()
	watch, err := b.query.WatchMessage(t.Context(), &sealanev1.WatchMessageRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	stream, err := b.delivery.SubmitStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	item := &sealanev1.SubmitStreamItem{Sequence: 1, Message: &sealanev1.SubmitRequest{Destination: "out"}}
	if err := stream.Send(&sealanev1.SubmitStreamRequest{Items: []*sealanev1.SubmitStreamItem{item}}); err != nil {
		t.Fatal(err)
	}
	if r, err := stream.Recv(); err != nil || r.GetResults()[0].GetSubmitted() == nil {
		t.Fatal(r, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err = watch.Recv(); err != nil {
			break
		}
	}
	if got := problemOf(t, err); got.reason != "NODE_STOPPING" {
		t.Errorf("watch: %v", err)
	}
	if _, err = stream.Recv(); problemOf(t, err).reason != "NODE_STOPPING" {
		t.Errorf("submit stream: %v", err)
	}
}
