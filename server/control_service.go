package server

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
	"unicode/utf8"

	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// controlService carries out control operations. On one node, and until operations are registered in the control group, an operation is
// applied as ControlSteps in the logs of its shards when it is created: each step is durable, audited and idempotent under its operation id,
// and the answer is the completed operation (docs/decisions/0004).
type controlService struct {
	sealanev1.UnimplementedControlServiceServer
	n *Node
}

// operation is one operation on its way: what is asked and the steps that carry it out.
type operation struct {
	req   *sealanev1.CreateOperationRequest
	kind  string
	hash  [32]byte
	steps []step
}

// step is what is applied in one shard.
type step struct {
	r   *shardRef
	cmd *shard.ControlStep
}

// CreateOperation carries an operation out, or registers it where it is one on the cluster. pause_lane, resume_lane, reset_circuit, resolve and
// the cluster's operations except backup are in this version.
func (s *controlService) CreateOperation(ctx context.Context, m *sealanev1.CreateOperationRequest) (*sealanev1.CreateOperationResponse, error) {
	if err := checkOperation(m); err != nil {
		return nil, answered(err)
	}
	if reg, ok, err := s.clusterOperation(m); ok || err != nil {
		if err != nil {
			return nil, answered(err)
		}
		out, err := s.registerCluster(ctx, reg)
		if err != nil {
			return nil, answered(err)
		}
		return &sealanev1.CreateOperationResponse{Operation: out}, nil
	}
	op, err := s.plan(ctx, m)
	if err != nil {
		return nil, answered(err)
	}
	out, err := s.carryOut(ctx, op)
	if err != nil {
		return nil, answered(err)
	}
	return &sealanev1.CreateOperationResponse{Operation: out}, nil
}

// checkOperation checks what every kind has.
func checkOperation(m *sealanev1.CreateOperationRequest) error {
	var c checker
	if !validOperationID(m.GetOperationId()) {
		c.bad("operation_id", "must be 1 to %d of A-Z, a-z, 0-9, '.', '_', ':' and '-'", shard.MaxKeyBytes)
	}
	if r := m.GetReason(); r == "" || len(r) > maxReasonBytes || !utf8.ValidString(r) {
		c.bad("reason", "must be 1 to %d bytes of UTF-8", maxReasonBytes)
	}
	if m.GetParameters() == nil {
		c.bad("parameters", "exactly one kind of operation is required, for example pause_lane")
	}
	return c.err()
}

// plan finds the targets of an operation on lanes or attempts.
func (s *controlService) plan(ctx context.Context, m *sealanev1.CreateOperationRequest) (*operation, error) {
	op := &operation{req: m}
	var err error
	switch p := m.GetParameters().(type) {
	case *sealanev1.CreateOperationRequest_PauseLane:
		err = s.lanes(ctx, op, "pause_lane", shard.ActionPauseLane, p.PauseLane.GetDestination(), p.PauseLane.Slot)
	case *sealanev1.CreateOperationRequest_ResumeLane:
		err = s.lanes(ctx, op, "resume_lane", shard.ActionResumeLane, p.ResumeLane.GetDestination(), p.ResumeLane.Slot)
	case *sealanev1.CreateOperationRequest_ResetCircuit:
		err = s.lanes(ctx, op, "reset_circuit", shard.ActionResetCircuit, p.ResetCircuit.GetDestination(), p.ResetCircuit.Slot)
	case *sealanev1.CreateOperationRequest_Resolve:
		err = s.resolve(ctx, op, p.Resolve)
	default:
		err = notYet(kindOf(m) + " operations")
	}
	return op, err
}

func validOperationID(s string) bool {
	if s == "" || len(s) > shard.MaxKeyBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("._:-", c) < 0 {
			return false
		}
	}
	return true
}

// kindOf is the name of the one parameter field that is set.
func kindOf(m *sealanev1.CreateOperationRequest) string {
	r := m.ProtoReflect()
	if f := r.WhichOneof(r.Descriptor().Oneofs().ByName("parameters")); f != nil {
		return string(f.Name())
	}
	return ""
}

func notYet(what string) error {
	return fmt.Errorf("%w: %s are in the contract and will come; pause_lane, resume_lane, reset_circuit, resolve and the operations on the cluster work", ErrUnimplemented, what)
}

// operationHash is the canonical hash of kind, scope, parameters and reason. It is our own encoding: each part with its length, in a fixed
// order, since the bytes of a protobuf message are not canonical.
func operationHash(kind, namespace, reason string, parts ...string) (sum [32]byte) {
	h := sha256.New()
	writePart(h, "sealane operation 1")
	for _, s := range append([]string{kind, namespace, reason}, parts...) {
		writePart(h, s)
	}
	h.Sum(sum[:0])
	return sum
}

func writePart(h hash.Hash, s string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(s)))
	h.Write(n[:]) // a hash never fails
	h.Write([]byte(s))
}

// lanes plans an operation on one slot of a destination, or on all. Slots of one destination are in different shards (its spread is at most
// the number of shards), so the operation's own id names its step in each.
func (s *controlService) lanes(ctx context.Context, op *operation, kind string, action shard.ControlAction, destination string, slot *uint32) error {
	var c checker
	field := kind + ".destination"
	c.destination(field, destination)
	if err := c.err(); err != nil {
		return err
	}
	namespace := namespaceOf(ctx)
	d, err := s.n.destination(ctx, namespace, destination)
	if err != nil {
		return fieldError(field, err)
	}
	spread := d.Spec.Lane.Spread
	scope := "all"
	slots := make([]uint32, 0, spread)
	for i := range spread {
		if slot == nil || *slot == i {
			slots = append(slots, i)
		}
	}
	if slot != nil {
		if scope = fmt.Sprint(*slot); len(slots) == 0 {
			return invalid(kind+".slot", "is %d, the destination has slots 0 to %d", *slot, spread-1)
		}
	}
	op.kind, op.hash = kind, operationHash(kind, namespace, op.req.GetReason(), destination, scope)
	for _, i := range slots {
		op.steps = append(op.steps, step{s.n.shardOfSlot(namespace, destination, i), &shard.ControlStep{
			OperationID: op.req.GetOperationId(), Hash: op.hash, Actor: actorOf(ctx), Reason: op.req.GetReason(), Action: action,
			Namespace: namespace, Destination: destination, Slot: i,
		}})
	}
	return nil
}

// resolve plans a decision about one unknown attempt.
func (s *controlService) resolve(ctx context.Context, op *operation, p *sealanev1.Resolve) error {
	id, err := messageID("resolve.message_id", p.GetMessageId())
	if err != nil {
		return err
	}
	r, err := s.n.shardFor(id)
	if err != nil {
		return fieldError("resolve.message_id", err)
	}
	var c checker
	if p.GetAttempt() == 0 {
		c.bad("resolve.attempt", "is required, from 1")
	}
	if v := p.GetVerdict(); v < sealanev1.ResolveVerdict_PUBLISHED || v > sealanev1.ResolveVerdict_DEAD_LETTER {
		c.bad("resolve.verdict", "is %s, want PUBLISHED, NOT_PUBLISHED, RETRY or DEAD_LETTER", v)
	}
	c.text("resolve.evidence", p.GetEvidence())
	if err := c.err(); err != nil {
		return err
	}
	namespace := namespaceOf(ctx)
	op.kind = "resolve"
	op.hash = operationHash("resolve", namespace, op.req.GetReason(), id.String(), fmt.Sprint(p.GetGeneration()), fmt.Sprint(p.GetAttempt()),
		p.GetVerdict().String(), p.GetEvidence())
	op.steps = []step{{r, &shard.ControlStep{
		OperationID: op.req.GetOperationId(), Hash: op.hash, Actor: actorOf(ctx), Reason: op.req.GetReason(), Action: shard.ActionResolve,
		Namespace: namespace, ID: id, Generation: p.GetGeneration(), Attempt: p.GetAttempt(), Verdict: shard.ResolveVerdict(p.GetVerdict()),
		Evidence: p.GetEvidence(),
	}}}
	return nil
}

// nothingToDo are refusals that leave a lane as the operation wants it, or find none.
var nothingToDo = []error{shard.ErrAlreadyPaused, shard.ErrAlreadyOpen, shard.ErrLaneNotFound}

// carryOut applies the steps one after the other. An error in between leaves a part done; the same call again goes on, since each step is
// idempotent.
func (s *controlService) carryOut(ctx context.Context, op *operation) (*sealanev1.Operation, error) {
	out := &sealanev1.Operation{
		OperationId: op.req.GetOperationId(), Reason: op.req.GetReason(), Actor: actorOf(ctx), Namespace: namespaceOf(ctx),
		CanonicalSha256: hex.EncodeToString(op.hash[:]), State: sealanev1.OperationState_COMPLETED, Progress: &sealanev1.OperationProgress{},
	}
	setParameters(out, op.req)
	var refused error
	for _, st := range op.steps {
		res, err := st.r.do(ctx, replication.Engine, st.cmd)
		if err != nil {
			return nil, err
		}
		if errors.Is(res.Err(), shard.ErrOperationConflict) {
			return nil, &shard.Rejection{Reason: shard.ErrOperationConflict.Reason, Field: "operation_id", Detail: op.req.GetOperationId()}
		}
		t := &sealanev1.OperationTarget{Shard: uint32(st.r.shard), Progress: &sealanev1.OperationProgress{Matched: 1}, State: sealanev1.TargetState_COMPLETED}
		out.Progress.Matched++
		if rejected := res.Err(); rejected != nil {
			t.State, t.Error = sealanev1.TargetState_REJECTED, statusOf(rejected).Proto()
			refused = rejected
			s.refuse(rejected, t.Progress, out.Progress)
		} else {
			t.EffectivePosition = positionText(st.r.shard, res.Index)
			t.Position = t.EffectivePosition
			t.Progress.Applied = 1
			out.Progress.Applied++
		}
		out.Targets = append(out.Targets, t)
	}
	if refused != nil && out.Progress.Applied == 0 {
		out.State, out.Error = sealanev1.OperationState_REJECTED, statusOf(refused).Proto()
	}
	return out, nil
}

func (s *controlService) refuse(err error, target, total *sealanev1.OperationProgress) {
	for _, harmless := range nothingToDo {
		if errors.Is(err, harmless) {
			target.Skipped++
			total.Skipped++
			return
		}
	}
	target.Failed++
	total.Failed++
}

// setParameters copies the one parameter field that is set.
func setParameters(out *sealanev1.Operation, m *sealanev1.CreateOperationRequest) {
	switch p := m.GetParameters().(type) {
	case *sealanev1.CreateOperationRequest_PauseLane:
		out.Parameters = &sealanev1.Operation_PauseLane{PauseLane: p.PauseLane}
	case *sealanev1.CreateOperationRequest_ResumeLane:
		out.Parameters = &sealanev1.Operation_ResumeLane{ResumeLane: p.ResumeLane}
	case *sealanev1.CreateOperationRequest_ResetCircuit:
		out.Parameters = &sealanev1.Operation_ResetCircuit{ResetCircuit: p.ResetCircuit}
	case *sealanev1.CreateOperationRequest_Resolve:
		out.Parameters = &sealanev1.Operation_Resolve{Resolve: p.Resolve}
	}
}

// Preflight comes with replay.
func (s *controlService) Preflight(context.Context, *sealanev1.PreflightRequest) (*sealanev1.PreflightResponse, error) {
	return nil, answered(fmt.Errorf("%w: preflight; an uncertain attempt's safe actions are in ListUncertainAttempts", ErrUnimplemented))
}
