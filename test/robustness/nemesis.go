package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Fault is one kind of harm.
type Fault struct {
	Name string // with its number in the test plan
	// Weight is how often it is drawn, against the others.
	Weight int
	// Hold is how long it lasts, from and to.
	Hold [2]time.Duration
	// Planned says that it is an operator's ordinary act: no attempt may become UNKNOWN by it.
	Planned bool
	// Alone says that no other fault may be at work at the same time.
	Alone bool
	// Do does the harm and returns what it did and how it is undone; undo may be nil.
	Do func(ctx context.Context, r *Run, random *rand.Rand) (what string, undo func(context.Context) error, err error)
}

// Event is one fault that was done, and what it cost.
type Event struct {
	Fault            string
	What             string
	Began, Healed    time.Time
	WriteGap, Resume time.Duration // longest time without a write of some shard; from healing until all shards took one
	Planned          bool
	Err              error
}

// undone is a fault at work.
type undone struct {
	event *Event
	undo  func(context.Context) error
	until time.Time
}

// recoverWithin is how long the cluster may take, after the faults have stopped, until every shard takes a write (I20).
const recoverWithin = 30 * time.Second

// Harm does one fault after another, sometimes two at a time, until the time is over, and waits after each for the cluster to be whole.
func (r *Run) Harm(ctx context.Context, faults []Fault, random *rand.Rand, until time.Time) []Event {
	var events []Event
	for n := 1; time.Now().Before(until) && ctx.Err() == nil; n++ {
		round := []Fault{draw(faults, random)}
		if second := draw(faults, random); random.IntN(4) == 0 && !round[0].Alone && !second.Alone && second.Name != round[0].Name {
			round = append(round, second)
		}
		done := r.round(ctx, round, random)
		for _, e := range done {
			r.o.Log("%3d  %s", n, e)
		}
		events = append(events, done...)
		if n%compareEvery == 0 && len(r.Members()) > 1 {
			r.compare(ctx, fmt.Sprintf("after round %d", n))
		}
		if !pause(ctx, time.Duration(200+random.IntN(800))*time.Millisecond) {
			break
		}
	}
	return events
}

// compareEvery is after how many rounds the replicas are compared: later a snapshot may cover up what was unequal.
const compareEvery = 10

func draw(faults []Fault, random *rand.Rand) Fault {
	sum := 0
	for _, f := range faults {
		sum += f.Weight
	}
	n := random.IntN(sum)
	for _, f := range faults {
		if n < f.Weight {
			return f
		}
		n -= f.Weight
	}
	panic("unreachable: weights are positive")
}

// round does some faults together, undoes them, brings back who has died, and waits until every shard takes writes.
func (r *Run) round(ctx context.Context, faults []Fault, random *rand.Rand) []Event {
	began := time.Now()
	var active []undone
	for _, f := range faults {
		e := &Event{Fault: f.Name, Began: time.Now(), Planned: f.Planned}
		limit, cancel := context.WithTimeout(ctx, 3*time.Minute)
		what, undo, err := f.Do(limit, r, random)
		cancel()
		if errors.Is(err, errNobody) && len(faults) > 1 {
			what, err = "nobody was left", nil // the other fault of the round had taken all
		}
		e.What, e.Err = what, err
		hold := f.Hold[0]
		if spread := f.Hold[1] - f.Hold[0]; spread > 0 {
			hold += time.Duration(random.Int64N(int64(spread)))
		}
		active = append(active, undone{e, undo, time.Now().Add(hold)})
	}
	slices.SortStableFunc(active, func(a, b undone) int { return a.until.Compare(b.until) })
	for _, a := range active {
		pause(ctx, time.Until(a.until))
		if a.undo != nil {
			if err := a.undo(ctx); err != nil && a.event.Err == nil {
				a.event.Err = fmt.Errorf("undo: %w", err)
			}
		}
		a.event.Healed = time.Now()
	}
	healed := time.Now()
	resume, err := r.Recover(ctx, random)
	var events []Event
	for _, a := range active {
		a.event.Resume, a.event.WriteGap = resume, r.WriteGap(began, time.Now())
		if a.event.Err != nil {
			r.Problem("%s (%s): %v", a.event.Fault, a.event.What, a.event.Err)
		}
		events = append(events, *a.event)
	}
	if err != nil && ctx.Err() == nil {
		r.Problem("after %s: not whole %s after healing: %v\n%s", names(faults), time.Since(healed).Round(time.Second), err, r.Describe(ctx))
	}
	return events
}

func names(faults []Fault) string {
	var out []string
	for _, f := range faults {
		out = append(out, f.Name)
	}
	return strings.Join(out, " and ")
}

// Recover starts every member that has died, in a random order, and waits until each shard has taken a write. It returns how long that took.
func (r *Run) Recover(ctx context.Context, random *rand.Rand) (time.Duration, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, recoverWithin)
	defer cancel()
	members := r.Members()
	random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	for _, m := range members {
		if m.Running() {
			m.MayEnd.Store(false)
			continue
		}
		if err := r.Launch(m); err != nil {
			return 0, err
		}
		pause(ctx, time.Duration(random.IntN(300))*time.Millisecond)
	}
	for _, m := range members {
		if err := m.Ready(ctx); err != nil {
			return 0, fmt.Errorf("%s does not answer: %w\n%s", m.ID, err, lastLines(m.Output(), 10))
		}
	}
	if _, err := r.AwaitWritable(ctx, time.Now()); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// Describe shows how each running node sees the shards, for the report of a failure.
func (r *Run) Describe(ctx context.Context) string {
	var b strings.Builder
	for _, v := range r.View(ctx) {
		fmt.Fprintf(&b, "    %s:", v.GetAnsweredBy())
		for _, s := range append(v.GetShards(), v.GetControlGroup()) {
			fmt.Fprintf(&b, " [%d leader %q term %d at %s:", s.GetNumber(), s.GetLeader(), s.GetTerm(), s.GetAppliedPosition())
			for _, p := range s.GetReplicas() {
				fmt.Fprintf(&b, " %s=%s/%d", p.GetNodeId(), p.GetRole(), p.GetAppliedIndex())
			}
			b.WriteString("]")
		}
		b.WriteString("\n")
	}
	for _, m := range r.Members() {
		fmt.Fprintf(&b, "    %s running %v, last words:\n%s\n", m.ID, m.Running(), lastLines(m.Output(), 8))
	}
	return b.String()
}

func (e Event) String() string {
	text := fmt.Sprintf("%-26s %-44s %6s  no write for %s, whole %s after", e.Fault, e.What, e.Healed.Sub(e.Began).Round(100*time.Millisecond),
		e.WriteGap.Round(10*time.Millisecond), e.Resume.Round(10*time.Millisecond))
	if e.Err != nil {
		text += fmt.Sprintf("  FAILED: %v", e.Err)
	}
	return text
}
