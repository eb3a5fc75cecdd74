package robustness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// ledger is a ledger that a test writes by hand.
type ledger struct {
	sealanev1.QueryServiceClient // every call that is not scripted panics
	messages                     []*sealanev1.Message
	unreadable                   string // listed and not found
}

func (l *ledger) ListMessages(_ context.Context, q *sealanev1.ListMessagesRequest, _ ...grpc.CallOption) (*sealanev1.ListMessagesResponse, error) {
	at := 0
	if q.PageToken != "" {
		if _, err := fmt.Sscan(q.PageToken, &at); err != nil {
			return nil, err
		}
	}
	r := &sealanev1.ListMessagesResponse{}
	if at < len(l.messages) { // pages of one
		r.Messages = []*sealanev1.MessageSummary{{Id: l.messages[at].Id, State: l.messages[at].State}}
		r.NextPageToken = fmt.Sprint(at + 1)
	}
	return r, nil
}

func (l *ledger) GetMessage(_ context.Context, q *sealanev1.GetMessageRequest, _ ...grpc.CallOption) (*sealanev1.GetMessageResponse, error) {
	for _, m := range l.messages {
		if m.Id == q.Id && m.Id != l.unreadable {
			return &sealanev1.GetMessageResponse{Message: m}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "not found")
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// told is a message that was acknowledged, delivered with one attempt, and seen once: the start of every case.
func told(n int) (Submitted, *sealanev1.Message, Seen) {
	payload := []byte(fmt.Sprint("payload ", n))
	sum := sha256.Sum256(payload)
	id := fmt.Sprint("msg_", n)
	s := Submitted{Key: fmt.Sprint("key-", n), MessageID: id, Payload: sum, Verdict: WasAccepted}
	m := &sealanev1.Message{
		Id: id, IdempotencyKey: s.Key, Destination: "d", Payload: payload, PayloadSha256: hex.EncodeToString(sum[:]), State: sealanev1.GenerationState_DELIVERED,
		AcceptedPosition: fmt.Sprintf("0:%d", n), AcceptedAt: timestamppb.New(noon),
		Generations: []*sealanev1.Generation{{Number: 1, Attempts: []*sealanev1.Attempt{attemptOf(1, sealanev1.SideEffect_PUBLISHED)}}},
	}
	return s, m, Seen{WebhookID: id + "-1", Attempt: 1, Body: sum, At: noon.Add(time.Duration(n) * time.Second), Answer: 200}
}

func attemptOf(number uint32, side sealanev1.SideEffect_Value) *sealanev1.Attempt {
	return &sealanev1.Attempt{
		Number: number, SideEffect: side, Work: sealanev1.Work_INITIAL,
		Outcome: &sealanev1.Outcome{SideEffect: side, Evidence: &sealanev1.Evidence{Rule: "HTTP_H1", Statement: "RECEIVER_ACCEPTED"}},
	}
}

// story is what one case changes.
type story struct {
	submitted []Submitted
	ledger    *ledger
	seen      []Seen
}

func (s *story) first() *sealanev1.Message { return s.ledger.messages[0] }

// TestAuditFinds gives the audit one thing that must not be at a time: it must find exactly that, and nothing in what is right.
func TestAuditFinds(t *testing.T) {
	cases := []struct {
		name   string
		change func(*story)
		where  func(*Report) []string
		want   string
	}{
		{"all is well", func(*story) {}, nil, ""},
		{"acknowledged and gone", func(s *story) { s.ledger.messages = s.ledger.messages[1:]; s.seen = s.seen[1:] }, lost, "not listed"},
		{"listed and not readable", func(s *story) { s.ledger.unreadable = "msg_1"; s.seen = s.seen[1:] }, lost, "not found"},
		{"in no state", func(s *story) { s.first().State = 0 }, lost, "no state"},
		{"listed twice", func(s *story) { s.ledger.messages = append(s.ledger.messages, s.first()) }, wrong, "listed twice"},
		{"another payload", func(s *story) { s.first().Payload = []byte("x") }, wrong, "payload"},
		{"a refused one exists", func(s *story) { s.submitted[0].Verdict = WasNotAccepted }, wrong, "was told that it was not accepted"},
		{"nobody submitted it", func(s *story) { s.submitted = s.submitted[1:] }, wrong, "nobody submitted"},
		{"one key, two messages", func(s *story) { s.first().IdempotencyKey = "key-2" }, wrong, "two messages"},
		{"seen twice", func(s *story) { s.seen = append(s.seen, s.seen[0]) }, unexplained, "request number 2"},
		{"no admission", func(s *story) { s.seen = append(s.seen, Seen{WebhookID: "msg_1-1", Attempt: 2, Body: s.seen[0].Body}) }, without, "not in the ledger"},
		{"published and never seen", func(s *story) { s.seen = s.seen[1:] }, wrong, "never seen"},
		{"published and refused", func(s *story) { s.seen[0].Answer = 500 }, wrong, "answered 500"},
		{"another body", func(s *story) { s.seen[0].Body[0] ^= 1 }, wrong, "another body"},
		{"accepted and denied", func(s *story) {
			s.first().Generations[0].Attempts[0] = attemptOf(1, sealanev1.SideEffect_NOT_PUBLISHED)
		}, wrong, "accepted it"},
		{"still in flight", func(s *story) {
			s.first().Generations[0].Attempts[0] = &sealanev1.Attempt{Number: 1}
		}, wrong, "without an outcome"},
		{"again after success", func(s *story) {
			s.first().Generations[0].Attempts = append(s.first().Generations[0].Attempts, attemptOf(2, sealanev1.SideEffect_NOT_PUBLISHED))
		}, unexplained, "was published"},
		{"again after unknown, unasked", func(s *story) {
			s.first().Generations[0].Attempts = []*sealanev1.Attempt{attemptOf(1, sealanev1.SideEffect_UNKNOWN), attemptOf(2, sealanev1.SideEffect_UNKNOWN)}
		}, unexplained, "follows unknown"},
		{"again while in flight", func(s *story) {
			s.first().Generations[0].Attempts = []*sealanev1.Attempt{{Number: 1, SideEffect: sealanev1.SideEffect_UNKNOWN}, attemptOf(2, sealanev1.SideEffect_UNKNOWN)}
		}, unexplained, "had no outcome"},
		{"out of order", func(s *story) {
			for _, m := range s.ledger.messages {
				m.OrderingKey = "o"
			}
			s.seen[1].At = noon
		}, disorder, "msg_2 was taken before msg_1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := &story{ledger: &ledger{}}
			for n := 1; n <= 2; n++ {
				a, m, r := told(n)
				s.submitted, s.ledger.messages, s.seen = append(s.submitted, a), append(s.ledger.messages, m), append(s.seen, r)
			}
			c.change(s)
			r, err := Audit(t.Context(), s.ledger, s.submitted, s.seen)
			if err != nil {
				t.Fatal(err)
			}
			if r.Failed() != (c.want != "") {
				t.Fatalf("failed: %v\n%s", r.Failed(), r)
			}
			if c.want != "" && !strings.Contains(strings.Join(c.where(r), "\n"), c.want) {
				t.Errorf("want %q in %v\n%s", c.want, c.where(r), r)
			}
		})
	}
}

func lost(r *Report) []string        { return r.Lost }
func wrong(r *Report) []string       { return r.Wrong }
func unexplained(r *Report) []string { return r.Unexplained }
func without(r *Report) []string     { return r.WithoutAdmission }
func disorder(r *Report) []string    { return r.Disorder }

// TestRegisterModel gives the judge histories whose verdict is plain.
func TestRegisterModel(t *testing.T) {
	write := func(token int64, generation uint32, from, to int64) porcupine.Operation {
		return porcupine.Operation{Input: registerInput{true, token}, Output: registerOutput{generation > 0, registerState{generation: generation}}, Call: from, Return: to}
	}
	read := func(token int64, generation uint32, from, to int64) porcupine.Operation {
		return porcupine.Operation{Input: registerInput{}, Output: registerOutput{true, registerState{generation, token}}, Call: from, Return: to}
	}
	cases := []struct {
		name string
		ops  []porcupine.Operation
		want bool
	}{
		{"written, then read", []porcupine.Operation{write(7, 2, 0, 1), read(7, 2, 2, 3)}, true},
		{"old read after a write", []porcupine.Operation{write(7, 2, 0, 1), read(0, 1, 2, 3)}, false},
		{"old read beside a write", []porcupine.Operation{write(7, 2, 0, 5), read(0, 1, 2, 3)}, true},
		{"back and forth", []porcupine.Operation{write(7, 2, 0, 9), read(7, 2, 1, 2), read(0, 1, 3, 4)}, false},
		{"an open write that took effect", []porcupine.Operation{write(7, 0, 0, 1<<62), read(0, 1, 1, 2), read(7, 2, 3, 4)}, true},
		{"an open write that did not", []porcupine.Operation{write(7, 0, 0, 1<<62), write(8, 2, 1, 2), read(8, 2, 3, 4)}, true},
		{"one generation for two writes", []porcupine.Operation{write(7, 2, 0, 1), write(8, 2, 2, 3)}, false},
	}
	for _, c := range cases {
		if got := porcupine.CheckOperations(registerModel, c.ops); got != c.want {
			t.Errorf("%s: linearizable %v, want %v", c.name, got, c.want)
		}
	}
}
