package robustness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// attemptKey names one attempt as the receiver and the ledger both know it.
type attemptKey struct {
	webhookID string
	attempt   int
}

// ledgerAttempt is what the audit keeps of one attempt.
type ledgerAttempt struct {
	side      sealanev1.SideEffect_Value // as known now
	statement string
	payload   [32]byte // of its message
}

// auditor reads the ledger and compares.
type auditor struct {
	query sealanev1.QueryServiceClient

	mu       sync.Mutex
	report   *Report
	byID     map[string]*Submitted // acknowledged
	byKey    map[string]*Submitted
	idOfKey  map[string]string // of every message in the ledger
	admitted map[attemptKey]ledgerAttempt
	ordered  map[string][]orderedMessage
}

// Audit reads the ledger of all messages, page by page, and compares it with what the submitters were told and what the receiver saw. The
// cluster must have come to rest.
func Audit(ctx context.Context, query sealanev1.QueryServiceClient, submitted []Submitted, seen []Seen) (*Report, error) {
	a := &auditor{
		query: query, report: newReport(), byID: map[string]*Submitted{}, byKey: map[string]*Submitted{}, idOfKey: map[string]string{},
		admitted: map[attemptKey]ledgerAttempt{}, ordered: map[string][]orderedMessage{},
	}
	a.report.Requests = len(seen)
	a.answers(submitted)
	ids, err := a.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list messages: %w", err)
	}
	if err := a.read(ctx, ids); err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	a.requests(seen)
	a.early(submitted, seen)
	a.order(seen)
	a.report.sort()
	return a.report, nil
}

// answers takes in what the submitters were told.
func (a *auditor) answers(submitted []Submitted) {
	r := a.report
	for i := range submitted {
		s := &submitted[i]
		a.byKey[s.Key] = s
		switch s.Verdict {
		case WasAccepted:
			r.Acknowledged++
			if other := a.byID[s.MessageID]; other != nil {
				r.Wrong = append(r.Wrong, fmt.Sprintf("%s: acknowledged for %s and for %s", s.MessageID, other.Key, s.Key))
			}
			a.byID[s.MessageID] = s
		case WasNotAccepted:
			r.Refused++
		case MaybeAccepted:
			r.Open++
		}
	}
}

// list walks over all pages and finds every message exactly once, and every acknowledged one among them.
func (a *auditor) list(ctx context.Context) ([]string, error) {
	var ids []string
	seen := map[string]bool{}
	q := &sealanev1.ListMessagesRequest{PageSize: 1000}
	for {
		r, err := again(ctx, func(ctx context.Context) (*sealanev1.ListMessagesResponse, error) {
			return a.query.ListMessages(ctx, q)
		})
		if err != nil {
			return nil, err
		}
		for _, m := range r.GetMessages() {
			if seen[m.GetId()] {
				a.report.Wrong = append(a.report.Wrong, m.GetId()+": listed twice")
				continue
			}
			seen[m.GetId()] = true
			ids = append(ids, m.GetId())
			a.report.States[m.GetState().String()]++
		}
		if q.PageToken = r.GetNextPageToken(); q.PageToken == "" {
			break
		}
	}
	for id, s := range a.byID {
		if !seen[id] {
			a.report.Lost = append(a.report.Lost, fmt.Sprintf("%s: acknowledged to %s at %s and not listed", id, s.Key, s.Position))
			ids = append(ids, id) // perhaps it can be read all the same; the details help
		}
	}
	a.report.Messages = len(seen)
	return ids, nil
}

// again repeats a read for a while: the audit itself must not depend on one connection.
func again[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	var last error
	for try := 0; try < 10 && ctx.Err() == nil; try++ {
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		v, err := do(call)
		cancel()
		if err == nil || isNotFound(err) {
			return v, err
		}
		last = err
		pause(ctx, 100*time.Millisecond)
	}
	var zero T
	return zero, last
}

func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// read reads every message, with several callers at once.
func (a *auditor) read(ctx context.Context, ids []string) error {
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for i := w; i < len(ids) && errs[w] == nil; i += len(errs) {
				q := &sealanev1.GetMessageRequest{Id: ids[i], IncludePayload: true}
				r, err := again(ctx, func(ctx context.Context) (*sealanev1.GetMessageResponse, error) { return a.query.GetMessage(ctx, q) })
				if err != nil && !isNotFound(err) {
					errs[w] = err
					return
				}
				a.message(ids[i], r.GetMessage())
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// message checks that a message is there, whole, and that each of its attempts was permitted.
func (a *auditor) message(id string, m *sealanev1.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.report
	if m == nil {
		r.Lost = append(r.Lost, id+": not found")
		return
	}
	payload := sha256.Sum256(m.GetPayload())
	a.belongs(id, m, payload)
	if m.GetState() == sealanev1.GenerationState_STATE_UNSPECIFIED {
		r.Lost = append(r.Lost, id+": in no state")
	}
	for i, g := range m.GetGenerations() {
		if int(g.GetNumber()) != i+1 {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s: generation %d stands at place %d", id, g.GetNumber(), i+1))
		}
		name := fmt.Sprintf("%s-%d", id, g.GetNumber())
		for j, at := range g.GetAttempts() {
			a.attempt(name, payload, g.GetAttempts()[:j], at)
		}
	}
	if m.GetOrderingKey() != "" {
		a.orderedBy(id, m)
	}
}

// belongs compares a message with the submit that made it.
func (a *auditor) belongs(id string, m *sealanev1.Message, payload [32]byte) {
	r, key := a.report, m.GetIdempotencyKey()
	if other := a.idOfKey[key]; other != "" {
		r.Wrong = append(r.Wrong, fmt.Sprintf("%s: one key and two messages, %s and %s", key, other, id))
	}
	a.idOfKey[key] = id
	s := a.byKey[key]
	switch {
	case s == nil:
		r.Wrong = append(r.Wrong, fmt.Sprintf("%s: nobody submitted its key %q", id, key))
		return
	case s.Verdict == WasNotAccepted:
		r.Wrong = append(r.Wrong, fmt.Sprintf("%s: %s was told that it was not accepted (%s)", id, key, s.Why))
	case s.Verdict == MaybeAccepted:
		r.Found++
	case s.MessageID != id:
		r.Wrong = append(r.Wrong, fmt.Sprintf("%s: %s was given the id %s", id, key, s.MessageID))
	}
	if s.Payload != payload || m.GetPayloadSha256() != hex.EncodeToString(payload[:]) {
		r.Wrong = append(r.Wrong, id+": payload is not what was submitted")
	}
}

func (a *auditor) attempt(name string, payload [32]byte, earlier []*sealanev1.Attempt, at *sealanev1.Attempt) {
	r := a.report
	r.Attempts++
	evidence := at.GetOutcome().GetEvidence()
	a.admitted[attemptKey{name, int(at.GetNumber())}] = ledgerAttempt{side: at.GetSideEffect(), statement: evidence.GetStatement(), payload: payload}
	if int(at.GetNumber()) != len(earlier)+1 {
		r.Wrong = append(r.Wrong, fmt.Sprintf("%s: attempt %d stands at place %d", name, at.GetNumber(), len(earlier)+1))
	}
	switch {
	case at.GetOutcome().GetSideEffect() == sealanev1.SideEffect_UNKNOWN:
		r.UnknownBy[evidence.GetRule()]++
	case evidence.GetStatement() == beforeOwnership:
		r.NotSentBy[evidence.GetErrorClass()]++
	}
	a.permitted(name, earlier, at)
}

// beforeOwnership is the statement of what was never sent.
const beforeOwnership = "BEFORE_OWNERSHIP"

// permitted checks P4: an attempt follows only attempts that certainly had no effect, or unknown ones that the policy or an operator
// permitted to be repeated.
func (a *auditor) permitted(id string, earlier []*sealanev1.Attempt, at *sealanev1.Attempt) {
	r := a.report
	for _, e := range earlier {
		switch {
		case e.Outcome == nil:
			r.Unexplained = append(r.Unexplained, fmt.Sprintf("%s: attempt %d was admitted while %d had no outcome", id, at.Number, e.Number))
		case e.Outcome.SideEffect == sealanev1.SideEffect_PUBLISHED:
			r.Unexplained = append(r.Unexplained, fmt.Sprintf("%s: attempt %d follows %d, which was published", id, at.Number, e.Number))
		case e.Outcome.SideEffect == sealanev1.SideEffect_NOT_PUBLISHED && e.Outcome.GetEvidence().GetRule() == "":
			r.Unexplained = append(r.Unexplained, fmt.Sprintf("%s: attempt %d is NOT_PUBLISHED without evidence", id, e.Number))
		case e.Outcome.SideEffect == sealanev1.SideEffect_UNKNOWN && e.SideEffect != sealanev1.SideEffect_NOT_PUBLISHED &&
			at.Work != sealanev1.Work_UNCERTAIN_RETRY && at.Work != sealanev1.Work_OPERATOR_RETRY:
			r.Unexplained = append(r.Unexplained, fmt.Sprintf("%s: attempt %d follows unknown attempt %d as %s", id, at.Number, e.Number, at.Work))
		}
	}
}

// requests checks P2 from the receiver's side, and the ledger's words against what the receiver did.
func (a *auditor) requests(seen []Seen) {
	r := a.report
	counts := make(map[attemptKey]int, len(seen))
	for i := range seen {
		s := &seen[i]
		k := attemptKey{s.WebhookID, s.Attempt}
		name := fmt.Sprintf("%s attempt %d", k.webhookID, k.attempt)
		if counts[k]++; counts[k] > 1 {
			r.Unexplained = append(r.Unexplained, fmt.Sprintf("%s: the receiver saw request number %d", name, counts[k]))
		}
		at, ok := a.admitted[k]
		if !ok {
			r.WithoutAdmission = append(r.WithoutAdmission, name+": not in the ledger")
			continue
		}
		a.compare(name, s, at)
	}
	for k, at := range a.admitted {
		if at.side == sealanev1.SideEffect_PUBLISHED && counts[k] == 0 {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s attempt %d: PUBLISHED and never seen", k.webhookID, k.attempt))
		}
	}
}

// compare holds the ledger's word about one attempt against what the receiver did with it.
func (a *auditor) compare(name string, s *Seen, at ledgerAttempt) {
	r := a.report
	if s.Body != at.payload {
		r.Wrong = append(r.Wrong, name+": the receiver saw another body than the message's")
	}
	switch at.side {
	case sealanev1.SideEffect_PUBLISHED:
		if !s.Took() {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s: PUBLISHED, the receiver answered %d", name, s.Answer))
		}
	case sealanev1.SideEffect_NOT_PUBLISHED:
		if s.Took() {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s: NOT_PUBLISHED (%s), the receiver accepted it (%d)", name, at.statement, s.Answer))
		}
		if at.statement == beforeOwnership {
			r.Wrong = append(r.Wrong, name+": said never to have been sent, and the receiver saw it")
		}
	case sealanev1.SideEffect_SIDE_EFFECT_UNSPECIFIED:
		r.Wrong = append(r.Wrong, name+": still without an outcome when all had come to rest")
	}
}

// early counts requests that came before their deliver_at.
func (a *auditor) early(submitted []Submitted, seen []Seen) {
	due := map[string]time.Time{}
	for i := range submitted {
		if s := &submitted[i]; !s.DeliverAt.IsZero() && s.MessageID != "" {
			due[s.MessageID] = s.DeliverAt
		}
	}
	for i := range seen {
		id, _, _ := strings.Cut(seen[i].WebhookID, "-")
		if at, ok := due[id]; ok && seen[i].At.Before(at) {
			a.report.Early++
		}
	}
}
