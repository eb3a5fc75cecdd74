package robustness

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// orderedMessage is what the audit keeps of a message with an ordering key.
type orderedMessage struct {
	id       string
	due      time.Time
	index    uint64
	ended    bool
	possible bool // an unknown attempt was given up before it: what follows may overtake (order_after_unknown)
}

// orderedBy keeps a message with an ordering key; the lock is held.
func (a *auditor) orderedBy(id string, m *sealanev1.Message) {
	n := positionIndex(m.GetAcceptedPosition())
	if n == 0 {
		a.report.Wrong = append(a.report.Wrong, fmt.Sprintf("%s: accepted at %q, which is no position", id, m.GetAcceptedPosition()))
		return
	}
	o := orderedMessage{id: id, index: n, due: m.GetAcceptedAt().AsTime()}
	if at := m.GetDeliverAt(); at != nil && at.AsTime().After(o.due) {
		o.due = at.AsTime()
	}
	for _, g := range m.GetGenerations() {
		o.possible = o.possible || g.GetOrderAfterUnknown()
	}
	switch m.GetState() {
	case sealanev1.GenerationState_DELIVERED, sealanev1.GenerationState_DEAD_LETTERED, sealanev1.GenerationState_EXPIRED, sealanev1.GenerationState_CANCELLED:
		o.ended = true
	}
	name := m.GetDestination() + "/" + m.GetOrderingKey()
	a.ordered[name] = append(a.ordered[name], o)
}

// order checks that no message of an ordering key was taken by the receiver before one that stands ahead of it: by (deliver_at, position), each
// waits until the one before has ended. Repeated requests of an unknown attempt may come late; the first that was taken counts.
func (a *auditor) order(seen []Seen) {
	first := map[string]time.Time{}
	for i := range seen {
		s := &seen[i]
		id, _, _ := strings.Cut(s.WebhookID, "-")
		if at, ok := first[id]; s.Took() && (!ok || s.At.Before(at)) {
			first[id] = s.At
		}
	}
	for name, list := range a.ordered {
		slices.SortFunc(list, orderedMessage.compare)
		var newest, newestAhead time.Time // of what was taken so far, and without those that are packed into the same entry
		var before, beforeAhead string
		for i, m := range list {
			if i > 0 && m.compare(list[i-1]) != 0 {
				newestAhead, beforeAhead = newest, before
			}
			at, sent := first[m.id]
			if !sent {
				continue
			}
			if at.Before(newestAhead) && !m.possible {
				a.report.Disorder = append(a.report.Disorder, fmt.Sprintf("%s: %s was taken before %s", name, m.id, beforeAhead))
			}
			if at.After(newest) {
				newest, before = at, m.id
			}
		}
	}
}

// compare orders by (deliver_at, position). Messages of one log entry are equal here: their order inside it is not shown.
func (m orderedMessage) compare(other orderedMessage) int {
	return cmp.Or(m.due.Compare(other.due), cmp.Compare(m.index, other.index))
}
