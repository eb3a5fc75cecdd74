package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// cut is one direction between two nodes.
type cut struct{ from, to string }

// networkFaults are partitions and bad links.
func networkFaults() []Fault {
	partition := func(name string, weight int, cuts func(ids []string) ([]cut, string)) Fault {
		return Fault{Name: name, Weight: weight, Hold: span2(2*time.Second, 10*time.Second), Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			var ids []string
			members := r.Members()
			for _, i := range random.Perm(len(members)) {
				ids = append(ids, members[i].ID)
			}
			list, what := cuts(ids)
			return what, func(ctx context.Context) error { return r.heal(ctx, list) }, r.cut(ctx, list)
		}}
	}
	return []Fault{
		partition("F9 isolate one", 6, isolate),
		partition("F9 halves", 3, halves),
		partition("F9 bridge", 2, bridge),
		partition("F9 ring", 2, ring),
		partition("F10 one way", 4, oneWay),
		partition("F10 deaf", 3, deaf),
		partition("F10 mute", 3, mute),
		{Name: "F9 unplugged", Weight: 4, Hold: span2(2*time.Second, 8*time.Second), Do: func(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
			m := r.victim(ctx, random)
			if m == nil {
				return "", nil, errNobody
			}
			return m.ID, func(ctx context.Context) error { return r.o.Net.Plug(ctx, m.ID) }, r.o.Net.Unplug(ctx, m.ID)
		}},
		{Name: "F11 slow network", Weight: 4, Hold: span2(2*time.Second, 8*time.Second), Do: slowNetwork},
		{Name: "F11 lossy network", Weight: 4, Hold: span2(2*time.Second, 8*time.Second), Do: lossyNetwork},
		{Name: "F11 cut connections", Weight: 3, Hold: span2(100*time.Millisecond, time.Second), Do: cutConnections},
	}
}

func (r *Run) cut(ctx context.Context, list []cut) error {
	for i, c := range list {
		if err := r.o.Net.Block(ctx, c.from, c.to); err != nil {
			return fmt.Errorf("%w; healed again: %v", err, r.heal(ctx, list[:i]))
		}
	}
	return nil
}

func (r *Run) heal(ctx context.Context, list []cut) error {
	var last error
	for _, c := range list {
		if err := r.o.Net.Unblock(ctx, c.from, c.to); err != nil {
			last = err
		}
	}
	return last
}

// both cuts every pair of two sides in both directions.
func both(left, right []string) (out []cut) {
	for _, a := range left {
		for _, b := range right {
			out = append(out, cut{a, b}, cut{b, a})
		}
	}
	return out
}

func isolate(ids []string) ([]cut, string) { return both(ids[:1], ids[1:]), ids[0] }

func halves(ids []string) ([]cut, string) {
	n := len(ids) / 2
	return both(ids[:n], ids[n:]), fmt.Sprint(ids[:n], " | ", ids[n:])
}

// bridge leaves one node that sees all, between two sides that do not see each other.
func bridge(ids []string) ([]cut, string) {
	n := len(ids) / 2
	return both(ids[:n], ids[n+1:]), fmt.Sprint(ids[:n], " ", ids[n], " ", ids[n+1:])
}

// ring leaves each node its two neighbours; with three nodes it cuts one pair.
func ring(ids []string) ([]cut, string) {
	if len(ids) <= 3 {
		return both(ids[:1], ids[len(ids)-1:]), fmt.Sprint(ids)
	}
	var out []cut
	for i := range ids {
		for j := i + 2; j < len(ids); j++ {
			if i != 0 || j != len(ids)-1 {
				out = append(out, both(ids[i:i+1], ids[j:j+1])...)
			}
		}
	}
	return out, fmt.Sprint(ids)
}

func oneWay(ids []string) ([]cut, string) {
	return []cut{{ids[0], ids[1]}}, fmt.Sprintf("%s does not reach %s", ids[0], ids[1])
}

// deaf hears nobody and is heard by all; mute is the other way round.
func deaf(ids []string) (out []cut, what string) {
	for _, other := range ids[1:] {
		out = append(out, cut{other, ids[0]})
	}
	return out, ids[0]
}

func mute(ids []string) (out []cut, what string) {
	for _, other := range ids[1:] {
		out = append(out, cut{ids[0], other})
	}
	return out, ids[0]
}

// links sets what is wrong with all links of some nodes. A wildcard cannot clash with the cuts of single peers.
func (r *Run) links(ctx context.Context, members []*Member, link Link) (func(context.Context) error, error) {
	set := func(ctx context.Context, k Link) error {
		var last error
		for _, m := range members {
			if err := m.Faults.Link(ctx, "*", func(l *Link) { *l = k }); err != nil {
				last = fmt.Errorf("%s: %w", m.ID, err)
			}
		}
		return last
	}
	return func(ctx context.Context) error { return set(ctx, Link{}) }, set(ctx, link)
}

func slowNetwork(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
	k := Link{Delay: time.Duration(10+random.IntN(190)) * time.Millisecond, Jitter: 50 * time.Millisecond}
	members := r.several(random, 1+random.IntN(len(r.Members())))
	undo, err := r.links(ctx, members, k)
	return fmt.Sprintf("%s: %s", idsOf(members), k.Delay), undo, err
}

func lossyNetwork(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
	k := Link{LossPercent: 5 + random.IntN(25)}
	members := r.several(random, 1+random.IntN(len(r.Members())))
	undo, err := r.links(ctx, members, k)
	return fmt.Sprintf("%s: %d %%", idsOf(members), k.LossPercent), undo, err
}

func cutConnections(ctx context.Context, r *Run, random *rand.Rand) (string, func(context.Context) error, error) {
	members := r.several(random, 1+random.IntN(len(r.Members())))
	undo, err := r.links(ctx, members, Link{Cut: true})
	return idsOf(members), undo, err
}
