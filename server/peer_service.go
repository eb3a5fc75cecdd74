package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/replication/peer"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
)

// peerService answers the other nodes of the cluster. The transport has checked who they are.
type peerService struct {
	peerv1.UnimplementedPeerServiceServer
	n *Node
}

// Hello says who this node is. It answers strangers too, since founding and joining begin with it.
func (s *peerService) Hello(ctx context.Context, _ *peerv1.HelloRequest) (*peerv1.HelloResponse, error) {
	n := s.n
	out := &peerv1.HelloResponse{
		Node: n.cfg.NodeID, Replica: n.self, Boot: n.boot, Incarnation: n.incarnation.Load(), Founded: n.founded(),
		WallUnixNanos: int64(n.wall()), ClockGateClosed: n.stamper.State().GateClosed, Draining: n.draining.Load(),
	}
	if from, ok := peer.From(ctx); ok && out.Founded {
		if known, ok, err := catalog.GetNode(n.controlState(), from.Node); err == nil && ok {
			out.RecordedReplica, out.Removed = known.Replica, known.State == catalog.NodeRemoved
			out.Superseded = known.Replica == from.Replica && slices.Contains(known.PastBoots[:], from.Boot)
		}
	}
	for number, g := range n.refs() {
		if term := g.term.Load(); term != 0 {
			out.Leads = append(out.Leads, &peerv1.LedGroup{Group: number, Term: term})
		}
	}
	return out, nil
}

// Register records a node's process in the control group, on behalf of the node.
func (s *peerService) Register(ctx context.Context, m *peerv1.RegisterRequest) (*peerv1.RegisterResponse, error) {
	from, ok := peer.From(ctx)
	if !ok || from.Node != m.GetNode().GetId() || from.Replica != m.GetNode().GetReplica() {
		return nil, status.Error(codes.PermissionDenied, "a node registers itself, and no other")
	}
	if s.n.incarnation.Load() == 0 {
		return nil, status.Error(codes.Unavailable, "this node belongs to no cluster yet")
	}
	if err := s.n.register(ctx, nodeFromPeer(m.GetNode())); err != nil {
		return nil, registerStatus(err)
	}
	nodes, err := catalog.Nodes(s.n.controlState())
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	out := &peerv1.RegisterResponse{Incarnation: s.n.incarnation.Load()}
	for i := range nodes {
		out.Nodes = append(out.Nodes, nodeToPeer(&nodes[i]))
	}
	return out, nil
}

// registerStatus tells what will never pass from what may in a moment.
func registerStatus(err error) error {
	if notAccepted(err) || errors.Is(err, replication.ErrMaybeAccepted) || errors.Is(err, context.DeadlineExceeded) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

func nodeFromPeer(m *peerv1.NodeInfo) catalog.Node {
	return catalog.Node{
		ID: m.GetId(), Replica: m.GetReplica(), PeerAddress: m.GetPeerAddress(), GRPCAddress: m.GetGrpcAddress(), HTTPAddress: m.GetHttpAddress(),
		Version: m.GetVersion(), Boot: m.GetBoot(), LogVersion: m.GetLogVersion(),
	}
}

func nodeToPeer(n *catalog.Node) *peerv1.NodeInfo {
	return &peerv1.NodeInfo{
		Id: n.ID, Replica: n.Replica, PeerAddress: n.PeerAddress, GrpcAddress: n.GRPCAddress, HttpAddress: n.HTTPAddress, Version: n.Version,
		Boot: n.Boot, LogVersion: n.LogVersion,
	}
}

// ReadIndex confirms leadership for a read on another node.
func (s *peerService) ReadIndex(ctx context.Context, m *peerv1.ReadIndexRequest) (*peerv1.ReadIndexResponse, error) {
	group, err := s.n.group(m.GetGroup())
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	index, err := group.ReadIndex(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &peerv1.ReadIndexResponse{Index: index}, nil
}

// Report tells the state of every group here.
func (s *peerService) Report(context.Context, *peerv1.ReportRequest) (*peerv1.ReportResponse, error) {
	return s.n.report(), nil
}

// report is what this node knows of its groups.
func (n *Node) report() *peerv1.ReportResponse {
	out := &peerv1.ReportResponse{FreeBytes: n.space.free.Load()}
	for number, ref := range n.refs() {
		group := ref.local.Load()
		if group == nil {
			if number != controlGroup && n.shards()[number-1].leaving.Load() {
				out.Groups = append(out.Groups, &peerv1.GroupReport{Group: number}) // not destroyed yet
			}
			continue
		}
		st := group.Status()
		r := &peerv1.GroupReport{
			Group: number, Term: st.Term, Leader: st.LeaderID, Leads: st.Ready && st.Role == replication.RoleLeader, CommitIndex: st.CommitIndex,
			AppliedIndex: st.AppliedIndex, LastIndex: st.LastIndex, LeaderContactMillis: uint64(sinceContact(st.LastContact, n.started).Milliseconds()),
		}
		if st.Failure != nil {
			r.Failure = st.Failure.Error()
		}
		members, index := group.Members()
		r.ConfigurationIndex = index
		for _, m := range members {
			r.Members = append(r.Members, &peerv1.GroupMember{Replica: m.ID, Voter: m.Voter})
		}
		out.Groups = append(out.Groups, r)
	}
	return out
}

// contactOf is how long ago a replica heard from its leader, by its own report.
func contactOf(g *peerv1.GroupReport) time.Duration {
	return time.Duration(g.GetLeaderContactMillis()) * time.Millisecond
}

// ChangeGroup makes one step of a change.
func (s *peerService) ChangeGroup(ctx context.Context, m *peerv1.ChangeGroupRequest) (*peerv1.ChangeGroupResponse, error) {
	out, err := s.n.changeGroup(ctx, m)
	if err != nil {
		code := codes.FailedPrecondition
		switch {
		case errors.Is(err, replication.ErrNotLeader):
			code = codes.Unavailable
		case errors.Is(err, errNoSuchGroup):
			code = codes.NotFound
		case ctx.Err() != nil:
			code = codes.DeadlineExceeded
		}
		return nil, status.Error(code, err.Error())
	}
	return out, nil
}

func (n *Node) changeGroup(ctx context.Context, m *peerv1.ChangeGroupRequest) (*peerv1.ChangeGroupResponse, error) {
	group, err := n.group(m.GetGroup())
	if err != nil {
		return nil, err
	}
	out := &peerv1.ChangeGroupResponse{}
	switch m.GetKind() {
	case peerv1.ChangeGroupRequest_KIND_ADD_LEARNER:
		err = group.AddLearner(ctx, m.GetReplica())
	case peerv1.ChangeGroupRequest_KIND_PROMOTE:
		err = group.Promote(ctx, m.GetReplica())
	case peerv1.ChangeGroupRequest_KIND_DEMOTE:
		err = group.Demote(ctx, m.GetReplica())
	case peerv1.ChangeGroupRequest_KIND_REMOVE:
		err = group.Remove(ctx, m.GetReplica())
	case peerv1.ChangeGroupRequest_KIND_TRANSFER:
		err = group.TransferLeadershipTo(ctx, m.GetReplica())
	case peerv1.ChangeGroupRequest_KIND_SNAPSHOT:
		err = group.Snapshot(ctx)
		out.Index = group.Status().SnapshotIndex
	case peerv1.ChangeGroupRequest_KIND_DIGEST:
		out.Index, err = group.Digest(ctx)
	case peerv1.ChangeGroupRequest_KIND_DIGEST_AT:
		var sum [32]byte
		var state replication.DigestState
		sum, state, err = group.DigestAt(ctx, m.GetIndex())
		out.Digest, out.DigestState = sum[:], state.String()
	default:
		err = fmt.Errorf("server: unknown change %s", m.GetKind())
	}
	return out, err
}
