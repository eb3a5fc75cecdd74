package whole

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// changes checks that what clients were told about cancels and reschedules is what the ledger says.
func (a *audit) changes() {
	for _, c := range a.r.journal.changes {
		m := a.messages[c.id]
		if m == nil || int(c.generation) > len(m.GetGenerations()) {
			a.r.problem("LOST: %s of %s-%d was acknowledged, and the ledger has no such generation", c.kind, c.id, c.generation)
			continue
		}
		g := m.GetGenerations()[c.generation-1]
		switch {
		case c.kind == "cancel" && (g.GetState() != sealanev1.GenerationState_CANCELLED || len(g.GetAttempts()) > 0 && lastOpen(g)):
			a.r.problem("%s-%d was cancelled for its client and is %s", c.id, c.generation, g.GetState())
		case c.kind == "reschedule" && g.GetOriginId() != c.request:
			a.r.problem("%s-%d was made by %q for its client, the ledger says %q", c.id, c.generation, c.request, g.GetOriginId())
		}
	}
}

// lastOpen tells whether a generation's last attempt can have taken effect: what was cancelled in time cannot.
func lastOpen(g *sealanev1.Generation) bool {
	return g.GetAttempts()[len(g.GetAttempts())-1].GetSideEffect() == sealanev1.SideEffect_PUBLISHED
}

// positions checks that the log's order is the order of time: a submit that began after another was acknowledged stands behind it.
func (a *audit) positions() {
	type point struct {
		began, ended time.Time
		index        uint64
		key          string
	}
	byShard := map[uint32][]point{}
	for _, s := range a.r.journal.byKey {
		if s.verdict != accepted {
			continue
		}
		shard, index, err := positionOf(s.position)
		if err != nil {
			a.r.problem("%s: %v", s.key, err)
			continue
		}
		byShard[shard] = append(byShard[shard], point{s.began, s.ended, index, s.key})
	}
	for shard, list := range byShard {
		byEnd := slices.Clone(list)
		slices.SortFunc(byEnd, func(x, y point) int { return x.ended.Compare(y.ended) })
		slices.SortFunc(list, func(x, y point) int { return x.began.Compare(y.began) })
		var newest point
		next := 0
		for _, p := range list {
			for next < len(byEnd) && byEnd[next].ended.Before(p.began) {
				if byEnd[next].index >= newest.index {
					newest = byEnd[next]
				}
				next++
			}
			if newest.key != "" && p.index < newest.index {
				a.r.problem("shard %d: %s began after %s was acknowledged, and stands at %d before %d", shard, p.key, newest.key, p.index, newest.index)
			}
		}
	}
}

// epochs checks that a term had one leader: all admissions of one term in one shard are of one process, and a higher term stands behind a lower.
func (a *audit) epochs() {
	type term struct {
		shard uint32
		term  uint64
	}
	leaders := map[term]string{}
	type admission struct{ index, term uint64 }
	byShard := map[uint32][]admission{}
	for _, k := range slices.SortedFunc(keysOf(a.entries), compareKeys) {
		at := a.entries[k].at
		shard, index, err := positionOf(at.GetAdmittedPosition())
		if err != nil {
			a.r.problem("%s-%d attempt %d: %v", k.message, k.generation, k.attempt, err)
			continue
		}
		who := at.GetOwner().GetNode() + "/" + at.GetOwner().GetBootId()
		t := term{shard, at.GetOwner().GetTerm()}
		if have := leaders[t]; have != "" && have != who {
			a.r.problem("TWO LEADERS: in term %d of shard %d both %s and %s admitted", t.term, shard, have, who)
		}
		leaders[t] = who
		byShard[shard] = append(byShard[shard], admission{index, t.term})
	}
	for shard, list := range byShard {
		slices.SortFunc(list, func(x, y admission) int { return cmp.Or(cmp.Compare(x.index, y.index), cmp.Compare(x.term, y.term)) })
		for i := 1; i < len(list); i++ {
			if list[i].term < list[i-1].term {
				a.r.problem("shard %d: term %d admitted at %d, after term %d at %d", shard, list[i].term, list[i].index, list[i-1].term, list[i-1].index)
			}
		}
	}
}

func keysOf[V any](m map[ledgerKey]V) func(func(ledgerKey) bool) {
	return func(yield func(ledgerKey) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func compareKeys(x, y ledgerKey) int {
	return cmp.Or(cmp.Compare(x.message, y.message), cmp.Compare(x.generation, y.generation), cmp.Compare(x.attempt, y.attempt))
}

// pauses checks that nothing was admitted while a lane was paused, by the positions that the operations were answered with.
func (a *audit) pauses() {
	for k, e := range a.entries {
		shard, index, err := positionOf(e.at.GetAdmittedPosition())
		if err != nil {
			continue
		}
		for _, p := range a.r.journal.pauses {
			if p.dest == e.m.GetDestination() && p.began[shard] != 0 && index > p.began[shard] && index < p.resumed[shard] {
				a.r.problem("%s-%d attempt %d was admitted at %d, while %s was paused from %d to %d", k.message, k.generation, k.attempt, index, p.dest,
					p.began[shard], p.resumed[shard])
			}
		}
	}
}

// queued is a message with an ordering key.
type queued struct {
	id    string
	due   time.Time
	index uint64
	loose bool // rescheduled, or behind one that was given up: it may overtake
}

// ordered checks that messages of one ordering key were first taken in the order of (deliver_at, position). A message that had not been accepted
// when the one before it in this order was sent does not count: it came too late to be first.
func (a *audit) ordered() {
	lanes := map[string][]queued{}
	for _, m := range a.messages {
		if m.GetOrderingKey() == "" {
			continue
		}
		_, index, _ := positionOf(m.GetAcceptedPosition())
		q := queued{id: m.GetId(), due: m.GetAcceptedAt().AsTime(), index: index, loose: len(m.GetGenerations()) > 1}
		if at := m.GetDeliverAt(); at != nil && at.AsTime().After(q.due) {
			q.due = at.AsTime()
		}
		for _, g := range m.GetGenerations() {
			q.loose = q.loose || g.GetOrderAfterUnknown()
		}
		name := m.GetDestination() + "/" + m.GetOrderingKey()
		lanes[name] = append(lanes[name], q)
	}
	first := map[string]time.Time{}
	for _, s := range a.r.receivers.requests() {
		if at, ok := first[s.message]; s.reaction.took() && (!ok || s.at.Before(at)) {
			first[s.message] = s.at
		}
	}
	for name, list := range lanes {
		slices.SortFunc(list, func(x, y queued) int { return cmp.Or(x.due.Compare(y.due), cmp.Compare(x.index, y.index)) })
		for i, x := range list {
			for _, y := range list[i+1:] {
				if problem := overtook(name, x, y, first, a.messages[x.id]); problem != "" {
					a.r.problem("%s", problem)
				}
			}
		}
	}
}

// overtook tells whether y, which stands behind x, was taken before x although x could have gone.
func overtook(name string, x, y queued, first map[string]time.Time, m *sealanev1.Message) string {
	tx, sentX := first[x.id]
	ty, sentY := first[y.id]
	if !sentX || !sentY || !ty.Before(tx) || x.loose || y.loose || x.index == y.index && x.due.Equal(y.due) {
		return ""
	}
	return fmt.Sprintf("DISORDER in %s: %s was taken at %s, before %s at %s, which stands ahead (%s, %s)", name, y.id, ty.Format("15:04:05.000"), x.id,
		tx.Format("15:04:05.000"), m.GetState(), m.GetAcceptedAt().AsTime().Format("15:04:05.000"))
}
