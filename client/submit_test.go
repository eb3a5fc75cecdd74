package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

const (
	no    = sealanev1.Acceptance_NOT_ACCEPTED
	maybe = sealanev1.Acceptance_MAYBE_ACCEPTED
)

// try is what a node does with one try: store it or not, and answer with an error or not.
type try struct {
	store  bool
	answer error
}

// What Submit answers to every kind of sequence of tries.
func TestSubmitAnswers(t *testing.T) {
	ok := try{store: true}
	lost := try{store: true, answer: status.Error(codes.Unavailable, "connection lost")}
	dropped := try{answer: status.Error(codes.Unavailable, "connection lost")}
	deadline := try{answer: refusal(codes.DeadlineExceeded, "MAYBE_ACCEPTED", maybe, "")}
	leaderless := try{answer: refusal(codes.Unavailable, "NO_LEADER", no, "")}
	invalid := try{answer: refusal(codes.InvalidArgument, "INVALID_REQUEST", no, "payload")}
	full := try{answer: refusal(codes.ResourceExhausted, "LANE_BACKLOG_FULL", no, "")}
	late := try{answer: refusal(codes.FailedPrecondition, "SUBMIT_BY_PASSED", no, "submit_by")}
	denied := try{answer: status.Error(codes.PermissionDenied, "no")}
	for _, c := range []struct {
		name   string
		tries  []try
		answer string
		count  int
	}{
		{"accepted at once", []try{ok}, "accepted", 1},
		{"lost once, then its first answer", []try{lost, ok}, "accepted again", 2},
		{"never arrived, then accepted", []try{dropped, ok}, "accepted", 2},
		{"refused for good", []try{invalid}, "not accepted INVALID_REQUEST payload", 1},
		{"refused at apply", []try{full}, "not accepted LANE_BACKLOG_FULL", 1},
		{"no leader for a moment", []try{leaderless, leaderless, ok}, "accepted", 3},
		{"lost, then refused at apply: the key is not there", []try{dropped, late}, "not accepted SUBMIT_BY_PASSED submit_by", 2},
		{"lost, then refused before apply: says nothing about the first", []try{lost, invalid}, "maybe", 2},
		{"deadline in the node, then accepted", []try{deadline, ok}, "accepted", 2},
		{"denied: no repetition helps", []try{denied}, "maybe", 1},
		{"lost, no leader, accepted", []try{lost, leaderless, ok}, "accepted again", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.verdict = func(_ *sealanev1.SubmitRequest, nth int) (bool, error) {
					return c.tries[nth-1].store, c.tries[nth-1].answer
				}
				cl := testClient(Options{}, n)
				a, err := cl.Submit(t.Context(), Message{Destination: "d", Payload: []byte("p")})
				if got := describe(a, err); got != c.answer {
					t.Errorf("answer %q, want %q (%v)", got, c.answer, err)
				}
				if len(n.requests) != c.count {
					t.Fatalf("%d tries, want %d", len(n.requests), c.count)
				}
				for _, r := range n.requests {
					if !proto.Equal(r, n.requests[0]) {
						t.Errorf("a try differs: %v and %v", n.requests[0], r)
					}
				}
			})
		})
	}
}

func describe(a Accepted, err error) string {
	var refused *NotAcceptedError
	var open *MaybeAcceptedError
	switch {
	case err == nil && a.Deduplicated:
		return "accepted again"
	case err == nil:
		return "accepted"
	case errors.As(err, &refused):
		return strings.TrimSpace("not accepted " + refused.Refusal.Reason + " " + refused.Refusal.Field)
	case errors.As(err, &open):
		return "maybe"
	}
	return "another error: " + err.Error()
}

// A maybe holds all that is needed to go on later: the key and the time until which that is safe.
func TestMaybeAcceptedCarriesTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.verdict = func(*sealanev1.SubmitRequest, int) (bool, error) {
			return true, status.Error(codes.Unavailable, "gone")
		}
		cl := testClient(Options{RetryFor: time.Minute}, n)
		begun := time.Now()
		_, err := cl.Submit(t.Context(), Message{Destination: "d"})
		var open *MaybeAcceptedError
		if !errors.As(err, &open) {
			t.Fatalf("got %v", err)
		}
		first := n.requests[0]
		if open.IdempotencyKey != first.GetIdempotencyKey() || !open.SubmitBy.Equal(begun.Add(DefaultSubmitBy)) || open.Tries != len(n.requests) {
			t.Errorf("%+v after %d requests, the first %v", open, len(n.requests), first)
		}
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("gave up after %s", took)
		}
		// Half a minute later, with that key, the first answer comes.
		n.verdict = nil
		a, err := cl.Submit(t.Context(), Message{Destination: "d", IdempotencyKey: open.IdempotencyKey, SubmitBy: open.SubmitBy})
		if err != nil || !a.Deduplicated || len(n.kept) != 1 {
			t.Errorf("%+v, %v, kept %v", a, err, n.kept)
		}
	})
}

// That the time ran out does not hide what the node said before.
func TestMaybeAcceptedKeepsTheTellingError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.verdict = func(_ *sealanev1.SubmitRequest, nth int) (bool, error) {
			if nth == 1 {
				return false, refusal(codes.Unavailable, "MAYBE_ACCEPTED", maybe, "")
			}
			return false, status.Error(codes.DeadlineExceeded, "context deadline exceeded")
		}
		cl := testClient(Options{RetryFor: time.Second}, n)
		var open *MaybeAcceptedError
		_, err := cl.Submit(t.Context(), Message{Destination: "d"})
		if e, ok := AsError(err); !errors.As(err, &open) || !ok || e.Reason != "MAYBE_ACCEPTED" || open.Tries < 2 {
			t.Errorf("got %v", err)
		}
	})
}

func TestSubmitOfAnEndedContextSendsNothing(t *testing.T) {
	n := newNode()
	cl := testClient(Options{}, n)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var refused *NotAcceptedError
	if _, err := cl.Submit(ctx, Message{Destination: "d"}); !errors.As(err, &refused) || len(n.requests) != 0 {
		t.Errorf("got %v after %d requests", err, len(n.requests))
	}
}

func TestSubmitTooLargeForACall(t *testing.T) {
	n := newNode()
	cl := testClient(Options{}, n)
	var refused *NotAcceptedError
	_, err := cl.Submit(t.Context(), Message{Destination: "d", Payload: make([]byte, maxMessageBytes)})
	if !errors.As(err, &refused) || refused.Refusal.Field != "payload" || !strings.Contains(err.Error(), "at most") || len(n.requests) != 0 {
		t.Errorf("got %v", err)
	}
}

func TestSubmitPassesEverythingOn(t *testing.T) {
	n := newNode()
	cl := testClient(Options{}, n)
	at := time.Unix(1_800_000_000, 5).UTC()
	m := Message{
		Destination: "d", Payload: []byte{0, 0xff, ' '}, ContentType: "a/b", IdempotencyKey: "k", OrderingKey: "o", DeliverAt: at,
		ExpireAt: at.Add(time.Hour), SubmitBy: at.Add(time.Minute), Attributes: map[string]string{"x": "y"}, Traceparent: "t",
	}
	a, err := cl.Submit(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	r := n.requests[0]
	if r.GetDestination() != "d" || string(r.GetPayload()) != "\x00\xff " || r.GetContentType() != "a/b" || r.GetOrderingKey() != "o" ||
		!r.GetDeliverAt().AsTime().Equal(at) || !r.GetExpireAt().AsTime().Equal(m.ExpireAt) || !r.GetSubmitBy().AsTime().Equal(m.SubmitBy) ||
		r.GetAttributes()["x"] != "y" || r.GetTraceparent() != "t" || a.IdempotencyKey != "k" || a.MessageID != "msg_k" || a.Position != "0:1" {
		t.Errorf("sent %v, got %+v", r, a)
	}
}

func TestAsError(t *testing.T) {
	e, ok := AsError(refusal(codes.AlreadyExists, "IDEMPOTENCY_CONFLICT", no, "payload"))
	if !ok || e.Code != codes.AlreadyExists || e.Reason != "IDEMPOTENCY_CONFLICT" || e.Field != "payload" || e.Acceptance != no || e.Metadata["limit"] != "7" {
		t.Errorf("%+v", e)
	}
	if _, ok := AsError(nil); ok {
		t.Error("nothing is an error")
	}
	if _, ok := AsError(errors.New("x")); ok {
		t.Error("an error of another kind is taken for an answer")
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, ""},
		{Options{RetryFor: 2 * time.Hour}, "RetryFor"},
		{Options{RetryFor: -1}, "RetryFor"},
		{Options{RetryFor: time.Minute, SubmitBy: time.Second}, "SubmitBy"},
		{Options{SubmitBy: 25 * time.Hour}, "SubmitBy"},
		{Options{StreamWindow: -1}, "StreamWindow"},
		{Options{StreamWindow: MaxStreamWindow + 1}, "StreamWindow"},
	} {
		cl, err := Dial(DefaultAddr, c.o)
		if err == nil {
			err = cl.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
	if _, err := Dial("nowhere", Options{}); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("got %v", err)
	}
}

func TestNewKeyIsARandomUUID(t *testing.T) {
	a, b := NewKey(), NewKey()
	if a == b || len(a) != 36 || a[14] != '4' || !strings.ContainsRune("89ab", rune(a[19])) {
		t.Errorf("%s, %s", a, b)
	}
}
