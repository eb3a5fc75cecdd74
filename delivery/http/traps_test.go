package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sealane/sealane/delivery"
	"github.com/sealane/sealane/delivery/deliverytest"
	"github.com/sealane/sealane/policy"
)

// eventually polls a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func is(o delivery.Outcome, rule string, side policy.SideEffect, d policy.Disposition, class string) bool {
	return o.Evidence.Rule == rule && o.SideEffect == side && o.Disposition == d && o.Evidence.ErrorClass == class
}

// TestResendTrap: net/http sends a POST with an Idempotency-Key again when the connection breaks under it. The first half shows that the trap is
// real, so that the second half means something.
func TestResendTrap(t *testing.T) {
	for name, payload := range map[string]string{"no payload": "", "payload": "body"} {
		t.Run(name, func(t *testing.T) {
			script := []deliverytest.Step{deliverytest.Answer("200 OK"), deliverytest.Drop(false), deliverytest.Answer("200 OK")}
			trapped := deliverytest.NewReceiver(t, script...)
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			for range 2 {
				q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, trapped.URL(), bytes.NewReader([]byte(payload)))
				if err != nil {
					t.Fatal(err)
				}
				q.Header.Set("Idempotency-Key", "k")
				resp, err := transport.RoundTrip(q)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			if n := len(trapped.Requests()); n != 3 {
				t.Fatalf("net/http made %d requests of 2; the trap is gone, this test needs another one", n)
			}
			r := deliverytest.NewReceiver(t, script...)
			target := open(t, Spec{URL: r.URL()})
			m := message()
			m.Payload = []byte(payload)
			send(t, target, m, 5*time.Second)
			o := send(t, target, m, 5*time.Second)
			if !is(o, "HTTP_H3", policy.Unknown, policy.MessageRetriable, classReset) {
				t.Errorf("%+v", o)
			}
			if q := r.Requests(); len(q) != 2 || q[0].Conn != q[1].Conn {
				t.Errorf("the receiver saw %d requests; the second must be on the connection of the first", len(q))
			}
		})
	}
}

// TestClosedAfterClaim: the peer closes an idle connection after it was claimed. The last look before the first byte finds it: nothing is
// written, and the message pays nothing.
func TestClosedAfterClaim(t *testing.T) {
	plain, secured := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK")), deliverytest.NewTLSReceiver(t, deliverytest.Answer("200 OK"))
	frames := deliverytest.NewFrameReceiver(t, false, deliverytest.AnswerFrames(200))
	for _, c := range []struct {
		name   string
		target *Target
		spoil  func()
		seen   func() int
	}{
		{"http1", open(t, Spec{URL: plain.URL()}), plain.CloseConns, func() int { return len(plain.Requests()) }},
		{
			"http1 tls", openWith(t, Options{AllowLoopback: true, Roots: secured.Roots()}, Spec{URL: secured.URL()}), secured.CloseConns,
			func() int { return len(secured.Requests()) },
		},
		{
			"http2", openWith(t, Options{AllowLoopback: true, Roots: frames.Roots()}, Spec{URL: frames.URL()}), frames.CloseConns,
			func() int { return int(frames.Requests()) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			send(t, c.target, message(), 5*time.Second)
			conn, ok := c.target.TryConn()
			if !ok {
				t.Fatal("the connection was not kept")
			}
			c.spoil()
			w := conn.(*hand).wire
			eventually(t, "the close does not arrive", w.spoiled)
			o := conn.Send(t.Context(), message(), openGate)
			conn.Release()
			if !is(o, "HTTP_H1", policy.NotPublished, policy.LaneUnavailable, classIdleClosed) || o.Evidence.Statement != delivery.StatementBefore {
				t.Errorf("%+v", o)
			}
			if n := c.seen(); n != 1 {
				t.Errorf("the receiver saw %d requests", n)
			}
		})
	}
}

// TestUnaskedAnswer: some servers write a 408 into an idle connection before they close it. It must not become the answer of the next request.
func TestUnaskedAnswer(t *testing.T) {
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	target := open(t, Spec{URL: r.URL()})
	send(t, target, message(), 5*time.Second)
	conn, ok := target.TryConn()
	if !ok {
		t.Fatal("the connection was not kept")
	}
	if err := r.WriteAll("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the answer does not arrive", conn.(*hand).wire.unasked.Load) // read by net/http, so that the socket is quiet again
	o := conn.Send(t.Context(), message(), openGate)
	conn.Release()
	if !is(o, "HTTP_H1", policy.NotPublished, policy.LaneUnavailable, classIdleClosed) || len(r.Requests()) != 1 {
		t.Errorf("%+v", o)
	}
}

// untilDone is a step that neither reads nor writes until the test ends.
func untilDone(t *testing.T) deliverytest.Step {
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	return func(net.Conn) bool { <-done; return false }
}

// TestPartlyWritten are requests that the receiver did not read whole: 16 MiB fit no socket buffer.
func TestPartlyWritten(t *testing.T) {
	big := message()
	big.Payload = make([]byte, 16<<20)
	// The connection stays open after the 408, as it would with a server that lingers.
	early408 := func(t *testing.T) deliverytest.Step {
		wait := untilDone(t)
		return func(c net.Conn) bool { return deliverytest.Answer("408 Request Timeout")(c) && wait(c) }
	}
	for _, c := range []struct {
		name string
		step func(t *testing.T) deliverytest.Step
		rule string
		side policy.SideEffect
		d    policy.Disposition
		want string
	}{
		{"408 before the end (H11)", early408, "HTTP_H11", policy.NotPublished, policy.MessageRetriable, "HTTP_408"},
		{"reset while writing", func(*testing.T) deliverytest.Step { return deliverytest.Drop(true) }, "HTTP_H3", policy.Unknown, policy.MessageRetriable, classReset},
		{"not read at all", untilDone, "HTTP_H3", policy.Unknown, policy.MessageRetriable, classTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := deliverytest.NewReceiver(t)
			r.Early(c.step(t))
			o := send(t, open(t, Spec{URL: r.URL()}), big, 500*time.Millisecond)
			if !is(o, c.rule, c.side, c.d, c.want) || o.Evidence.WroteRequest || o.Evidence.BytesWritten == 0 {
				t.Errorf("%+v", o)
			}
			if n := len(r.Requests()); n != 1 {
				t.Errorf("the receiver saw %d requests", n)
			}
		})
	}
}

// TestSwitchingProtocols: a 101 nobody asked for is no final head (H6).
func TestSwitchingProtocols(t *testing.T) {
	r := deliverytest.NewReceiver(t, deliverytest.Say("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nbytes of x"))
	target := open(t, Spec{URL: r.URL()})
	o := send(t, target, message(), 5*time.Second)
	if !is(o, "HTTP_H6", policy.Unknown, policy.MessageRetriable, "HTTP_101") || target.Stats().Open != 0 {
		t.Errorf("%+v", o)
	}
}

// TestNoRedirectNoProxy: the address that was configured is the only one that is ever asked.
func TestNoRedirectNoProxy(t *testing.T) {
	elsewhere := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	for _, status := range []string{"301 X", "302 X", "303 X", "307 X", "308 X"} {
		r := deliverytest.NewReceiver(t, deliverytest.Answer(status, "Location: "+elsewhere.URL()))
		if o := send(t, open(t, Spec{URL: r.URL()}), message(), 5*time.Second); o.Evidence.Rule != "HTTP_H7" {
			t.Errorf("%+v", o)
		}
	}
	if n := len(elsewhere.Requests()); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
	if a := New(Options{}); a.h1.Proxy != nil || a.h2.Proxy != nil {
		t.Error("a proxy is configured")
	}
}

// TestUnbuildable is row H2: what cannot be a header is the message's own fault, and nothing of it is written.
func TestUnbuildable(t *testing.T) {
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	target := open(t, Spec{URL: r.URL()})
	for name, change := range map[string]func(*delivery.Request){
		"attribute name":  func(m *delivery.Request) { m.Attributes = []delivery.Attribute{{Name: "a b", Value: "x"}} },
		"no name":         func(m *delivery.Request) { m.Attributes = []delivery.Attribute{{Name: "é", Value: "x"}} },
		"attribute value": func(m *delivery.Request) { m.Attributes = []delivery.Attribute{{Name: "a", Value: "x\r\nInjected: y"}} },
		"content type":    func(m *delivery.Request) { m.ContentType = "text\n" },
		"traceparent":     func(m *delivery.Request) { m.TraceParent = "\x00" },
		"message id":      func(m *delivery.Request) { m.MessageID = "msg\n" },
	} {
		m := message()
		change(m)
		o := send(t, target, m, 5*time.Second)
		if !is(o, "HTTP_H2", policy.NotPublished, policy.MessagePermanent, classBuild) || o.Evidence.Statement != delivery.StatementBefore {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if r.Bytes() != 0 || target.Stats().Open != 1 {
		t.Errorf("%d bytes were written, %+v", r.Bytes(), target.Stats())
	}
}

// TestEmptyPayloadOnTheWire: a length of 0 is said, not left open.
func TestEmptyPayloadOnTheWire(t *testing.T) {
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	target := open(t, Spec{URL: r.URL()})
	for range 2 {
		m := message()
		m.Payload = nil
		send(t, target, m, 5*time.Second)
	}
	for _, q := range r.Requests() {
		if q.Header.Get("Content-Length") != "0" || q.ContentLength != 0 || len(q.TransferEncoding) != 0 {
			t.Errorf("length %d, header %q, encoding %v", q.ContentLength, q.Header["Content-Length"], q.TransferEncoding)
		}
	}
}

// TestAttributesInOrder: names that differ in case only are one header with its values in the client's order.
func TestAttributesInOrder(t *testing.T) {
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	m := message()
	m.Attributes = []delivery.Attribute{{Name: "k", Value: "1"}, {Name: "other", Value: "x"}, {Name: "K", Value: "2"}, {Name: "webhook-id", Value: "mine"}}
	send(t, open(t, Spec{URL: r.URL(), Headers: []Header{{"User-Agent", "acme"}, {"Content-Type", "text/csv"}}}), m, 5*time.Second)
	h := r.Requests()[0].Header
	if got := strings.Join(h["Sealane-Attr-K"], ","); got != "1,2" || h.Get("Sealane-Attr-Webhook-Id") != "mine" || h.Get("Webhook-Id") != "msg_1-2" {
		t.Errorf("%v", h)
	}
	if h.Get("User-Agent") != "acme" || h.Get("Content-Type") != "application/json" {
		t.Errorf("%v", h)
	}
}

// TestCancelWhileWaiting: a cancel after bytes were written is not evidence of anything.
func TestCancelWhileWaiting(t *testing.T) {
	arrived := make(chan struct{})
	r := deliverytest.NewReceiver(t, func(c net.Conn) bool { close(arrived); return deliverytest.Hang(c) })
	target := open(t, Spec{URL: r.URL()})
	conn, err := target.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if o := conn.Send(ctx, message(), openGate); !is(o, "HTTP_H3", policy.Unknown, policy.MessageRetriable, ClassCancelled) || !o.Evidence.WroteRequest {
		t.Errorf("%+v", o)
	}
}

// TestEvidencePicks: what helps to find the request at the receiver is kept, cleaned and bounded.
func TestEvidencePicks(t *testing.T) {
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK", "Date: Mon, 06 May 2030 07:08:09 GMT", "X-Request-Id: "+strings.Repeat("é", 500), "Set-Cookie: secret=1"))
	o := send(t, open(t, Spec{URL: r.URL()}), message(), 5*time.Second)
	h := o.Evidence.Headers
	if len(h) != 2 || h[0] != (delivery.Attribute{Name: "Date", Value: "Mon, 06 May 2030 07:08:09 GMT"}) || h[1].Name != "X-Request-Id" || len(h[1].Value) != maxPick {
		t.Errorf("%v", h)
	}
	if o.Evidence.FirstByteAt.IsZero() || o.Evidence.At.Before(o.Evidence.FirstByteAt) || !o.Evidence.WroteRequest {
		t.Errorf("%+v", o.Evidence)
	}
}

// TestGateRefusalLeavesNoByte counts them at the other end, with a payload larger than every buffer.
func TestGateRefusalLeavesNoByte(t *testing.T) {
	plain, secured := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK")), deliverytest.NewTLSReceiver(t, deliverytest.Answer("200 OK"))
	for _, r := range []*deliverytest.Receiver{plain, secured} {
		target := openWith(t, Options{AllowLoopback: true, Roots: r.Roots()}, Spec{URL: r.URL()})
		conn := deliverytest.Claim(t, target)
		m := message()
		m.Payload = make([]byte, 1<<20)
		o := conn.Send(t.Context(), m, func() error { return errors.New("deposed") })
		conn.Release()
		if !is(o, "HTTP_GATE", policy.NotPublished, policy.Fenced, classGate) || o.Evidence.Detail != "deposed" {
			t.Errorf("%+v", o)
		}
		r.Close() // after it, whatever was sent has been read
		if r.Bytes() != 0 {
			t.Errorf("%d bytes were written", r.Bytes())
		}
	}
}

// TestFirstWriteRefusedByKernel: the kernel takes not one byte of a request on a new connection. That is "not sent", although the write was begun.
func TestFirstWriteRefusedByKernel(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // never accepts: the backlog is enough for a connection
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn := deliverytest.Claim(t, open(t, Spec{URL: "http://" + l.Addr().String()}))
	if err := conn.(*hand).wire.raw.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	o := conn.Send(t.Context(), message(), openGate)
	conn.Release()
	if !is(o, "HTTP_H1", policy.NotPublished, policy.LaneUnavailable, classIdleClosed) || o.Evidence.Statement != delivery.StatementBefore {
		t.Errorf("%+v", o)
	}
}

// TestLookAtLongIdle: after a second of idleness TryConn looks at the socket itself and does not rely on the connection's reader.
func TestLookAtLongIdle(t *testing.T) {
	c := newClock()
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	target := openWith(t, Options{AllowLoopback: true, Now: c.now}, Spec{URL: r.URL()})
	send(t, target, message(), 5*time.Second)
	w := target.idle[0].wire
	c.add(lookAfter)
	r.CloseConns()
	eventually(t, "the close does not arrive", w.spoiled)
	if _, ok := target.TryConn(); ok || target.Stats().Open != 0 {
		t.Errorf("handed out: %+v", target.Stats())
	}
}
