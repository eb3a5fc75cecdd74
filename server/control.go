package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard/logcodec"
	"github.com/sealane/sealane/storage"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
)

// control is the control group on this node: what the cluster is, its nodes, where replicas belong, destinations. Every node has a replica, so
// that each reads from its own state; it is the group's state machine.
type control struct {
	ref     *groupRef
	state   *storage.State
	group   *replication.Group
	changed chan struct{}         // holds one: something was applied
	made    func(catalog.Version) // a version of a destination was made
	took    func(term uint64)     // leadership began
	lost    func()                // leadership ended

	pending []catalog.Version // made and not yet committed; apply goroutine only
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
		if r := &results[i]; r.Changed && r.Version.Version > 0 {
			c.pending = append(c.pending, r.Version)
		}
	}
	return out, nil
}

// Committed hands on what was made and wakes what follows the state.
func (c *control) Committed(uint64) {
	for _, v := range c.pending {
		c.made(v)
	}
	c.pending = c.pending[:0]
	signal(c.changed)
}

// Installed wakes what follows the state. Versions that it brought are found when a leadership begins.
func (c *control) Installed(uint64) {
	c.pending = c.pending[:0]
	signal(c.changed)
}

// Led and Deposed follow the group's leadership.
func (c *control) Led(term uint64) {
	c.ref.term.Store(term)
	c.took(term)
}

// Deposed ends the leadership.
func (c *control) Deposed() {
	c.ref.term.Store(0)
	c.lost()
}

// do proposes one command at the leader and returns its verdict once this node's own state shows it.
func (c *control) do(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	b, err := logcodec.AppendCatalog(nil, cmd)
	if err != nil {
		return catalog.Result{}, err
	}
	v, index, err := c.ref.do(ctx, replication.Engine, b)
	if err != nil {
		return catalog.Result{}, err
	}
	r := *v.(*catalog.Result)
	if r.Err != nil {
		return r, r.Err
	}
	bounded, cancel := context.WithTimeout(ctx, refreshWait)
	defer cancel()
	if err := c.group.WaitApplied(bounded, index); err != nil {
		return r, fmt.Errorf("%w: it is recorded, and this node has not seen it yet: %w", replication.ErrMaybeAccepted, err)
	}
	return r, nil
}

// refreshWait bounds the wait for this node to catch up with the control group's leader.
const refreshWait = 5 * time.Second

// refresh returns once this node's state holds everything that was acknowledged anywhere before the call.
func (c *control) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refreshWait)
	defer cancel()
	index, err := c.ref.readIndex(ctx)
	if err != nil {
		return err
	}
	return c.group.WaitApplied(ctx, index)
}

// catchUpWait bounds catchUp.
const catchUpWait = time.Second

// catchUp brings this node's state up to date for a read, so that what was applied through another node is seen here. Where no leader answers in
// time the read shows what this node has.
func (c *control) catchUp(ctx context.Context) {
	if c.ref.leads() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	if index, err := c.ref.readIndexOnce(ctx); err == nil {
		_ = c.group.WaitApplied(ctx, index) // an old answer is better than none, and this call makes no promise
	}
}

// travelling is a verdict of the control group on its way to another node. Errors are rebuilt there from their sentinel's text.
type travelling struct {
	Result catalog.Result
	Kind   string `json:",omitempty"` // text of the sentinel
	Text   string `json:",omitempty"`
}

func encodeCatalogResult(r *catalog.Result) ([]byte, error) {
	t := travelling{Result: *r}
	if r.Err != nil {
		t.Text, t.Result.Err = r.Err.Error(), nil
		for _, sentinel := range catalog.Errors() {
			if errors.Is(r.Err, sentinel) {
				t.Kind = sentinel.Error()
			}
		}
	}
	return json.Marshal(t)
}

// remoteVerdict is an error of the control group that was decided on another node.
type remoteVerdict struct {
	kind error
	text string
}

func (e *remoteVerdict) Error() string { return e.text }

func (e *remoteVerdict) Unwrap() error { return e.kind }

func catalogResult(m *peerv1.CommandResult) (any, error) {
	var t travelling
	if err := json.Unmarshal(m.GetCatalog(), &t); err != nil {
		return nil, fmt.Errorf("verdict of the control group: %w", err)
	}
	if t.Text == "" {
		return &t.Result, nil
	}
	for _, sentinel := range catalog.Errors() {
		if sentinel.Error() == t.Kind {
			t.Result.Err = &remoteVerdict{sentinel, t.Text}
			return &t.Result, nil
		}
	}
	t.Result.Err = fmt.Errorf("%w: %s", ErrPeer, t.Text)
	return &t.Result, nil
}
