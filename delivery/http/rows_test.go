package webhook

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sealane/sealane/delivery"
	"github.com/sealane/sealane/delivery/deliverytest"
	"github.com/sealane/sealane/policy"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, s Spec) *Target {
	t.Helper()
	return openWith(t, Options{AllowLoopback: true}, s)
}

// openWith opens a target whose secrets are their references.
func openWith(t testing.TB, o Options, s Spec) *Target {
	t.Helper()
	o.Secret = func(r SecretRef) (string, error) {
		if r.Env == "MISSING" {
			return "", errors.New("none")
		}
		return r.Env, nil
	}
	target, err := New(o).Open(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.Close)
	return target.(*Target)
}

func openGate() error { return nil }

func message() *delivery.Request {
	return &delivery.Request{
		MessageID: "msg_1", Generation: 2, Attempt: 3, Payload: []byte(`{"a":1}`), ContentType: "application/json",
		Attributes: []delivery.Attribute{{Name: "color", Value: "blue"}}, TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
}

// send connects and makes one request with a timeout.
func send(t testing.TB, target *Target, r *delivery.Request, timeout time.Duration) delivery.Outcome {
	t.Helper()
	conn, ok := target.TryConn()
	if !ok {
		var err error
		if conn, err = target.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	o := conn.Send(ctx, r, openGate)
	if !policy.LegalOutcome(o.SideEffect, o.Disposition) {
		t.Errorf("illegal outcome %+v", o)
	}
	return o
}

// TestStatusRows is table C.1 with DESIGN 6's change, each status against a real connection, both verdicts.
func TestStatusRows(t *testing.T) {
	type want struct {
		rule string
		side policy.SideEffect
		disp policy.Disposition
	}
	unknown := func(rule string) want { return want{rule, policy.Unknown, policy.MessageRetriable} }
	no := func(rule string, d policy.Disposition) want { return want{rule, policy.NotPublished, d} }
	rows := map[string]want{
		"200 OK": {"HTTP_H4", policy.Published, policy.OK}, "201 Created": {"HTTP_H4", policy.Published, policy.OK},
		"202 Accepted": {"HTTP_H4", policy.Published, policy.OK}, "204 No Content": {"HTTP_H4", policy.Published, policy.OK}, "299 X": {"HTTP_H4", policy.Published, policy.OK},
		"301 Moved": no("HTTP_H7", policy.LaneUnavailable), "302 Found": no("HTTP_H7", policy.LaneUnavailable), "304 Not Modified": no("HTTP_H7", policy.LaneUnavailable),
		"307 Temporary": no("HTTP_H7", policy.LaneUnavailable), "308 Permanent": no("HTTP_H7", policy.LaneUnavailable),
		"401 Unauthorized": no("HTTP_H9", policy.LaneUnavailable), "403 Forbidden": no("HTTP_H9", policy.LaneUnavailable), "407 Proxy": no("HTTP_H9", policy.LaneUnavailable),
		"404 Not Found": no("HTTP_H10", policy.LaneUnavailable), "410 Gone": no("HTTP_H10", policy.LaneUnavailable),
		"408 Timeout": unknown("HTTP_H11"), "409 Conflict": no("HTTP_H12", policy.MessageRetriable),
		"421 Misdirected": no("HTTP_H13", policy.MessageRetriable), "425 Too Early": no("HTTP_H13", policy.MessageRetriable),
		"429 Too Many": no("HTTP_H15", policy.LaneThrottled),
		"500 Error":    no("HTTP_H16", policy.MessageRetriable), "503 Unavailable": no("HTTP_H16", policy.MessageRetriable),
		"507 Storage": no("HTTP_H16", policy.MessageRetriable), "508 Loop": no("HTTP_H16", policy.MessageRetriable),
		"501 Not Implemented": no("HTTP_H16", policy.MessagePermanent), "505 Version": no("HTTP_H16", policy.MessagePermanent),
		"502 Bad Gateway": unknown("HTTP_H16"), "504 Gateway Timeout": unknown("HTTP_H16"), "506 Negotiates": unknown("HTTP_H16"), "511 Network": unknown("HTTP_H16"),
		"520 X": unknown("HTTP_H16"), "529 X": unknown("HTTP_H16"), "599 X": unknown("HTTP_H16"), "600 X": unknown("HTTP_H16"), "999 X": unknown("HTTP_H16"),
	}
	for _, code := range []int{400, 402, 405, 406, 411, 413, 414, 415, 416, 417, 418, 422, 423, 424, 426, 428, 431, 451, 499} {
		rows[fmt.Sprintf("%d X", code)] = no("HTTP_H8", policy.MessagePermanent)
	}
	for status, w := range rows {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%.3s strict=%v", status, strict), func(t *testing.T) {
				if strict && status[0] == '5' {
					w = unknown("HTTP_H16")
				}
				r := deliverytest.NewReceiver(t, deliverytest.Answer(status))
				o := send(t, open(t, Spec{URL: r.URL(), Strict: strict}), message(), 5*time.Second)
				if got := (want{o.Evidence.Rule, o.SideEffect, o.Disposition}); got != w {
					t.Errorf("got %v, want %v", got, w)
				}
				if fmt.Sprint(o.Evidence.Status) != status[:3] || o.Evidence.BytesWritten == 0 || o.Evidence.RemoteAddr == "" {
					t.Errorf("evidence %+v", o.Evidence)
				}
				if n := len(r.Requests()); n != 1 {
					t.Errorf("the receiver saw %d requests", n)
				}
			})
		}
	}
}

// TestRetryAfterRows: 503 with Retry-After is a throttle (H15), and the header's value travels with the outcome.
func TestRetryAfterRows(t *testing.T) {
	for _, status := range []string{"503 X", "429 X"} {
		r := deliverytest.NewReceiver(t, deliverytest.Answer(status, "Retry-After: 90"))
		o := send(t, open(t, Spec{URL: r.URL()}), message(), 5*time.Second)
		if o.Evidence.Rule != "HTTP_H15" || o.Disposition != policy.LaneThrottled || !o.HasRetryAfter || o.RetryAfter != 90*time.Second {
			t.Errorf("%s: %+v", status, o)
		}
	}
}

// TestNoAnswerRows are the rows in which the receiver took the request and no final head came back: always UNKNOWN.
func TestNoAnswerRows(t *testing.T) {
	for _, c := range []struct {
		name  string
		step  deliverytest.Step
		class string
	}{
		{"closed without an answer", deliverytest.Drop(false), classReset},
		{"reset without an answer", deliverytest.Drop(true), classReset},
		{"half a status line", deliverytest.SayAndClose("HTTP/1.1 2"), classGarbled},
		{"half a head", deliverytest.SayAndClose("HTTP/1.1 200 OK\r\nContent-Le"), classGarbled},
		{"not HTTP", deliverytest.SayAndClose("SSH-2.0-OpenSSH_9\r\n"), classGarbled},
		{"a status that is no number", deliverytest.SayAndClose("HTTP/1.1 abc OK\r\n\r\n"), classGarbled},
		{"two content lengths", deliverytest.SayAndClose("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), classGarbled},
		{"1xx only, then close", deliverytest.SayAndClose("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"), classReset},
		{"never", deliverytest.Hang, classTimeout},
		{"1xx without end", deliverytest.SayAndClose(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 5000)), classGarbled},
		{"a head without end", deliverytest.SayAndClose("HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 200)), classGarbled},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := deliverytest.NewReceiver(t, c.step)
			target := open(t, Spec{URL: r.URL()})
			o := send(t, target, message(), 300*time.Millisecond)
			rule := "HTTP_H3"
			if strings.HasPrefix(c.name, "1xx") {
				rule = "HTTP_H6"
			}
			if o.SideEffect != policy.Unknown || o.Evidence.Rule != rule || o.Evidence.Statement != delivery.StatementNone {
				t.Errorf("got %+v", o)
			}
			if o.Evidence.ErrorClass != c.class {
				t.Errorf("class %s, want %s (%s)", o.Evidence.ErrorClass, c.class, o.Evidence.Detail)
			}
			if n := len(r.Requests()); n != 1 {
				t.Errorf("the receiver saw %d requests", n)
			}
			if target.Stats().Open != 0 {
				t.Error("a connection without an answer was kept")
			}
		})
	}
}

// TestBodyNeverChangesA2xx: the head decides (H4); what a body does costs the connection at most.
func TestBodyNeverChangesA2xx(t *testing.T) {
	for _, c := range []struct {
		name   string
		step   deliverytest.Step
		reused bool
	}{
		{"complete", deliverytest.Say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), true},
		{"chunked", deliverytest.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"), true},
		{"truncated", deliverytest.SayAndClose("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhe"), false},
		{"garbled chunks", deliverytest.SayAndClose("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"), false},
		{"never ends", deliverytest.Drip("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"+strings.Repeat("x", 500), 5*time.Millisecond), false},
		{"huge", deliverytest.SayAndClose("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 1000000)), false},
		{"until close", deliverytest.SayAndClose("HTTP/1.1 200 OK\r\n\r\nhello"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := deliverytest.NewReceiver(t, c.step)
			target := open(t, Spec{URL: r.URL()})
			o := send(t, target, message(), 10*time.Second)
			if o.SideEffect != policy.Published || o.Evidence.Rule != "HTTP_H4" || o.Evidence.Statement != delivery.StatementAccepted {
				t.Errorf("got %+v", o)
			}
			if conn, ok := target.TryConn(); ok != c.reused {
				t.Errorf("reused=%v, want %v", ok, c.reused)
			} else if ok {
				conn.Release()
			}
		})
	}
}

// TestRequestIsWhatItShouldBe: headers of DESIGN 12, bytes exactly the payload, whatever they are.
func TestRequestIsWhatItShouldBe(t *testing.T) {
	payloads := map[string][]byte{
		"none": nil, "json with odd spacing": []byte("{ \"a\" :1,\n\"a\":2 }  "), "html": []byte("& < > \u2028 😀"), "nul and invalid": {0, 0xff, 0xfe, '\n', 0},
		"one mebibyte": []byte(strings.Repeat("x", 1<<20)),
	}
	for name, payload := range payloads {
		t.Run(name, func(t *testing.T) {
			r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
			m := message()
			m.Payload = payload
			send(t, open(t, Spec{URL: r.URL(), Headers: []Header{{"X-Tenant", "acme"}}}), m, 5*time.Second)
			q := r.Requests()[0]
			if q.Method != "POST" || string(q.Body) != string(payload) || q.Header.Get("Content-Length") != fmt.Sprint(len(payload)) && len(payload) > 0 {
				t.Errorf("%s with %d bytes, Content-Length %q", q.Method, len(q.Body), q.Header.Get("Content-Length"))
			}
			for k, v := range map[string]string{
				"Webhook-Id": "msg_1-2", "Idempotency-Key": "msg_1-2", "Sealane-Attempt": "3", "Content-Type": "application/json", "X-Tenant": "acme",
				"Sealane-Attr-Color": "blue", "Traceparent": message().TraceParent, "User-Agent": "sealane",
			} {
				if q.Header.Get(k) != v {
					t.Errorf("%s is %q, want %q", k, q.Header.Get(k), v)
				}
			}
			if q.Header.Get("Webhook-Timestamp") == "" || q.Header.Get("Webhook-Signature") != "" || q.Header.Get("Accept-Encoding") != "" {
				t.Errorf("headers %v", q.Header)
			}
		})
	}
}

// TestSignature: the reference library verifies what was sent, with either of two secrets during a rotation.
func TestSignature(t *testing.T) {
	oldSecret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("old secret old secret"))
	newSecret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("new secret new secret"))
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	send(t, open(t, Spec{URL: r.URL(), Secrets: []SecretRef{{Env: newSecret}, {Env: oldSecret}}}), message(), 5*time.Second)
	q := r.Requests()[0]
	for _, secret := range []string{newSecret, oldSecret} {
		w, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Verify(q.Body, q.Header); err != nil {
			t.Errorf("verify: %v", err)
		}
		if err := w.Verify(append(q.Body, ' '), q.Header); err == nil {
			t.Error("a changed body was verified")
		}
	}
}

// TestMissingSecretBlocks: no request leaves without its signature, and the failure names the reference, not a value.
func TestMissingSecretBlocks(t *testing.T) {
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	for _, ref := range []SecretRef{{Env: "MISSING"}, {Env: "not-base64!"}} {
		_, err := open(t, Spec{URL: r.URL(), Secrets: []SecretRef{ref}}).Connect(t.Context())
		var failed *delivery.ConnectError
		if !errors.As(err, &failed) || failed.Class != ClassSecret || !failed.Blocked {
			t.Errorf("%v: %v", ref, err)
		}
	}
	if len(r.Requests()) != 0 {
		t.Error("something was sent")
	}
}

// TestGateRefuses: a gate that says no at the last moment means that not one byte left (P2).
func TestGateRefuses(t *testing.T) {
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	target := open(t, Spec{URL: r.URL()})
	conn, err := target.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	o := conn.Send(t.Context(), message(), func() error { asked++; return errors.New("too late") })
	conn.Release()
	if o.SideEffect != policy.NotPublished || o.Disposition != policy.Fenced || o.Evidence.Rule != "HTTP_GATE" ||
		o.Evidence.Statement != delivery.StatementBefore || o.Evidence.BytesWritten != 0 {
		t.Errorf("got %+v", o)
	}
	if asked != 1 || len(r.Requests()) != 0 {
		t.Errorf("gate asked %d times, receiver saw %d requests", asked, len(r.Requests()))
	}
}

// TestStaleConnection: the idle connection was closed by the receiver. The request is never written twice, not even by net/http, whose transport
// would resend a POST with an Idempotency-Key; and where nothing was written the outcome says so (H1).
func TestStaleConnection(t *testing.T) {
	for _, payload := range []string{"", "body"} {
		r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
		target := open(t, Spec{URL: r.URL()})
		m := message()
		m.Payload = []byte(payload)
		send(t, target, m, 5*time.Second)
		conn, ok := target.TryConn()
		if !ok {
			t.Fatal("the connection was not kept")
		}
		r.CloseConns()
		o := conn.Send(t.Context(), m, openGate)
		conn.Release()
		switch {
		case o.SideEffect == policy.NotPublished && o.Evidence.Statement == delivery.StatementBefore && o.Evidence.Rule == "HTTP_H1":
		case o.SideEffect == policy.Unknown && o.Evidence.Rule == "HTTP_H3":
		default:
			t.Errorf("payload %q: %+v", payload, o)
		}
		if n := len(r.Requests()); n != 1 {
			t.Errorf("payload %q: the receiver saw %d requests, want the first only", payload, n)
		}
	}
}

// TestClosedIdleConnectionIsNotHandedOut: a peer that closes idle connections makes no UNKNOWN where it was noticed.
func TestClosedIdleConnectionIsNotHandedOut(t *testing.T) {
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	target := open(t, Spec{URL: r.URL()})
	send(t, target, message(), 5*time.Second)
	r.CloseConns()
	for deadline := time.Now().Add(5 * time.Second); ; {
		conn, ok := target.TryConn()
		if !ok {
			break
		}
		conn.Release()
		if time.Now().After(deadline) {
			t.Fatal("a closed connection is still handed out")
		}
	}
	if target.Stats().Open != 0 {
		t.Errorf("%d connections are counted as open", target.Stats().Open)
	}
}

// TestConnectFailures: each class against a real cause; nothing is admitted for any of them.
func TestConnectFailures(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := closed.Addr().String()
	closed.Close()
	plain := deliverytest.NewReceiver(t, deliverytest.SayAndClose("no TLS here"))
	tlsServer := httptest.NewTLSServer(http.NotFoundHandler())
	defer tlsServer.Close()
	other := sha256.Sum256([]byte("another key"))
	for _, c := range []struct {
		name, url, pin, class string
		blocked               bool
	}{
		{"refused", "http://" + refused, "", ClassRefused, false},
		{"no such name", "http://does-not-exist.invalid", "", ClassDNS, false},
		{"private address", "http://10.0.0.1", "", ClassPrivate, true},
		{"link-local metadata", "http://169.254.169.254/latest", "", ClassPrivate, true},
		{"mapped loopback is loopback", "http://[::ffff:10.0.0.1]", "", ClassPrivate, true},
		{"unspecified", "http://0.0.0.0", "", ClassPrivate, true},
		{"unknown authority", tlsServer.URL, "", ClassTLS, false},
		{"closed in the handshake", "https" + strings.TrimPrefix(plain.URL(), "http"), "", ClassTLS, false},
		{"another key", tlsServer.URL, "sha256/" + base64.StdEncoding.EncodeToString(other[:]), ClassTLS, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			target := open(t, Spec{URL: c.url, TLSPin: c.pin})
			_, err := target.Connect(ctx)
			var failed *delivery.ConnectError
			if !errors.As(err, &failed) || failed.Class != c.class || failed.Blocked != c.blocked {
				t.Errorf("got %v (%+v), want %s", err, failed, c.class)
			}
			if target.Stats().Open != 0 {
				t.Error("a failed connection is counted")
			}
		})
	}
}

// TestPermittedAddresses: what may be dialled, by the node's rules.
func TestPermittedAddresses(t *testing.T) {
	public := []string{"8.8.8.8", "2606:4700::1111"}
	loopback := []string{"127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"}
	private := []string{
		"10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.1.1", "100.64.0.1", "fe80::1", "fc00::1", "fd12::1", "::ffff:192.168.0.1", "192.0.2.1", "198.18.0.1",
		"64:ff9b::a00:1", "2002:a00:1::", "240.0.0.1",
	}
	never := []string{"0.0.0.0", "::", "224.0.0.1", "ff02::1"}
	check := func(o Options, list []string, want bool) {
		t.Helper()
		for _, s := range list {
			err := o.control(t.Context(), "tcp", net.JoinHostPort(s, "80"), nil)
			if (err == nil) != want {
				t.Errorf("%+v: %s: %v", o, s, err)
			}
		}
	}
	for _, o := range []Options{{}, {AllowLoopback: true}, {AllowPrivate: true}} {
		check(o, public, true)
		check(o, loopback, o.AllowLoopback || o.AllowPrivate)
		check(o, private, o.AllowPrivate)
		check(o, never, false)
	}
}

func roots(server *httptest.Server) *x509.CertPool {
	return server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
}

// TestHTTP2: one admission is one request over HTTP/2 too, whatever the body; a pinned key is accepted.
func TestHTTP2(t *testing.T) {
	var count atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		count.Add(1)
		if q.ProtoMajor != 2 {
			t.Errorf("protocol %s", q.Proto)
		}
		if _, err := io.ReadAll(q.Body); err != nil {
			t.Error(err)
		}
		if q.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	spki := sha256.Sum256(server.Certificate().RawSubjectPublicKeyInfo)
	for _, c := range []struct {
		path, payload string
		side          policy.SideEffect
		rule          string
	}{
		{"/ok", "", policy.Published, "HTTP_H4"}, {"/ok", "body", policy.Published, "HTTP_H4"},
		{"/abort", "", policy.Unknown, "HTTP_H18"}, {"/abort", "body", policy.Unknown, "HTTP_H18"},
	} {
		count.Store(0)
		target := openWith(t, Options{AllowLoopback: true, Roots: roots(server)},
			Spec{URL: server.URL + c.path, TLSPin: "sha256/" + base64.StdEncoding.EncodeToString(spki[:])})
		m := message()
		m.Payload = []byte(c.payload)
		o := send(t, target, m, 5*time.Second)
		if o.SideEffect != c.side || o.Evidence.Rule != c.rule || count.Load() != 1 {
			t.Errorf("%s %q: %+v after %d requests", c.path, c.payload, o, count.Load())
		}
		target.Close()
	}
}

// TestPinnedIdentityChanged: a valid certificate with another key blocks the lane.
func TestPinnedIdentityChanged(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	other := sha256.Sum256([]byte("another key"))
	pin := "sha256/" + base64.StdEncoding.EncodeToString(other[:])
	target := openWith(t, Options{AllowLoopback: true, Roots: roots(server)}, Spec{URL: server.URL, TLSPin: pin})
	_, err := target.Connect(t.Context())
	var failed *delivery.ConnectError
	if !errors.As(err, &failed) || failed.Class != ClassIdentity || !failed.Blocked || failed.Old != pin || failed.New == "" || failed.New == pin {
		t.Errorf("got %+v", failed)
	}
}
