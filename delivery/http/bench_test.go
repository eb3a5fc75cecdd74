package webhook

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkSend is one attempt over loopback; BenchmarkBareLoop the same POSTs by http.Client, the bound.
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
		resp, err := client.Post(server.URL, "application/json", bytes.NewReader(payload))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
}
