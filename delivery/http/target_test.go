package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sealane/sealane/delivery"
	"github.com/sealane/sealane/delivery/deliverytest"
	"github.com/sealane/sealane/policy"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// clock is a clock that a test moves.
type clock struct{ nanos atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.nanos.Store(time.Now().UnixNano())
	return c
}

func (c *clock) now() time.Time { return time.Unix(0, c.nanos.Load()) }

func (c *clock) add(d time.Duration) { c.nanos.Add(int64(d)) }

// TestSpec: bad input names its field, all fields at once, and quotes nothing that could be a secret.
func TestSpec(t *testing.T) {
	good := Spec{URL: "https://example.com/hook"}
	for _, c := range []struct {
		name string
		spec Spec
		want []string
	}{
		{"scheme", Spec{URL: "ftp://example.com"}, []string{"url:"}},
		{"no host", Spec{URL: "http:///x"}, []string{"url:"}},
		{"not a URL", Spec{URL: "http://user:hunter2@[::1"}, []string{"url:"}},
		{"user", Spec{URL: "http://user:hunter2@example.com"}, []string{"url: must have no user"}},
		{"fragment", Spec{URL: "http://example.com/#x"}, []string{"fragment"}},
		{"long", Spec{URL: "http://example.com/" + strings.Repeat("x", MaxURL)}, []string{"4096"}},
		{"pin form", Spec{URL: good.URL, TLSPin: "sha1/AAAA"}, []string{"tls.pin:"}},
		{"pin length", Spec{URL: good.URL, TLSPin: "sha256/AAAA"}, []string{"tls.pin:"}},
		{"own headers", Spec{URL: good.URL, Headers: []Header{{"host", "x"}, {"webhook-ID", "x"}, {"sealane-x", "x"}}}, []string{"Host", "Webhook-Id", "Sealane-X"}},
		{
			"framing", Spec{URL: good.URL, Headers: []Header{{"Transfer-Encoding", "chunked"}, {"content-length", "3"}, {"connection", "close"}}},
			[]string{"Transfer-Encoding", "Content-Length", "Connection"},
		},
		{"header name", Spec{URL: good.URL, Headers: []Header{{"a b", "x"}}}, []string{`headers: "a b"`}},
		{"header value", Spec{URL: good.URL, Headers: []Header{{"Authorization", "hunter2\r\nX: y"}}}, []string{"headers: \"Authorization\""}},
		{"secrets", Spec{URL: good.URL, Secrets: make([]SecretRef, 3)}, []string{"at most 2", "exactly one"}},
		{"both", Spec{URL: good.URL, Secrets: []SecretRef{{Env: "A", File: "b"}}}, []string{"exactly one"}},
		{"connections", Spec{URL: good.URL, MaxConns: -1}, []string{"max_conns:"}},
		{"several", Spec{URL: "x", TLSPin: "x", MaxConns: -1}, []string{"url:", "tls.pin:", "max_conns:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(Options{}).Open(c.spec)
			if !errors.Is(err, delivery.ErrSpec) {
				t.Fatalf("got %v", err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q holds a secret", err)
			}
		})
	}
	if _, err := New(Options{}).Open(good); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

// TestMaxConns: the bound holds, says so, and an idle connection gives way to a new one.
func TestMaxConns(t *testing.T) {
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	target := open(t, Spec{URL: r.URL(), MaxConns: 2})
	a, b := deliverytest.Claim(t, target), deliverytest.Claim(t, target)
	_, err := target.Connect(t.Context())
	var failed *delivery.ConnectError
	if !errors.As(err, &failed) || failed.Class != ClassFull || failed.Blocked || target.Stats().Open != 2 {
		t.Fatalf("%v, %+v", err, target.Stats())
	}
	a.Release()
	c, err := target.Connect(t.Context())
	if err != nil || target.Stats() != (delivery.Stats{Open: 2}) {
		t.Fatalf("%v, %+v", err, target.Stats())
	}
	b.Release()
	c.Release()
}

// TestIdleAndLifeTime: a connection is not used after either, and the reaper closes what nobody asks for.
func TestIdleAndLifeTime(t *testing.T) {
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	for name, use := range map[string]func(*Target, *clock){
		"idle": func(_ *Target, c *clock) { c.add(IdleTime) },
		"life": func(target *Target, c *clock) { // never idle for long, and over its life only while it is idle
			for born := c.now().Add(-IdleTime); c.now().Sub(born) < LifeTime-IdleTime/2; c.add(IdleTime / 4) {
				if conn, ok := target.TryConn(); ok {
					conn.Release()
				}
			}
			if target.Stats().Idle != 1 {
				t.Error("dropped before its time")
			}
			c.add(IdleTime/2 + 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			target := openWith(t, Options{AllowLoopback: true, Now: c.now}, Spec{URL: r.URL()})
			deliverytest.Claim(t, target).Release()
			c.add(IdleTime - 1)
			conn, ok := target.TryConn()
			if !ok {
				t.Fatal("not kept for its time")
			}
			conn.Release()
			use(target, c)
			if _, ok := target.TryConn(); ok || target.Stats().Open != 0 {
				t.Errorf("%+v", target.Stats())
			}
		})
	}
	t.Run("reaper", func(t *testing.T) {
		c := newClock()
		target := openWith(t, Options{AllowLoopback: true, Now: c.now}, Spec{URL: r.URL()})
		a, b := deliverytest.Claim(t, target), deliverytest.Claim(t, target)
		a.Release()
		c.add(IdleTime / 2)
		b.Release()
		c.add(IdleTime / 2)
		target.reap()
		if s := target.Stats(); s != (delivery.Stats{Open: 1, Idle: 1}) {
			t.Errorf("after the first one's time: %+v", s)
		}
		c.add(IdleTime)
		target.reap()
		if s := target.Stats(); s.Open != 0 || target.armed {
			t.Errorf("after all: %+v, armed %v", s, target.armed)
		}
	})
}

// TestSecretRotation: a secret is read again after its time (R201); one that is gone then stops sending, and costs the message nothing.
func TestSecretRotation(t *testing.T) {
	secret := func(s string) string { return secretPrefix + base64.StdEncoding.EncodeToString([]byte(s)) }
	first, second := secret("first secret, long enough"), secret("second secret, long enough")
	current, gone := first, false
	c := newClock()
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	opened, err := New(Options{AllowLoopback: true, Now: c.now, Secret: func(SecretRef) (string, error) {
		if gone {
			return current, errors.New("reading " + current)
		}
		return current, nil
	}}).Open(Spec{URL: r.URL(), Secrets: []SecretRef{{File: "/run/secret"}}})
	if err != nil {
		t.Fatal(err)
	}
	target := opened.(*Target)
	t.Cleanup(target.Close)
	verified := func(secret string) bool {
		t.Helper()
		send(t, target, message(), 5*time.Second)
		q := r.Requests()
		w, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		return w.VerifyIgnoringTimestamp(q[len(q)-1].Body, q[len(q)-1].Header) == nil
	}
	if !verified(first) {
		t.Error("not signed with the first secret")
	}
	current = second
	if !verified(first) {
		t.Error("read again too early")
	}
	c.add(SecretTime - 1)
	if !verified(first) {
		t.Error("read again too early")
	}
	c.add(1)
	if !verified(second) {
		t.Error("not read again")
	}
	gone = true
	c.add(SecretTime - 1)
	conn := deliverytest.Claim(t, target)
	c.add(1)
	before := r.Bytes()
	o := conn.Send(t.Context(), message(), openGate)
	conn.Release()
	if !is(o, "HTTP_H1", policy.NotPublished, policy.LaneUnavailable, ClassSecret) || r.Bytes() != before {
		t.Errorf("%+v", o)
	}
	_, err = target.Connect(t.Context())
	for _, text := range []string{fmt.Sprintf("%+v", o), fmt.Sprintf("%v %+v", err, err)} {
		if strings.Contains(text, second) || strings.Contains(text, "second") {
			t.Errorf("%q holds the secret", text)
		}
	}
}

// TestSecretForms: with and without the prefix, as the reference library reads them; nothing else.
func TestSecretForms(t *testing.T) {
	for secret, ok := range map[string]bool{
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": true, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": true, "whsec_": false, "": false, "whsec_%%%": false, "plain text": false,
	} {
		s, err := newSigner(secret)
		if (err == nil) != ok {
			t.Errorf("%q: %v", secret, err)
		}
		if err != nil {
			continue
		}
		reference, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(1700000000, 0)
		for _, payload := range []string{"", "x", strings.Repeat("y", 5000)} {
			want, err := reference.Sign("msg_1-2", at, []byte(payload))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time with a hash from the pool
				if got := string(s.sign(nil, "msg_1-2", "1700000000", []byte(payload))); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		}
	}
}
