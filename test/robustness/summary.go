package robustness

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Summary is the table at the end of a run, for people.
func (r *Run) Summary(events []Event, e *Ending) string {
	var b strings.Builder
	fmt.Fprintf(&b, "run of %s, %d nodes at the end, seed %d\n", time.Since(r.started).Round(time.Second), len(r.Members()), r.o.Seed)
	b.WriteString(table(events))
	submitted := len(r.Load.Submitted())
	fmt.Fprintf(&b, "load: %d submits, %.0f a second, calls of the client that did not end in acceptance %d, without a verdict %d\n",
		submitted, float64(submitted)/r.loaded.Seconds(), r.Load.failed.Load(), r.Load.maybe.Load())
	fmt.Fprintf(&b, "readers: %s\nregisters: %s\n", r.Readers, r.Registers)
	if e != nil {
		fmt.Fprintf(&b, "after the faults: every shard wrote after %s, nothing was due after %s, longest wait of anything due %s (%s)\n",
			round(e.Whole), round(e.Drained), round(e.WorstWait), e.WorstLane)
		fmt.Fprintf(&b, "digests: %s\n", e.Digests)
		for _, f := range e.Footprint {
			fmt.Fprintf(&b, "%s uses %d goroutines, %d MiB of memory, %d MiB of log; snapshots taken %d, received %d since its start\n",
				f.Node, f.Goroutines, f.ResidentMiB, f.LogMiB, f.Snapshots, f.Installs)
		}
		if e.Audit != nil {
			fmt.Fprintf(&b, "the audit:\n%s", e.Audit)
		}
	}
	return b.String()
}

// table counts the faults by kind, with the worst of what each cost.
func table(events []Event) string {
	type row struct {
		n           int
		gap, resume []time.Duration
	}
	rows := map[string]*row{}
	var kinds []string
	for _, e := range events {
		if rows[e.Fault] == nil {
			rows[e.Fault] = &row{}
			kinds = append(kinds, e.Fault)
		}
		k := rows[e.Fault]
		k.n++
		k.gap, k.resume = append(k.gap, e.WriteGap), append(k.resume, e.Resume)
	}
	slices.Sort(kinds)
	var b strings.Builder
	fmt.Fprintf(&b, "  %-26s %6s  %22s  %22s\n", "fault", "times", "no write, median worst", "whole after, med. worst")
	for _, k := range kinds {
		v := rows[k]
		fmt.Fprintf(&b, "  %-26s %6d  %10s %11s  %10s %11s\n", k, v.n, round(median(v.gap)), round(slices.Max(v.gap)), round(median(v.resume)), round(slices.Max(v.resume)))
	}
	return b.String()
}

// median of at least one duration.
func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
