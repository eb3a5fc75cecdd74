package robustness

import (
	"context"
	"encoding/hex"
	"fmt"
	"sort"
	"strings"
	"sync"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Report is what the audit found. Lost, Unexplained, WithoutAdmission and Wrong must be empty.
type Report struct {
	Messages, Requests, Attempts int
	States                       map[string]int
	UncertainBy                  map[string]int // open or past UNKNOWN outcomes by the rule that made them
	Lost                         []string       // acknowledged and not there, or in no state
	Unexplained                  []string       // a second request that nothing permitted, or two for one attempt
	WithoutAdmission             []string       // a request whose attempt is not in the ledger
	Wrong                        []string       // the ledger contradicts the receiver
	FalseStatements              int            // receiver said 5xx to a request it might have acted on: counted apart (P4)
}

// Failed tells whether the audit found what must not be.
func (r *Report) Failed() bool {
	return len(r.Lost)+len(r.Unexplained)+len(r.WithoutAdmission)+len(r.Wrong) > 0
}

func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "messages acknowledged   %d\nrequests at receiver    %d\nattempts in the ledger  %d\n", r.Messages, r.Requests, r.Attempts)
	for _, k := range sorted(r.States) {
		fmt.Fprintf(&b, "  %-20s  %d\n", k, r.States[k])
	}
	for _, k := range sorted(r.UncertainBy) {
		fmt.Fprintf(&b, "unknown by %-12s %d\n", k, r.UncertainBy[k])
	}
	fmt.Fprintf(&b, "lost                    %d\nunexplained duplicates  %d\nsends without admission %d\nledger against receiver %d\n",
		len(r.Lost), len(r.Unexplained), len(r.WithoutAdmission), len(r.Wrong))
	for _, list := range [][]string{r.Lost, r.Unexplained, r.WithoutAdmission, r.Wrong} {
		for i, line := range list {
			if i == 20 {
				fmt.Fprintf(&b, "  … and %d more\n", len(list)-i)
				break
			}
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	return b.String()
}

func sorted(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// attemptKey names one attempt as the receiver and the ledger both know it.
type attemptKey struct {
	webhookID string
	attempt   int
}

// Audit reads the ledger of every acknowledged message and compares it with what the receiver saw.
func Audit(ctx context.Context, node *Process, accepted []Accepted, seen []Seen) (*Report, error) {
	r := &Report{Messages: len(accepted), Requests: len(seen), States: map[string]int{}, UncertainBy: map[string]int{}}
	messages, err := fetch(ctx, node, accepted)
	if err != nil {
		return nil, err
	}
	admitted := map[attemptKey]*sealanev1.Attempt{}
	for i, a := range accepted {
		r.message(a, messages[i], admitted)
	}
	requests := map[attemptKey][]Seen{}
	for _, s := range seen {
		k := attemptKey{s.WebhookID, s.Attempt}
		requests[k] = append(requests[k], s)
	}
	r.requests(ctx, node, requests, admitted)
	return r, nil
}

func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// fetch reads the messages with a few callers in parallel. A message that is not found stays nil.
func fetch(ctx context.Context, node *Process, accepted []Accepted) ([]*sealanev1.Message, error) {
	out := make([]*sealanev1.Message, len(accepted))
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for i := w; i < len(accepted) && errs[w] == nil; i += len(errs) {
				m, err := node.Query().GetMessage(ctx, &sealanev1.GetMessageRequest{Id: accepted[i].MessageID, IncludePayload: true})
				if err != nil && !isNotFound(err) {
					errs[w] = err
					return
				}
				out[i] = m.GetMessage()
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// message checks that an acknowledged message is there, whole, in exactly one state, and that each of its attempts was permitted.
func (r *Report) message(a Accepted, m *sealanev1.Message, admitted map[attemptKey]*sealanev1.Attempt) {
	if m == nil {
		r.Lost = append(r.Lost, a.MessageID+": acknowledged and not found")
		return
	}
	if m.PayloadSha256 != hex.EncodeToString(a.Payload[:]) {
		r.Wrong = append(r.Wrong, a.MessageID+": payload is not what was submitted")
	}
	r.States[m.State.String()]++
	for _, g := range m.Generations {
		id := fmt.Sprintf("%s-%d", m.Id, g.Number)
		for i, at := range g.Attempts {
			r.Attempts++
			admitted[attemptKey{id, int(at.Number)}] = at
			if int(at.Number) != i+1 {
				r.Wrong = append(r.Wrong, fmt.Sprintf("%s: attempt %d stands at place %d", id, at.Number, i+1))
			}
			if at.Outcome.GetSideEffect() == sealanev1.SideEffect_UNKNOWN {
				r.UncertainBy[at.Outcome.GetEvidence().GetRule()]++
			}
			r.permitted(id, g.Attempts[:i], at)
		}
	}
}

// permitted checks P4: an attempt follows only attempts that certainly had no effect, or unknown ones that the policy or an operator
// permitted to be repeated.
func (r *Report) permitted(id string, earlier []*sealanev1.Attempt, at *sealanev1.Attempt) {
	for _, e := range earlier {
		switch {
		case e.Outcome == nil:
			r.Unexplained = append(r.Unexplained, fmt.Sprintf("%s: attempt %d was admitted while %d had no outcome", id, at.Number, e.Number))
		case e.Outcome.SideEffect == sealanev1.SideEffect_PUBLISHED:
			r.Unexplained = append(r.Unexplained, fmt.Sprintf("%s: attempt %d follows %d, which was published", id, at.Number, e.Number))
		case e.Outcome.SideEffect == sealanev1.SideEffect_NOT_PUBLISHED && e.Outcome.GetEvidence().GetRule() == "":
			r.Unexplained = append(r.Unexplained, fmt.Sprintf("%s: attempt %d is NOT_PUBLISHED without evidence", id, e.Number))
		case e.Outcome.SideEffect == sealanev1.SideEffect_UNKNOWN && e.SideEffect != sealanev1.SideEffect_NOT_PUBLISHED && at.Work != sealanev1.Work_UNCERTAIN_RETRY && at.Work != sealanev1.Work_OPERATOR_RETRY:
			r.Unexplained = append(r.Unexplained, fmt.Sprintf("%s: attempt %d follows unknown attempt %d as %s", id, at.Number, e.Number, at.Work))
		}
	}
}

// requests checks P2 from the receiver's side, and the ledger's words against what the receiver did.
func (r *Report) requests(ctx context.Context, node *Process, requests map[attemptKey][]Seen, admitted map[attemptKey]*sealanev1.Attempt) {
	for k, list := range requests {
		name := fmt.Sprintf("%s attempt %d", k.webhookID, k.attempt)
		if len(list) > 1 {
			r.Unexplained = append(r.Unexplained, fmt.Sprintf("%s: the receiver saw %d requests", name, len(list)))
		}
		at := admitted[k]
		if at == nil {
			at = lookUp(ctx, node, k)
		}
		if at == nil {
			r.WithoutAdmission = append(r.WithoutAdmission, name+": not in the ledger")
			continue
		}
		r.compare(name, list[0], at)
	}
	for k, at := range admitted {
		if at.SideEffect == sealanev1.SideEffect_PUBLISHED && len(requests[k]) == 0 {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s attempt %d: PUBLISHED and never seen", k.webhookID, k.attempt))
		}
	}
	for _, list := range [][]string{r.Unexplained, r.WithoutAdmission, r.Wrong} {
		sort.Strings(list)
	}
}

// lookUp finds an attempt of a message whose submit was never acknowledged but took effect: a maybe that became one.
func lookUp(ctx context.Context, node *Process, k attemptKey) *sealanev1.Attempt {
	id, _, ok := strings.Cut(k.webhookID, "-")
	if !ok {
		return nil
	}
	m, err := node.Query().GetMessage(ctx, &sealanev1.GetMessageRequest{Id: id})
	if err != nil {
		return nil
	}
	for _, g := range m.GetMessage().GetGenerations() {
		for _, at := range g.Attempts {
			if fmt.Sprintf("%s-%d", id, g.Number) == k.webhookID && int(at.Number) == k.attempt {
				return at
			}
		}
	}
	return nil
}

// compare holds the ledger's word about one attempt against what the receiver did with it.
func (r *Report) compare(name string, s Seen, at *sealanev1.Attempt) {
	switch at.SideEffect {
	case sealanev1.SideEffect_PUBLISHED:
		if s.Answer < 200 || s.Answer > 299 {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s: PUBLISHED, the receiver answered %d", name, s.Answer))
		}
	case sealanev1.SideEffect_NOT_PUBLISHED:
		if s.Answer >= 200 && s.Answer <= 299 {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s: NOT_PUBLISHED, the receiver accepted it", name))
		}
		if at.Outcome.GetEvidence().GetStatement() == "BEFORE_OWNERSHIP" {
			r.Wrong = append(r.Wrong, name+": said never to have been sent, and the receiver saw it")
		}
	}
}
