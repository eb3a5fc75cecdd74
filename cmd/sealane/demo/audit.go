package demo

import (
	"context"
	"fmt"
	"strings"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/sink"
)

// finding is one thing that must never happen. Each is counted, and the first case is shown.
type finding struct {
	title string
	count int
	first string
}

func (f *finding) add(format string, args ...any) {
	if f.count == 0 {
		f.first = fmt.Sprintf(format, args...)
	}
	f.count++
}

// findings are all of them.
type findings struct {
	lost         finding // acknowledged, and not in the ledger
	states       finding // listed in no state or in several
	phantom      finding // delivered, and never seen by the receiver
	unadmitted   finding // a request without an admission
	twice        finding // one admission, several requests
	unexplained  finding // a repetition that nothing permitted
	contradicted finding // an outcome that the receiver's record contradicts
	altered      finding // other bytes than were submitted
}

func newFindings() *findings {
	return &findings{
		lost:         finding{title: "acknowledged messages lost"},
		states:       finding{title: "messages not in exactly one state"},
		phantom:      finding{title: "messages called delivered that the receiver never saw"},
		unadmitted:   finding{title: "requests without an admission in the ledger"},
		twice:        finding{title: "admissions with more than one request"},
		unexplained:  finding{title: "unexplained duplicates"},
		contradicted: finding{title: "outcomes that the receiver's record contradicts"},
		altered:      finding{title: "payloads that arrived changed"},
	}
}

func (f *findings) all() []*finding {
	return []*finding{&f.lost, &f.states, &f.phantom, &f.unadmitted, &f.twice, &f.unexplained, &f.contradicted, &f.altered}
}

// row is what the table says about one destination.
type row struct {
	acknowledged, delivered, deadLettered, other int
	requests, afterRefusal, permitted            int
}

// admission names one attempt of one generation.
type admission struct {
	webhookID string
	attempt   uint32
}

// ledger is what the node says about everything, laid out for the comparison.
type ledger struct {
	messages map[string]*sealanev1.Message // by id
	byKey    map[string]*sealanev1.Message // by webhook-id
	attempts map[admission]*sealanev1.Attempt
	listed   map[string]int // how often the listing shows an id
}

// audit compares the receiver's record with the ledger, in both directions.
func (d *demo) audit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*stepBound)
	defer cancel()
	l, err := d.readLedger(ctx)
	if err != nil {
		return err
	}
	if err := d.node.stop(); err != nil {
		return err
	}
	d.out.tell("The node is asked to stop (SIGTERM), drains, and exits with 0.")
	record, err := d.receiver.record()
	if err != nil {
		return err
	}
	f := newFindings()
	rows := judge(d.sent, l, record, f)
	d.out.tell("Every request in the receiver's own record is looked up in the ledger, and every acknowledged message in both.")
	d.out.blank()
	d.printRows(rows)
	d.out.blank()
	failed := false
	for _, x := range f.all() {
		d.out.tell("%-56s %6d", x.title, x.count)
		if x.count > 0 {
			failed = true
			d.out.tell("  first: %s", x.first)
		}
	}
	if failed {
		return ErrAudit
	}
	return nil
}

// readLedger reads every acknowledged message, and everything that the listing shows.
func (d *demo) readLedger(ctx context.Context) (*ledger, error) {
	l := &ledger{
		messages: map[string]*sealanev1.Message{}, byKey: map[string]*sealanev1.Message{}, attempts: map[admission]*sealanev1.Attempt{}, listed: map[string]int{},
	}
	ids := make([]string, 0, len(d.sent))
	for _, s := range d.sent {
		ids = append(ids, s.id)
	}
	for m, err := range d.client.Messages(ctx, &sealanev1.ListMessagesRequest{Consistency: sealanev1.Consistency_linearizable, PageSize: 1000}) {
		if err != nil {
			return nil, err
		}
		l.listed[m.GetId()]++
		ids = append(ids, m.GetId())
	}
	for _, id := range ids {
		if l.messages[id] != nil {
			continue
		}
		m, err := d.message(ctx, id)
		if err != nil {
			return nil, err
		}
		l.add(m)
	}
	return l, nil
}

func (l *ledger) add(m *sealanev1.Message) {
	l.messages[m.GetId()] = m
	for _, g := range m.GetGenerations() {
		key := fmt.Sprintf("%s-%d", m.GetId(), g.GetNumber())
		l.byKey[key] = m
		for _, t := range g.GetAttempts() {
			l.attempts[admission{key, t.GetNumber()}] = t
		}
	}
}

// judge counts and finds. It only compares what it is given, so a test can give it lies.
func judge(all []sent, l *ledger, record []sink.Record, f *findings) map[string]*row {
	rows := map[string]*row{}
	of := func(destination string) *row {
		if rows[destination] == nil {
			rows[destination] = &row{}
		}
		return rows[destination]
	}
	seen := map[admission]sink.Record{}
	for _, r := range record {
		judgeRequest(r, l, seen, of, f)
	}
	acknowledged := map[string]bool{}
	for _, s := range all {
		acknowledged[s.id] = true
		judgeMessage(s, l, seen, of(s.destination), f)
	}
	for id, n := range l.listed {
		if n != 1 {
			f.states.add("%s is listed %d times", id, n)
		}
		if !acknowledged[id] {
			f.states.add("%s is in the ledger, and no submit got it as an answer", id)
		}
	}
	return rows
}

// judgeRequest looks one request of the receiver up in the ledger.
func judgeRequest(r sink.Record, l *ledger, seen map[admission]sink.Record, of func(string) *row, f *findings) {
	at := admission{r.WebhookID, uint32(r.Attempt)}
	t, m := l.attempts[at], l.byKey[r.WebhookID]
	if t == nil {
		f.unadmitted.add("request %d, webhook-id %s, attempt %d", r.Sequence, r.WebhookID, r.Attempt)
		return
	}
	w := of(m.GetDestination())
	w.requests++
	if _, again := seen[at]; again {
		f.twice.add("webhook-id %s, attempt %d: request %d is one too many", r.WebhookID, r.Attempt, r.Sequence)
	}
	seen[at] = r
	if r.SHA256 != m.GetPayloadSha256() {
		f.altered.add("request %d of %s", r.Sequence, m.GetId())
	}
	if s := status(t); s != 0 && int(s) != r.Answered {
		f.contradicted.add("%s attempt %d: the ledger has status %d, the receiver answered %d", m.GetId(), r.Attempt, s, r.Answered)
	}
	if t.GetNumber() == 1 {
		return
	}
	switch t.GetWork() {
	case sealanev1.Work_UNCERTAIN_RETRY, sealanev1.Work_OPERATOR_RETRY:
		w.permitted++
	default:
		w.afterRefusal++
		explainRetry(at, m, l, f)
	}
}

// explainRetry checks that a plain retry left only after every earlier attempt had ended NOT_PUBLISHED with evidence.
func explainRetry(at admission, m *sealanev1.Message, l *ledger, f *findings) {
	for n := uint32(1); n < at.attempt; n++ {
		before := l.attempts[admission{at.webhookID, n}]
		e := before.GetOutcome().GetEvidence()
		if before.GetOutcome().GetSideEffect() != sealanev1.SideEffect_NOT_PUBLISHED || e.GetRule() == "" {
			f.unexplained.add("%s attempt %d left although attempt %d was %s", m.GetId(), at.attempt, n, before.GetOutcome().GetSideEffect())
			return
		}
	}
}

// judgeMessage looks one acknowledged message up in the ledger and in the record.
func judgeMessage(s sent, l *ledger, seen map[admission]sink.Record, w *row, f *findings) {
	w.acknowledged++
	m := l.messages[s.id]
	if m == nil {
		f.lost.add("%s to %s", s.id, s.destination)
		return
	}
	if l.listed[s.id] == 0 {
		f.states.add("%s is in no listing", s.id)
	}
	switch m.GetState() {
	case sealanev1.GenerationState_DELIVERED:
		w.delivered++
	case sealanev1.GenerationState_DEAD_LETTERED:
		w.deadLettered++
		return
	default:
		w.other++
		return
	}
	for _, g := range m.GetGenerations() {
		for _, t := range g.GetAttempts() {
			_, ok := seen[admission{fmt.Sprintf("%s-%d", s.id, g.GetNumber()), t.GetNumber()}]
			if ok && t.GetSideEffect() == sealanev1.SideEffect_PUBLISHED {
				return
			}
		}
	}
	f.phantom.add("%s to %s", s.id, s.destination)
}

func (d *demo) printRows(rows map[string]*row) {
	const layout = "%-12s %12s %9s %13s %6s   %8s %13s %15s"
	line := func(args ...any) { d.out.tell("%s", strings.TrimRight(fmt.Sprintf(layout, args...), " ")) }
	line("destination", "acknowledged", "delivered", "dead-lettered", "other", "requests", "after refusal", "permitted again")
	total := row{}
	for _, name := range []string{orders, stock, invoices, payments, shipping, events} {
		r := rows[name]
		if r == nil {
			r = &row{}
		}
		r.print(name, line)
		total.acknowledged += r.acknowledged
		total.delivered += r.delivered
		total.deadLettered += r.deadLettered
		total.other += r.other
		total.requests += r.requests
		total.afterRefusal += r.afterRefusal
		total.permitted += r.permitted
	}
	total.print("total", line)
}

func (r *row) print(name string, line func(...any)) {
	s := func(n int) string { return fmt.Sprint(n) }
	line(name, s(r.acknowledged), s(r.delivered), s(r.deadLettered), s(r.other), s(r.requests), s(r.afterRefusal), s(r.permitted))
}
