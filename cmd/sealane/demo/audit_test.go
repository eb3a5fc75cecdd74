package demo

import (
	"fmt"
	"testing"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/sink"
)

// world is a small truth: m1 delivered after a refusal, m2 delivered after a permitted repetition, m3 dead-lettered.
func world() ([]sent, *ledger, []sink.Record) {
	attempt := func(n uint32, work sealanev1.Work_Value, effect sealanev1.SideEffect_Value, status uint32) *sealanev1.Attempt {
		return &sealanev1.Attempt{
			Number: n, Work: work, SideEffect: effect,
			Outcome: &sealanev1.Outcome{SideEffect: effect, Evidence: &sealanev1.Evidence{Rule: "R", Status: status}},
		}
	}
	message := func(id, destination string, state sealanev1.GenerationState_Value, attempts ...*sealanev1.Attempt) *sealanev1.Message {
		return &sealanev1.Message{
			Id: id, Destination: destination, State: state, PayloadSha256: "sha-" + id,
			Generations: []*sealanev1.Generation{{Number: 1, State: state, Attempts: attempts}},
		}
	}
	l := &ledger{
		messages: map[string]*sealanev1.Message{}, byKey: map[string]*sealanev1.Message{}, attempts: map[admission]*sealanev1.Attempt{},
		listed: map[string]int{"m1": 1, "m2": 1, "m3": 1},
	}
	l.add(message("m1", stock, sealanev1.GenerationState_DELIVERED,
		attempt(1, sealanev1.Work_INITIAL, sealanev1.SideEffect_NOT_PUBLISHED, 503), attempt(2, sealanev1.Work_RETRY, sealanev1.SideEffect_PUBLISHED, 200)))
	l.add(message("m2", events, sealanev1.GenerationState_DELIVERED,
		attempt(1, sealanev1.Work_INITIAL, sealanev1.SideEffect_UNKNOWN, 0), attempt(2, sealanev1.Work_UNCERTAIN_RETRY, sealanev1.SideEffect_PUBLISHED, 200)))
	l.add(message("m3", invoices, sealanev1.GenerationState_DEAD_LETTERED, attempt(1, sealanev1.Work_INITIAL, sealanev1.SideEffect_NOT_PUBLISHED, 422)))
	seen := func(n uint64, id string, attempt, answered int) sink.Record {
		return sink.Record{Sequence: n, WebhookID: id + "-1", Attempt: attempt, Answered: answered, SHA256: "sha-" + id}
	}
	return []sent{{stock, "m1"}, {events, "m2"}, {invoices, "m3"}}, l,
		[]sink.Record{seen(1, "m1", 1, 503), seen(2, "m2", 1, 200), seen(3, "m1", 2, 200), seen(4, "m2", 2, 200), seen(5, "m3", 1, 422)}
}

func TestAuditOfTheTruth(t *testing.T) {
	all, l, record := world()
	f := newFindings()
	rows := judge(all, l, record, f)
	for _, x := range f.all() {
		if x.count != 0 {
			t.Errorf("%s: %d, %s", x.title, x.count, x.first)
		}
	}
	if got := fmt.Sprintf("%+v %+v %+v", *rows[stock], *rows[events], *rows[invoices]); got !=
		"{acknowledged:1 delivered:1 deadLettered:0 other:0 requests:2 afterRefusal:1 permitted:0} "+
			"{acknowledged:1 delivered:1 deadLettered:0 other:0 requests:2 afterRefusal:0 permitted:1} "+
			"{acknowledged:1 delivered:0 deadLettered:1 other:0 requests:1 afterRefusal:0 permitted:0}" {
		t.Errorf("counted %s", got)
	}
}

// Each lie is found, under its own name and no other.
func TestAuditFindsLies(t *testing.T) {
	for _, c := range []struct {
		name string
		lie  func(all *[]sent, l *ledger, record *[]sink.Record)
		in   func(f *findings) *finding
	}{
		{"an acknowledged message is not there", func(all *[]sent, _ *ledger, _ *[]sink.Record) { *all = append(*all, sent{orders, "m4"}) },
			func(f *findings) *finding { return &f.lost }},
		{"a message is listed twice", func(_ *[]sent, l *ledger, _ *[]sink.Record) { l.listed["m1"] = 2 }, func(f *findings) *finding { return &f.states }},
		{"a message is not listed", func(_ *[]sent, l *ledger, _ *[]sink.Record) { delete(l.listed, "m1") }, func(f *findings) *finding { return &f.states }},
		{"a message of nobody", func(all *[]sent, _ *ledger, _ *[]sink.Record) { *all = (*all)[:2] }, func(f *findings) *finding { return &f.states }},
		{"delivered and never seen", func(_ *[]sent, _ *ledger, r *[]sink.Record) { *r = append((*r)[:2:2], (*r)[3:]...) },
			func(f *findings) *finding { return &f.phantom }},
		{"a request of an attempt that was not admitted", func(_ *[]sent, l *ledger, r *[]sink.Record) {
			*r = append(*r, sink.Record{Sequence: 6, WebhookID: "m3-1", Attempt: 2, SHA256: "sha-m3"})
		}, func(f *findings) *finding { return &f.unadmitted }},
		{"a request of a message that is unknown", func(_ *[]sent, l *ledger, r *[]sink.Record) {
			*r = append(*r, sink.Record{Sequence: 6, WebhookID: "m9-1", Attempt: 1})
		}, func(f *findings) *finding { return &f.unadmitted }},
		{"one admission, two requests", func(_ *[]sent, _ *ledger, r *[]sink.Record) { *r = append(*r, (*r)[4]) }, func(f *findings) *finding { return &f.twice }},
		{"a retry although the attempt before was unknown", func(_ *[]sent, l *ledger, _ *[]sink.Record) {
			l.attempts[admission{"m2-1", 2}].Work = sealanev1.Work_RETRY
		}, func(f *findings) *finding { return &f.unexplained }},
		{"a retry after a refusal without evidence", func(_ *[]sent, l *ledger, _ *[]sink.Record) {
			l.attempts[admission{"m1-1", 1}].Outcome.Evidence.Rule = ""
		}, func(f *findings) *finding { return &f.unexplained }},
		{"another status than the receiver gave", func(_ *[]sent, _ *ledger, r *[]sink.Record) { (*r)[0].Answered = 200 },
			func(f *findings) *finding { return &f.contradicted }},
		{"another payload", func(_ *[]sent, _ *ledger, r *[]sink.Record) { (*r)[0].SHA256 = "x" }, func(f *findings) *finding { return &f.altered }},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, l, record := world()
			c.lie(&all, l, &record)
			f := newFindings()
			judge(all, l, record, f)
			for _, x := range f.all() {
				if want := x == c.in(f); (x.count == 1) != want || !want && x.count != 0 {
					t.Errorf("%s: %d %s", x.title, x.count, x.first)
				}
			}
		})
	}
}
