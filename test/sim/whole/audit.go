package whole

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// report is what an audit counted. What must not be is a problem of the run.
type report struct {
	acknowledged, refusals, maybes int
	found                          int // maybes that were accepted
	messages, attempts, requests   int
	lied                           int // NOT_PUBLISHED by the receiver's own, false word
	unknown                        map[string]int
	states                         map[string]int
	digests                        int
	histories, operations          int // of registers
	undecided                      int // histories that porcupine gave up on
	rest                           time.Duration
}

func (r *report) String() string {
	return fmt.Sprintf("acknowledged %d, refused %d, maybe %d (of which accepted %d), messages %d %v, attempts %d, requests %d, unknown %v, "+
		"false words %d, digests %d, histories %d of %d operations (undecided %d), at rest after %s", r.acknowledged, r.refusals, r.maybes, r.found, r.messages, r.states, r.attempts, r.requests,
		r.unknown, r.lied, r.digests, r.histories, r.operations, r.undecided, r.rest)
}

func payloadOf(key string) [32]byte { return sha256.Sum256([]byte(key)) }

// entry is what the ledger says of one attempt.
type entry struct {
	m  *sealanev1.Message
	at *sealanev1.Attempt
}

// ledgerKey names an attempt as receiver and ledger both know it.
type ledgerKey struct {
	message             string
	generation, attempt uint32
}

// audit compares what clients were told, what receivers saw, and what the ledger says.
type audit struct {
	r        *Run
	mu       sync.Mutex
	messages map[string]*sealanev1.Message
	entries  map[ledgerKey]entry
	byKey    map[string]string
}

func (r *Run) audit() {
	a := &audit{r: r, messages: map[string]*sealanev1.Message{}, entries: map[ledgerKey]entry{}, byKey: map[string]string{}}
	r.report.unknown, r.report.states = map[string]int{}, map[string]int{}
	r.report.acknowledged, r.report.refusals, r.report.maybes = r.journal.count()
	listed, err := r.list()
	if err != nil {
		r.problem("list all messages: %v", err)
		return
	}
	ids := map[string]bool{}
	for _, m := range listed {
		if ids[m.GetId()] {
			r.problem("%s is listed twice", m.GetId())
		}
		ids[m.GetId()] = true
	}
	for _, id := range r.journal.all() {
		if !ids[id] {
			r.problem("LOST: %s was acknowledged and is not listed", id)
		}
	}
	a.readAll(ids)
	for _, id := range slices.Sorted(keys(a.messages)) {
		a.message(a.messages[id])
	}
	a.submits()
	a.requests()
	a.changes()
	a.positions()
	a.epochs()
	a.pauses()
	a.ordered()
}

func keys[K cmp.Ordered, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// readAll reads every message linearizably, through all nodes in turn.
func (a *audit) readAll(ids map[string]bool) {
	names, nodes := slices.Sorted(keys(ids)), a.r.cluster.up()
	var wg sync.WaitGroup
	const readers = 8
	for w := range readers {
		wg.Go(func() {
			for i := w; i < len(names); i += readers {
				m, err := a.read(names[i], nodes, i)
				if err != nil {
					a.r.problem("LOST: %s cannot be read: %v", names[i], err)
					continue
				}
				a.mu.Lock()
				a.messages[names[i]] = m
				a.mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func (a *audit) read(id string, nodes []string, turn int) (m *sealanev1.Message, err error) {
	for try := range 6 {
		ctx, cancel := context.WithTimeout(context.Background(), callWait)
		before := a.r.journal.floorOf(id)
		var r *sealanev1.GetMessageResponse
		r, err = a.r.cluster.door(nodes[(turn+try)%len(nodes)]).query().GetMessage(ctx, &sealanev1.GetMessageRequest{
			Id: id, Consistency: sealanev1.Consistency_linearizable, IncludePayload: true,
		})
		cancel()
		if err == nil && r.GetMessage() != nil {
			a.r.journal.saw(a.r, before, r.GetMessage())
			return r.GetMessage(), nil
		}
	}
	return nil, fmt.Errorf("no answer: %w", err)
}

// message checks one message by itself: that its attempts are numbered, that each was permitted, and that its states agree with them.
func (a *audit) message(m *sealanev1.Message) {
	r := a.r
	r.report.messages++
	r.report.states[m.GetState().String()]++
	if other := a.byKey[m.GetIdempotencyKey()]; other != "" {
		r.problem("one key and two messages: %s is %s and %s", m.GetIdempotencyKey(), other, m.GetId())
	}
	a.byKey[m.GetIdempotencyKey()] = m.GetId()
	if int(m.GetGeneration()) != len(m.GetGenerations()) {
		r.problem("%s is at generation %d and has %d", m.GetId(), m.GetGeneration(), len(m.GetGenerations()))
	}
	for i, g := range m.GetGenerations() {
		if int(g.GetNumber()) != i+1 {
			r.problem("%s: generation %d stands at place %d", m.GetId(), g.GetNumber(), i+1)
		}
		a.generation(m, g)
	}
}

func (a *audit) generation(m *sealanev1.Message, g *sealanev1.Generation) {
	r, name := a.r, fmt.Sprintf("%s-%d", m.GetId(), g.GetNumber())
	unknown, published := 0, 0
	for i, at := range g.GetAttempts() {
		if int(at.GetNumber()) != i+1 {
			r.problem("%s: attempt %d stands at place %d", name, at.GetNumber(), i+1)
		}
		a.entries[ledgerKey{m.GetId(), g.GetNumber(), at.GetNumber()}] = entry{m, at}
		r.report.attempts++
		switch {
		case at.GetOutcome() == nil:
			r.problem("%s attempt %d has no outcome although all is at rest", name, at.GetNumber())
		case at.GetOutcome().GetSideEffect() == sealanev1.SideEffect_UNKNOWN:
			r.report.unknown[at.GetOutcome().GetEvidence().GetErrorClass()]++
			if r.plan.planned && at.GetOutcome().GetEvidence().GetErrorClass() == "RECOVERY" {
				r.problem("%s attempt %d became unknown by RECOVERY although everything was planned", name, at.GetNumber())
			}
		case at.GetOutcome().GetEvidence().GetRule() == "":
			r.problem("%s attempt %d is %s without evidence", name, at.GetNumber(), at.GetOutcome().GetSideEffect())
		}
		if at.GetOutcome() != nil && at.GetSideEffect() != at.GetOutcome().GetSideEffect() && len(at.GetResolutions()) == 0 {
			r.problem("%s attempt %d was %s and is %s, without evidence", name, at.GetNumber(), at.GetOutcome().GetSideEffect(), at.GetSideEffect())
		}
		switch at.GetSideEffect() {
		case sealanev1.SideEffect_UNKNOWN:
			unknown++
		case sealanev1.SideEffect_PUBLISHED:
			published++
		}
		a.permitted(name, g.GetAttempts()[:i], at)
	}
	ended := g.GetState() >= sealanev1.GenerationState_DELIVERED
	switch {
	case g.GetState() == sealanev1.GenerationState_DELIVERED && published == 0:
		r.problem("%s is DELIVERED without an attempt that was published", name)
	case !ended && published > 0:
		r.problem("%s is %s with an attempt that was published", name, g.GetState())
	case !ended && unknown > 0 && g.GetState() != sealanev1.GenerationState_UNCERTAIN:
		r.problem("%s is %s with %d attempts unknown", name, g.GetState(), unknown)
	case g.GetState() == sealanev1.GenerationState_UNCERTAIN && unknown == 0:
		r.problem("%s is UNCERTAIN with no attempt unknown", name)
	case g.GetState() == sealanev1.GenerationState_STATE_UNSPECIFIED || g.GetState() == sealanev1.GenerationState_IN_FLIGHT:
		r.problem("%s is %s although all is at rest", name, g.GetState())
	}
}

// permitted checks P4: an attempt follows only those that certainly had no effect, or unknown ones that policy or an operator lets repeat.
func (a *audit) permitted(name string, earlier []*sealanev1.Attempt, at *sealanev1.Attempt) {
	_, index, _ := positionOf(at.GetAdmittedPosition())
	for _, e := range earlier {
		side := e.GetOutcome().GetSideEffect() // as it was decided first: an attempt must have been permitted when it was admitted
		repeat := at.GetWork() == sealanev1.Work_UNCERTAIN_RETRY || at.GetWork() == sealanev1.Work_OPERATOR_RETRY
		known := false // evidence that came before the admission
		for _, s := range e.GetResolutions() {
			_, when, _ := positionOf(s.GetPosition())
			known = known || s.GetSideEffect() == sealanev1.SideEffect_NOT_PUBLISHED && when <= index
		}
		switch {
		case e.GetOutcome() == nil:
			a.r.problem("UNEXPLAINED: %s attempt %d was admitted while %d had no outcome", name, at.GetNumber(), e.GetNumber())
		case side == sealanev1.SideEffect_PUBLISHED:
			a.r.problem("UNEXPLAINED: %s attempt %d follows %d, which was published", name, at.GetNumber(), e.GetNumber())
		case side == sealanev1.SideEffect_UNKNOWN && !repeat && !known:
			a.r.problem("UNEXPLAINED: %s attempt %d follows unknown attempt %d as %s", name, at.GetNumber(), e.GetNumber(), at.GetWork())
		}
	}
}

// submits compares the ledger with what submitters were told.
func (a *audit) submits() {
	r := a.r
	r.journal.mu.Lock()
	defer r.journal.mu.Unlock()
	for _, key := range slices.Sorted(keys(r.journal.byKey)) {
		s := r.journal.byKey[key]
		id := a.byKey[key]
		switch {
		case s.verdict == accepted && id != s.id:
			r.problem("LOST: %s was acknowledged as %s, the ledger has %q", key, s.id, id)
			continue
		case s.verdict == refused && id != "":
			r.problem("%s was told that it was not accepted (%s), and is %s", key, s.why, id)
		case s.verdict == open && id != "":
			r.report.found++
		}
		m := a.messages[id]
		if m == nil {
			continue
		}
		if sha256.Sum256(m.GetPayload()) != s.payload || m.GetDestination() != s.dest || m.GetOrderingKey() != s.ordering {
			r.problem("%s is not what was submitted as %s", id, key)
		}
		if s.verdict == accepted && m.GetAcceptedPosition() != s.position {
			r.problem("%s was acknowledged at %s, the ledger says %s", id, s.position, m.GetAcceptedPosition())
		}
	}
	for _, key := range slices.Sorted(keys(a.byKey)) {
		if r.journal.byKey[key] == nil {
			r.problem("nobody submitted %q, which is %s", key, a.byKey[key])
		}
	}
}

// requests checks P2 from the receivers' side: each request is explained by exactly one admission, of the process that sent it.
func (a *audit) requests() {
	r, counts := a.r, map[ledgerKey]int{}
	seen := r.receivers.requests()
	r.report.requests = len(seen)
	for i := range seen {
		q := &seen[i]
		k := ledgerKey{q.message, q.generation, q.attempt}
		if counts[k]++; counts[k] > 1 {
			r.problem("UNEXPLAINED: %s came for the %d. time", q.name(), counts[k])
		}
		e, ok := a.entries[k]
		if !ok {
			r.problem("WITHOUT ADMISSION: %s", q.name())
			continue
		}
		a.request(q, e)
	}
	for k, e := range a.entries {
		if e.at.GetSideEffect() == sealanev1.SideEffect_PUBLISHED && counts[k] == 0 {
			r.problem("%s-%d attempt %d is PUBLISHED and was never seen", k.message, k.generation, k.attempt)
		}
	}
}

func (a *audit) request(q *request, e entry) {
	r := a.r
	if q.payload != sha256.Sum256(e.m.GetPayload()) || fmt.Sprintf("%x", q.hash) != e.at.GetRequestSha256() {
		r.problem("%s is not the request that was admitted", q.name())
	}
	if owner := e.at.GetOwner(); owner.GetNode() != q.node {
		r.problem("%s was sent by %s, its admission is of %s", q.name(), q.node, owner.GetNode())
	}
	statement := e.at.GetOutcome().GetEvidence().GetStatement()
	switch e.at.GetSideEffect() {
	case sealanev1.SideEffect_PUBLISHED:
		if !q.reaction.took() {
			r.problem("%s is PUBLISHED, and the receiver did not take it (%d)", q.name(), q.reaction)
		}
	case sealanev1.SideEffect_NOT_PUBLISHED:
		if statement == "BEFORE_OWNERSHIP" {
			r.problem("%s was said never to have been sent, and the receiver saw it", q.name())
		}
		if q.reaction == lies {
			r.report.lied++
		} else if q.reaction.took() {
			r.problem("%s is NOT_PUBLISHED, and the receiver took it", q.name())
		}
	}
	if !r.plan.clocks && e.m.GetDeliverAt() != nil && q.generation == 1 && q.at.Before(e.m.GetDeliverAt().AsTime()) {
		r.problem("%s came %s early", q.name(), e.m.GetDeliverAt().AsTime().Sub(q.at))
	}
}
