package shard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/shardtest"
	"pgregory.net/rapid"
)

// drawn makes rapid a source of traffic, so that a failing history shrinks.
type drawn struct{ t *rapid.T }

func (d drawn) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "n") }

// histories runs a property on drawn histories, which shrink when they fail, and on those of fixed seeds, which are many.
func histories(t *testing.T, seeds uint64, run func(t fataler, src shardtest.Source)) {
	t.Helper()
	t.Run("drawn", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { run(t, drawn{t}) })
	})
	t.Run("seeded", func(t *testing.T) {
		for seed := range seeds {
			run(seeded{t, seed}, rand.New(rand.NewPCG(seed, 1)))
		}
	})
}

// seeded names the seed of a history that fails.
type seeded struct {
	*testing.T
	seed uint64
}

func (s seeded) Fatalf(format string, args ...any) {
	s.T.Helper()
	s.T.Fatalf("seed %d: "+format, append([]any{s.seed}, args...)...)
}

// fataler is what *testing.T and *rapid.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// TestModel runs random histories and lets the model judge every step; the books are recounted after each.
func TestModel(t *testing.T) {
	histories(t, 500, func(t fataler, src shardtest.Source) {
		traffic, model, s := shardtest.NewTraffic(src), shardtest.NewModel(), shardtest.NewShard()
		for range 1 + src.IntN(60) {
			e, results, _ := step(t, traffic, s)
			if err := model.Step(e, results, s.State); err != nil {
				t.Fatalf("index %d: %v\n%s", e.Index, err, describe(e, results))
			}
		}
	})
}

// step applies the next entry of the traffic and recounts.
func step(t fataler, traffic *shardtest.Traffic, s *shardtest.Shard) (*shard.Entry, []shard.Result, []shard.Effect) {
	t.Helper()
	e, err := traffic.Next(s.State)
	if err != nil {
		t.Fatalf("traffic: %v", err)
	}
	results, effects := apply(t, s.Machine, s.State, e)
	recount(t, s.State, e)
	return e, results, effects
}

func apply(t fataler, m *shard.Machine, st shard.State, e *shard.Entry) ([]shard.Result, []shard.Effect) {
	t.Helper()
	results, effects, err := m.ApplyEntry(st, e)
	if err != nil {
		t.Fatalf("index %d: %v\n%s", e.Index, err, describe(e, nil))
	}
	return results, effects
}

func recount(t fataler, r shard.Reader, e *shard.Entry) {
	t.Helper()
	problems, err := shard.Check(r)
	if err != nil || len(problems) > 0 {
		t.Fatalf("recount after index %d: %q %v\n%s", e.Index, problems, err, describe(e, nil))
	}
}

func digest(t fataler, r shard.Reader) [32]byte {
	t.Helper()
	d, err := shard.Digest(r)
	if err != nil {
		t.Fatalf("digest: %v", err)
	}
	return d
}

// TestReplicasAgree applies one log three times: as it is, by a machine that forgets its caches before every entry, and with entries cut in
// two where that may not show. States, verdicts and effects must be the same. At the end the whole log is replayed into an empty state.
func TestReplicasAgree(t *testing.T) {
	histories(t, 100, func(t fataler, src shardtest.Source) {
		traffic, a := shardtest.NewTraffic(src), shardtest.NewShard()
		forgetful, cutter := shardtest.NewShard(), shardtest.NewShard()
		var log []*shard.Entry
		for range 1 + src.IntN(40) {
			e, results, effects := step(t, traffic, a)
			log = append(log, e)
			forgetful.Machine.Reset()
			r2, f2 := apply(t, forgetful.Machine, forgetful.State, e)
			r3, f3 := applyCut(t, cutter, e, src.IntN(len(e.Commands)+1))
			if !reflect.DeepEqual(results, r2) || !reflect.DeepEqual(results, r3) {
				t.Fatalf("verdicts differ:\n%+v\n%+v\n%+v\n%s", results, r2, r3, describe(e, results))
			}
			if !reflect.DeepEqual(effects, f2) || !reflect.DeepEqual(effects, f3) {
				t.Fatalf("effects differ:\n%+v\n%+v\n%+v\n%s", effects, f2, f3, describe(e, results))
			}
			if d := digest(t, a.State); d != digest(t, forgetful.State) || d != digest(t, cutter.State) {
				t.Fatalf("digests differ after index %d\n%s", e.Index, describe(e, results))
			}
		}
		again := shardtest.NewShard()
		for _, e := range log {
			apply(t, again.Machine, again.State, e)
		}
		if !again.State.Equal(a.State) {
			t.Fatalf("a replay of %d entries gives another state", len(log))
		}
	})
}

// applyCut applies an entry in two parts at the same index and time. A command that makes a generation records its place in the vector, so
// the cut is behind the last of those.
func applyCut(t fataler, s *shardtest.Shard, e *shard.Entry, at int) ([]shard.Result, []shard.Effect) {
	t.Helper()
	for i, c := range e.Commands {
		switch c.(type) {
		case *shard.Submit, *shard.Reschedule:
			at = max(at, i+1)
		}
	}
	first, second := *e, *e
	first.Commands, second.Commands = e.Commands[:at], e.Commands[at:]
	results, effects := apply(t, s.Machine, s.State, &first)
	r, f := apply(t, s.Machine, s.State, &second)
	return append(results, r...), append(effects, f...)
}

// TestRepeated proposes the last command of an entry once more, as a leader that heard nothing would: nothing changes (invariant 3).
func TestRepeated(t *testing.T) {
	histories(t, 300, func(t fataler, src shardtest.Source) {
		traffic, s := shardtest.NewTraffic(src), shardtest.NewShard()
		for range 1 + src.IntN(30) {
			e, results, _ := step(t, traffic, s)
			last := e.Commands[len(e.Commands)-1]
			if results[len(results)-1].Rejected != nil || !repeatable(last) {
				continue
			}
			c := s.Clone()
			again := &shard.Entry{Index: e.Index + 1, Stamp: e.Stamp, Owner: e.Owner, Commands: []shard.Command{last}}
			r, _ := apply(t, c.Machine, c.State, again)
			if !c.State.Equal(s.State) {
				t.Fatalf("the same command again changed the state\n%s%s", describe(e, results), describe(again, r))
			}
		}
	})
}

// repeatable leaves out what says something new each time: another lane event, the next page of a trim, and a reschedule without a request id.
func repeatable(c shard.Command) bool {
	switch c := c.(type) {
	case *shard.LaneEvent, *shard.Trim:
		return false
	case *shard.Reschedule:
		return c.RequestID != ""
	}
	return true
}

// TestGarbage feeds nonsense at any time, extreme stamps included. The machine never panics, and stops only at what it does not know; then
// it has changed nothing that is kept, and goes on if the caller drops the entry.
func TestGarbage(t *testing.T) {
	stamps := []policy.Time{0, -1, 1, shardtest.Start, policy.MaxTime, -1 << 63}
	histories(t, 200, func(t fataler, src shardtest.Source) {
		traffic, s := shardtest.NewTraffic(src), shardtest.NewShard()
		for range 1 + src.IntN(20) {
			e, _, _ := step(t, traffic, s)
			trial := s.Clone()
			bad := &shard.Entry{Index: e.Index + 1, Stamp: stamps[src.IntN(len(stamps))]}
			stop := src.IntN(2) == 0
			for range 1 + src.IntN(6) {
				bad.Commands = append(bad.Commands, traffic.Garbage())
			}
			if stop {
				// Sensible commands first: they make lanes and versions known to the machine, and are dropped with the entry.
				e, err := traffic.Next(trial.State)
				if err != nil {
					t.Fatalf("traffic: %v", err)
				}
				bad.Commands = append(append(e.Commands, bad.Commands...), traffic.Stop())
			}
			_, _, err := trial.Machine.ApplyEntry(trial.State, bad)
			if stop != errors.Is(err, shard.ErrUnknownCommand) || !stop && err != nil {
				t.Fatalf("stop=%v: %v\n%s", stop, err, describe(bad, nil))
			}
			if !stop {
				recount(t, trial.State, bad)
				continue
			}
			fresh := s.Clone()
			fresh.Machine = trial.Machine // what it learned from the dropped entry must not show
			ok := &shard.Entry{Index: e.Index + 1, Stamp: e.Stamp, Commands: bad.Commands[:len(bad.Commands)-1]}
			apply(t, fresh.Machine, fresh.State, ok)
			recount(t, fresh.State, ok)
		}
	})
}

// TestTrafficReaches proves that the properties above are not empty: traffic from fixed seeds reaches every state, reason, kind of work,
// verdict and effect that they speak of.
func TestTrafficReaches(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(150) {
		traffic, s := shardtest.NewTraffic(rand.New(rand.NewPCG(seed, 2))), shardtest.NewShard()
		for range 60 {
			_, results, effects := step(t, traffic, s)
			note(t, seen, s, results, effects)
		}
	}
	var want []string
	for st := shard.StateScheduled; st <= shard.StateSuperseded; st++ {
		want = append(want, "state "+st.String())
	}
	for r := shard.ReasonPublished; r <= shard.ReasonRescheduled; r++ {
		if r != shard.ReasonLaneClosed { // no command closes a lane yet
			want = append(want, "reason "+r.String())
		}
	}
	for w := shard.WorkInitial; w <= shard.WorkOperatorRetry; w++ {
		want = append(want, fmt.Sprint("work ", w))
	}
	for k := shard.EffectWork; k <= shard.EffectContradiction; k++ {
		want = append(want, fmt.Sprint("effect ", k))
	}
	reachable := slices.DeleteFunc(shard.Rejections(), func(r *shard.Rejection) bool { return r == shard.ErrLaneClosed })
	for _, r := range reachable {
		want = append(want, "rejection "+string(r.Reason))
	}
	want = append(want, "duplicate", "safe retry", "two unknown", "trial", "ordered wait", "after unknown", "removed", "contradiction", "deduplicated", "stale dedup_window")
	for _, w := range want {
		if seen[w] == 0 {
			t.Errorf("traffic never reaches: %s", w)
		}
	}
}

func note(t *testing.T, seen map[string]int, s *shardtest.Shard, results []shard.Result, effects []shard.Effect) {
	t.Helper()
	for _, r := range results {
		if r.Rejected != nil {
			seen["rejection "+string(r.Rejected.Reason)]++
			seen["stale "+r.Rejected.Field]++
		}
		if r.Deduplicated {
			seen["deduplicated"]++
		}
		if r.Removed > 0 {
			seen["removed"]++
		}
	}
	for _, e := range effects {
		seen[fmt.Sprint("effect ", e.Kind)]++
		if e.Kind == shard.EffectContradiction {
			seen["contradiction"]++
		}
		if e.Ref.ID.IsZero() {
			continue
		}
		v, err := shard.GetMessage(s.State, e.Ref.ID, false)
		if err != nil {
			t.Fatal(err)
		}
		if v == nil {
			continue
		}
		for _, g := range v.Generations {
			noteGeneration(seen, g)
		}
	}
}

func noteGeneration(seen map[string]int, v shard.GenerationView) {
	g := v.Generation
	seen["state "+g.State.String()]++
	seen["reason "+g.TerminalReason.String()]++
	for _, f := range []struct {
		on   bool
		name string
	}{
		{g.PossibleDuplicate, "duplicate"}, {g.OpenUnknown > 1, "two unknown"}, {g.Ordered && !g.OrderHead && !g.State.Terminal(), "ordered wait"},
		{g.OrderAfterUnknown, "after unknown"},
	} {
		if f.on {
			seen[f.name]++
		}
	}
	for _, a := range v.Attempts {
		seen[fmt.Sprint("work ", a.Work)]++
		if a.DuplicateSafe {
			seen["safe retry"]++
		}
		if a.Trial {
			seen["trial"]++
		}
	}
}
