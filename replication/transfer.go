package replication

import (
	"context"
	"errors"
	"fmt"
)

// TransferLeadership stops accepting proposals, lets those under way finish, and asks another voter to take over. On success this
// replica no longer leads; Deposed follows. Errors: ErrNotLeader, ErrTransferring (one is running), ErrNoTransferTarget,
// ErrTransferFailed (this replica may go on leading), the context's (the transfer may still happen).
func (g *Group) TransferLeadership(ctx context.Context) error {
	if g.led.Load() == nil {
		return ErrNotLeader
	}
	if voters, self := g.voters(); voters == 0 || (self && voters == 1) {
		return ErrNoTransferTarget
	}
	g.gate.Lock()
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

	held, ok := g.proposer.drain(ctx.Done(), g.stop)
	if !ok {
		return errors.Join(ErrTransferFailed, ctx.Err())
	}
	outcome := make(chan error, 1)
	future := g.current().LeadershipTransfer()
	g.proposer.giveBack(held)
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
