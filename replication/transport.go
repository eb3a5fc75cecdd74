package replication

import (
	"errors"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// loopback is the transport of a group with one replica: nobody calls, and nobody can be called.
type loopback struct {
	address  raft.ServerAddress
	incoming chan raft.RPC
}

func newLoopback(address raft.ServerAddress) *loopback {
	return &loopback{address: address, incoming: make(chan raft.RPC)}
}

// Consumer gives the channel of incoming calls, which stays empty.
func (t *loopback) Consumer() <-chan raft.RPC { return t.incoming }

// LocalAddr gives this replica's address.
func (t *loopback) LocalAddr() raft.ServerAddress { return t.address }

// AppendEntriesPipeline makes Raft fall back to single calls.
func (t *loopback) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries fails: there are no peers.
func (t *loopback) AppendEntries(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error {
	return ErrNoPeers
}

// RequestVote fails: there are no peers.
func (t *loopback) RequestVote(raft.ServerID, raft.ServerAddress, *raft.RequestVoteRequest, *raft.RequestVoteResponse) error {
	return ErrNoPeers
}

// RequestPreVote fails: there are no peers.
func (t *loopback) RequestPreVote(raft.ServerID, raft.ServerAddress, *raft.RequestPreVoteRequest, *raft.RequestPreVoteResponse) error {
	return ErrNoPeers
}

// InstallSnapshot fails: there are no peers.
func (t *loopback) InstallSnapshot(raft.ServerID, raft.ServerAddress, *raft.InstallSnapshotRequest, *raft.InstallSnapshotResponse, io.Reader) error {
	return ErrNoPeers
}

// TimeoutNow fails: there are no peers.
func (t *loopback) TimeoutNow(raft.ServerID, raft.ServerAddress, *raft.TimeoutNowRequest, *raft.TimeoutNowResponse) error {
	return ErrNoPeers
}

// EncodePeer writes an address as its bytes.
func (t *loopback) EncodePeer(_ raft.ServerID, address raft.ServerAddress) []byte {
	return []byte(address)
}

// DecodePeer reads what EncodePeer wrote.
func (t *loopback) DecodePeer(data []byte) raft.ServerAddress { return raft.ServerAddress(data) }

// SetHeartbeatHandler ignores the handler.
func (t *loopback) SetHeartbeatHandler(func(raft.RPC)) {}

// shield is what Raft gets to see of a transport. It hides Close, since a transport outlives one instance of Raft and belongs to the
// caller, and swallows the heartbeat handler, so that heartbeats take Raft's main loop whatever the transport would do (695). While the log's
// writes hang, it sends nothing that keeps or wins a leadership (503): Raft's heartbeats come from goroutines of their own and would keep a leader
// in office that can write nothing, for as long as its disk hangs. The others elect; what hangs goes on, or fails, when the disk says so.
type shield struct {
	inner   Transport
	stalled func() time.Duration
}

// stallLimit is how long the log's writes may make no progress before this replica falls silent: well above the worst sound fsync.
const stallLimit = 2 * time.Second

// errStalled is what Raft's calls get meanwhile; only its log shows it.
var errStalled = errors.New("replication: the log's disk hangs here, so nothing is sent")

func (s shield) hangs() error {
	if s.stalled != nil && s.stalled() > stallLimit {
		return errStalled
	}
	return nil
}

func (s shield) Consumer() <-chan raft.RPC          { return s.inner.Consumer() }
func (s shield) LocalAddr() raft.ServerAddress      { return s.inner.LocalAddr() }
func (s shield) SetHeartbeatHandler(func(raft.RPC)) {}

func (s shield) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	return s.inner.AppendEntriesPipeline(id, to)
}

func (s shield) AppendEntries(id raft.ServerID, to raft.ServerAddress, in *raft.AppendEntriesRequest, out *raft.AppendEntriesResponse) error {
	if err := s.hangs(); err != nil {
		return err
	}
	return s.inner.AppendEntries(id, to, in, out)
}

func (s shield) RequestVote(id raft.ServerID, to raft.ServerAddress, in *raft.RequestVoteRequest, out *raft.RequestVoteResponse) error {
	if err := s.hangs(); err != nil {
		return err
	}
	return s.inner.RequestVote(id, to, in, out)
}

func (s shield) RequestPreVote(id raft.ServerID, to raft.ServerAddress, in *raft.RequestPreVoteRequest, out *raft.RequestPreVoteResponse) error {
	if err := s.hangs(); err != nil {
		return err
	}
	return s.inner.RequestPreVote(id, to, in, out)
}

func (s shield) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, in *raft.InstallSnapshotRequest, out *raft.InstallSnapshotResponse, data io.Reader) error {
	return s.inner.InstallSnapshot(id, to, in, out, data)
}

func (s shield) TimeoutNow(id raft.ServerID, to raft.ServerAddress, in *raft.TimeoutNowRequest, out *raft.TimeoutNowResponse) error {
	return s.inner.TimeoutNow(id, to, in, out)
}

func (s shield) EncodePeer(id raft.ServerID, address raft.ServerAddress) []byte {
	return s.inner.EncodePeer(id, address)
}

func (s shield) DecodePeer(data []byte) raft.ServerAddress { return s.inner.DecodePeer(data) }
