package shard

import (
	"errors"
	"fmt"

	"github.com/sealane/sealane/policy"
)

// ErrUnknownCommand stops a shard: the entry holds a command this build does not know. It is never skipped (DESIGN 3); run a version that
// knows it.
var ErrUnknownCommand = errors.New("shard: unknown command")

// ErrForeignState is returned when the state belongs to another shard or cluster incarnation.
var ErrForeignState = errors.New("shard: state belongs to another shard or incarnation")

// Machine applies entries for one shard. It keeps only caches of facts that never change once written; everything that decides is in
// the State. Not safe for concurrent use.
type Machine struct {
	shard       uint16
	incarnation uint64

	destinations map[destinationName]*Destination
	lanes        map[laneName]LaneID
	bound        bool
}

type destinationName struct {
	namespace, name string
	version         uint64
}

type laneName struct {
	namespace, destination string
	slot                   uint32
}

// NewMachine returns the machine of one shard of one cluster incarnation.
func NewMachine(shard uint16, incarnation uint64) *Machine {
	m := &Machine{shard: shard, incarnation: incarnation}
	m.Reset()
	return m
}

// Reset forgets every cached fact. Call it when the state was replaced, for example by a snapshot.
func (m *Machine) Reset() {
	m.destinations = make(map[destinationName]*Destination)
	m.lanes = make(map[laneName]LaneID)
	m.bound = false
}

// ApplyEntry runs the entry's commands in order and writes what they change to st, which the caller commits together with the
// entry's index. Results has one item per command. An error means that the shard must stop at this index: the state is corrupt, or
// the entry holds what this build does not know. Whoever gets an error must not commit st.
func (m *Machine) ApplyEntry(st State, e *Entry) (results []Result, effects []Effect, err error) {
	defer func() {
		if err != nil {
			m.Reset() // what the entry taught the caches is not committed
		}
	}()
	t, err := m.begin(st, e)
	if err != nil {
		return nil, nil, err
	}
	results = make([]Result, len(e.Commands))
	for i, c := range e.Commands {
		t.ordinal = uint32(i)
		r, err := t.apply(c)
		if err != nil {
			return nil, nil, fmt.Errorf("index %d, command %d: %w", e.Index, i, err)
		}
		if r.Index == 0 {
			r.Index = e.Index
		}
		r.At = t.now
		results[i] = r
	}
	if err := t.finish(); err != nil {
		return nil, nil, fmt.Errorf("index %d: %w", e.Index, err)
	}
	return results, t.effects, nil
}

// apply is the single dispatch.
func (t *tx) apply(c Command) (Result, error) {
	switch c := c.(type) {
	case *Submit:
		return t.submit(c)
	case *Admit:
		return t.admit(c)
	case *RecordOutcome:
		return t.recordOutcome(c)
	case *Cancel:
		return t.cancel(c)
	case *Reschedule:
		return t.reschedule(c)
	case *InstallDestination:
		return t.installDestination(c)
	case *AttachEvidence:
		return t.attachEvidence(c)
	case *Expire:
		return t.expire(c)
	case *LaneEvent:
		return t.laneEvent(c)
	case *ControlStep:
		return t.controlStep(c)
	case *Trim:
		return t.trim(c)
	case *Tick:
		return Result{}, nil
	case *ExportAdmit, *ExportOutcome:
		return Result{}, fmt.Errorf("%w: kind %d is allotted for exports", ErrUnknownCommand, c.Kind())
	}
	return Result{}, fmt.Errorf("%w: %T", ErrUnknownCommand, c)
}

// tx is the application of one entry: the state, the entry's clamped time, and what was read or is yet to be written.
type tx struct {
	m       *Machine
	st      State
	e       *Entry
	ordinal uint32
	now     policy.Time
	meta    ShardMeta
	effects []Effect

	lanes     map[LaneID]*LaneRecord
	laneOrder []LaneID // lanes in the order of their first use, so that writing back does not follow map order
}

func (m *Machine) begin(st State, e *Entry) (*tx, error) {
	t := &tx{m: m, st: st, e: e, lanes: make(map[LaneID]*LaneRecord, 8), effects: make([]Effect, 0, 2*len(e.Commands))}
	if err := m.bind(st); err != nil {
		return nil, err
	}
	b, ok, err := st.Get(metaKey())
	if err != nil {
		return nil, err
	}
	if ok {
		if t.meta, err = decodeMeta(b); err != nil {
			return nil, err
		}
	} else {
		t.meta.NextLane = 1
	}
	t.now = max(t.meta.Clock, e.Stamp)
	t.meta.Clock = t.now
	return t, nil
}

// bind writes the shard's identity into an empty state and refuses a state of another one.
func (m *Machine) bind(st State) error {
	if m.bound {
		return nil
	}
	e := newRecord(16)
	e.uint(uint64(m.shard))
	e.u64fixed(m.incarnation)
	b, ok, err := st.Get(incarnationKey())
	if err != nil {
		return err
	}
	if ok && string(b) != string(e.b) {
		return fmt.Errorf("%w: this is shard %d of incarnation %016x", ErrForeignState, m.shard, m.incarnation)
	}
	if !ok {
		if err := st.Set(incarnationKey(), e.b); err != nil {
			return err
		}
	}
	m.bound = true
	return nil
}

// finish writes back the records that commands of one entry share.
func (t *tx) finish() error {
	for _, id := range t.laneOrder {
		if err := t.st.Set(laneKey(id), encodeLane(t.lanes[id])); err != nil {
			return err
		}
	}
	return t.st.Set(metaKey(), encodeMeta(&t.meta))
}

func (t *tx) emit(e Effect) {
	e.Owner = t.e.Owner
	e.Index = t.e.Index
	t.effects = append(t.effects, e)
}
