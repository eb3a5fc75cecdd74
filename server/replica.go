package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/server/fault"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/host"
	"github.com/sealane/sealane/shard/logcodec"
	"github.com/sealane/sealane/storage"
)

// replica is one shard on this node: its replication group, the machine that gives entries their meaning, and the host that delivers
// while this node leads. It is the group's state machine.
type replica struct {
	shard   uint16
	ref     *groupRef
	state   *storage.State
	machine *shard.Machine
	host    *host.Host
	group   *replication.Group
	unplug  func() error // takes the closed group off the peers, so that it can be opened again
	watch   *watchers
	metrics *metrics
	took    func(*replica) // a leadership began

	circuits circuits // phases seen so far; apply goroutine only

	pending []shard.Effect // of entries applied and not yet committed; apply goroutine only
}

// groupOf is the number of a shard's group in the store; 0 is the control group.
func groupOf(shardNumber uint16) uint32 { return uint32(shardNumber) + 1 }

const controlGroup = 0

// Apply runs one entry. Commands that do not decode stop the shard: they were written by what this build does not know.
func (r *replica) Apply(b *storage.Batch, e replication.Entry) ([]any, error) {
	fault.Stall(fault.PointApply)
	entry := shard.Entry{
		Index: e.Index, Stamp: stampTime(e.Stamp), Owner: shard.Epoch{Node: e.NodeID, Boot: e.BootID, Term: e.Term},
		Commands: make([]shard.Command, len(e.Commands)),
	}
	for i, c := range e.Commands {
		cmd, err := logcodec.Decode(c)
		if err != nil {
			return nil, fmt.Errorf("command %d: %w", i, err)
		}
		entry.Commands[i] = cmd
	}
	results, effects, err := r.machine.ApplyEntry(b, &entry)
	if err != nil {
		return nil, err
	}
	r.pending = append(r.pending, effects...)
	out := make([]any, len(results))
	for i := range results {
		out[i] = &results[i]
	}
	return out, nil
}

// Committed hands the effects on: what they speak of is visible in the state now. Followers do so too: their host may have requests in
// flight of a term that is over, and their watchers wait. Only the leader counts, so that sums over nodes are right.
func (r *replica) Committed(uint64) {
	effects := r.pending
	if len(effects) == 0 {
		return
	}
	r.pending = make([]shard.Effect, 0, len(effects))
	if r.leading() {
		r.metrics.count(effects)
		r.circuits.observe(r.metrics, r.state, effects)
	}
	r.watch.notify(effects)
	fault.Stall(fault.PointEffects)
	r.host.Effects(effects)
}

// Installed drops what was derived from a state that another replica's has replaced.
func (r *replica) Installed(uint64) {
	r.pending = nil
	r.circuits = circuits{}
	r.watch.all()
}

// Led and Deposed follow the group's leadership.
func (r *replica) Led(term uint64) {
	r.ref.term.Store(term)
	r.host.Lead(term)
	r.took(r)
}

// Deposed ends the leadership.
func (r *replica) Deposed() {
	r.ref.term.Store(0)
	r.host.Depose()
}

func (r *replica) leading() bool { return r.ref.leads() }

// stillLeads is asked at the send gate.
func (r *replica) stillLeads(term uint64) bool {
	fault.Stall(fault.PointGate)
	return r.ref.term.Load() == term
}

func (r *replica) close(ctx context.Context) error {
	return errors.Join(r.host.Close(), r.group.Close(ctx), r.unplug())
}

// snapshot is a view of the shard's state that does not move while several keys are read.
func (r *replica) snapshot() (shard.Reader, func()) {
	s := r.state.NewSnapshot()
	return s, func() { _ = s.Close() }
}

// Reader is the shard's committed state, for the host and for queries.
func (r *replica) Reader() shard.Reader { return r.state }

// Propose is the host's log. A host that leads proposes here; one that was deposed has outcomes of its requests left, and hands them to the
// leader, wherever that is (DESIGN 4).
func (r *replica) Propose(cmds []shard.Command, class host.Class, done func([]shard.Result, error)) error {
	encoded := make([][]byte, len(cmds))
	for i, c := range cmds {
		b, err := logcodec.Append(nil, c)
		if err != nil {
			return err
		}
		encoded[i] = b
	}
	to := replication.Engine
	if class == host.ClassAdmission {
		to = replication.Client
	}
	answer := func(results []any, _ uint64, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		out := make([]shard.Result, len(results))
		for i, v := range results {
			out[i] = *v.(*shard.Result)
		}
		done(out, nil)
	}
	fault.Stall(fault.PointPropose)
	if r.leading() {
		return r.group.ProposeVector(context.Background(), to, encoded, answer)
	}
	if class == host.ClassAdmission {
		return replication.ErrNotLeader
	}
	r.ref.propose(&proposal{class: to, cmds: encoded, until: time.Now().Add(holdFor), done: answer})
	return nil
}

// NotAccepted tells certain refusals from maybes.
func (r *replica) NotAccepted(err error) bool { return notAccepted(err) }
