package shardtest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// Model follows a shard from outside and says which rule a step broke. It knows the commands, their verdicts, and what queries return; it
// decides nothing the way the machine does, but keeps the facts that a judgement needs: who was admitted when, what is known of each
// attempt, what is terminal, who holds a key.
type Model struct {
	clock        policy.Time
	destinations map[string][]*shard.Destination // by namespace/name, in the order of their versions
	messages     map[shard.MessageID]*modelMessage
	order        []shard.MessageID // of acceptance
	keys         map[modelKey]shard.MessageID
	paused       map[modelLane]bool
	operations   map[string]modelOperation
	trims        bool // the entry at hand holds a Trim
	broken       []error
}

type modelLane struct {
	namespace, destination string
	slot                   uint32
}

type modelKey struct{ namespace, destination, ordering, idempotency string }

type modelOperation struct {
	hash   [32]byte
	result shard.Result
}

type modelMessage struct {
	submit  *shard.Submit
	lane    modelLane
	index   uint64 // of acceptance
	until   policy.Time
	gens    []*modelGeneration // gens[n-1] is generation n
	removed bool
}

type modelGeneration struct {
	number    uint32
	pinned    *shard.Destination
	request   string // request id of the reschedule that made it
	deliverAt policy.Time
	expireAt  policy.Time
	deadline  policy.Time
	index     uint64
	ordinal   uint32
	state     shard.GenerationState
	attempts  []*modelAttempt
	charged   uint32 // settlements that count towards the budget
	permanent bool   // a settlement said that the receiver refuses for good
	granted   int    // operator's retries not yet used
	touched   bool   // by the entry at hand
	removed   bool
	last      *shard.Generation // as read after the entry before
}

type modelAttempt struct {
	at      policy.Time
	settled bool
	effect  policy.SideEffect
	beside  []policy.SideEffect // what was known of the earlier attempts when it was admitted
	used    uint32              // what of the budget was gone then: settlements that count, and unknown attempts
}

// NewModel returns the model of an empty shard.
func NewModel() *Model {
	return &Model{
		destinations: map[string][]*shard.Destination{}, messages: map[shard.MessageID]*modelMessage{}, keys: map[modelKey]shard.MessageID{},
		paused: map[modelLane]bool{}, operations: map[string]modelOperation{},
	}
}

// Step takes one applied entry, its verdicts and the state after it. The error lists every rule that the step broke.
func (m *Model) Step(e *shard.Entry, results []shard.Result, r shard.Reader) error {
	m.broken, m.trims = nil, false
	m.clock = max(m.clock, e.Stamp)
	if len(results) != len(e.Commands) {
		return fmt.Errorf("%d results for %d commands", len(results), len(e.Commands))
	}
	for i, c := range e.Commands {
		if results[i].At != m.clock {
			m.fail("result %d is of time %d, the shard clock is %d (5)", i, results[i].At, m.clock)
		}
		m.command(e, uint32(i), c, results[i])
	}
	if err := m.compare(r); err != nil {
		return err
	}
	return errors.Join(m.broken...)
}

func (m *Model) fail(format string, args ...any) {
	m.broken = append(m.broken, fmt.Errorf(format, args...))
}

func (m *Model) command(e *shard.Entry, ordinal uint32, c shard.Command, r shard.Result) {
	switch c := c.(type) {
	case *shard.InstallDestination:
		m.install(&c.Destination, r)
	case *shard.Submit:
		m.submit(e, ordinal, c, r)
	case *shard.Cancel:
		m.cancel(c, r)
	case *shard.Reschedule:
		m.reschedule(e, ordinal, c, r)
	case *shard.Admit:
		m.admit(c, r)
	case *shard.RecordOutcome:
		m.outcome(c, r)
	case *shard.AttachEvidence:
		m.evidence(shard.Ref{ID: c.ID, Generation: c.Generation}, c.Attempt, c.SideEffect, policy.MessageRetriable, r)
	case *shard.Expire:
		m.expire(c, r)
	case *shard.ControlStep:
		m.control(c, r)
	case *shard.Trim:
		m.trims = true
	}
}

func (m *Model) install(d *shard.Destination, r shard.Result) {
	if r.Rejected != nil {
		return
	}
	name := d.Namespace + "/" + d.Name
	have := m.destinations[name]
	if slices.ContainsFunc(have, func(v *shard.Destination) bool { return v.Version == d.Version }) {
		return
	}
	c := *d
	have = append(have, &c)
	slices.SortFunc(have, func(a, b *shard.Destination) int { return int(int64(a.Version) - int64(b.Version)) })
	m.destinations[name] = have
}

func (m *Model) newest(namespace, name string) *shard.Destination {
	v := m.destinations[namespace+"/"+name]
	if len(v) == 0 {
		return nil
	}
	return v[len(v)-1]
}

// find returns the message and the generation that a command names, 0 meaning the current one; nil where there is none.
func (m *Model) find(id shard.MessageID, number uint32) (*modelMessage, *modelGeneration) {
	msg := m.messages[id]
	if msg == nil || msg.removed {
		return nil, nil
	}
	if number == 0 {
		number = uint32(len(msg.gens))
	}
	if number > uint32(len(msg.gens)) || msg.gens[number-1].removed {
		return msg, nil
	}
	return msg, msg.gens[number-1]
}

func (msg *modelMessage) current() *modelGeneration { return msg.gens[len(msg.gens)-1] }

func (g *modelGeneration) open() (unknown, inFlight int) {
	for _, a := range g.attempts {
		switch {
		case !a.settled:
			inFlight++
		case a.effect == policy.Unknown:
			unknown++
		}
	}
	return unknown, inFlight
}

// before is the order of generations under one ordering key.
func (g *modelGeneration) before(o *modelGeneration) bool {
	if g.deliverAt != o.deliverAt {
		return g.deliverAt < o.deliverAt
	}
	if g.index != o.index {
		return g.index < o.index
	}
	return g.ordinal < o.ordinal
}

// pending are the generations of a lane that are not terminal.
func (m *Model) pending(l modelLane) (messages int, bytes uint64) {
	for _, id := range m.order {
		msg := m.messages[id]
		if !msg.removed && msg.lane == l && !msg.current().state.Terminal() {
			messages++
			bytes += uint64(len(msg.submit.Payload))
		}
	}
	return messages, bytes
}
