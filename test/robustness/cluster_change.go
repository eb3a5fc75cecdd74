package robustness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// ErrOperation: a cluster operation did not come to the end it should. The text says which and why.
var ErrOperation = errors.New("robustness: operation")

// dial finds the member by its address, and enters its namespace.
func (c *Cluster) dial(ctx context.Context, address string) (net.Conn, error) {
	c.mu.Lock()
	var site *Site
	for _, m := range c.all {
		if m.Site.GRPC == address || m.Site.HTTP == address {
			site = m.Site
		}
	}
	c.mu.Unlock()
	if site == nil {
		return nil, fmt.Errorf("no node has the address %s", address)
	}
	return site.Dial(ctx, address)
}

// Join makes a new node and lets it join through a member that runs.
func (c *Cluster) Join(ctx context.Context, id string) (*Member, error) {
	via := c.anyRunning()
	if via == nil {
		return nil, errors.New("no node runs that another could join")
	}
	m, err := c.place(id)
	if err != nil {
		return nil, err
	}
	if err := c.equip(m, "--join", via.Site.Peer); err != nil {
		return nil, err
	}
	if err := c.Launch(m); err != nil {
		return nil, err
	}
	return m, m.Ready(ctx)
}

func (c *Cluster) anyRunning() *Member {
	for _, m := range c.Members() {
		if m.Running() {
			return m
		}
	}
	return nil
}

// Wipe removes the data of a node that does not run.
func (c *Cluster) Wipe(m *Member) error {
	if m.Running() {
		return fmt.Errorf("%s still runs", m.ID)
	}
	return os.RemoveAll(m.Dir)
}

// Operate registers a cluster operation and waits until it is done. It is repeated under its id while nobody answers.
func (c *Cluster) Operate(ctx context.Context, reason string, fill func(*sealanev1.CreateOperationRequest)) (*sealanev1.Operation, error) {
	q := &sealanev1.CreateOperationRequest{OperationId: fmt.Sprintf("test-%d-%d", os.Getpid(), c.seq.Add(1)), Reason: reason}
	fill(q)
	registered := false
	var last error
	for {
		for _, m := range c.Members() {
			if !m.Running() {
				continue
			}
			op, err := operate(ctx, m, q, registered)
			if err != nil {
				last = fmt.Errorf("%s: %w", m.ID, err)
				continue
			}
			registered = true
			switch op.GetState() {
			case sealanev1.OperationState_COMPLETED:
				return op, nil
			case sealanev1.OperationState_COMPLETED_WITH_OUTSTANDING, sealanev1.OperationState_REJECTED, sealanev1.OperationState_CANCELLED:
				return op, fmt.Errorf("%w: %s: %s: %s", ErrOperation, reason, op.GetState(), op)
			}
			last = fmt.Errorf("it is %s: %s", op.GetState(), op)
			break
		}
		if !pause(ctx, 100*time.Millisecond) {
			return nil, fmt.Errorf("%w: %s: %w; last: %v", ErrOperation, reason, ctx.Err(), last)
		}
	}
}

// operate asks one node once: to register the operation, or for its state.
func operate(ctx context.Context, m *Member, q *sealanev1.CreateOperationRequest, registered bool) (*sealanev1.Operation, error) {
	call, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if !registered {
		r, err := m.Control().CreateOperation(call, q)
		return r.GetOperation(), err
	}
	r, err := m.Control().GetOperation(call, &sealanev1.GetOperationRequest{Id: q.OperationId})
	return r.GetOperation(), err
}

// Transfer moves a shard's leadership; an empty id leaves the choice to the shard.
func (c *Cluster) Transfer(ctx context.Context, shard uint32, to string) error {
	_, err := c.Operate(ctx, "transfer", func(q *sealanev1.CreateOperationRequest) {
		q.Parameters = &sealanev1.CreateOperationRequest_TransferLeadership{TransferLeadership: &sealanev1.TransferLeadership{Shard: shard, ToNodeId: to}}
	})
	return err
}

// Remove takes a node out of the cluster; gone says that it will never come back.
func (c *Cluster) Remove(ctx context.Context, id string, gone bool) error {
	_, err := c.Operate(ctx, "remove "+id, func(q *sealanev1.CreateOperationRequest) {
		q.Parameters = &sealanev1.CreateOperationRequest_RemoveNode{RemoveNode: &sealanev1.RemoveNode{NodeId: id, Gone: gone}}
	})
	return err
}

// Drain moves leaderships off a node, Activate lets it lead again.
func (c *Cluster) Drain(ctx context.Context, id string) error {
	_, err := c.Operate(ctx, "drain "+id, func(q *sealanev1.CreateOperationRequest) {
		q.Parameters = &sealanev1.CreateOperationRequest_DrainNode{DrainNode: &sealanev1.DrainNode{NodeId: id}}
	})
	return err
}

// Activate undoes Drain.
func (c *Cluster) Activate(ctx context.Context, id string) error {
	_, err := c.Operate(ctx, "activate "+id, func(q *sealanev1.CreateOperationRequest) {
		q.Parameters = &sealanev1.CreateOperationRequest_ActivateNode{ActivateNode: &sealanev1.ActivateNode{NodeId: id}}
	})
	return err
}

// Move moves a replica of a shard.
func (c *Cluster) Move(ctx context.Context, shard uint32, from, to string) error {
	_, err := c.Operate(ctx, fmt.Sprintf("move shard %d", shard), func(q *sealanev1.CreateOperationRequest) {
		q.Parameters = &sealanev1.CreateOperationRequest_MoveReplica{MoveReplica: &sealanev1.MoveReplica{Shard: shard, FromNodeId: from, ToNodeId: to}}
	})
	return err
}

// VerifyDigests compares the state of all replicas of all shards.
func (c *Cluster) VerifyDigests(ctx context.Context) (*sealanev1.Operation, error) {
	return c.Operate(ctx, "verify digests", func(q *sealanev1.CreateOperationRequest) {
		q.Parameters = &sealanev1.CreateOperationRequest_VerifyDigests{VerifyDigests: &sealanev1.VerifyDigests{}}
	})
}
