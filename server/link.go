package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
)

// Limits of what is on its way to one other node.
const (
	// maxLinkQueue and maxLinkBytes bound proposals that wait to be sent, maxLinkInFlight those that wait for their answer.
	maxLinkQueue    = 16384
	maxLinkBytes    = 64 << 20
	maxLinkInFlight = 65536
	// maxPackedProposals and maxPackedBytes bound one message of the stream.
	maxPackedProposals = 256
	maxPackedBytes     = 1 << 20
	// linkPause is the wait before a broken stream is opened again.
	linkPause = 50 * time.Millisecond
)

// ErrPeer: another node, which holds what the call needs, failed it or could not be reached. Nothing is known beyond its text: sentinels do not
// travel. Try again.
var ErrPeer = errors.New("server: another node answered")

// link carries proposals to one other node over one stream. What was sent when the stream breaks may have been accepted; what was not sent
// certainly was not.
type link struct {
	conn grpc.ClientConnInterface
	ctx  context.Context // of the node
	wake chan struct{}   // holds one

	mu       sync.Mutex
	queue    []*outgoing
	bytes    int
	inFlight map[uint64]*outgoing
	next     uint64
	running  bool
}

// outgoing is a proposal on its way through a link.
type outgoing struct {
	ref *groupRef
	p   *proposal
	id  uint64
}

func newLink(ctx context.Context, conn grpc.ClientConnInterface) *link {
	return &link{conn: conn, ctx: ctx, wake: make(chan struct{}, 1), inFlight: map[uint64]*outgoing{}}
}

// peer is the other node's service.
func (l *link) peer() peerv1.PeerServiceClient { return peerv1.NewPeerServiceClient(l.conn) }

// propose queues a proposal; its answer goes to ref.answered.
func (l *link) propose(ref *groupRef, p *proposal) {
	l.mu.Lock()
	if len(l.queue) >= maxLinkQueue || l.bytes+p.size() > maxLinkBytes || len(l.inFlight) >= maxLinkInFlight || l.ctx.Err() != nil {
		stopped := l.ctx.Err() != nil
		l.mu.Unlock()
		if stopped {
			ref.answered(p, nil, 0, replication.ErrStopped)
			return
		}
		ref.answered(p, nil, 0, fmt.Errorf("%w: on its way to the leader", replication.ErrQueueFull))
		return
	}
	l.next++
	l.queue = append(l.queue, &outgoing{ref: ref, p: p, id: l.next})
	l.bytes += p.size()
	start := !l.running
	l.running = true
	l.mu.Unlock()
	if start {
		go l.run()
		return
	}
	signal(l.wake)
}

// run keeps a stream open while there is something to carry.
func (l *link) run() {
	for {
		err := l.stream()
		l.fail(err)
		l.mu.Lock()
		if len(l.queue) == 0 || l.ctx.Err() != nil {
			l.running = false
			left := l.queue
			l.queue, l.bytes = nil, 0
			l.mu.Unlock()
			for _, o := range left {
				o.ref.answered(o.p, nil, 0, replication.ErrStopped)
			}
			return
		}
		l.mu.Unlock()
	}
}

// fail answers everything when a stream has ended: what was sent as maybe, what waits as certainly not.
func (l *link) fail(cause error) {
	l.mu.Lock()
	sent, waiting := l.inFlight, l.queue
	l.inFlight, l.queue, l.bytes = map[uint64]*outgoing{}, nil, 0
	l.mu.Unlock()
	for _, o := range sent {
		o.ref.answered(o.p, nil, 0, fmt.Errorf("%w: the connection to the leader broke: %w", replication.ErrMaybeAccepted, cause))
	}
	for _, o := range waiting {
		o.ref.answered(o.p, nil, 0, fmt.Errorf("%w: %w", ErrLeaderUnreachable, cause))
	}
}

// linkOpen bounds the wait for a connection; what waits is tried elsewhere, or answered, after it.
const linkOpen = time.Second

func (l *link) stream() error {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	opened := time.AfterFunc(linkOpen, cancel)
	stream, err := l.peer().Propose(ctx)
	if err == nil {
		_, err = stream.Header() // the transport on the other side sends it at once: the connection is there
	}
	if !opened.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		pause := time.NewTimer(linkPause)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-l.ctx.Done():
		}
		return peerError(err)
	}
	broken := make(chan error, 1)
	go func() { broken <- l.receive(stream) }()
	for {
		for batch := l.take(); batch != nil; batch = l.take() {
			if err := stream.Send(batch); err != nil {
				return peerError(<-broken) // Recv knows why
			}
		}
		select {
		case <-l.wake:
		case err := <-broken:
			return peerError(err)
		}
	}
}

// take moves what waits into flight.
func (l *link) take() *peerv1.ProposeRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return nil
	}
	batch := &peerv1.ProposeRequest{}
	n, bytes := 0, 0
	for n < len(l.queue) && n < maxPackedProposals && bytes < maxPackedBytes {
		o := l.queue[n]
		batch.Proposals = append(batch.Proposals, &peerv1.Proposal{
			Id: o.id, Group: o.ref.number, Engine: o.p.class == replication.Engine, Submit: o.p.submit, Commands: o.p.cmds,
		})
		l.inFlight[o.id] = o
		bytes += o.p.size()
		n++
	}
	l.bytes -= bytes
	clear(l.queue[:n])
	l.queue = l.queue[n:]
	return batch
}

func (l *link) receive(stream peerv1.PeerService_ProposeClient) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, a := range m.GetAnswers() {
			l.mu.Lock()
			o := l.inFlight[a.GetId()]
			delete(l.inFlight, a.GetId())
			l.mu.Unlock()
			if o != nil {
				o.take(a)
			}
		}
	}
}

// take hands an answer to whoever waits for it.
func (o *outgoing) take(a *peerv1.ProposalAnswer) {
	if e := a.GetError(); e != nil {
		o.ref.heard(e.GetLeader())
		o.ref.answered(o.p, nil, 0, proposalError(e))
		return
	}
	results := make([]any, len(a.GetResults()))
	for i, r := range a.GetResults() {
		v, err := o.ref.decode(r)
		if err != nil {
			o.ref.answered(o.p, nil, 0, fmt.Errorf("%w: the leader's answer: %w", replication.ErrMaybeAccepted, err))
			return
		}
		results[i] = v
	}
	if len(results) != len(o.p.cmds) {
		o.ref.answered(o.p, nil, 0, fmt.Errorf("%w: %d results for %d commands", replication.ErrMaybeAccepted, len(results), len(o.p.cmds)))
		return
	}
	o.ref.answered(o.p, results, a.GetIndex(), nil)
}

// proposalError turns what the leader said back into the sentinel of the same certainty.
func proposalError(e *peerv1.ProposalError) error {
	var kind error
	switch e.GetAcceptance() {
	case peerv1.ProposalError_ACCEPTANCE_NOT_LEADER:
		return replication.ErrNotLeader
	case peerv1.ProposalError_ACCEPTANCE_TRANSFERRING:
		return replication.ErrTransferring
	case peerv1.ProposalError_ACCEPTANCE_QUEUE_FULL:
		return replication.ErrQueueFull
	case peerv1.ProposalError_ACCEPTANCE_NO_SPACE:
		return ErrNoSpace
	case peerv1.ProposalError_ACCEPTANCE_STOPPED:
		kind = replication.ErrStopped
	case peerv1.ProposalError_ACCEPTANCE_REFUSED:
		kind = replication.ErrInvalid
	default:
		kind = replication.ErrMaybeAccepted
	}
	return fmt.Errorf("%w: %w: %s", kind, ErrPeer, e.GetText())
}

// errorOfProposal is the other direction.
func errorOfProposal(err error, leader string) *peerv1.ProposalError {
	e := &peerv1.ProposalError{Text: err.Error(), Leader: leader}
	switch {
	case errors.Is(err, replication.ErrMaybeAccepted):
		e.Acceptance = peerv1.ProposalError_ACCEPTANCE_MAYBE
	case errors.Is(err, replication.ErrNotLeader):
		e.Acceptance = peerv1.ProposalError_ACCEPTANCE_NOT_LEADER
	case errors.Is(err, replication.ErrTransferring):
		e.Acceptance = peerv1.ProposalError_ACCEPTANCE_TRANSFERRING
	case errors.Is(err, replication.ErrQueueFull):
		e.Acceptance = peerv1.ProposalError_ACCEPTANCE_QUEUE_FULL
	case errors.Is(err, ErrNoSpace):
		e.Acceptance = peerv1.ProposalError_ACCEPTANCE_NO_SPACE
	case errors.Is(err, replication.ErrStopped), errors.Is(err, replication.ErrFailed), errors.Is(err, ErrDraining):
		e.Acceptance = peerv1.ProposalError_ACCEPTANCE_STOPPED
	case replication.NotAccepted(err):
		e.Acceptance = peerv1.ProposalError_ACCEPTANCE_REFUSED
	default:
		e.Acceptance = peerv1.ProposalError_ACCEPTANCE_MAYBE
	}
	return e
}

// peerError keeps the text of another node's error and drops its status, which was not meant for our callers. That time ran out or the caller gave
// up stays what it is.
func peerError(err error) error {
	if err == nil {
		return ErrPeer
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch st.Code() {
	case codes.Canceled:
		return fmt.Errorf("%w: %s", context.Canceled, st.Message())
	case codes.DeadlineExceeded:
		return fmt.Errorf("%w: %s", context.DeadlineExceeded, st.Message())
	}
	return fmt.Errorf("%w: %s: %s", ErrPeer, st.Code(), st.Message())
}

// shardResultOf and its inverse carry a shard's verdict between nodes.
func shardResultOf(r *shard.Result) *peerv1.ShardResult {
	out := &peerv1.ShardResult{
		Generation: r.Ref.Generation, Attempt: r.Attempt, Index: r.Index, Deduplicated: r.Deduplicated, State: uint32(r.State),
		Removed: r.Removed, At: int64(r.At),
	}
	if !r.Ref.ID.IsZero() {
		out.MessageId = r.Ref.ID[:]
	}
	if r.Rejected != nil {
		out.Rejected, out.Field, out.Detail = string(r.Rejected.Reason), r.Rejected.Field, r.Rejected.Detail
	}
	return out
}

func shardResult(m *peerv1.CommandResult) (any, error) {
	in := m.GetShard()
	if in == nil {
		return nil, errors.New("no verdict of a shard")
	}
	r := &shard.Result{
		Attempt: in.GetAttempt(), Index: in.GetIndex(), Deduplicated: in.GetDeduplicated(), State: shard.GenerationState(in.GetState()),
		Removed: in.GetRemoved(), At: stampTime(in.GetAt()),
	}
	r.Ref.Generation = in.GetGeneration()
	if b := in.GetMessageId(); len(b) > 0 {
		if len(b) != len(r.Ref.ID) {
			return nil, fmt.Errorf("message id of %d bytes", len(b))
		}
		copy(r.Ref.ID[:], b)
	}
	if in.GetRejected() != "" {
		r.Rejected = &shard.Rejection{Reason: shard.Reason(in.GetRejected()), Field: in.GetField(), Detail: in.GetDetail()}
	}
	return r, nil
}
