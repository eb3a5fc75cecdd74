package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/sealane/sealane/catalog"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Cluster operations are registered in the control group and carried out by the membership driver at its leader, step by step; the answer to
// their creation is the receipt.

// clusterOperation turns the parameters of a cluster operation into those of the control group; false for every other kind.
func (s *controlService) clusterOperation(m *sealanev1.CreateOperationRequest) (*catalog.RegisterOperation, bool, error) {
	op := &catalog.RegisterOperation{ID: m.GetOperationId(), Actor: "", Reason: m.GetReason()}
	var c checker
	node := func(field, id string) string {
		if !validNodeID(id) {
			c.bad(field, "must be a node id: 1 to 63 of a-z, A-Z, 0-9, '.', '_' and '-', beginning with a letter or digit")
		}
		return id
	}
	group := func(field string, number uint32) uint32 {
		if shards := len(s.n.shards()); int64(number) >= int64(shards) {
			c.bad(field, "is %d, the cluster has shards 0 to %d", number, shards-1)
			return 0
		}
		return groupOf(uint16(number))
	}
	some := func(field string, number *uint32) (uint32, bool) {
		if number == nil {
			return 0, true
		}
		return group(field, *number), false
	}
	switch p := m.GetParameters().(type) {
	case *sealanev1.CreateOperationRequest_AddNode:
		op.Kind = catalog.AddNode
		op.Params = catalog.OperationParams{Node: node("add_node.node_id", p.AddNode.GetNodeId()), PeerAddress: p.AddNode.GetPeerAddress()}
	case *sealanev1.CreateOperationRequest_RemoveNode:
		op.Kind = catalog.RemoveNode
		op.Params = catalog.OperationParams{Node: node("remove_node.node_id", p.RemoveNode.GetNodeId()), Gone: p.RemoveNode.GetGone()}
	case *sealanev1.CreateOperationRequest_MoveReplica:
		op.Kind = catalog.MoveReplica
		op.Params = catalog.OperationParams{
			Group: group("move_replica.shard", p.MoveReplica.GetShard()), From: node("move_replica.from_node_id", p.MoveReplica.GetFromNodeId()),
			To: node("move_replica.to_node_id", p.MoveReplica.GetToNodeId()),
		}
	case *sealanev1.CreateOperationRequest_TransferLeadership:
		op.Kind = catalog.TransferLeadership
		op.Params = catalog.OperationParams{Group: group("transfer_leadership.shard", p.TransferLeadership.GetShard())}
		if to := p.TransferLeadership.GetToNodeId(); to != "" {
			op.Params.To = node("transfer_leadership.to_node_id", to)
		}
	case *sealanev1.CreateOperationRequest_Snapshot:
		op.Kind = catalog.Snapshot
		op.Params.Group, op.Params.AllShards = some("snapshot.shard", p.Snapshot.Shard)
	case *sealanev1.CreateOperationRequest_VerifyDigests:
		op.Kind = catalog.VerifyDigests
		op.Params.Group, op.Params.AllShards = some("verify_digests.shard", p.VerifyDigests.Shard)
	case *sealanev1.CreateOperationRequest_DrainNode:
		op.Kind = catalog.DrainNode
		op.Params.Node = node("drain_node.node_id", p.DrainNode.GetNodeId())
	case *sealanev1.CreateOperationRequest_ActivateNode:
		op.Kind = catalog.ActivateNode
		op.Params.Node = node("activate_node.node_id", p.ActivateNode.GetNodeId())
	default:
		return nil, false, nil
	}
	op.Hash = catalog.OperationHash(op.Kind, op.Params, op.Reason)
	return op, true, c.err()
}

// registerCluster registers a cluster operation and answers with its receipt.
func (s *controlService) registerCluster(ctx context.Context, op *catalog.RegisterOperation) (*sealanev1.Operation, error) {
	op.Actor = actorOf(ctx)
	r, err := s.n.control.do(ctx, op)
	if err != nil {
		return nil, err
	}
	s.n.steward.poke()
	if r.Operation == nil {
		return nil, fmt.Errorf("%w: no receipt", catalog.ErrCorrupt)
	}
	return clusterOperationOf(r.Operation), nil
}

// clusterOperationOf shows a registered operation.
func clusterOperationOf(o *catalog.Operation) *sealanev1.Operation {
	out := &sealanev1.Operation{
		OperationId: o.ID, Reason: o.Reason, Actor: o.Actor, State: sealanev1.OperationState_Value(o.State), CanonicalSha256: o.Hash,
		RegisteredAt: timestamp(o.RegisteredAt), RegisteredPosition: "control:" + strconv.FormatUint(o.RegisteredIndex, 10),
		UpdatedAt: timestamp(o.UpdatedAt), CompletedAt: timestamp(o.CompletedAt), Progress: &sealanev1.OperationProgress{},
	}
	setClusterParameters(out, o)
	for i := range o.Targets {
		t := clusterTargetOf(&o.Targets[i])
		out.Targets = append(out.Targets, t)
		out.Progress.Matched += t.Progress.Matched
		out.Progress.Applied += t.Progress.Applied
		out.Progress.Skipped += t.Progress.Skipped
		out.Progress.Failed += t.Progress.Failed
	}
	if o.State == catalog.OperationRejected || o.State == catalog.OperationOutstanding || o.State == catalog.OperationCancelled {
		out.Error = &spb.Status{Code: int32(codes.FailedPrecondition), Message: o.Detail}
	}
	return out
}

func clusterTargetOf(t *catalog.OperationTarget) *sealanev1.OperationTarget {
	out := &sealanev1.OperationTarget{
		State: sealanev1.TargetState_Value(t.State), Note: t.Detail, ControlGroup: t.Group == controlGroup,
		Progress: &sealanev1.OperationProgress{Matched: t.Matched, Applied: t.Applied, Skipped: t.Skipped, Failed: t.Failed},
	}
	if t.Group != controlGroup {
		out.Shard = t.Group - 1
		out.EffectivePosition, out.Position = positionText(uint16(out.Shard), t.FirstIndex), positionText(uint16(out.Shard), t.LastIndex)
	}
	if t.State == catalog.TargetRejected {
		out.Error = &spb.Status{Code: int32(codes.FailedPrecondition), Message: t.Detail}
	}
	for _, r := range t.Replicas {
		out.Digests = append(out.Digests, &sealanev1.ReplicaDigest{NodeId: catalog.NodeOf(r.Replica), Position: out.Position, Sha256: r.Digest, State: r.Result})
	}
	return out
}

func setClusterParameters(out *sealanev1.Operation, o *catalog.Operation) {
	p := &o.Params
	var one *uint32
	number := uint32(0)
	if p.Group != controlGroup {
		number = p.Group - 1
		if !p.AllShards {
			one = &number
		}
	}
	switch o.Kind {
	case catalog.AddNode:
		out.Parameters = &sealanev1.Operation_AddNode{AddNode: &sealanev1.AddNode{NodeId: p.Node, PeerAddress: p.PeerAddress}}
	case catalog.RemoveNode:
		out.Parameters = &sealanev1.Operation_RemoveNode{RemoveNode: &sealanev1.RemoveNode{NodeId: p.Node, Gone: p.Gone}}
	case catalog.MoveReplica:
		out.Parameters = &sealanev1.Operation_MoveReplica{MoveReplica: &sealanev1.MoveReplica{Shard: number, FromNodeId: p.From, ToNodeId: p.To}}
	case catalog.TransferLeadership:
		out.Parameters = &sealanev1.Operation_TransferLeadership{TransferLeadership: &sealanev1.TransferLeadership{Shard: number, ToNodeId: p.To}}
	case catalog.Snapshot:
		out.Parameters = &sealanev1.Operation_Snapshot{Snapshot: &sealanev1.Snapshot{Shard: one}}
	case catalog.VerifyDigests:
		out.Parameters = &sealanev1.Operation_VerifyDigests{VerifyDigests: &sealanev1.VerifyDigests{Shard: one}}
	case catalog.DrainNode:
		out.Parameters = &sealanev1.Operation_DrainNode{DrainNode: &sealanev1.DrainNode{NodeId: p.Node}}
	case catalog.ActivateNode:
		out.Parameters = &sealanev1.Operation_ActivateNode{ActivateNode: &sealanev1.ActivateNode{NodeId: p.Node}}
	}
}

// GetOperation reads one registered operation.
func (s *controlService) GetOperation(ctx context.Context, m *sealanev1.GetOperationRequest) (*sealanev1.GetOperationResponse, error) {
	if !validOperationID(m.GetId()) {
		return nil, answered(invalid("id", "must be 1 to %d of A-Z, a-z, 0-9, '.', '_', ':' and '-'", catalog.MaxOperationIDBytes))
	}
	s.n.control.catchUp(ctx)
	o, err := s.operation(m.GetId())
	if err != nil {
		return nil, answered(err)
	}
	return &sealanev1.GetOperationResponse{Operation: o}, nil
}

func (s *controlService) operation(id string) (*sealanev1.Operation, error) {
	o, ok, err := catalog.GetOperation(s.n.controlState(), id)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s; operations on lanes and attempts complete when they are created and are not kept in a register yet", catalog.ErrOperationNotFound, id)
	}
	if err != nil {
		return nil, err
	}
	return clusterOperationOf(&o), nil
}

// maxOperationsLooked bounds how many operations one page of a filtered listing looks through: all that are kept.
const maxOperationsLooked = catalog.MaxOperations

// ListOperations lists registered operations, newest first.
func (s *controlService) ListOperations(ctx context.Context, m *sealanev1.ListOperationsRequest) (*sealanev1.ListOperationsResponse, error) {
	limit, err := pageSize(m.GetPageSize())
	if err != nil {
		return nil, answered(err)
	}
	token, err := parsePageToken(listOperations, filtersOf(m), m.GetPageToken())
	if err != nil {
		return nil, answered(err)
	}
	before := uint64(0)
	if len(token) > 0 {
		if len(token) != 8 {
			return nil, answered(fieldError("page_token", fmt.Errorf("%w: it is damaged", ErrPageToken)))
		}
		before = binary.BigEndian.Uint64(token)
	}
	s.n.control.catchUp(ctx)
	all, err := catalog.Operations(s.n.controlState(), before, maxOperationsLooked)
	if err != nil {
		return nil, answered(err)
	}
	out := &sealanev1.ListOperationsResponse{}
	for i := range all {
		o := &all[i]
		if !matches(m, o) {
			continue
		}
		if len(out.Operations) == limit {
			out.NextPageToken = pageToken(listOperations, filtersOf(m), binary.BigEndian.AppendUint64(nil, all[i-1].Sequence))
			break
		}
		one := clusterOperationOf(o)
		one.Targets = nil
		out.Operations = append(out.Operations, one)
	}
	return out, nil
}

func matches(m *sealanev1.ListOperationsRequest, o *catalog.Operation) bool {
	if m.GetState() != 0 && int32(m.GetState()) != int32(o.State) {
		return false
	}
	return (m.GetKind() == "" || m.GetKind() == o.Kind.String()) && (m.GetActor() == "" || m.GetActor() == o.Actor)
}

// watchOperationEvery is how often a watched operation is looked at.
const watchOperationEvery = 200 * time.Millisecond

// WatchOperation sends an operation now and after each change, until it is done.
func (s *controlService) WatchOperation(m *sealanev1.WatchOperationRequest, stream sealanev1.ControlService_WatchOperationServer) error {
	ctx := stream.Context()
	s.n.control.catchUp(ctx)
	last := ""
	for {
		o, err := s.operation(m.GetId())
		if err != nil {
			return answered(err)
		}
		if now := o.String(); now != last {
			if err := stream.Send(&sealanev1.WatchOperationResponse{Operation: o}); err != nil {
				return err
			}
			last = now
		}
		if catalog.OperationState(o.GetState()).Done() {
			return nil
		}
		select {
		case <-s.n.running.Done():
			return answered(ErrDraining)
		case <-ctx.Done():
			return answered(ctx.Err())
		case <-time.After(watchOperationEvery):
		}
		if s.n.draining.Load() {
			return answered(ErrDraining)
		}
	}
}
