package whole

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// verdict is what a submitter was told.
type verdict uint8

const (
	open     verdict = iota // no verdict: maybe accepted
	accepted                // acknowledged
	refused                 // certainly not accepted
)

// submit is what one submitter knows of one key. Several submits of a key are one entry: from the beginning of the first to the end of the last.
type submit struct {
	key, dest, ordering string
	payload             [32]byte
	deliverAt           time.Time
	began, ended        time.Time
	verdict             verdict
	why                 string
	id, position        string
}

// change is an acknowledged change of one generation: a cancel, or a reschedule that made it.
type change struct {
	kind       string
	id         string
	generation uint32
	request    string
}

// pausing is one acknowledged pause of a destination's lanes, with the positions at which it began and ended in each shard.
type pausing struct {
	dest           string
	began, resumed map[uint32]uint64 // by shard
}

// floor is what a linearizable read has shown of a message: later ones may not show less.
type floor struct {
	generation uint32
	attempts   map[uint32]uint32 // admitted, by generation
	ended      map[uint32]sealanev1.GenerationState_Value
	sides      map[attempt]sealanev1.SideEffect_Value
	duplicate  bool
}

// attempt names one attempt of a message.
type attempt struct{ generation, number uint32 }

// journal is what the clients of a run were told.
type journal struct {
	mu      sync.Mutex
	byKey   map[string]*submit
	ids     []string // acknowledged, in order
	spares  []string // acknowledged registers
	changes []change
	pauses  []pausing
	floors  map[string]*floor
	last    time.Time // when a submit was last acknowledged
}

func newJournal() *journal {
	return &journal{byKey: map[string]*submit{}, floors: map[string]*floor{}}
}

// begin notes that a key is about to be submitted, again perhaps.
func (j *journal) begin(s *submit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.byKey[s.key] == nil {
		s.began = time.Now()
		j.byKey[s.key] = s
	}
}

// end notes a verdict. An acknowledgement of a key counts for ever; a refusal counts only while no earlier submit is open.
func (j *journal) end(r *Run, key string, v verdict, id, position, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.byKey[key]
	s.ended = time.Now()
	switch {
	case s.verdict == accepted && v == accepted:
		if s.id != id || s.position != position {
			r.problem("key %s was acknowledged as %s at %s and as %s at %s", key, s.id, s.position, id, position)
		}
	case s.verdict == accepted && v == refused:
		r.problem("key %s was acknowledged as %s and then refused: %s", key, s.id, why)
	case v == accepted:
		if s.verdict == refused {
			r.trace.note("journal", "key %s was refused (%s) before it was accepted", key, s.why)
		}
		s.verdict, s.id, s.position = accepted, id, position
		if s.dest == spare {
			j.spares = append(j.spares, id) // left to the registers
		} else {
			j.ids = append(j.ids, id)
		}
		j.last = s.ended
	case s.verdict == open:
		s.verdict, s.why = v, why
	}
}

// known are the acknowledged ids, newest last.
func (j *journal) known() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.ids)
}

// all are the acknowledged ids, registers included.
func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Concat(j.ids, j.spares)
}

func (j *journal) changed(c change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.changes = append(j.changes, c)
}

// count counts verdicts.
func (j *journal) count() (acknowledged, refusals, maybes int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.byKey {
		switch s.verdict {
		case accepted:
			acknowledged++
		case refused:
			refusals++
		case open:
			maybes++
		}
	}
	return acknowledged, refusals, maybes
}

// floorOf copies what is known of a message before a read begins.
func (j *journal) floorOf(id string) *floor {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.floors[id]
}

// saw compares a read with what was known before it began, and raises what is known.
func (j *journal) saw(r *Run, before *floor, m *sealanev1.Message) {
	now := &floor{
		generation: m.GetGeneration(), attempts: map[uint32]uint32{}, ended: map[uint32]sealanev1.GenerationState_Value{},
		sides: map[attempt]sealanev1.SideEffect_Value{}, duplicate: m.GetPossibleDuplicate(),
	}
	resolved := map[attempt]bool{}
	for _, g := range m.GetGenerations() {
		now.attempts[g.GetNumber()] = g.GetAttemptsAdmitted()
		if g.GetState() >= sealanev1.GenerationState_DELIVERED {
			now.ended[g.GetNumber()] = g.GetState()
		}
		if int(g.GetAttemptsAdmitted()) != len(g.GetAttempts()) {
			r.problem("%s-%d counts %d attempts and shows %d", m.GetId(), g.GetNumber(), g.GetAttemptsAdmitted(), len(g.GetAttempts()))
		}
		for _, a := range g.GetAttempts() {
			at := attempt{g.GetNumber(), a.GetNumber()}
			now.sides[at] = a.GetSideEffect()
			resolved[at] = len(a.GetResolutions()) > 0
		}
	}
	if before != nil {
		before.compare(r, m.GetId(), now, resolved)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if have := j.floors[m.GetId()]; have == nil || !have.above(now) {
		j.floors[m.GetId()] = now
	}
}

// above tells whether f shows something that other does not: then it is the newer of two reads at the same time.
func (f *floor) above(other *floor) bool {
	if f.generation != other.generation {
		return f.generation > other.generation
	}
	return f.attempts[f.generation] > other.attempts[f.generation]
}

// compare checks that nothing was taken back.
func (f *floor) compare(r *Run, id string, now *floor, resolved map[attempt]bool) {
	if now.generation < f.generation {
		r.problem("%s: generation %d was read, and then %d", id, f.generation, now.generation)
	}
	if f.duplicate && !now.duplicate {
		r.problem("%s: possible_duplicate was taken back", id)
	}
	for g, n := range f.attempts {
		if have, ok := now.attempts[g]; !ok || have < n {
			r.problem("%s-%d: %d attempts were read, and then %d", id, g, n, have)
		}
	}
	for g, state := range f.ended {
		if have := now.ended[g]; have != state {
			late := have == sealanev1.GenerationState_SUPERSEDED
			if !late {
				r.problem("%s-%d had ended as %s, and then was %s", id, g, state, have)
			}
		}
	}
	for at, side := range f.sides {
		have := now.sides[at]
		if have == side || side == sealanev1.SideEffect_SIDE_EFFECT_UNSPECIFIED || resolved[at] {
			continue
		}
		r.problem("%s-%d attempt %d was %s and is %s, without evidence", id, at.generation, at.number, side, have)
	}
}

// positionOf takes a position apart.
func positionOf(text string) (shard uint32, index uint64, err error) {
	head, tail, ok := strings.Cut(text, ":")
	if !ok {
		return 0, 0, fmt.Errorf("%q is no position", text)
	}
	n, err := strconv.ParseUint(head, 10, 32)
	if err != nil {
		return 0, 0, fmt.Errorf("%q is no position", text)
	}
	index, err = strconv.ParseUint(tail, 10, 64)
	return uint32(n), index, err
}
