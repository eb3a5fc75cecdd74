package demo

import (
	"context"
	"fmt"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

// delivered: the plain case, three times.
func (d *demo) delivered(ctx context.Context) error {
	ids := make([]string, 3)
	for i := range ids {
		id, err := d.submit(ctx, orders, fmt.Sprintf(`{"order": %d}`, i+1))
		if err != nil {
			return err
		}
		ids[i] = id
	}
	d.out.tell("3 orders submitted. Each was acknowledged only after it was on disk.")
	for _, id := range ids {
		m, err := d.await(ctx, id, sealanev1.GenerationState_DELIVERED)
		if err != nil {
			return err
		}
		t := attempts(m)[0]
		d.out.tell("%s  %s: attempt 1 got status %d (rule %s)", short(id), m.GetState(), status(t), t.GetOutcome().GetEvidence().GetRule())
	}
	return nil
}

// retried: 503 with Retry-After, then 200.
func (d *demo) retried(ctx context.Context) error {
	id, err := d.submit(ctx, stock, `{"item": "anchor", "left": 3}`)
	if err != nil {
		return err
	}
	m, err := d.await(ctx, id, sealanev1.GenerationState_DELIVERED)
	if err != nil {
		return err
	}
	list := attempts(m)
	if len(list) < 2 {
		return fmt.Errorf("%s was delivered by attempt 1, and should have been refused first", id)
	}
	first, last := list[0], list[len(list)-1]
	waited := last.GetAdmittedAt().AsTime().Sub(first.GetOutcome().GetRecordedAt().AsTime())
	d.out.tell("%s  attempt 1 got status %d, Retry-After %s: the receiver states that it did not take it", short(id), status(first), first.GetOutcome().GetRetryAfter().AsDuration())
	if asked := first.GetOutcome().GetRetryAfter().AsDuration(); waited < asked {
		return fmt.Errorf("%s was tried again after %s, before the %s that the receiver asked for", id, waited, asked)
	}
	d.out.tell("%s  attempt %d came %s later and got status %d: %s", short(id), last.GetNumber(), waited.Round(time.Millisecond), status(last), m.GetState())
	return nil
}

// deadLettered: 422.
func (d *demo) deadLettered(ctx context.Context) error {
	id, err := d.submit(ctx, invoices, `{"invoice": "without a customer"}`)
	if err != nil {
		return err
	}
	m, err := d.await(ctx, id, sealanev1.GenerationState_DEAD_LETTERED)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stepBound)
	defer cancel()
	resp, err := d.client.Query().GetDeadLetter(ctx, &sealanev1.GetDeadLetterRequest{MessageId: id, Consistency: sealanev1.Consistency_linearizable})
	if err != nil {
		return err
	}
	t := attempts(m)[0]
	d.out.tell("%s  attempt 1 got status %d (rule %s): no repetition would help", short(id), status(t), t.GetOutcome().GetEvidence().GetRule())
	d.out.tell("%s  %s, reason %s. The record is kept, with the attempt and its evidence.", short(id), m.GetState(), resp.GetDeadLetter().GetReason())
	return nil
}

// uncertain: nobody can tell, so nothing is assumed; an operator looks and decides.
func (d *demo) uncertain(ctx context.Context) error {
	id, err := d.submit(ctx, payments, `{"pay": 100, "currency": "EUR"}`)
	if err != nil {
		return err
	}
	m, err := d.await(ctx, id, sealanev1.GenerationState_UNCERTAIN)
	if err != nil {
		return err
	}
	e := attempts(m)[0].GetOutcome().GetEvidence()
	d.out.tell("%s  the connection ended after %d bytes, without an answer (%s, rule %s)", short(id), e.GetBytesWritten(), e.GetErrorClass(), e.GetRule())
	d.out.tell("%s  %s: it may be paid or not. Sealane neither repeats it nor calls it failed.", short(id), m.GetState())
	seen := d.receiver.requests(paymentsPath)
	if len(seen) != 1 || seen[0].WebhookID != fmt.Sprintf("%s-%d", id, m.GetGeneration()) {
		return fmt.Errorf("the receiver's record should hold one request for %s and holds %v", id, seen)
	}
	d.out.tell("The operator looks at the receiver: it has webhook-id %s-1, all %d bytes.", short(id), seen[0].Size)
	if err := d.resolve(ctx, m, "record line "+fmt.Sprint(seen[0].Sequence)+", sha256 "+seen[0].SHA256); err != nil {
		return err
	}
	if m, err = d.await(ctx, id, sealanev1.GenerationState_DELIVERED); err != nil {
		return err
	}
	r := attempts(m)[0].GetResolutions()
	if len(r) == 0 {
		return fmt.Errorf("%s was resolved, and its attempt does not say so", id)
	}
	d.out.tell("%s  resolved as %s by %q: %s, and the record says who decided and why.", short(id), r[0].GetSideEffect(), r[0].GetActor(), m.GetState())
	return nil
}

func (d *demo) resolve(ctx context.Context, m *sealanev1.Message, evidence string) error {
	ctx, cancel := context.WithTimeout(ctx, stepBound)
	defer cancel()
	resp, err := d.client.Control().CreateOperation(ctx, &sealanev1.CreateOperationRequest{
		OperationId: client.NewKey(), Reason: "found in the receiver's record",
		Parameters: &sealanev1.CreateOperationRequest_Resolve{Resolve: &sealanev1.Resolve{
			MessageId: m.GetId(), Generation: m.GetGeneration(), Attempt: 1, Verdict: sealanev1.ResolveVerdict_PUBLISHED, Evidence: evidence,
		}},
	})
	if err != nil {
		return err
	}
	if s := resp.GetOperation().GetState(); s == sealanev1.OperationState_REJECTED {
		return fmt.Errorf("the resolution was %s: %v", s, resp.GetOperation())
	}
	return nil
}

// attempts are those of a message's newest generation; never none for a message that was tried.
func attempts(m *sealanev1.Message) []*sealanev1.Attempt {
	gs := m.GetGenerations()
	if len(gs) == 0 || len(gs[len(gs)-1].GetAttempts()) == 0 {
		return []*sealanev1.Attempt{{}}
	}
	return gs[len(gs)-1].GetAttempts()
}

func status(t *sealanev1.Attempt) uint32 { return t.GetOutcome().GetEvidence().GetStatus() }

// short is an id as the story shows it: its end, which differs most.
func short(id string) string { return "msg_…" + id[max(0, len(id)-6):] }
