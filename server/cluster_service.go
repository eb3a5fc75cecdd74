package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/shard"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// clusterService shows the cluster as this node sees it: what the control group's state here says, and what every node that can be reached
// says of itself.
type clusterService struct {
	sealanev1.UnimplementedClusterServiceServer
	n *Node

	mu   sync.Mutex // held while one looks: those who ask meanwhile get what it finds
	last *sealanev1.Cluster
	at   time.Time
}

// surveyFor is how long a look at the cluster serves others. Clients look every few seconds to find the leaders, and a look asks every node.
const surveyFor = 500 * time.Millisecond

// reportWait bounds the question to the other nodes. A node that does not answer is shown as not reachable.
const reportWait = time.Second

// GetCluster reads nodes and shards.
func (s *clusterService) GetCluster(ctx context.Context, _ *sealanev1.GetClusterRequest) (*sealanev1.GetClusterResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && time.Since(s.at) < surveyFor {
		return &sealanev1.GetClusterResponse{Cluster: s.last}, nil
	}
	out, err := s.look(ctx)
	if err != nil {
		return nil, answered(err)
	}
	s.last, s.at = out, time.Now()
	return &sealanev1.GetClusterResponse{Cluster: out}, nil
}

func (s *clusterService) look(ctx context.Context) (*sealanev1.Cluster, error) {
	c, err := s.n.survey(ctx)
	if err != nil {
		return nil, err
	}
	out := &sealanev1.Cluster{Incarnation: fmt.Sprintf("%016x", s.n.cluster.Incarnation), AnsweredBy: s.n.cfg.NodeID}
	for i := range c.nodes {
		out.Nodes = append(out.Nodes, c.node(&c.nodes[i]))
	}
	for i := range c.placements {
		p := &c.placements[i]
		sh := c.group(p)
		if p.Group == controlGroup {
			out.ControlGroup = sh
			continue
		}
		if r, err := s.n.replicaOfGroup(p.Group); err == nil {
			if err := describeState(sh, r); err != nil {
				return nil, err
			}
		}
		out.Shards = append(out.Shards, sh)
	}
	return out, nil
}

// survey is what one look at the cluster found.
type survey struct {
	n          *Node
	nodes      []catalog.Node
	placements []catalog.Placement
	reports    map[string]*peerv1.ReportResponse // of the nodes that answered
	greetings  map[string]greeting
	led        map[string]uint32 // shards by the node that leads them
}

func (n *Node) survey(ctx context.Context) (*survey, error) {
	c := &survey{n: n, greetings: n.greetings(), led: map[string]uint32{}}
	var err error
	if c.nodes, err = catalog.Nodes(n.controlState()); err != nil {
		return nil, err
	}
	if c.placements, err = catalog.Placements(n.controlState()); err != nil {
		return nil, err
	}
	c.reports = n.reports(ctx)
	for i := range c.placements {
		if p := &c.placements[i]; p.Group != controlGroup {
			if leader, _ := c.leader(p); leader != "" {
				c.led[leader]++
			}
		}
	}
	return c, ctx.Err()
}

// reports asks every node for its groups, this one included.
func (n *Node) reports(ctx context.Context) map[string]*peerv1.ReportResponse {
	ctx, cancel := context.WithTimeout(ctx, reportWait)
	defer cancel()
	out := map[string]*peerv1.ReportResponse{n.cfg.NodeID: n.report()}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, node := range n.others() {
		wg.Go(func() {
			l, err := n.link(node)
			if err != nil {
				return
			}
			report, err := l.peer().Report(ctx, &peerv1.ReportRequest{})
			if err != nil {
				return
			}
			mu.Lock()
			out[node] = report
			mu.Unlock()
		})
	}
	wg.Wait()
	return out
}

func (c *survey) node(n *catalog.Node) *sealanev1.Node {
	out := &sealanev1.Node{
		Id: n.ID, GrpcAddress: n.GRPCAddress, HttpAddress: n.HTTPAddress, PeerAddress: n.PeerAddress, Version: n.Version,
		BootId: fmt.Sprintf("%016x", n.Boot), Reachable: c.reports[n.ID] != nil, Leading: c.led[n.ID], ReplicaId: n.Replica,
		State: sealanev1.NodeState_Value(sealanev1.NodeState_Value_value[n.State.String()]),
	}
	if out.PeerAddress == noPeerAddress {
		out.PeerAddress = ""
	}
	if n.ID == c.n.cfg.NodeID {
		out.StartedAt = timestamppb.New(c.n.started)
		out.ClockGateClosed = c.n.stamper.State().GateClosed
	} else if g := c.greetings[n.ID]; g.reachable() {
		out.ClockGateClosed = g.answer.GetClockGateClosed()
	}
	return out
}

// leader finds the node that leads a group in the newest term that anyone reports.
func (c *survey) leader(p *catalog.Placement) (node string, at *peerv1.GroupReport) {
	for _, id := range slices.Sorted(maps.Keys(c.reports)) {
		if r := reportOf(c.reports[id], p.Group); r != nil && r.GetLeads() && (at == nil || r.GetTerm() > at.GetTerm()) {
			node, at = id, r
		}
	}
	return node, at
}

func reportOf(r *peerv1.ReportResponse, group uint32) *peerv1.GroupReport {
	for _, g := range r.GetGroups() {
		if g.GetGroup() == group {
			return g
		}
	}
	return nil
}

// group joins what the control group wants of a group with what its replicas say.
func (c *survey) group(p *catalog.Placement) *sealanev1.Shard {
	leader, at := c.leader(p)
	out := &sealanev1.Shard{Leader: leader, Term: at.GetTerm()}
	if p.Group != controlGroup {
		out.Number = p.Group - 1
	}
	voters, alive := 0, 0
	for _, placed := range p.Replicas {
		node := catalog.NodeOf(placed.ID)
		r := reportOf(c.reports[node], p.Group)
		replica := &sealanev1.Replica{NodeId: node, Placement: placed.State.String(), AppliedIndex: r.GetAppliedIndex()}
		voter := placed.State == catalog.ReplicaVoter || placed.State == catalog.ReplicaRemoving
		for _, m := range at.GetMembers() {
			if m.GetReplica() == placed.ID {
				voter = m.GetVoter()
			}
		}
		if voter {
			voters++
		}
		if r != nil {
			if voter {
				alive++
			}
			replica.Role = roleIn(node == leader, voter)
			replica.LastContact = durationpb.New(contactOf(r))
			if at != nil {
				lag := at.GetCommitIndex() - min(at.GetCommitIndex(), r.GetAppliedIndex())
				replica.Lag = &lag
			}
			if r.GetFailure() != "" {
				out.Trouble = fmt.Sprintf("the replica on node %s has stopped: %s", node, r.GetFailure())
			}
		}
		out.Replicas = append(out.Replicas, replica)
	}
	out.Available = leader != "" && 2*alive > voters
	switch {
	case leader == "":
		out.Trouble = "no leader is known"
	case alive < voters && out.Trouble == "":
		out.Trouble = fmt.Sprintf("%d of %d voters cannot be reached", voters-alive, voters)
	}
	return out
}

func roleIn(leads, voter bool) sealanev1.ReplicaRole_Value {
	switch {
	case leads:
		return sealanev1.ReplicaRole_LEADER
	case voter:
		return sealanev1.ReplicaRole_FOLLOWER
	}
	return sealanev1.ReplicaRole_LEARNER
}

// describeState adds what this node's replica holds.
func describeState(out *sealanev1.Shard, r *replica) error {
	out.AppliedPosition = positionText(r.shard, r.group.Applied())
	meta, err := shard.ReadMeta(r.Reader())
	if err != nil {
		return err
	}
	out.ShardClock = timestamp(meta.Clock)
	if err := eachLane(r, func(l *shard.LaneRecord) { out.Pending += l.Counts.Pending() }); err != nil {
		return err
	}
	out.UncertainAttempts, err = countUncertain(r)
	return err
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
