package replication

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
)

// applied is what the state machine side hands back to Raft for one entry; the answerer receives it from the entry's future.
type applied struct {
	results []any
	err     error
}

// resultsOf unpacks the response of an apply future. An error here means that the entry is in the log, but has no verdict on this replica.
func resultsOf(response any) ([]any, error) {
	a, ok := response.(*applied)
	if !ok {
		return nil, maybeAccepted(fmt.Errorf("raft answered %T", response))
	}
	if a.err != nil {
		return nil, maybeAccepted(a.err)
	}
	return a.results, nil
}

// fsm joins Raft to the StateMachine. Raft calls ApplyBatch, Snapshot and Restore on one goroutine; that goroutine owns all plain fields.
type fsm struct {
	machine  StateMachine
	state    *storage.State
	store    *storage.Store
	snaps    *snapshots
	ctx      context.Context // ends when the group stops; bounds flushes
	watch    Observer
	index    *appliedIndex
	members  configurations // committed, as far as entries and installs have told
	digests  digests
	installs atomic.Uint64
	term     atomic.Uint64 // term of the newest command entry applied; 0 before the first of this process
	onTerm   func()        // called after term has changed
	onFail   func(error)   // called once, when stopped is set
	onGrow   func()        // called when the log has grown enough for a snapshot

	applied  uint64 // in the state, committed
	stopped  error  // set for ever at the first entry that could not be applied
	entry    Entry  // decoding target, reused
	logBytes uint64 // since the last snapshot, replayed entries included
	logCount uint64
	maxBytes uint64
	maxCount uint64
	grown    atomic.Bool // onGrow was called and no snapshot followed yet
}

// run is the state of one ApplyBatch: the open storage batch and what it holds.
type run struct {
	batch    *storage.Batch
	index    uint64 // newest entry in batch
	term     uint64 // term of the newest command entry in batch; 0 if none
	entries  int
	commands int
	began    time.Time
	first    int     // position in logs of the first entry in batch
	mark     *digest // the digest mark that ends batch; nil if none
}

// ApplyBatch applies committed entries in order, in as few storage batches as their size allows.
func (m *fsm) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	answers := make([]applied, len(logs))
	for i := range logs {
		out[i] = &answers[i]
	}
	var r run
	defer func() {
		if r.batch != nil {
			r.batch.Close()
		}
	}()
	for i, l := range logs {
		if m.stopped != nil {
			answers[i].err = m.stopped
			continue
		}
		if l.Type == raft.LogConfiguration {
			m.members.set(raft.DecodeConfiguration(l.Data), l.Index)
		}
		m.logBytes += uint64(len(l.Data))
		m.logCount++
		if l.Index <= m.applied {
			answers[i].err = errAlreadyApplied // nobody waits: Raft replays these after a restart
			continue
		}
		results, err := m.applyOne(&r, i, l)
		if err == nil {
			answers[i].results = results
			if r.mark != nil || r.batch.Bytes() >= applyBatchBytes {
				err = m.commit(&r)
			}
		}
		if err != nil {
			m.halt(&r, answers[:i+1], err)
		}
	}
	if m.stopped == nil {
		if err := m.commit(&r); err != nil {
			m.halt(&r, answers, err)
		}
	}
	m.checkGrowth()
	return out
}

// applyOne adds one entry to the open batch, opening it if needed.
func (m *fsm) applyOne(r *run, position int, l *raft.Log) ([]any, error) {
	if l.Type == raft.LogCommand {
		if err := decodeEntry(l.Data, &m.entry); err != nil {
			// What came before is sound: keep it, so that the state stands exactly below the unreadable entry.
			if cerr := m.commit(r); cerr != nil {
				return nil, cerr
			}
			r.first = position
			return nil, fmt.Errorf("index %d term %d: %w", l.Index, l.Term, err)
		}
	}
	if r.batch == nil {
		r.batch, r.began, r.first = m.state.NewBatch(), time.Now(), position
	}
	var results []any
	switch {
	case l.Type != raft.LogCommand:
	case m.entry.Digest != 0:
		r.mark = m.digests.announce(l.Index)
		r.term = l.Term
	default:
		m.entry.Index, m.entry.Term = l.Index, l.Term
		var err error
		if results, err = m.machine.Apply(r.batch, m.entry); err != nil {
			return nil, fmt.Errorf("index %d term %d: %w", l.Index, l.Term, err)
		}
		if len(results) != len(m.entry.Commands) {
			return nil, fmt.Errorf("index %d term %d: state machine gave %d results for %d commands", l.Index, l.Term,
				len(results), len(m.entry.Commands))
		}
		r.term = l.Term
		r.commands += len(results)
	}
	r.batch.SetApplied(l.Index)
	r.index = l.Index
	r.entries++
	return results, nil
}

// commit makes the open batch visible and tells the machine and the waiters, in this order.
func (m *fsm) commit(r *run) error {
	if r.batch == nil {
		return nil
	}
	bytes := r.batch.Bytes()
	err := r.batch.Commit()
	r.batch.Close()
	r.batch = nil
	if err != nil {
		return fmt.Errorf("commit up to index %d: %w", r.index, err)
	}
	m.applied = r.index
	if r.mark != nil {
		m.digests.take(r.mark, m.state)
	}
	m.machine.Committed(r.index)
	m.watch.BatchApplied(r.entries, r.commands, bytes, time.Since(r.began))
	m.index.publish(r.index)
	if r.term != 0 && m.term.Swap(r.term) != r.term {
		m.onTerm()
	}
	*r = run{}
	return nil
}

// halt stops the group below the entry that failed. Entries of the discarded batch have no verdict here.
func (m *fsm) halt(r *run, answers []applied, cause error) {
	m.stopped = fmt.Errorf("%w at applied index %d: %w", ErrFailed, m.applied, cause)
	if r.batch != nil {
		r.batch.Close()
		r.batch = nil
	}
	for i := r.first; i < len(answers); i++ {
		if answers[i].err == nil {
			answers[i] = applied{err: m.stopped}
		}
	}
	m.onFail(m.stopped)
}

// jumped is called by Restore once an installed state is visible: it stands at applied and came with a configuration. It may be called again
// for the same state. Everything that this replica derived from the state before is brought in line, the machine's last.
func (m *fsm) jumped(applied uint64, configuration raft.Configuration, configurationIndex uint64) {
	m.digests.jumped(m.applied, applied)
	m.members.set(configuration, configurationIndex)
	m.applied = applied
	m.installs.Add(1)
	m.machine.Installed(applied)
	m.index.publish(applied)
}

// checkGrowth asks for a snapshot once the log has grown enough.
func (m *fsm) checkGrowth() {
	if (m.logBytes >= m.maxBytes || m.logCount >= m.maxCount) && m.stopped == nil && m.grown.CompareAndSwap(false, true) {
		m.onGrow()
	}
}

// Apply is required by raft.FSM. Raft never calls it, because ApplyBatch exists.
func (m *fsm) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// Snapshot captures only how far the state is: the state itself is on disk already.
func (m *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if m.stopped != nil {
		return nil, m.stopped // Raft believes that the failed entry was applied; its log must stay
	}
	m.logBytes, m.logCount = 0, 0
	return &marker{ctx: m.ctx, applied: m.applied, store: m.store, state: m.state}, nil
}

// Restore is called only after a peer has handed over a whole state, which Raft wrote to the sink (snapshot.go).
func (m *fsm) Restore(source io.ReadCloser) error {
	if err := source.Close(); err != nil {
		return err
	}
	if m.stopped != nil {
		return m.stopped
	}
	return m.install()
}
