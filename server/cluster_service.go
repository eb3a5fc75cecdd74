package server

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// clusterService shows the cluster as this node sees it.
type clusterService struct {
	sealanev1.UnimplementedClusterServiceServer
	n *Node
}

// GetCluster reads nodes and shards. A cluster has one node in this version.
func (s *clusterService) GetCluster(context.Context, *sealanev1.GetClusterRequest) (*sealanev1.GetClusterResponse, error) {
	n := s.n
	leading := uint32(0)
	shards := make([]*sealanev1.Shard, 0, len(n.replicas))
	for _, r := range n.replicas {
		sh, err := s.shard(r)
		if err != nil {
			return nil, answered(err)
		}
		if r.leading() {
			leading++
		}
		shards = append(shards, sh)
	}
	self := &sealanev1.Node{
		Id: n.cfg.NodeID, PeerAddress: n.cfg.PeerAddr, Version: Version, BootId: fmt.Sprintf("%016x", n.boot),
		StartedAt: timestamppb.New(n.started), Reachable: true, ClockGateClosed: n.stamper.State().GateClosed, Leading: leading,
	}
	if n.doors != nil {
		self.GrpcAddress, self.HttpAddress = n.GRPCAddr(), n.HTTPAddr()
	}
	return &sealanev1.GetClusterResponse{Cluster: &sealanev1.Cluster{
		Incarnation: fmt.Sprintf("%016x", n.cluster.Incarnation), AnsweredBy: n.cfg.NodeID, Nodes: []*sealanev1.Node{self}, Shards: shards,
		ControlGroup: s.group(n.control.group, 0),
	}}, nil
}

func (s *clusterService) group(g *replication.Group, number uint16) *sealanev1.Shard {
	st := g.Status()
	role := sealanev1.ReplicaRole_FOLLOWER
	if st.Role == replication.RoleLeader {
		role = sealanev1.ReplicaRole_LEADER
	}
	return &sealanev1.Shard{
		Number: uint32(number), Leader: st.LeaderID, Term: st.Term,
		Replicas: []*sealanev1.Replica{{NodeId: s.n.cfg.NodeID, Role: role, AppliedIndex: st.AppliedIndex}},
	}
}

func (s *clusterService) shard(r *replica) (*sealanev1.Shard, error) {
	out := s.group(r.group, r.shard)
	out.AppliedPosition = positionText(r.shard, r.group.Applied())
	meta, err := shard.ReadMeta(r.Reader())
	if err != nil {
		return nil, err
	}
	out.ShardClock = timestamp(meta.Clock)
	err = eachLane(r, func(l *shard.LaneRecord) {
		out.Pending += l.Counts.Pending()
	})
	if err != nil {
		return nil, err
	}
	out.UncertainAttempts, err = countUncertain(r)
	return out, err
}

// countUncertain counts the inbox of a shard.
func countUncertain(r *replica) (n uint64, err error) {
	var cursor []byte
	for {
		page, err := shard.ScanUncertain(r.Reader(), cursor, scrapePage)
		if err != nil {
			return n, err
		}
		n += uint64(len(page))
		if len(page) < scrapePage {
			return n, nil
		}
		cursor = page[len(page)-1].Cursor
	}
}
