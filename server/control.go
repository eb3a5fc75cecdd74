package server

import (
	"context"
	"fmt"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard/logcodec"
	"github.com/sealane/sealane/storage"
)

// control is the control group on this node: destinations and what the cluster is. It is the group's state machine.
type control struct {
	state *storage.State
	group *replication.Group
	led   chan struct{} // closed when this node leads the control group for the first time
}

func stampTime(unixNanos int64) policy.Time { return policy.Time(unixNanos) }

// Apply runs one entry of the control group's log.
func (c *control) Apply(b *storage.Batch, e replication.Entry) ([]any, error) {
	entry := catalog.Entry{Index: e.Index, Stamp: stampTime(e.Stamp), Commands: make([]catalog.Command, len(e.Commands))}
	for i, raw := range e.Commands {
		cmd, err := logcodec.DecodeCatalog(raw)
		if err != nil {
			return nil, fmt.Errorf("command %d: %w", i, err)
		}
		entry.Commands[i] = cmd
	}
	results, err := catalog.Apply(b, &entry)
	if err != nil {
		return nil, err
	}
	out := make([]any, len(results))
	for i := range results {
		out[i] = &results[i]
	}
	return out, nil
}

// Committed has nothing to hand on: whoever proposed waits for the answer.
func (c *control) Committed(uint64) {}

// Led lets the node go on with its start.
func (c *control) Led(uint64) {
	select {
	case <-c.led:
	default:
		close(c.led)
	}
}

// Deposed needs nothing: proposals fail with ErrNotLeader by themselves.
func (c *control) Deposed() {}

// do proposes one command and returns its verdict.
func (c *control) do(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	b, err := logcodec.AppendCatalog(nil, cmd)
	if err != nil {
		return catalog.Result{}, err
	}
	v, _, err := c.group.Do(ctx, replication.Client, b)
	if err != nil {
		return catalog.Result{}, err
	}
	r := *v.(*catalog.Result)
	return r, r.Err
}
