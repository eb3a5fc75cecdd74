package peer

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Transport is the transport of one group's Raft. Raft's ids and addresses are replica ids. It outlives an instance of Raft: a second one on the
// same transport takes over what comes in.
type Transport struct {
	n        *Network
	group    uint32
	refused  error // if it never was attached
	consumer chan raft.RPC
	inbox    *inbox

	closing   chan struct{}
	once      sync.Once
	delivered chan struct{} // closed when deliver has ended

	mu          sync.Mutex
	interrupted chan struct{} // closed by Interrupt and then made anew
	holdUntil   time.Duration // until when no append waits for a node
}

func newTransport(n *Network, group uint32) *Transport {
	return &Transport{
		n: n, group: group, consumer: make(chan raft.RPC), inbox: newInbox(),
		closing: make(chan struct{}), delivered: make(chan struct{}), interrupted: make(chan struct{}),
	}
}

// Close detaches the group: calls that wait return ErrClosed, and requests from others are answered with ErrUnknownGroup. Close it after Raft.
func (t *Transport) Close() error {
	t.once.Do(func() {
		t.n.detach(t)
		close(t.closing)
	})
	<-t.delivered
	return nil
}

// Interrupt ends the waits of appends for nodes that cannot be reached, and lets none begin for a second. Raft waits for its appends when
// it shuts down, so call this right after asking it to.
func (t *Transport) Interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holdUntil = t.n.now() + interruptHold
	close(t.interrupted)
	t.interrupted = make(chan struct{})
}

func (t *Transport) interruptible() (interrupted <-chan struct{}, held bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.interrupted, t.n.now() < t.holdUntil
}

// Consumer gives the requests of the other replicas.
func (t *Transport) Consumer() <-chan raft.RPC { return t.consumer }

// LocalAddr is this node's replica id.
func (t *Transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.n.opts.Replica) }

// EncodePeer writes a replica id as its bytes.
func (t *Transport) EncodePeer(_ raft.ServerID, address raft.ServerAddress) []byte {
	return []byte(address)
}

// DecodePeer reads what EncodePeer wrote.
func (t *Transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler ignores the handler: it would change Raft's term and state on a goroutine that is not its own, and replicas can
// diverge (hashicorp/raft 695).
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntries sends entries, or a heartbeat, and waits for the answer. Entries beyond maxAppendBytes are cut off in args, so that Raft sees
// what was sent and sends the rest next.
func (t *Transport) AppendEntries(_ raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, answer *raft.AppendEntriesResponse) error {
	if isHeartbeat(args) {
		b := appendAppend(newFrame(128), args)
		return t.call(ClassHeartbeat, to, b, frame{kind: kindAppend}, answer)
	}
	// An append without entries is urgent too: Raft often sends one while others wait for their turn behind it.
	return t.call(ClassAppend, to, encodeAppend(args), frame{kind: kindAppend, urgent: true}, answer)
}

// encodeAppend cuts and encodes an append.
func encodeAppend(args *raft.AppendEntriesRequest) []byte {
	count, size := cutEntries(args.Entries)
	args.Entries = args.Entries[:count]
	return appendAppend(newFrame(128+size), args)
}

// RequestVote asks for a vote.
func (t *Transport) RequestVote(_ raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, answer *raft.RequestVoteResponse) error {
	return t.call(ClassVote, to, appendVote(newFrame(128), args), frame{kind: kindVote, urgent: true}, answer)
}

// RequestPreVote asks whether a vote would be given.
func (t *Transport) RequestPreVote(_ raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, answer *raft.RequestPreVoteResponse) error {
	return t.call(ClassVote, to, appendPreVote(newFrame(128), args), frame{kind: kindPreVote, urgent: true}, answer)
}

// TimeoutNow asks a replica to stand for election at once.
func (t *Transport) TimeoutNow(_ raft.ServerID, to raft.ServerAddress, args *raft.TimeoutNowRequest, answer *raft.TimeoutNowResponse) error {
	return t.call(ClassTransfer, to, appendTimeoutNow(newFrame(128), args), frame{kind: kindTimeoutNow, urgent: true}, answer)
}

// AppendEntriesPipeline makes Raft send one append at a time to each replica of a group. Entries are packed, so a pipeline brings little: on
// loopback and a disk it made no difference beyond the noise at 1 to 1024 callers, for a tenth more processor time with eight groups; with 2 ms
// of round trip it gained a fifth at saturation. It costs more than that: entries that are cut off an append would wait for the next write or
// half a second, as only the single call goes on at once; a pipeline can wedge a follower (hashicorp/raft 612); and a deep one raises
// latency (541).
func (t *Transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// linkTo gives the link to a replica's node.
func (t *Transport) linkTo(to raft.ServerAddress) (*link, error) {
	if t.refused != nil {
		return nil, t.refused
	}
	select {
	case <-t.closing:
		return nil, ErrClosed
	default:
	}
	node := nodeOf(string(to))
	if node == "" || node == AnyNode {
		return nil, fmt.Errorf("%w: %q is not a replica id", ErrIdentity, to)
	}
	return t.n.link(node)
}

// call sends a request and waits for its end.
func (t *Transport) call(class Class, to raft.ServerAddress, b []byte, f frame, into any) error {
	l, err := t.linkTo(to)
	if err != nil {
		return err
	}
	f.group = t.group
	s, err := t.reach(l, class)
	if err != nil {
		return err
	}
	c, err := s.begin(b, f, class, string(to), into)
	if err != nil {
		return err
	}
	select {
	case <-c.done:
		return c.err
	case <-t.closing:
		s.finish(c.number, nil, ErrClosed)
		<-c.done
		return c.err
	}
}

// reach gives a session to a node and waits for one if there is none: votes and heartbeats for as long as an answer may take, appends longer.
func (t *Transport) reach(l *link, class Class) (*session, error) {
	through, patience := l.control, controlTimeout
	interrupted, held := t.interruptible()
	if class == ClassAppend {
		through = l.data
		if patience = min(max(l.awayFor(), reachMin), reachMax); held {
			patience = 0
		}
	}
	if s := through.current(); s != nil {
		return s, nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	return through.wait(timer.C, t.closing, interrupted)
}
