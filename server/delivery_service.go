package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// defaultNamespace is the tenant of every caller while authentication is off (DESIGN 2).
const defaultNamespace = "default"

// namespaceOf derives the tenant from the caller's credential, never from the request.
func namespaceOf(context.Context) string { return defaultNamespace }

// actorOf names the caller in the audit.
func actorOf(context.Context) string { return "local" }

// deliveryService is the way in: it checks the shape of what clients send, makes ids, and proposes.
type deliveryService struct {
	sealanev1.UnimplementedDeliveryServiceServer
	n        *Node
	draining <-chan struct{} // closed when the node begins to stop
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// prepare turns a request into a command for the shard that will hold the message. Its errors are certain: nothing was proposed.
func (s *deliveryService) prepare(ctx context.Context, namespace, trace string, m *sealanev1.SubmitRequest) (*shard.Submit, *shardRef, error) {
	now := time.Now()
	if isClosed(s.draining) {
		return nil, nil, ErrDraining
	}
	var c checker
	cmd := c.submit(m, s.n.cfg.MaxPayloadBytes)
	if err := c.err(); err != nil {
		return nil, nil, err
	}
	d, err := s.n.destination(ctx, namespace, cmd.Destination)
	if err != nil {
		return nil, nil, fieldError("destination", err)
	}
	if err := checkSubmitBy(cmd, d, now); err != nil {
		return nil, nil, err
	}
	cmd.Namespace = namespace
	if cmd.TraceParent == "" {
		cmd.TraceParent = trace
	}
	var random [10]byte
	s.n.random.read(random[:])
	cmd.Slot = catalog.SlotOf(cmd.OrderingKey, cmd.IdempotencyKey, random[:], d.Spec.Lane.Spread)
	r := s.n.shardOfSlot(namespace, cmd.Destination, cmd.Slot)
	cmd.ID = shard.NewMessageID(s.n.cluster.Incarnation, r.shard, now.UnixMilli(), random)
	cmd.PayloadHash = sha256.Sum256(cmd.Payload)
	return cmd, r, nil
}

// checkSubmitBy refuses a submit_by that outlives the idempotency key: a retry between the two would make a second message (DESIGN 3).
func checkSubmitBy(cmd *shard.Submit, d catalog.Version, now time.Time) error {
	if cmd.SubmitBy == 0 || cmd.IdempotencyKey == "" {
		return nil
	}
	if time.Duration(int64(cmd.SubmitBy)-now.UnixNano()) > d.Spec.IdempotencyWindow {
		return invalid("submit_by", "is more than the destination's idempotency_window, %s, from now", d.Spec.IdempotencyWindow)
	}
	return nil
}

// Submit submits one message.
func (s *deliveryService) Submit(ctx context.Context, m *sealanev1.SubmitRequest) (*sealanev1.SubmitResponse, error) {
	cmd, r, err := s.prepare(ctx, namespaceOf(ctx), traceOf(ctx), m)
	if err != nil {
		s.n.metrics.submits[resultInvalid].Inc()
		return nil, submitStatus(err, true).Err()
	}
	res, err := r.submit(ctx, cmd)
	s.n.metrics.submitted(res, err)
	out, st := submitAnswer(r, res, err)
	if st != nil {
		return nil, &answer{cmp.Or(err, res.Err()), st}
	}
	return out, nil
}

// submitAnswer is the answer of one submit: exactly one of the two is not nil (the nil status stands for OK).
func submitAnswer(r *shardRef, res shard.Result, err error) (*sealanev1.SubmitResponse, *status.Status) {
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		return nil, submitStatus(err, false)
	}
	return &sealanev1.SubmitResponse{
		MessageId: res.Ref.ID.String(), Generation: res.Ref.Generation, Position: positionText(r.shard, res.Index), Deduplicated: res.Deduplicated,
	}, nil
}

func positionText(shardNumber uint16, index uint64) string {
	if index == 0 {
		return ""
	}
	return shard.Position{Shard: shardNumber, Index: index}.String()
}

// traceOf is the call's own traceparent, if it has a valid one. By the W3C's rules an invalid one is as good as none.
func traceOf(ctx context.Context) string {
	md, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return ""
	}
	if v := md.Get("traceparent"); len(v) == 1 && validTraceparent(v[0]) {
		return v[0]
	}
	return ""
}

// SubmitBatch submits several messages at once; each has its own result, in the order of the request.
func (s *deliveryService) SubmitBatch(ctx context.Context, b *sealanev1.SubmitBatchRequest) (*sealanev1.SubmitBatchResponse, error) {
	if err := checkBatch(b.GetMessages()); err != nil {
		s.n.metrics.submits[resultInvalid].Add(float64(max(len(b.GetMessages()), 1)))
		return nil, submitStatus(err, true).Err()
	}
	type verdict struct {
		i   int
		r   *shardRef
		res shard.Result
		err error
	}
	answers := make(chan verdict, len(b.Messages)) // room for all: a callback never blocks
	out := &sealanev1.SubmitBatchResponse{Results: make([]*sealanev1.SubmitResult, len(b.Messages))}
	namespace, trace := namespaceOf(ctx), traceOf(ctx)
	waiting := 0
	for i, m := range b.Messages {
		cmd, r, err := s.prepare(ctx, namespace, trace, m)
		if err != nil {
			s.n.metrics.submits[resultInvalid].Inc()
			out.Results[i] = submitResult(nil, submitStatus(err, true))
			continue
		}
		err = r.submitAsync(cmd, func(res shard.Result, err error) { answers <- verdict{i, r, res, err} })
		if err != nil {
			s.n.metrics.submitted(shard.Result{}, err)
			out.Results[i] = submitResult(submitAnswer(r, shard.Result{}, err))
			continue
		}
		waiting++
	}
	for ; waiting > 0; waiting-- {
		select {
		case a := <-answers:
			s.n.metrics.submitted(a.res, a.err)
			out.Results[a.i] = submitResult(submitAnswer(a.r, a.res, a.err))
		case <-ctx.Done():
			// Nobody waits for this answer any more; what is still open may be accepted, and the call's own status says so.
			return nil, submitStatus(fmt.Errorf("%w: %w", replication.ErrMaybeAccepted, ctx.Err()), false).Err()
		}
	}
	return out, nil
}

func checkBatch(messages []*sealanev1.SubmitRequest) error {
	if n := len(messages); n == 0 || n > maxBatch {
		return invalid("messages", "has %d entries, want 1 to %d", n, maxBatch)
	}
	total := 0
	for i, m := range messages {
		if m == nil {
			return invalid(fmt.Sprintf("messages[%d]", i), "is missing")
		}
		total += len(m.GetPayload())
	}
	if total > maxBatchBytes && len(messages) > 1 {
		return &invalidRequest{kind: ErrTooLarge, violations: []violation{
			{"messages", fmt.Sprintf("have %d bytes of payload together, the limit is %d", total, maxBatchBytes)},
		}}
	}
	return nil
}

func submitResult(ok *sealanev1.SubmitResponse, st *status.Status) *sealanev1.SubmitResult {
	if ok != nil {
		return &sealanev1.SubmitResult{Result: &sealanev1.SubmitResult_Submitted{Submitted: ok}}
	}
	return &sealanev1.SubmitResult{Result: &sealanev1.SubmitResult_Error{Error: st.Proto()}}
}

// Cancel cancels the current generation of a message.
func (s *deliveryService) Cancel(ctx context.Context, m *sealanev1.CancelRequest) (*sealanev1.CancelResponse, error) {
	id, r, err := s.find(ctx, m.GetId())
	if err != nil {
		return nil, answered(err)
	}
	var c checker
	c.text("reason", m.GetReason())
	if err := c.err(); err != nil {
		return nil, answered(err)
	}
	res, err := r.do(ctx, replication.Client, &shard.Cancel{ID: id, Generation: m.GetGeneration(), Reason: m.GetReason()})
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		return nil, answered(err)
	}
	return &sealanev1.CancelResponse{
		MessageId: id.String(), Generation: res.Ref.Generation, State: sealanev1.GenerationState_Value(res.State),
		Position: positionText(r.shard, res.Index),
	}, nil
}

// Reschedule replaces the current generation by the next one.
func (s *deliveryService) Reschedule(ctx context.Context, m *sealanev1.RescheduleRequest) (*sealanev1.RescheduleResponse, error) {
	id, r, err := s.find(ctx, m.GetId())
	if err != nil {
		return nil, answered(err)
	}
	var c checker
	cmd := &shard.Reschedule{ID: id, Generation: m.GetGeneration(), RequestID: m.GetRequestId()}
	cmd.DeliverAt = c.time("deliver_at", m.GetDeliverAt(), false)
	cmd.ExpireAt = c.time("expire_at", m.GetExpireAt(), true)
	c.key("request_id", cmd.RequestID)
	if err := c.err(); err != nil {
		return nil, answered(err)
	}
	res, err := r.do(ctx, replication.Client, cmd)
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		return nil, answered(err)
	}
	return &sealanev1.RescheduleResponse{
		MessageId: id.String(), Generation: res.Ref.Generation, Position: positionText(r.shard, res.Index), Deduplicated: res.Deduplicated,
	}, nil
}

// find routes an id and makes sure that the message is the caller's. The namespace of a message never changes, so an old read will do.
func (s *deliveryService) find(ctx context.Context, text string) (shard.MessageID, *shardRef, error) {
	id, err := messageID("id", text)
	if err != nil {
		return id, nil, err
	}
	r, err := s.n.shardFor(id)
	if err != nil {
		return id, nil, fieldError("id", err)
	}
	namespace, err := s.namespaceOfMessage(ctx, r, id)
	if err != nil {
		return id, nil, err
	}
	if namespace != namespaceOf(ctx) {
		return id, nil, messageNotFound(id)
	}
	return id, r, nil
}

func messageNotFound(id shard.MessageID) error {
	return &shard.Rejection{Reason: shard.ErrMessageNotFound.Reason, Field: "message_id", Detail: id.String()}
}

// namespaceOfMessage reads whose a message is. The namespace of a message never changes, so an old read will do where it has the message.
func (s *deliveryService) namespaceOfMessage(ctx context.Context, sh *shardRef, id shard.MessageID) (namespace string, err error) {
	f := freshness{consistency: sealanev1.Consistency_local, confirm: true, wait: defaultWait}
	_, err = s.n.look(ctx, sh, f, func(v *view) error {
		m, err := shard.GetMessage(v.state, id, false)
		if err == nil && m == nil {
			err = messageNotFound(id)
		}
		if err == nil {
			namespace = m.Message.Namespace
		}
		return err
	})
	return namespace, err
}
