package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/server/fault"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
)

// ErrLeaderUnreachable: the node that leads cannot be reached from this one; nothing was proposed. Another node may reach it, and a new leader
// is elected if it is gone. Try again.
var ErrLeaderUnreachable = errors.New("server: leader cannot be reached")

// Limits of proposals that wait for a leader. A leadership change takes about two seconds; a client whose submit is held meanwhile sees no error.
const (
	// holdFor is how long a proposal that was certainly not accepted is tried again before its caller is told.
	holdFor = 5 * time.Second
	// holdPause is the time between two tries.
	holdPause = 20 * time.Millisecond
	// maxHeld and maxHeldBytes bound what one group's callers may have waiting.
	maxHeld      = 4096
	maxHeldBytes = 32 << 20
)

// groupRef is one group as this node's callers see it, wherever its replicas are: proposals go to the replica here if it leads, else over the
// peer connection to the node that does, and wait a moment while nobody does. It decides nothing: the three answers of a proposal (DESIGN 3)
// are the leader's.
type groupRef struct {
	number uint32
	self   string // this node
	links  func(node string) (*link, error)
	decode func(*peerv1.CommandResult) (any, error)

	local atomic.Pointer[replication.Group] // this node's replica, nil without one
	term  atomic.Uint64                     // the term in which it leads, 0 when it does not
	hint  atomic.Pointer[string]            // node that was last said to lead

	mu     sync.Mutex
	held   []*proposal
	bytes  int
	waking bool
	closed bool
}

// proposal is a vector of encoded commands on its way to the log. done is called exactly once.
type proposal struct {
	class  replication.Class
	submit bool
	cmds   [][]byte
	until  time.Time // held back and tried again until then; zero: not at all
	done   func(results []any, index uint64, err error)
}

func (p *proposal) size() (n int) {
	for _, c := range p.cmds {
		n += len(c)
	}
	return n
}

// propose sends a proposal on its way. It never blocks.
func (g *groupRef) propose(p *proposal) {
	fault.Stall(fault.PointPropose)
	node := g.leader()
	if group := g.local.Load(); group != nil && (g.leads() || node == g.self) {
		err := group.ProposeVector(context.Background(), p.class, p.cmds, func(results []any, index uint64, err error) {
			g.answered(p, results, index, err)
		})
		if err != nil {
			g.answered(p, nil, 0, err)
		}
		return
	}
	if node == "" || node == g.self {
		g.answered(p, nil, 0, replication.ErrNotLeader)
		return
	}
	l, err := g.links(node)
	if err != nil {
		g.answered(p, nil, 0, fmt.Errorf("%w: node %s: %w", ErrLeaderUnreachable, node, err))
		return
	}
	l.propose(g, p)
}

// answered ends a proposal, or holds it where it certainly was not accepted and another try may be.
func (g *groupRef) answered(p *proposal, results []any, index uint64, err error) {
	if err != nil && !p.until.IsZero() && worthHolding(err) && g.hold(p) {
		return
	}
	fault.Stall(fault.PointReply)
	p.done(results, index, err)
}

// worthHolding tells whether an error says only that nobody could take the proposal at this moment.
func worthHolding(err error) bool {
	if errors.Is(err, replication.ErrMaybeAccepted) {
		return false
	}
	return errors.Is(err, replication.ErrNotLeader) || errors.Is(err, replication.ErrTransferring) || errors.Is(err, ErrLeaderUnreachable)
}

func (g *groupRef) hold(p *proposal) bool {
	if time.Now().After(p.until) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || len(g.held) >= maxHeld || g.bytes+p.size() > maxHeldBytes {
		return false
	}
	g.held = append(g.held, p)
	g.bytes += p.size()
	if !g.waking {
		g.waking = true
		time.AfterFunc(holdPause, g.retry)
	}
	return true
}

// retry tries everything that is held again, in its order.
func (g *groupRef) retry() {
	g.mu.Lock()
	held := g.held
	g.held, g.bytes, g.waking = nil, 0, false
	g.mu.Unlock()
	for _, p := range held {
		g.propose(p)
	}
}

// close answers what is held: certainly not accepted.
func (g *groupRef) close() {
	g.mu.Lock()
	held := g.held
	g.held, g.bytes, g.closed = nil, 0, true
	g.mu.Unlock()
	for _, p := range held {
		p.done(nil, 0, ErrDraining)
	}
}

// waiting is how many proposals are held back.
func (g *groupRef) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.held)
}

// leader is the node that leads as far as this node knows: what its own replica says, else what was heard last.
func (g *groupRef) leader() string {
	if group := g.local.Load(); group != nil {
		if node := group.LeaderNode(); node != "" {
			return node
		}
	}
	if h := g.hint.Load(); h != nil {
		return *h
	}
	return ""
}

// leads tells whether the replica here leads and takes proposals.
func (g *groupRef) leads() bool { return g.term.Load() != 0 }

// heard notes who is said to lead. A replica here knows better.
func (g *groupRef) heard(node string) {
	if node != "" {
		g.hint.Store(&node)
	}
}

// do proposes one command and waits for its verdict.
func (g *groupRef) do(ctx context.Context, class replication.Class, cmd []byte) (any, uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", replication.ErrContext, err)
	}
	type verdict struct {
		v     any
		index uint64
		err   error
	}
	out := make(chan verdict, 1)
	until := time.Now().Add(holdFor)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	g.propose(&proposal{class: class, cmds: [][]byte{cmd}, until: until, done: func(results []any, index uint64, err error) {
		if err == nil && len(results) != 1 {
			err = fmt.Errorf("%w: %d results for one command", replication.ErrMaybeAccepted, len(results))
		}
		if err != nil {
			out <- verdict{err: err}
			return
		}
		out <- verdict{results[0], index, nil}
	}})
	select {
	case a := <-out:
		return a.v, a.index, a.err
	case <-ctx.Done():
		return nil, 0, fmt.Errorf("%w: %w", replication.ErrMaybeAccepted, ctx.Err())
	}
}

// readIndex confirms leadership, here or at the leader, and gives the index that a linearizable read waits for.
func (g *groupRef) readIndex(ctx context.Context) (uint64, error) {
	for {
		index, err := g.readIndexOnce(ctx)
		if err == nil || ctx.Err() != nil || !worthHolding(err) {
			return index, err
		}
		t := time.NewTimer(holdPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return 0, err
		}
	}
}

func (g *groupRef) readIndexOnce(ctx context.Context) (uint64, error) {
	node := g.leader()
	if group := g.local.Load(); group != nil && (g.leads() || node == g.self) {
		return group.ReadIndex(ctx)
	}
	if node == "" || node == g.self {
		return 0, fmt.Errorf("%w: %w", replication.ErrBarrier, replication.ErrNotLeader)
	}
	l, err := g.links(node)
	if err != nil {
		return 0, fmt.Errorf("%w: %w: %w", replication.ErrBarrier, ErrLeaderUnreachable, err)
	}
	answer, err := l.peer().ReadIndex(ctx, &peerv1.ReadIndexRequest{Group: g.number})
	if err != nil {
		return 0, fmt.Errorf("%w: %w: %w", replication.ErrBarrier, ErrLeaderUnreachable, peerError(err)) // asking again is harmless
	}
	return answer.GetIndex(), nil
}
