package replication

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// A replica whose disk hangs sends nothing that keeps or wins a leadership, and goes on when the disk does. Without the question in shield a
// leader with a hanging disk stays in office (503).
func TestStalledLogFallsSilent(t *testing.T) {
	stalled := time.Duration(0)
	s := shield{newLoopback("n1"), func() time.Duration { return stalled }}
	calls := map[string]func() error{
		"append": func() error {
			return s.AppendEntries("n2", "n2", &raft.AppendEntriesRequest{}, &raft.AppendEntriesResponse{})
		},
		"vote": func() error {
			return s.RequestVote("n2", "n2", &raft.RequestVoteRequest{}, &raft.RequestVoteResponse{})
		},
		"pre-vote": func() error {
			return s.RequestPreVote("n2", "n2", &raft.RequestPreVoteRequest{}, &raft.RequestPreVoteResponse{})
		},
	}
	for name, call := range calls {
		for _, c := range []struct {
			stalled time.Duration
			want    error
		}{{0, ErrNoPeers}, {stallLimit, ErrNoPeers}, {stallLimit + 1, errStalled}, {0, ErrNoPeers}} {
			if stalled = c.stalled; !errors.Is(call(), c.want) {
				t.Errorf("%s with a log stalled for %s: %v, want %v", name, c.stalled, call(), c.want)
			}
		}
	}
}
