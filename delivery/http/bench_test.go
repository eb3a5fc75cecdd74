package webhook

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkSend is one attempt over loopback; BenchmarkBareLoop the same POSTs, headers included, by http.Client: the bound.
func BenchmarkSend(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	target := open(b, Spec{URL: server.URL})
	m := message()
	m.Payload = make([]byte, 256)
	conn, err := target.Connect(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	conn.Release()
	b.ReportAllocs()
	for b.Loop() {
		conn, ok := target.TryConn()
		if !ok {
			b.Fatal("no connection")
		}
		if o := conn.Send(b.Context(), m, openGate); o.Evidence.Status != 200 {
			b.Fatalf("%+v", o)
		}
		conn.Release()
	}
}

func BenchmarkBareLoop(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	payload := make([]byte, 256)
	client := server.Client()
	b.ReportAllocs()
	for b.Loop() {
		q, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server.URL, bytes.NewReader(payload))
		if err != nil {
			b.Fatal(err)
		}
		for _, h := range sentHeaders {
			q.Header.Set(h.Name, h.Value)
		}
		resp, err := client.Do(q)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
}

// sentHeaders are those of BenchmarkSend's requests.
var sentHeaders = []Header{
	{"Content-Type", "application/json"}, {"Webhook-Id", "msg_1-2"}, {"Idempotency-Key", "msg_1-2"}, {"Webhook-Timestamp", "1700000000"},
	{"Sealane-Attempt", "3"}, {"Traceparent", message().TraceParent}, {"Sealane-Attr-Color", "blue"}, {"User-Agent", "sealane"},
}
