package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Message is what to deliver. Limits are those of SubmitRequest in the API.
type Message struct {
	// Destination is the name of a registered destination. Required.
	Destination string
	// Payload is delivered byte for byte; it may be empty. Do not change it before the answer is there.
	Payload []byte
	// ContentType is passed on. Empty: application/octet-stream.
	ContentType string
	// IdempotencyKey makes repeated submits one message. Empty: a random one is drawn.
	IdempotencyKey string
	// OrderingKey puts messages with the same key in order. Empty: no order.
	OrderingKey string
	// DeliverAt is the earliest delivery. Zero: at once.
	DeliverAt time.Time
	// ExpireAt is the last instant at which an attempt may begin. Zero: only the destination's lifetime bounds it.
	ExpireAt time.Time
	// SubmitBy bounds how late this submit can be accepted. Zero: the first try plus Options.SubmitBy.
	SubmitBy time.Time
	// Attributes are passed on as headers sealane-attr-<name>.
	Attributes map[string]string
	// Traceparent is a W3C traceparent, passed on. Empty: none.
	Traceparent string
}

// Accepted is the first answer: the message is durable, and Sealane is responsible for it.
type Accepted struct {
	// MessageID names the message for ever.
	MessageID string
	// Generation is 1, the message's first delivery.
	Generation uint32
	// Position is where it is in the log, shard:index. A read at this position sees it.
	Position string
	// Deduplicated: an earlier submit with this key had been accepted, and this is its answer.
	Deduplicated bool
	// IdempotencyKey is the key that was used.
	IdempotencyKey string
}

// request renders a message, with key and submit_by fixed for all tries.
func (c *Client) request(m Message) *sealanev1.SubmitRequest {
	if m.IdempotencyKey == "" {
		m.IdempotencyKey = NewKey()
	}
	if m.SubmitBy.IsZero() {
		m.SubmitBy = time.Now().Add(c.options.SubmitBy)
	}
	r := &sealanev1.SubmitRequest{
		Destination: m.Destination, Payload: m.Payload, ContentType: m.ContentType, IdempotencyKey: m.IdempotencyKey,
		OrderingKey: m.OrderingKey, SubmitBy: timestamppb.New(m.SubmitBy), Attributes: m.Attributes, Traceparent: m.Traceparent,
	}
	if !m.DeliverAt.IsZero() {
		r.DeliverAt = timestamppb.New(m.DeliverAt)
	}
	if !m.ExpireAt.IsZero() {
		r.ExpireAt = timestamppb.New(m.ExpireAt)
	}
	return r
}

// Submit gives one message to Sealane. It tries again with the same key while no try has given a verdict, at once on another node and then
// at a slowing pace, until one does, the context ends, or Options.RetryFor has passed. The error is nil, a *NotAcceptedError or a
// *MaybeAcceptedError.
func (c *Client) Submit(ctx context.Context, m Message) (Accepted, error) {
	req := c.request(m)
	if err := ctx.Err(); err != nil {
		return Accepted{}, &NotAcceptedError{&Error{Code: codes.Canceled, Message: "nothing was sent: " + err.Error(), cause: err}}
	}
	if proto.Size(req) > maxMessageBytes {
		return Accepted{}, &NotAcceptedError{tooLarge(len(m.Payload))}
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.RetryFor)
	defer cancel()
	v := verdicts{key: req.GetIdempotencyKey(), submitBy: req.GetSubmitBy().AsTime()}
	p := pace{}
	for {
		e, err := c.nodes.acquire(ctx, c.wanted(req), p.last)
		if err != nil {
			v.unsent(err)
			if c.options.FailFast && !v.maybe || c.ctx.Err() != nil || !p.wait(ctx) {
				return Accepted{}, v.giveUp()
			}
			continue
		}
		resp, err := c.submitTo(ctx, e, req, p.tries)
		if done, answer := v.take(err); done {
			return accepted(resp, v.key), answer
		}
		if !p.again(ctx, e, err, c.nodes.size(), false) {
			return Accepted{}, v.giveUp()
		}
	}
}

// submitTo is one try on one node. It is cut off when the node does not answer in time and there is another one to ask.
func (c *Client) submitTo(ctx context.Context, e *endpoint, req *sealanev1.SubmitRequest, tries int) (*sealanev1.SubmitResponse, error) {
	if c.nodes.size() > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.tryFor(tries))
		defer cancel()
	}
	resp, err := sealanev1.NewDeliveryServiceClient(e.link).Submit(ctx, req)
	c.note(e, err)
	if err == nil {
		c.submitted(req, resp)
	}
	return resp, err
}

// submitted learns where a message went.
func (c *Client) submitted(req *sealanev1.SubmitRequest, resp *sealanev1.SubmitResponse) {
	c.view.learn(req.GetDestination(), req.GetOrderingKey(), resp.GetPosition())
	c.refreshDue()
}

func accepted(r *sealanev1.SubmitResponse, key string) Accepted {
	return Accepted{
		MessageID: r.GetMessageId(), Generation: r.GetGeneration(), Position: r.GetPosition(), Deduplicated: r.GetDeduplicated(), IdempotencyKey: key,
	}
}

// verdicts gathers the answers to the tries of one submit.
type verdicts struct {
	key      string
	submitBy time.Time
	tries    int
	maybe    bool // an earlier try ended without a verdict, and nothing has settled it since
	last     error
}

// take looks at the answer to one try. done means that it is final; answer is then what the caller gets, nil for accepted.
func (v *verdicts) take(err error) (done bool, answer error) {
	if err == nil {
		return true, nil
	}
	e, ok := AsError(err)
	if !ok || e.Acceptance != sealanev1.Acceptance_NOT_ACCEPTED {
		v.lost(err)
		if ok && e.hopeless() {
			return true, v.giveUp()
		}
		return false, nil
	}
	v.tries++
	v.last = e
	if decidedAtApply[e.Reason] {
		return true, &NotAcceptedError{e}
	}
	if e.worthAnotherTry() {
		return false, nil
	}
	// Refused for good, but only this try: what an earlier one did stays unknown.
	return true, v.giveUp()
}

// lost notes a try that ended without a verdict. That the time ran out says less than what an earlier try was told, so that is kept.
func (v *verdicts) lost(err error) {
	v.tries++
	v.maybe = true
	e, ok := AsError(err)
	ranOut := ok && e.Reason == "" && (e.Code == codes.DeadlineExceeded || e.Code == codes.Canceled)
	switch {
	case ranOut && v.last != nil:
	case ok:
		v.last = e
	default:
		v.last = err
	}
}

// unsent notes that a try did not leave: no node could be reached. That settles nothing and puts nothing in doubt.
func (v *verdicts) unsent(err error) {
	if e, ok := AsError(err); ok && v.last == nil {
		v.last = e
	}
}

// giveUp is the answer when there will be no further try.
func (v *verdicts) giveUp() error {
	var e *Error
	if !v.maybe && errors.As(v.last, &e) {
		return &NotAcceptedError{e}
	}
	return &MaybeAcceptedError{IdempotencyKey: v.key, SubmitBy: v.submitBy, Tries: v.tries, Last: v.last}
}

func tooLarge(n int) *Error {
	return &Error{
		Code: codes.InvalidArgument, Reason: "TOO_LARGE", Field: "payload", Acceptance: sealanev1.Acceptance_NOT_ACCEPTED,
		Message: fmt.Sprintf("payload has %d bytes; one call carries at most %d", n, maxMessageBytes),
	}
}
