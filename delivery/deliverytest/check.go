package deliverytest

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sealane/sealane/delivery"
	"github.com/sealane/sealane/policy"
)

// Message is a request like those that shards send.
func Message() *delivery.Request {
	return &delivery.Request{
		MessageID: "msg_conformance", Generation: 1, Attempt: 1, Payload: []byte("payload"), ContentType: "text/plain",
		Attributes: []delivery.Attribute{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}},
	}
}

// Claim takes a connection in hand.
func Claim(t testing.TB, target delivery.Target) delivery.Conn {
	t.Helper()
	if c, ok := target.TryConn(); ok {
		return c
	}
	c, err := target.Connect(t.Context())
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return c
}

func passes() error { return nil }

// CheckOutcome asserts what holds for every outcome of every adapter.
func CheckOutcome(t testing.TB, o delivery.Outcome) {
	t.Helper()
	if !policy.LegalOutcome(o.SideEffect, o.Disposition) {
		t.Errorf("%s with %s is not a legal outcome (R175)", o.SideEffect, o.Disposition)
	}
	e := o.Evidence
	fits := map[policy.SideEffect][]string{
		policy.Published:    {delivery.StatementAccepted},
		policy.NotPublished: {delivery.StatementBefore, delivery.StatementReceiver},
		policy.Unknown:      {delivery.StatementNone},
	}
	ok := false
	for _, s := range fits[o.SideEffect] {
		ok = ok || s == e.Statement
	}
	if !ok {
		t.Errorf("%s does not go with the statement %q", o.SideEffect, e.Statement)
	}
	if e.Statement == delivery.StatementBefore && (e.BytesWritten != 0 || e.WroteRequest) {
		t.Errorf("BEFORE_OWNERSHIP after %d bytes", e.BytesWritten)
	}
	if e.Rule == "" || (e.ErrorClass == "") != (o.SideEffect == policy.Published) {
		t.Errorf("%s names the rule %q and the class %q", o.SideEffect, e.Rule, e.ErrorClass)
	}
	if len(e.Detail) > delivery.MaxDetailBytes || !utf8.ValidString(e.Detail) || strings.ContainsAny(e.Detail, "\r\n\x00") {
		t.Errorf("detail is not clean: %q", e.Detail)
	}
	if e.At.IsZero() {
		t.Error("the evidence has no time")
	}
	if o.RetryAfter < 0 || !o.HasRetryAfter && o.RetryAfter != 0 {
		t.Errorf("retry after %s, %v", o.RetryAfter, o.HasRetryAfter)
	}
}

// sendOnce claims, sends and gives back.
func sendOnce(t testing.TB, ctx context.Context, target delivery.Target, gate delivery.Gate) delivery.Outcome {
	t.Helper()
	c := Claim(t, target)
	defer c.Release()
	o := c.Send(ctx, Message(), gate)
	CheckOutcome(t, o)
	return o
}

// wantSeen polls, because a peer may count after the sender has its outcome; then it makes sure that no more came.
func wantSeen(t testing.TB, p Peer, want int) {
	t.Helper()
	deadline := time.Now().Add(settle)
	for p.Seen() < want && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if got := p.Seen(); got != want {
		t.Errorf("the peer saw %d requests, want %d", got, want)
	}
}
