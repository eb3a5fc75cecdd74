package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// TransferLeadership stops accepting proposals, lets those under way finish, and asks the most advanced other voter to take over; if that fails,
// each remaining one in turn, since Raft's choice may be one that is down. On success this replica no longer leads; Deposed follows. Errors:
// ErrNotLeader, ErrTransferring (one is running), ErrNoTransferTarget, ErrTransferFailed (this replica may go on leading), ErrStopped, the
// context's (the transfer may still happen).
func (g *Group) TransferLeadership(ctx context.Context) error {
	voters, self := g.voters()
	if g.led.Load() != nil && (voters == 0 || (self && voters == 1)) {
		return ErrNoTransferTarget
	}
	return g.transfer(ctx, "")
}

// TransferLeadershipTo is TransferLeadership to one voter, by replica id. It should be as far as this replica, or nearly: proposals wait elsewhere
// while it catches up, and if it does not within an election timeout the transfer fails. If id is this replica and it leads, nothing happens.
// Errors as there; ErrNoTransferTarget if id is no voter of the configuration.
func (g *Group) TransferLeadershipTo(ctx context.Context, id string) error {
	if g.led.Load() == nil {
		return ErrNotLeader
	}
	if !g.isVoter(id) {
		return fmt.Errorf("%w: %q is not a voter", ErrNoTransferTarget, id)
	}
	if id == g.opts.ReplicaID {
		return nil
	}
	return g.transfer(ctx, id)
}

func (g *Group) isVoter(id string) bool {
	for _, s := range g.current().GetConfiguration().Configuration().Servers {
		if string(s.ID) == id {
			return s.Suffrage == raft.Voter
		}
	}
	return false
}

// transfer keeps proposals out while leadership moves to the voter to, or to any if to is empty.
func (g *Group) transfer(ctx context.Context, to string) error {
	g.gate.Lock()
	if g.led.Load() == nil {
		g.gate.Unlock()
		return ErrNotLeader
	}
	if g.transferring {
		g.gate.Unlock()
		return ErrTransferring
	}
	g.transferring = true
	waiting := g.queue.refuse(ErrTransferring, false)
	g.gate.Unlock()
	waiting.answer()
	defer func() {
		g.gate.Lock()
		g.transferring = false
		g.gate.Unlock()
		g.wakeSupervisor()
	}()
	err := g.handOver(ctx, to)
	if err == nil {
		g.transfers.Add(1)
	} else {
		g.failedTransfers.Add(1)
	}
	return err
}

// handOver lets what is under way finish and tries the candidates.
func (g *Group) handOver(ctx context.Context, to string) error {
	candidates := []string{to}
	if to == "" {
		members, _ := g.Members()
		for _, m := range members {
			if m.Voter && m.ID != g.opts.ReplicaID {
				candidates = append(candidates, m.ID)
			}
		}
	}
	var err error
	for _, id := range candidates {
		held, ok := g.proposer.drain(ctx.Done(), g.stop)
		if !ok {
			return errors.Join(ErrTransferFailed, err, ctx.Err())
		}
		var future raft.Future
		if id == "" {
			future = g.current().LeadershipTransfer()
		} else {
			future = g.current().LeadershipTransferToServer(raft.ServerID(id), raft.ServerAddress(id))
		}
		g.proposer.giveBack(held)
		if err = g.handedOver(ctx, future); err == nil || !errors.Is(err, ErrTransferFailed) || g.led.Load() == nil {
			return err
		}
	}
	return err
}

// handedOver waits for the end of one transfer.
func (g *Group) handedOver(ctx context.Context, future raft.Future) error {
	outcome := make(chan error, 1)
	go func() { outcome <- future.Error() }()
	select {
	case err := <-outcome:
		if err != nil {
			return fmt.Errorf("%w: %w", ErrTransferFailed, err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-g.stop:
		return ErrStopped
	}
}
