package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests; a machine under load needs more than an idle one.
const patience = 30 * time.Second

// receiver is an HTTP receiver that records what it saw and answers as its path says.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	seen []received
}

type received struct {
	path, id, contentType string
	header                http.Header
	body                  []byte
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.seen = append(r.seen, received{req.URL.Path, req.Header.Get("Webhook-Id"), req.Header.Get("Content-Type"), req.Header.Clone(), body})
		r.mu.Unlock()
		switch req.URL.Path {
		case "/drop":
			panic(http.ErrAbortHandler)
		case "/refuse":
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}))
	t.Cleanup(r.Server.Close)
	return r
}

func (r *receiver) requests() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.seen...)
}

// bench is a node in memory with clients for both of its doors.
type bench struct {
	n           *Node
	url         string
	http        *http.Client
	delivery    sealanev1.DeliveryServiceClient
	query       sealanev1.QueryServiceClient
	destination sealanev1.DestinationServiceClient
	control     sealanev1.ControlServiceClient
	cluster     sealanev1.ClusterServiceClient
	conn        *grpc.ClientConn
}

func startNode(t *testing.T, change ...func(*Config)) *bench {
	t.Helper()
	cfg := DefaultConfig()
	cfg.InMemory, cfg.AllowLoopbackDestinations, cfg.Shards, cfg.DrainTimeout = true, true, 4, time.Second
	cfg.GRPCAddr, cfg.HTTPAddr, cfg.PeerAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	for _, f := range change {
		f(&cfg)
	}
	n, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	conn, err := grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return &bench{
		n: n, url: "http://" + n.HTTPAddr(), http: &http.Client{Transport: transport, Timeout: patience}, conn: conn,
		delivery: sealanev1.NewDeliveryServiceClient(conn), query: sealanev1.NewQueryServiceClient(conn),
		destination: sealanev1.NewDestinationServiceClient(conn), control: sealanev1.NewControlServiceClient(conn),
		cluster: sealanev1.NewClusterServiceClient(conn),
	}
}

// apply registers a destination that points at a path of the receiver.
func (b *bench) apply(t *testing.T, name, url string, change ...func(*sealanev1.Destination)) {
	t.Helper()
	d := &sealanev1.Destination{Name: name, Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: url, Timeout: durationpb.New(10 * time.Second)}}}
	for _, f := range change {
		f(d)
	}
	if _, err := b.destination.ApplyDestination(t.Context(), &sealanev1.ApplyDestinationRequest{Destination: d}); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) submit(t *testing.T, m *sealanev1.SubmitRequest) *sealanev1.SubmitResponse {
	t.Helper()
	r, err := b.delivery.Submit(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (b *bench) get(t *testing.T, id string) *sealanev1.Message {
	t.Helper()
	r, err := b.query.GetMessage(t.Context(), &sealanev1.GetMessageRequest{
		Id: id, IncludePayload: true, Consistency: sealanev1.Consistency_linearizable,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetMessage()
}

// await follows a message until it is in a state.
func (b *bench) await(t *testing.T, id string, want sealanev1.GenerationState_Value) *sealanev1.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := b.query.WatchMessage(ctx, &sealanev1.WatchMessageRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			t.Fatalf("%s is not %s: %v", id, want, err)
		}
		if r.GetMessage().GetState() == want {
			return b.get(t, id)
		}
	}
}

// call makes a REST call and decodes its JSON.
func (b *bench) call(t *testing.T, method, path, body string, header ...string) (int, map[string]any) {
	t.Helper()
	code, raw := b.raw(t, method, path, strings.NewReader(body), header...)
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatalf("%s %s: %d %q: %v", method, path, code, raw, err)
	}
	return code, out
}

func (b *bench) raw(t *testing.T, method, path string, body io.Reader, header ...string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := b.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, raw
}

// problem is what an error's details say, over either door.
type problem struct {
	reason, field string
	acceptance    string
}

func problemOf(t *testing.T, err error) problem {
	t.Helper()
	st, ok := status.FromError(err)
	if !ok {
		t.Fatalf("%v has no status", err)
	}
	b, err := marshalJSON.Marshal(st.Proto())
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return problemIn(out)
}

func problemIn(body map[string]any) (p problem) {
	details, _ := body["details"].([]any)
	for _, d := range details {
		m := d.(map[string]any)
		switch {
		case m["reason"] != nil:
			p.reason = m["reason"].(string)
			if meta, ok := m["metadata"].(map[string]any); ok && meta["field"] != nil {
				p.field = meta["field"].(string)
			}
		case m["acceptance"] != nil:
			p.acceptance = m["acceptance"].(string)
		}
	}
	return p
}

// payloads are bytes that something on the way might be tempted to tidy up.
func payloads(limit int) map[string][]byte {
	return map[string][]byte{
		"empty":          {},
		"odd spacing":    []byte("{ \"a\" :1 ,\n\t\"b\":  2 }\r\n"),
		"doubled keys":   []byte(`{"a":1,"a":2}`),
		"markup":         []byte(`<a href="x?y=1&z=2">&amp;</a>`),
		"line separator": []byte("a\u2028b\u2029c"),
		"emoji":          []byte("🚚📦"),
		"NUL":            []byte("a\x00b\x00"),
		"not UTF-8":      {0xff, 0xfe, 0xc3, 0x28, 0x80},
		"big number":     []byte(`{"n":12345678901234567890.10}`),
		"form":           []byte("a=1&b=%20+"),
		"at the limit":   bytes.Repeat([]byte{0, 0xff, '\n', 'x'}, limit/4),
	}
}

// A payload reaches the receiver byte for byte, whichever way it came in, and reads back the same.
func TestPayloadsByteForByte(t *testing.T) {
	const limit = 64 << 10
	r := newReceiver(t)
	b := startNode(t, func(c *Config) { c.MaxPayloadBytes = limit })
	b.apply(t, "out", r.URL+"/ok")
	want := make(map[string][]byte) // by message id
	for name, p := range payloads(limit) {
		want[b.submit(t, &sealanev1.SubmitRequest{Destination: "out", Payload: p}).GetMessageId()] = p
		code, out := b.call(t, http.MethodPost, "/v1/destinations/out/messages", string(p), "Content-Type", "application/x-"+strings.ReplaceAll(name, " ", "-"))
		if code != http.StatusOK {
			t.Fatalf("%s: %d %v", name, code, out)
		}
		want[out["message_id"].(string)] = p
		body, err := json.Marshal(map[string]any{"destination": "out", "payload": p})
		if err != nil {
			t.Fatal(err)
		}
		if code, out = b.call(t, http.MethodPost, "/v1/messages", string(body)); code != http.StatusOK {
			t.Fatalf("%s: %d %v", name, code, out)
		}
		want[out["message_id"].(string)] = p
	}
	for id, p := range want {
		if m := b.await(t, id, sealanev1.GenerationState_DELIVERED); !bytes.Equal(m.GetPayload(), p) || int(m.GetPayloadSize()) != len(p) {
			t.Errorf("%s reads back as %d bytes, not %d", id, len(m.GetPayload()), len(p))
		}
	}
	for _, got := range r.requests() {
		id, _, _ := strings.Cut(got.id, "-")
		p, ok := want[id]
		if !ok {
			t.Errorf("the receiver got %s twice, or it is nobody's", id)
		}
		if !bytes.Equal(got.body, p) {
			t.Errorf("%s arrived as %d bytes %.20q, not %d bytes %.20q", id, len(got.body), got.body, len(p), p)
		}
		delete(want, id)
	}
	if len(want) > 0 {
		t.Errorf("%d messages did not arrive", len(want))
	}
}

// One byte over the limit is refused by name and limit, over every way in, and nothing is stored.
func TestOverTheLimit(t *testing.T) {
	const limit = 1 << 10
	b := startNode(t, func(c *Config) { c.MaxPayloadBytes = limit })
	b.apply(t, "out", "http://127.0.0.1:1/never")
	over := bytes.Repeat([]byte("x"), limit+1)
	want := problem{"TOO_LARGE", "payload", "NOT_ACCEPTED"}
	_, err := b.delivery.Submit(t.Context(), &sealanev1.SubmitRequest{Destination: "out", Payload: over})
	if got := problemOf(t, err); got != want || !strings.Contains(err.Error(), "1024") {
		t.Errorf("gRPC: %+v %v", got, err)
	}
	code, out := b.call(t, http.MethodPost, "/v1/destinations/out/messages", string(over))
	if got := problemIn(out); code != http.StatusRequestEntityTooLarge || got != want {
		t.Errorf("raw: %d %+v", code, got)
	}
	code, raw := b.raw(t, http.MethodPost, "/v1/destinations/out/messages", io.MultiReader(bytes.NewReader(over))) // chunked: no length
	if code != http.StatusRequestEntityTooLarge || !bytes.Contains(raw, []byte("NOT_ACCEPTED")) {
		t.Errorf("raw, chunked: %d %s", code, raw)
	}
	body, err := json.Marshal(map[string]any{"destination": "out", "payload": over})
	if err != nil {
		t.Fatal(err)
	}
	code, out = b.call(t, http.MethodPost, "/v1/messages", string(body))
	if got := problemIn(out); code != http.StatusRequestEntityTooLarge || got != want {
		t.Errorf("JSON: %d %+v", code, got)
	}
	code, out = b.call(t, http.MethodPost, "/v1/messages", `{"destination":"out","payload":"`+strings.Repeat("A", 1<<20)+`"}`)
	if got := problemIn(out); code != http.StatusRequestEntityTooLarge || got.reason != "TOO_LARGE" || got.acceptance != "NOT_ACCEPTED" {
		t.Errorf("a body beyond every limit: %d %+v", code, out)
	}
	list, err := b.query.ListMessages(t.Context(), &sealanev1.ListMessagesRequest{})
	if err != nil || len(list.GetMessages()) != 0 {
		t.Errorf("%d messages were stored, %v", len(list.GetMessages()), err)
	}
}

// 64 submits with one key at the same time make one message and give one answer, of which exactly one is the first (DESIGN 3).
func TestParallelSubmitsWithOneKey(t *testing.T) {
	b := startNode(t)
	b.apply(t, "out", "http://127.0.0.1:1/never")
	const n = 64
	answers := make([]*sealanev1.SubmitResponse, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			m := &sealanev1.SubmitRequest{Destination: "out", Payload: []byte("same"), IdempotencyKey: "k"}
			r, err := b.delivery.Submit(context.Background(), m)
			if err != nil {
				t.Error(err)
			}
			answers[i] = r
		})
	}
	wg.Wait()
	first := 0
	for _, r := range answers {
		if r.GetMessageId() != answers[0].GetMessageId() || r.GetPosition() != answers[0].GetPosition() || r.GetGeneration() != 1 {
			t.Fatalf("%v and %v", r, answers[0])
		}
		if !r.GetDeduplicated() {
			first++
		}
	}
	if first != 1 {
		t.Fatalf("%d answers say that they are the first", first)
	}
}

// The same key with other content is a conflict that names the field.
func TestConflictNamesTheField(t *testing.T) {
	b := startNode(t)
	b.apply(t, "out", "http://127.0.0.1:1/never")
	base := &sealanev1.SubmitRequest{
		Destination: "out", Payload: []byte("a"), IdempotencyKey: "k", ContentType: "text/plain", Attributes: map[string]string{"a": "1"},
	}
	b.submit(t, base)
	for field, change := range map[string]func(*sealanev1.SubmitRequest){
		"payload":      func(m *sealanev1.SubmitRequest) { m.Payload = []byte("b") },
		"content_type": func(m *sealanev1.SubmitRequest) { m.ContentType = "text/html" },
		"attributes":   func(m *sealanev1.SubmitRequest) { m.Attributes = map[string]string{"a": "2"} },
	} {
		m := proto.CloneOf(base)
		change(m)
		_, err := b.delivery.Submit(t.Context(), m)
		if got := problemOf(t, err); got != (problem{"IDEMPOTENCY_CONFLICT", field, "NOT_ACCEPTED"}) {
			t.Errorf("%s: %+v", field, got)
		}
	}
	same := proto.CloneOf(base)
	same.Traceparent = goodTrace // not part of what makes it the same message
	if r := b.submit(t, same); !r.GetDeduplicated() {
		t.Error("another trace made another message")
	}
}

func TestRefusals(t *testing.T) {
	b := startNode(t)
	b.apply(t, "out", "http://127.0.0.1:1/never")
	id := b.submit(t, &sealanev1.SubmitRequest{Destination: "out"}).GetMessageId()
	flipped := id[:10] + string('0'+('1'-id[10])%2) + id[11:]
	if flipped == id {
		flipped = id[:10] + "z" + id[11:]
	}
	other := startNode(t)
	other.apply(t, "out", "http://127.0.0.1:1/never")
	foreign := other.submit(t, &sealanev1.SubmitRequest{Destination: "out"}).GetMessageId()
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		code                     int
		want                     problem
	}{
		{"unknown destination", "POST", "/v1/destinations/nope/messages", "x", nil, 404, problem{"DESTINATION_NOT_FOUND", "destination", "NOT_ACCEPTED"}},
		{"bad destination", "POST", "/v1/destinations/NOPE/messages", "x", nil, 400, problem{"INVALID_REQUEST", "destination", "NOT_ACCEPTED"}},
		{"reserved attribute", "POST", "/v1/destinations/out/messages", "x", []string{"Sealane-Attr-Webhook-Id", "1"}, 400, problem{"INVALID_REQUEST", "attributes.webhook-id", "NOT_ACCEPTED"}},
		{"misspelt header", "POST", "/v1/destinations/out/messages", "x", []string{"Sealane-Deliver", "1"}, 400, problem{"INVALID_REQUEST", "Sealane-Deliver", "NOT_ACCEPTED"}},
		{"doubled header", "POST", "/v1/destinations/out/messages", "x", []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, 400, problem{"INVALID_REQUEST", "Idempotency-Key", "NOT_ACCEPTED"}},
		{"bad time", "POST", "/v1/destinations/out/messages", "x", []string{"Sealane-Deliver-At", "tomorrow"}, 400, problem{"INVALID_REQUEST", "Sealane-Deliver-At", "NOT_ACCEPTED"}},
		{"an encoding", "POST", "/v1/destinations/out/messages", "x", []string{"Content-Encoding", "gzip"}, 400, problem{"INVALID_REQUEST", "Content-Encoding", "NOT_ACCEPTED"}},
		{"expired already", "POST", "/v1/destinations/out/messages", "x", []string{"Sealane-Expire-At", "2001-01-01T00:00:00Z"}, 400, problem{"INVALID_DELIVERY_WINDOW", "expire_at", "NOT_ACCEPTED"}},
		{"line end in JSON", "POST", "/v1/messages", `{"destination":"out","attributes":{"a":"x\r\ny"}}`, nil, 400, problem{"INVALID_REQUEST", "attributes.a", "NOT_ACCEPTED"}},
		{"line end in a media type", "POST", "/v1/messages", `{"destination":"out","content_type":"text/plain\r\nX: y"}`, nil, 400, problem{"INVALID_REQUEST", "content_type", "NOT_ACCEPTED"}},
		{"misspelt field", "POST", "/v1/messages", `{"destinaton":"out"}`, nil, 400, problem{"INVALID_JSON", "", "NOT_ACCEPTED"}},
		{"not base64", "POST", "/v1/messages", `{"destination":"out","payload":"@"}`, nil, 400, problem{"INVALID_JSON", "", "NOT_ACCEPTED"}},
		{"empty batch", "POST", "/v1/messages:batch", `{}`, nil, 400, problem{"INVALID_REQUEST", "messages", "NOT_ACCEPTED"}},
		{"malformed id", "GET", "/v1/messages/msg_x", "", nil, 400, problem{"INVALID_ID", "id", ""}},
		{"damaged id", "GET", "/v1/messages/" + flipped, "", nil, 400, problem{"INVALID_ID", "id", ""}},
		{"another cluster's id", "GET", "/v1/messages/" + foreign, "", nil, 404, problem{"FOREIGN_INCARNATION", "id", ""}},
		{"no dead letter", "GET", "/v1/deadLetters/" + id, "", nil, 404, problem{"DEAD_LETTER_NOT_FOUND", "", ""}},
		{"position of nowhere", "GET", "/v1/messages/" + id + "?position=99:1", "", nil, 400, problem{"UNKNOWN_SHARD", "position", ""}},
		{"position of another shard", "GET", "/v1/messages/" + id + "?position=" + otherShard(b, id) + ":1", "", nil, 400, problem{"INVALID_REQUEST", "position", ""}},
		{"no position", "GET", "/v1/messages/" + id + "?position=x", "", nil, 400, problem{"INVALID_POSITION", "position", ""}},
		{"damaged page token", "GET", "/v1/messages?page_token=xx", "", nil, 400, problem{"INVALID_PAGE_TOKEN", "page_token", ""}},
		{"page too large", "GET", "/v1/messages?page_size=1001", "", nil, 400, problem{"INVALID_REQUEST", "page_size", ""}},
		{"no such path", "GET", "/v2/messages", "", nil, 404, problem{"NO_SUCH_PATH", "", ""}},
		{"no such call", "GET", "/v1/nothing", "", nil, 404, problem{"NO_SUCH_PATH", "", ""}},
		{"no such method", "PATCH", "/v1/cluster", "", nil, 405, problem{"METHOD_NOT_ALLOWED", "", ""}},
		{"another origin", "POST", "/v1/destinations/out/messages", "x", []string{"Sec-Fetch-Site", "cross-site"}, 403, problem{"CROSS_ORIGIN", "", "NOT_ACCEPTED"}},
		{"a bad definition", "PUT", "/v1/destinations/x", `{"http":{"url":"ftp://x"},"retry":{"max_attempts":2000000}}`, nil, 400, problem{"INVALID_REQUEST", "http.url", ""}},
		{"two names", "PUT", "/v1/destinations/x", `{"name":"y","http":{"url":"http://x"}}`, nil, 400, problem{"INVALID_REQUEST", "name", ""}},
		{"spread", "PUT", "/v1/destinations/out", `{"http":{"url":"http://x"},"lane":{"spread":2}}`, nil, 400, problem{"SPREAD_FIXED", "", ""}},
		{"in use", "DELETE", "/v1/destinations/out", "", nil, 400, problem{"DESTINATION_IN_USE", "", ""}},
		{"cancelled too late", "POST", "/v1/messages/" + id + ":cancel", `{"generation":7}`, nil, 400, problem{"VERSION_CONFLICT", "generation", ""}},
		{"not yet", "POST", "/v1/operations", `{"operation_id":"o","reason":"r","replay":{}}`, nil, 501, problem{"NOT_IN_THIS_VERSION", "", ""}},
		{"no kind", "POST", "/v1/operations", `{"operation_id":"o","reason":"r"}`, nil, 400, problem{"INVALID_REQUEST", "parameters", ""}},
		{"bad operation id", "POST", "/v1/operations", `{"operation_id":"a b","reason":"r","pause_lane":{"destination":"out"}}`, nil, 400, problem{"INVALID_REQUEST", "operation_id", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out := b.call(t, c.method, c.path, c.body, c.header...)
			if got := problemIn(out); code != c.code || got != c.want {
				t.Fatalf("%d %+v, want %d %+v\n%v", code, got, c.code, c.want, out)
			}
		})
	}
}

// otherShard is the number of a shard that does not hold a message.
func otherShard(b *bench, id string) string {
	m, err := messageID("id", id)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint((int(m.Shard()) + 1) % len(b.n.shards()))
}
