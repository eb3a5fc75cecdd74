package server

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sealane/sealane/replication"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
)

// noWay is a group that nobody leads.
func noWay(err error) *groupRef {
	g := &groupRef{number: 1, self: "n1", links: func(string) (*link, error) { return nil, err }, decode: shardResult}
	g.heard("n2")
	return g
}

// What certainly was not accepted is tried again until its time is over, and then told as what it is: not accepted.
func TestProposalsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := noWay(errors.New("no road"))
		began := time.Now()
		_, _, err := g.do(t.Context(), replication.Client, []byte("c"))
		if !errors.Is(err, ErrLeaderUnreachable) || !notAccepted(err) {
			t.Errorf("%v, want ErrLeaderUnreachable, certain", err)
		}
		if waited := time.Since(began); waited < holdFor || waited > holdFor+time.Second {
			t.Errorf("held for %s, want about %s", waited, holdFor)
		}
		// A caller that gives up earlier is told that it may have been accepted: the proposal is still on its way.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := g.do(ctx, replication.Client, []byte("c")); err == nil {
			t.Error("no error from a group without a leader")
		}
		synctest.Wait()
	})
}

// What may have been accepted is never tried again by us.
func TestMaybeIsNotHeld(t *testing.T) {
	for _, err := range []error{
		replication.ErrMaybeAccepted, fmt.Errorf("%w: %w", replication.ErrMaybeAccepted, replication.ErrNotLeader), replication.ErrQueueFull,
		replication.ErrStopped, ErrNoSpace,
	} {
		if worthHolding(err) {
			t.Errorf("%v would be tried again", err)
		}
	}
	for _, err := range []error{replication.ErrNotLeader, replication.ErrTransferring, ErrLeaderUnreachable} {
		if !worthHolding(err) {
			t.Errorf("%v would not be tried again", err)
		}
	}
}

// Held proposals are bounded in number and bytes; what does not fit is told at once, and closing tells the rest.
func TestHeldProposalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := noWay(errors.New("no road"))
		var refused, ended atomic.Int64
		propose := func(bytes int) {
			g.propose(&proposal{cmds: [][]byte{make([]byte, bytes)}, until: time.Now().Add(time.Hour), done: func(_ []any, _ uint64, err error) {
				if errors.Is(err, ErrDraining) {
					ended.Add(1)
					return
				}
				refused.Add(1)
			}})
		}
		for range maxHeld + 10 {
			propose(1)
		}
		if refused.Load() != 10 || g.waiting() != maxHeld {
			t.Errorf("%d refused and %d held, want 10 and %d", refused.Load(), g.waiting(), maxHeld)
		}
		g.close()
		if ended.Load() != maxHeld || g.waiting() != 0 {
			t.Errorf("%d were told of the end, want %d", ended.Load(), maxHeld)
		}
		synctest.Wait()
		h := noWay(errors.New("no road"))
		g = h
		propose(maxHeldBytes)
		propose(1)
		if refused.Load() != 11 {
			t.Error("bytes held are not bounded")
		}
		h.close()
		time.Sleep(time.Second)
	})
}

// The certainty of an answer survives the way between nodes, whatever it is.
func TestCertaintyTravels(t *testing.T) {
	for _, err := range []error{
		replication.ErrNotLeader, replication.ErrTransferring, replication.ErrQueueFull, replication.ErrStopped, replication.ErrFailed,
		replication.ErrInvalid, ErrNoSpace, ErrDraining, replication.ErrMaybeAccepted, errors.New("anything"),
		fmt.Errorf("%w: %w", replication.ErrMaybeAccepted, replication.ErrNotLeader),
	} {
		there := proposalError(errorOfProposal(err, "n3"))
		if notAccepted(there) != notAccepted(err) {
			t.Errorf("%v (certain: %v) arrives as %v (certain: %v)", err, notAccepted(err), there, notAccepted(there))
		}
	}
	if e := errorOfProposal(replication.ErrNotLeader, "n3"); e.GetLeader() != "n3" || e.GetAcceptance() != peerv1.ProposalError_ACCEPTANCE_NOT_LEADER {
		t.Errorf("the leader is not named: %v", e)
	}
}
