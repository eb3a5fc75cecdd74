package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// What a raw submit says in headers reaches message and receiver.
func TestRawSubmitHeaders(t *testing.T) {
	r := newReceiver(t)
	b := startNode(t)
	b.apply(t, "out", r.URL+"/ok")
	send := func() map[string]any {
		code, out := b.call(t, http.MethodPost, "/v1/destinations/out/messages", `{"a": 1}`, "Content-Type", "application/json", "Idempotency-Key", "k",
			"Sealane-Ordering-Key", "o", "Sealane-Deliver-At", "2020-01-02T03:04:05Z", "Sealane-Expire-At", time.Now().Add(time.Hour).Format("2006-01-02")+"T23:59:59Z",
			"Sealane-Attr-Tenant", "acme", "traceparent", goodTrace, "X-Other", "ignored")
		if code != http.StatusOK {
			t.Fatal(out)
		}
		return out
	}
	out := send()
	if got := slices.Sorted(maps.Keys(out)); !slices.Equal(got, []string{"deduplicated", "generation", "message_id", "position"}) {
		t.Fatalf("a submit answers with %v", got)
	}
	if again := send(); again["message_id"] != out["message_id"] || again["deduplicated"] != true {
		t.Fatal(again)
	}
	m := b.await(t, out["message_id"].(string), sealanev1.GenerationState_DELIVERED)
	if m.GetContentType() != "application/json" || m.GetIdempotencyKey() != "k" || m.GetOrderingKey() != "o" || m.GetTraceparent() != goodTrace ||
		m.GetAttributes()["tenant"] != "acme" || m.GetDeliverAt().GetSeconds() != 1577934245 || m.GetExpireAt() == nil {
		t.Fatal(m)
	}
	got := r.requests()
	if len(got) != 1 {
		t.Fatalf("%d requests", len(got))
	}
	h := got[0].header
	if h.Get("Content-Type") != "application/json" || h.Get("Traceparent") != goodTrace || h.Get("Sealane-Attr-Tenant") != "acme" || h.Get("X-Other") != "" {
		t.Fatal(h)
	}
	if h.Get("Webhook-Id") != m.GetId()+"-1" || h.Get("Idempotency-Key") != h.Get("Webhook-Id") {
		t.Fatal(h)
	}
}

// Items of a batch have their own results, in order; a bad one spoils no other.
func TestSubmitBatch(t *testing.T) {
	b := startNode(t)
	b.apply(t, "out", "http://127.0.0.1:1/never")
	var items []*sealanev1.SubmitRequest
	for i := range 200 {
		m := &sealanev1.SubmitRequest{Destination: "out", IdempotencyKey: fmt.Sprint(i % 100), Payload: fmt.Append(nil, i%100)}
		if i%10 == 3 {
			m.Destination = "nope"
		}
		items = append(items, m)
	}
	out, err := b.delivery.SubmitBatch(t.Context(), &sealanev1.SubmitBatchRequest{Messages: items})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range out.GetResults() {
		if i%10 == 3 {
			if got := problemOf(t, status.FromProto(r.GetError()).Err()); got != (problem{"DESTINATION_NOT_FOUND", "destination", "NOT_ACCEPTED"}) {
				t.Fatal(i, got)
			}
			continue
		}
		if r.GetSubmitted().GetDeduplicated() != (i >= 100) || r.GetSubmitted().GetMessageId() != out.GetResults()[i%100].GetSubmitted().GetMessageId() {
			t.Fatal(i, r)
		}
	}
	for name, messages := range map[string][]*sealanev1.SubmitRequest{
		"none": nil, "too many": make([]*sealanev1.SubmitRequest, 1001),
		"too large": {{Destination: "out", Payload: make([]byte, 9<<20)}, {Destination: "out", Payload: make([]byte, 9<<20)}},
	} {
		for i := range messages {
			if messages[i] == nil {
				messages[i] = &sealanev1.SubmitRequest{Destination: "out"}
			}
		}
		_, err := b.delivery.SubmitBatch(t.Context(), &sealanev1.SubmitBatchRequest{Messages: messages})
		if got := problemOf(t, err); got.field != "messages" || got.acceptance != "NOT_ACCEPTED" {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A stream answers every item once, whatever the order, and far more items than may be in flight at once.
func TestSubmitStream(t *testing.T) {
	b := startNode(t)
	b.apply(t, "out", "http://127.0.0.1:1/never")
	const items, perRequest = 3 * maxStreamInFlight, 100
	stream, err := b.delivery.SubmitStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		for at := 0; at < items; {
			req := &sealanev1.SubmitStreamRequest{}
			for ; len(req.Items) < perRequest && at < items; at++ {
				m := &sealanev1.SubmitRequest{Destination: "out", Payload: []byte("x")}
				if at%1000 == 7 {
					m.ContentType = "bad"
				}
				req.Items = append(req.Items, &sealanev1.SubmitStreamItem{Sequence: uint64(at), Message: m})
			}
			if err := stream.Send(req); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	seen := make(map[uint64]bool)
	ids := make(map[string]bool)
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := len(resp.GetResults()); n == 0 || n > maxBatch {
			t.Fatalf("a response with %d results", n)
		}
		for _, r := range resp.GetResults() {
			if seen[r.GetSequence()] {
				t.Fatalf("%d was answered twice", r.GetSequence())
			}
			seen[r.GetSequence()] = true
			if bad := r.GetSequence()%1000 == 7; bad != (r.GetError() != nil) {
				t.Fatal(r)
			}
			if r.GetSubmitted() != nil {
				ids[r.GetSubmitted().GetMessageId()] = true
			}
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if len(seen) != items || len(ids) != items-items/1000-1 {
		t.Fatalf("%d results, %d messages", len(seen), len(ids))
	}
}

// An empty or an overlong request ends the stream with a reason.
func TestSubmitStreamShape(t *testing.T) {
	b := startNode(t)
	stream, err := b.delivery.SubmitStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&sealanev1.SubmitStreamRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	if got := problemOf(t, err); got != (problem{"INVALID_REQUEST", "items", "NOT_ACCEPTED"}) {
		t.Fatal(got, err)
	}
}

func TestCancelAndReschedule(t *testing.T) {
	b := startNode(t)
	b.apply(t, "out", "http://127.0.0.1:1/never")
	later := timestamppb.New(time.Now().Add(time.Hour))
	id := b.submit(t, &sealanev1.SubmitRequest{Destination: "out", DeliverAt: later}).GetMessageId()
	re, err := b.delivery.Reschedule(t.Context(), &sealanev1.RescheduleRequest{Id: id, DeliverAt: later, RequestId: "r1"})
	if err != nil || re.GetGeneration() != 2 {
		t.Fatal(re, err)
	}
	again, err := b.delivery.Reschedule(t.Context(), &sealanev1.RescheduleRequest{Id: id, DeliverAt: later, RequestId: "r1"})
	if err != nil || again.GetGeneration() != 2 || !again.GetDeduplicated() {
		t.Fatal(again, err)
	}
	code, out := b.call(t, http.MethodPost, "/v1/messages/"+id+":cancel", `{"reason":"not needed"}`)
	if code != http.StatusOK || out["state"] != "CANCELLED" || out["generation"] != 2.0 {
		t.Fatal(code, out)
	}
	_, err = b.delivery.Cancel(t.Context(), &sealanev1.CancelRequest{Id: id})
	if got := problemOf(t, err); got.reason != "ALREADY_TERMINAL" {
		t.Fatal(got)
	}
	m := b.get(t, id)
	if len(m.GetGenerations()) != 2 || m.GetGenerations()[0].GetState() != sealanev1.GenerationState_SUPERSEDED || m.GetState() != sealanev1.GenerationState_CANCELLED {
		t.Fatal(m)
	}
	var events []string
	for _, h := range m.GetHistory() {
		events = append(events, h.GetEvent().String())
	}
	if got := strings.Join(events, " "); got != "ACCEPTED ENDED GENERATION_CREATED ENDED" && got != "ACCEPTED GENERATION_CREATED ENDED ENDED" {
		t.Fatal(got)
	}
}

// A permanent refusal is a dead letter with its evidence; the listing merges shards, newest first, page by page.
func TestDeadLetters(t *testing.T) {
	r := newReceiver(t)
	b := startNode(t)
	ids := make(map[string]bool)
	for i := range 6 {
		name := fmt.Sprintf("bad%d", i) // several destinations, so that several shards have some
		b.apply(t, name, r.URL+"/refuse")
		for range 3 {
			ids[b.submit(t, &sealanev1.SubmitRequest{Destination: name}).GetMessageId()] = true
		}
	}
	for id := range ids {
		b.await(t, id, sealanev1.GenerationState_DEAD_LETTERED)
	}
	req := &sealanev1.ListDeadLettersRequest{PageSize: 4, Consistency: sealanev1.Consistency_linearizable}
	var last time.Time
	seen, pages := make(map[string]bool), 0
	for {
		page, err := b.query.ListDeadLetters(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, d := range page.GetDeadLetters() {
			at := d.GetFailedAt().AsTime()
			if !last.IsZero() && at.After(last) {
				t.Fatalf("%s is newer than the one before", d.GetMessageId())
			}
			last = at
			if seen[d.GetMessageId()] || !ids[d.GetMessageId()] || d.GetLastErrorClass() != "HTTP_422" || len(d.GetAttempts()) != 0 {
				t.Fatal(d)
			}
			seen[d.GetMessageId()] = true
		}
		if page.GetNextPageToken() == "" {
			break
		}
		req.PageToken = page.GetNextPageToken()
	}
	if len(seen) != len(ids) || pages < 5 {
		t.Fatalf("%d of %d in %d pages", len(seen), len(ids), pages)
	}
	one, err := b.query.ListDeadLetters(t.Context(), &sealanev1.ListDeadLettersRequest{Destination: "bad3", ErrorClass: "HTTP_422"})
	if err != nil || len(one.GetDeadLetters()) != 3 {
		t.Fatal(one, err)
	}
	none, err := b.query.ListDeadLetters(t.Context(), &sealanev1.ListDeadLettersRequest{ErrorClass: "HTTP_500"})
	if err != nil || len(none.GetDeadLetters()) != 0 {
		t.Fatal(none, err)
	}
	id := one.GetDeadLetters()[0].GetMessageId()
	full, err := b.query.GetDeadLetter(t.Context(), &sealanev1.GetDeadLetterRequest{MessageId: id})
	if err != nil || len(full.GetDeadLetter().GetAttempts()) != 1 || full.GetDeadLetter().GetReason() != sealanev1.TerminalReason_PERMANENT_FAILURE {
		t.Fatal(full, err)
	}
}

// A lost answer is uncertain: it is in the inbox with what is known and what may be done, and an operator decides. The same operation
// again gives the same answer; its id for anything else is a conflict.
func TestUncertainAndResolve(t *testing.T) {
	r := newReceiver(t)
	b := startNode(t)
	b.apply(t, "drop", r.URL+"/drop")
	id := b.submit(t, &sealanev1.SubmitRequest{Destination: "drop", Payload: []byte("x")}).GetMessageId()
	b.await(t, id, sealanev1.GenerationState_UNCERTAIN)
	_, err := b.delivery.Cancel(t.Context(), &sealanev1.CancelRequest{Id: id})
	if got := problemOf(t, err); got.reason != "TOO_LATE" {
		t.Fatal(got)
	}
	for name, req := range map[string]*sealanev1.ListUncertainAttemptsRequest{
		"all": {}, "of the destination": {Destination: "drop"}, "of the message": {MessageId: id},
	} {
		list, err := b.query.ListUncertainAttempts(t.Context(), req)
		if err != nil || len(list.GetUncertainAttempts()) != 1 {
			t.Fatal(name, list, err)
		}
		u := list.GetUncertainAttempts()[0]
		if u.GetMessageId() != id || u.GetAttempt() != 1 || u.GetCause() == "" || len(u.GetKnown()) < 2 || len(u.GetActions()) != 4 || u.GetAge() == nil {
			t.Fatal(name, u)
		}
		for _, a := range u.GetActions() {
			if !a.GetAllowed() || a.GetExplanation() == "" {
				t.Fatal(name, a)
			}
		}
	}
	old, err := b.query.ListUncertainAttempts(t.Context(), &sealanev1.ListUncertainAttemptsRequest{MinAge: durationpb.New(time.Hour)})
	if err != nil || len(old.GetUncertainAttempts()) != 0 {
		t.Fatal(old, err)
	}
	body := `{"operation_id":"op-8","reason":"seen in their log","resolve":{"message_id":"` + id + `","attempt":1,"verdict":"PUBLISHED","evidence":"line 7"}}`
	code, first := b.call(t, http.MethodPost, "/v1/operations", body)
	if code != http.StatusOK || first["state"] != "COMPLETED" || first["actor"] != "local" {
		t.Fatal(code, first)
	}
	code, again := b.call(t, http.MethodPost, "/v1/operations", body)
	if x, y := asJSON(t, first), asJSON(t, again); code != http.StatusOK || x != y {
		t.Fatalf("%s\n%s", x, y)
	}
	code, out := b.call(t, http.MethodPost, "/v1/operations", strings.Replace(body, "line 7", "line 8", 1))
	if got := problemIn(out); code != http.StatusConflict || got.reason != "OPERATION_CONFLICT" {
		t.Fatal(code, out)
	}
	m := b.get(t, id)
	res := m.GetGenerations()[0].GetAttempts()[0].GetResolutions()
	if m.GetState() != sealanev1.GenerationState_DELIVERED || len(res) != 1 || !res[0].GetOverride() || res[0].GetActor() != "local" ||
		res[0].GetOperationId() != "op-8" || res[0].GetEvidence().GetDetail() != "line 7" {
		t.Fatal(m)
	}
	code, out = b.call(t, http.MethodPost, "/v1/operations", strings.Replace(body, "op-8", "op-9", 1))
	if code != http.StatusOK || out["state"] != "REJECTED" {
		t.Fatal(code, out)
	}
	rejected, _ := out["error"].(map[string]any)
	if got := problemIn(rejected); got.reason != "ATTEMPT_NOT_UNCERTAIN" {
		t.Fatal(out)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A paused lane says so, holds what arrives, and delivers it when it is resumed.
func TestPauseAndResume(t *testing.T) {
	r := newReceiver(t)
	b := startNode(t)
	b.apply(t, "out", r.URL+"/ok")
	b.await(t, b.submit(t, &sealanev1.SubmitRequest{Destination: "out"}).GetMessageId(), sealanev1.GenerationState_DELIVERED)
	op := func(id, kind string) map[string]any {
		_, out := b.call(t, http.MethodPost, "/v1/operations", `{"operation_id":"`+id+`","reason":"because","`+kind+`":{"destination":"out"}}`)
		return out
	}
	if out := op("p1", "pause_lane"); out["state"] != "COMPLETED" {
		t.Fatal(out)
	}
	if out := op("p2", "pause_lane"); out["state"] != "REJECTED" { // nothing to do, and nothing was done
		t.Fatal(out)
	}
	id := b.submit(t, &sealanev1.SubmitRequest{Destination: "out"}).GetMessageId()
	lane, err := b.query.GetLane(t.Context(), &sealanev1.GetLaneRequest{Destination: "out"})
	if err != nil {
		t.Fatal(err)
	}
	l := lane.GetLane()
	if l.GetGate() != sealanev1.Gate_PAUSED || l.GetHold() != sealanev1.SendHold_PAUSED || l.GetGateReason() != "because" || l.GetGateActor() != "local" ||
		l.GetPending() != 1 || !strings.Contains(l.GetHoldExplanation(), "because") || l.GetControlVersion() != 1 {
		t.Fatal(l)
	}
	if m := b.get(t, id); m.GetState() != sealanev1.GenerationState_SCHEDULED {
		t.Fatal(m)
	}
	troubled, err := b.query.ListLanes(t.Context(), &sealanev1.ListLanesRequest{TroubledOnly: true})
	if err != nil || len(troubled.GetLanes()) != 1 {
		t.Fatal(troubled, err)
	}
	if out := op("r1", "resume_lane"); out["state"] != "COMPLETED" {
		t.Fatal(out)
	}
	b.await(t, id, sealanev1.GenerationState_DELIVERED)
	if out := op("c1", "reset_circuit"); out["state"] != "COMPLETED" {
		t.Fatal(out)
	}
	_, err = b.query.GetLane(t.Context(), &sealanev1.GetLaneRequest{Destination: "none"})
	if got := problemOf(t, err); got.reason != "LANE_NOT_FOUND" {
		t.Fatal(got)
	}
}

// What an operator and a prober look at.
func TestHealthMetricsAndCluster(t *testing.T) {
	r := newReceiver(t)
	b := startNode(t)
	b.apply(t, "out", r.URL+"/ok")
	b.apply(t, "down", "http://127.0.0.1:1/never")
	b.await(t, b.submit(t, &sealanev1.SubmitRequest{Destination: "out"}).GetMessageId(), sealanev1.GenerationState_DELIVERED)
	b.submit(t, &sealanev1.SubmitRequest{Destination: "down"}) // no destination makes a node unready
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, out := b.call(t, http.MethodGet, path, ""); code != http.StatusOK || out["status"] != "ok" {
			t.Errorf("%s: %d %v", path, code, out)
		}
	}
	code, page := b.raw(t, http.MethodGet, "/metrics", nil)
	if code != http.StatusOK {
		t.Fatal(code)
	}
	for _, want := range []string{
		`sealane_attempts_total{side_effect="published"} 1`, `sealane_attempts_total{side_effect="not_published"} 0`,
		`sealane_attempts_total{side_effect="unknown"} 0`, `sealane_submits_total{result="accepted"} 2`, `sealane_lane_messages{destination="out",state="delivered"} 1`,
		`sealane_generations_ended_total{state="delivered"} 1`, `sealane_due_to_sent_seconds_count 1`, `sealane_clock_gate_closed 0`, `sealane_scrape_errors 0`,
		`sealane_shard_leading{shard="3"} 1`, `sealane_circuits{phase="half_open"} 0`, `sealane_proposal_seconds_count`, `sealane_storage_fsyncs_total`,
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %s", want)
		}
	}
	if code, front := b.raw(t, http.MethodGet, "/", nil); code != http.StatusOK || !strings.Contains(string(front), "/openapi.json") {
		t.Error(code)
	}
	if code, out := b.call(t, http.MethodGet, "/openapi.json", ""); code != http.StatusOK || out["swagger"] != "2.0" {
		t.Error(code)
	}
	code, cluster := b.call(t, http.MethodGet, "/v1/cluster", "")
	if code != http.StatusOK || len(cluster["shards"].([]any)) != 4 || cluster["nodes"].([]any)[0].(map[string]any)["grpc_address"] != b.n.GRPCAddr() {
		t.Error(code, cluster)
	}
	check, err := healthpb.NewHealthClient(b.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "sealane.v1.DeliveryService"})
	if err != nil || check.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Error(check, err)
	}
	reflecting, err := reflectionpb.NewServerReflectionClient(b.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	if err := reflecting.Send(ask); err != nil {
		t.Fatal(err)
	}
	list, err := reflecting.Recv()
	if err != nil || len(list.GetListServicesResponse().GetService()) < 6 {
		t.Error(list, err)
	}
	if err := reflecting.CloseSend(); err != nil {
		t.Error(err)
	}
}

// Labels stay bounded however many messages there are (R219).
func TestMetricLabelsAreBounded(t *testing.T) {
	r := newReceiver(t)
	b := startNode(t)
	b.apply(t, "out", r.URL+"/ok")
	series := func() int {
		_, page := b.raw(t, http.MethodGet, "/metrics", nil)
		n := 0
		for _, l := range strings.Split(string(page), "\n") {
			if strings.HasPrefix(l, "sealane_") {
				n++
			}
		}
		return n
	}
	b.await(t, b.submit(t, &sealanev1.SubmitRequest{Destination: "out"}).GetMessageId(), sealanev1.GenerationState_DELIVERED)
	series() // the scrape itself makes a series
	before := series()
	var last string
	for range 200 {
		last = b.submit(t, &sealanev1.SubmitRequest{Destination: "out", OrderingKey: "o"}).GetMessageId()
	}
	b.await(t, last, sealanev1.GenerationState_DELIVERED)
	if after := series(); after != before {
		t.Fatalf("%d series became %d", before, after)
	}
}

func TestDestinations(t *testing.T) {
	b := startNode(t)
	code, out := b.call(t, http.MethodPut, "/v1/destinations/billing", `{"http":{"url":"http://127.0.0.1:1/x","timeout":"1m30s"},"retry":{"schedule":["5s","5m"],"lifetime":"1h30m"}}`)
	if code != http.StatusOK || out["version"] != 1.0 || out["unchanged"] != false {
		t.Fatal(code, out)
	}
	code, out = b.call(t, http.MethodGet, "/v1/destinations/billing", "")
	if h := out["http"].(map[string]any); code != http.StatusOK || h["timeout"] != "90s" || h["status_verdicts"] != "receiver" {
		t.Fatal(code, out)
	}
	// What a node answers can be applied again as it is, and changes nothing.
	code, again := b.call(t, http.MethodPut, "/v1/destinations/billing", asJSON(t, out))
	if code != http.StatusOK || again["version"] != 1.0 || again["unchanged"] != true {
		t.Fatal(code, again)
	}
	code, out = b.call(t, http.MethodPut, "/v1/destinations/billing", `{"http":{"url":"http://127.0.0.1:1/y"}}`)
	if code != http.StatusOK || out["version"] != 2.0 {
		t.Fatal(code, out)
	}
	old, err := b.destination.GetDestination(t.Context(), &sealanev1.GetDestinationRequest{Name: "billing", Version: 1})
	if err != nil || old.GetDestination().GetHttp().GetUrl() != "http://127.0.0.1:1/x" {
		t.Fatal(old, err)
	}
	if code, out = b.call(t, http.MethodDelete, "/v1/destinations/billing", ""); code != http.StatusOK {
		t.Fatal(code, out)
	}
	for _, path := range []string{"/v1/destinations/billing", "/v1/destinations/nobody"} {
		code, out = b.call(t, http.MethodGet, path, "")
		if got := problemIn(out); code != http.StatusNotFound || got.reason != "DESTINATION_NOT_FOUND" {
			t.Fatal(path, code, out)
		}
	}
}
