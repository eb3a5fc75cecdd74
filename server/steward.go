package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/catalog/plan"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/server/membership"
	"github.com/sealane/sealane/storage"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
)

// steward runs the membership driver while this node leads the control group.
type steward struct {
	mu     sync.Mutex
	driver *membership.Driver
	cancel context.CancelFunc
	ended  chan struct{}
}

// start runs a driver for one leadership, unless that is over already. The driver of an earlier one has ended before.
func (s *steward) start(n *Node, term uint64) {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.control.ref.term.Load() != term || n.running.Err() != nil {
		return
	}
	ports := &stewardPorts{n: n, term: term}
	driver, err := membership.New(membership.Options{
		Node: n.cfg.NodeID, Control: ports, Nodes: ports, Groups: ports, Logger: n.log, Observer: n.metrics.membership(),
		Now: func() policy.Time { return n.stamper.Stamp() },
	})
	if err != nil {
		n.fail(err) // only a programmer's error can be the cause
		return
	}
	ctx, cancel := context.WithCancel(n.running)
	s.driver, s.cancel, s.ended = driver, cancel, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		err := driver.Run(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, membership.ErrNotLeading) {
			n.log.Warn("the membership driver stopped", "error", err)
		}
	}(s.ended)
}

// lost ends the driver and does not wait for what it had begun: whoever tells of a lost leadership must not be held up.
func (s *steward) lost() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
	s.driver = nil
	return s.ended
}

// stop ends the driver and waits.
func (s *steward) stop() {
	if ended := s.lost(); ended != nil {
		<-ended
	}
}

// poke asks for a round at once.
func (s *steward) poke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.driver != nil {
		s.driver.Poke()
	}
}

// stewardPorts give the driver what it needs.
type stewardPorts struct {
	n    *Node
	term uint64
}

func (p *stewardPorts) leads() error {
	if p.n.control.ref.term.Load() != p.term {
		return membership.ErrNotLeading
	}
	return nil
}

// Read lets fn read a view of the control group's state. What this term committed before is applied here: it leads.
func (p *stewardPorts) Read(_ context.Context, fn func(catalog.Reader) error) error {
	if err := p.leads(); err != nil {
		return err
	}
	s := p.n.control.state.NewSnapshot()
	return errors.Join(fn(s), s.Close())
}

// Propose puts a command into the control group's log.
func (p *stewardPorts) Propose(ctx context.Context, c catalog.Command) (catalog.Result, error) {
	if err := p.leads(); err != nil {
		return catalog.Result{}, err
	}
	r, err := p.n.control.do(ctx, c)
	if err != nil && r.Err != nil {
		return r, nil // the verdict, which the driver reads
	}
	if errors.Is(err, replication.ErrNotLeader) {
		err = fmt.Errorf("%w: %w", membership.ErrNotLeading, err)
	}
	return r, err
}

// Report asks a node for its groups.
func (p *stewardPorts) Report(ctx context.Context, node catalog.Node) (plan.NodeView, error) {
	n := p.n
	v := plan.NodeView{Node: node.ID, Replica: n.self, Boot: n.boot, Draining: n.draining.Load()}
	var report *peerv1.ReportResponse
	if node.ID == n.cfg.NodeID {
		report = n.report()
	} else {
		l, err := n.link(node.ID)
		if err != nil {
			return v, err
		}
		hello, err := l.peer().Hello(ctx, &peerv1.HelloRequest{})
		if err != nil {
			return v, peerError(err)
		}
		v.Replica, v.Boot, v.Draining = hello.GetReplica(), hello.GetBoot(), hello.GetDraining()
		if report, err = l.peer().Report(ctx, &peerv1.ReportRequest{}); err != nil {
			return v, peerError(err)
		}
	}
	if v.Replica != node.Replica {
		return v, fmt.Errorf("%w: it is %s, recorded is %s", ErrDirectoryLost, v.Replica, node.Replica)
	}
	for _, g := range report.GetGroups() {
		v.Groups = append(v.Groups, groupView(g))
	}
	return v, nil
}

func groupView(g *peerv1.GroupReport) plan.GroupView {
	v := plan.GroupView{
		Group: g.GetGroup(), Term: g.GetTerm(), Leads: g.GetLeads(), Leader: g.GetLeader(), MembersAt: g.GetConfigurationIndex(),
		Commit: g.GetCommitIndex(), Applied: g.GetAppliedIndex(), Last: g.GetLastIndex(), Failure: g.GetFailure(), Contact: contactOf(g),
	}
	for _, m := range g.GetMembers() {
		v.Members = append(v.Members, plan.Member{Replica: m.GetReplica(), Voter: m.GetVoter()})
	}
	return v
}

// change asks a node, this one or another, for one change of a group.
func (p *stewardPorts) change(ctx context.Context, node string, m *peerv1.ChangeGroupRequest) (*peerv1.ChangeGroupResponse, error) {
	if node == p.n.cfg.NodeID {
		return p.n.changeGroup(ctx, m)
	}
	l, err := p.n.link(node)
	if err != nil {
		return nil, err
	}
	out, err := l.peer().ChangeGroup(ctx, m)
	if err != nil {
		return nil, peerError(err)
	}
	return out, nil
}

var changeKinds = map[plan.StepKind]peerv1.ChangeGroupRequest_Kind{
	plan.AddLearner: peerv1.ChangeGroupRequest_KIND_ADD_LEARNER, plan.Promote: peerv1.ChangeGroupRequest_KIND_PROMOTE,
	plan.Demote: peerv1.ChangeGroupRequest_KIND_DEMOTE, plan.RemoveMember: peerv1.ChangeGroupRequest_KIND_REMOVE,
	plan.TransferTo: peerv1.ChangeGroupRequest_KIND_TRANSFER,
}

// Change makes one change of a group.
func (p *stewardPorts) Change(ctx context.Context, node string, group uint32, c membership.Change) error {
	kind, ok := changeKinds[c.Kind]
	if !ok {
		return fmt.Errorf("server: %s is no change of a group", c.Kind)
	}
	_, err := p.change(ctx, node, &peerv1.ChangeGroupRequest{Group: group, Kind: kind, Replica: c.Replica})
	return err
}

// Snapshot takes a snapshot on a node.
func (p *stewardPorts) Snapshot(ctx context.Context, node string, group uint32) (uint64, error) {
	out, err := p.change(ctx, node, &peerv1.ChangeGroupRequest{Group: group, Kind: peerv1.ChangeGroupRequest_KIND_SNAPSHOT})
	return out.GetIndex(), err
}

// Digest puts a digest mark into a group's log.
func (p *stewardPorts) Digest(ctx context.Context, node string, group uint32) (uint64, error) {
	out, err := p.change(ctx, node, &peerv1.ChangeGroupRequest{Group: group, Kind: peerv1.ChangeGroupRequest_KIND_DIGEST})
	return out.GetIndex(), err
}

var digestStates = map[string]membership.DigestState{
	replication.DigestPending.String(): membership.DigestPending, replication.DigestDone.String(): membership.DigestDone,
	replication.DigestSkipped.String(): membership.DigestSkipped, replication.DigestUnknown.String(): membership.DigestUnknown,
}

// DigestAt reads the digest of one replica.
func (p *stewardPorts) DigestAt(ctx context.Context, node string, group uint32, index uint64) (sum [32]byte, state membership.DigestState, err error) {
	out, err := p.change(ctx, node, &peerv1.ChangeGroupRequest{Group: group, Kind: peerv1.ChangeGroupRequest_KIND_DIGEST_AT, Index: index})
	if err != nil {
		return sum, state, err
	}
	state, known := digestStates[out.GetDigestState()]
	if !known || state == membership.DigestDone && len(out.GetDigest()) != len(sum) {
		return sum, state, status.Errorf(codes.Internal, "a digest of %d bytes in state %q", len(out.GetDigest()), out.GetDigestState())
	}
	copy(sum[:], out.GetDigest())
	return sum, state, nil
}

// A snapshot of the control group's state is what the planner reads.
var _ catalog.Reader = (*storage.Snapshot)(nil)
