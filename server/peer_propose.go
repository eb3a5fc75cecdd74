package server

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
)

// Propose takes proposals of another node for groups that this one leads. It holds nothing back: the other node waits, and knows where to go.
func (s *peerService) Propose(stream peerv1.PeerService_ProposeServer) error {
	a := &answers{wake: make(chan struct{}, 1), leader: s.n.leaderOf}
	ended := make(chan error, 1)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			for _, p := range m.GetProposals() {
				s.proposeHere(p, a)
			}
		}
	}()
	for {
		for batch := a.take(); batch != nil; batch = a.take() {
			if err := stream.Send(batch); err != nil {
				return err
			}
		}
		select {
		case <-a.wake:
		case err := <-ended:
			return err
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.n.running.Done():
			return ErrDraining
		}
	}
}

func (s *peerService) proposeHere(p *peerv1.Proposal, a *answers) {
	group, err := s.n.group(p.GetGroup())
	if err != nil {
		a.refuse(p, fmt.Errorf("%w: %w", replication.ErrNotLeader, err)) // it has no replica here: the caller's idea of the leader is old
		return
	}
	if p.GetSubmit() && s.n.space.low.Load() {
		a.refuse(p, ErrNoSpace)
		return
	}
	class := replication.Client
	if p.GetEngine() {
		class = replication.Engine
	}
	err = group.ProposeVector(s.n.running, class, p.GetCommands(), func(results []any, index uint64, err error) {
		a.answer(p, results, index, err)
	})
	if err != nil {
		a.refuse(p, err)
	}
}

// answers gathers what is to be sent back on one stream. Callbacks of the log only add to it.
type answers struct {
	wake   chan struct{}
	leader func(group uint32) string

	mu    sync.Mutex
	ready []*peerv1.ProposalAnswer
}

// maxPackedAnswers bounds one message back.
const maxPackedAnswers = 1024

func (a *answers) refuse(p *peerv1.Proposal, err error) { a.answer(p, nil, 0, err) }

func (a *answers) answer(p *peerv1.Proposal, results []any, index uint64, err error) {
	out := &peerv1.ProposalAnswer{Id: p.GetId(), Index: index}
	if err == nil {
		out.Results, err = commandResults(results)
	}
	if err != nil {
		out.Error = errorOfProposal(err, a.leader(p.GetGroup()))
	}
	a.mu.Lock()
	a.ready = append(a.ready, out)
	first := len(a.ready) == 1
	a.mu.Unlock()
	if first {
		signal(a.wake)
	}
}

func commandResults(results []any) ([]*peerv1.CommandResult, error) {
	out := make([]*peerv1.CommandResult, len(results))
	for i, r := range results {
		switch r := r.(type) {
		case *shard.Result:
			out[i] = &peerv1.CommandResult{Shard: shardResultOf(r)}
		case *catalog.Result:
			b, err := encodeCatalogResult(r)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", replication.ErrMaybeAccepted, err)
			}
			out[i] = &peerv1.CommandResult{Catalog: b}
		default:
			return nil, fmt.Errorf("%w: a verdict of type %T does not travel", replication.ErrMaybeAccepted, r)
		}
	}
	return out, nil
}

func (a *answers) take() *peerv1.ProposeResponse {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.ready), maxPackedAnswers)
	if n == 0 {
		return nil
	}
	batch := a.ready[:n:n]
	a.ready = a.ready[n:]
	return &peerv1.ProposeResponse{Answers: batch}
}

// errNoSuchGroup: this node has no replica of the group.
var errNoSuchGroup = errors.New("server: no replica of the group on this node")
