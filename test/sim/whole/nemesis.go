package whole

import (
	"fmt"
	"sync"
	"time"
)

// fault is one kind of trouble. It lasts until do returns, and leaves nothing behind that heal does not end.
type fault struct {
	name string
	do   func(n *nemesis)
}

// Faults by their names, in groups that plans take.
var (
	crashes = []fault{
		{"crash", (*nemesis).crashOne}, {"crash of a majority", (*nemesis).crashMajority}, {"crash of all", (*nemesis).crashAll},
		{"long absence", (*nemesis).absence},
	}
	networks = []fault{
		{"isolate", (*nemesis).isolate}, {"split", (*nemesis).split}, {"bridge", (*nemesis).bridge}, {"one way", (*nemesis).oneWay},
		{"slow links", (*nemesis).slow}, {"resets", (*nemesis).resets}, {"sever", (*nemesis).sever},
	}
	clocks   = []fault{{"clock step", (*nemesis).clockStep}, {"clock drift", (*nemesis).clockDrift}}
	stalls   = []fault{{"stalled sends", (*nemesis).stall}}
	handing  = []fault{{"transfer", (*nemesis).transfer}, {"flapping", (*nemesis).flap}, {"snapshot", (*nemesis).snapshot}}
	cut      = []fault{{"transfer cut off", (*nemesis).transferCut}}
	restarts = []fault{{"rolling restart", (*nemesis).rolling}, {"restart of all", (*nemesis).restartAll}, {"restart", (*nemesis).restartOne}}
	members  = []fault{{"move", (*nemesis).move}, {"drain", (*nemesis).drain}, {"join", (*nemesis).join}}
	leavers  = []fault{{"remove", (*nemesis).remove}}
	losers   = []fault{{"wiped disk", (*nemesis).wiped}, {"removed while cut off", (*nemesis).removedCutOff}}
)

// together joins groups of faults.
func together(groups ...[]fault) []fault {
	var out []fault
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}

// nemesis makes the faults of one run. Two work at a time, so that faults overlap.
type nemesis struct {
	*Run
	until time.Time
	dice  *dice
}

// torment lets the faults of the plan happen for as long as it says.
func (r *Run) torment() {
	until := time.Now().Add(r.plan.lasts)
	if len(r.plan.faults) == 0 {
		time.Sleep(r.plan.lasts)
		return
	}
	var wg sync.WaitGroup
	for i := range uint64(2) {
		n := &nemesis{Run: r, until: until, dice: newDice(r.seed, 0xbad+i)}
		wg.Go(n.torment)
	}
	wg.Wait()
}

func (n *nemesis) torment() {
	for {
		n.dice.rest(200, 2500)
		if !time.Now().Before(n.until) {
			return
		}
		f := n.plan.faults[n.dice.int(len(n.plan.faults))]
		n.trace.note("nemesis", "%s", f.name)
		n.mu.Lock()
		n.did[f.name]++
		n.mu.Unlock()
		f.do(n)
		n.trace.note("nemesis", "%s is over", f.name)
	}
}

// keep draws how much of what was not synced survives a crash.
func (n *nemesis) keep() int { return []int{0, 0, 40, 100}[n.dice.int(4)] }

func (n *nemesis) crash(id string) {
	n.cluster.crash(id, n.keep(), n.dice.int(2) == 0, n.dice.random)
}

func (n *nemesis) crashOne() {
	id := n.dice.pick(n.cluster.up())
	if id == "" {
		return
	}
	n.crash(id)
	n.dice.rest(0, 6000)
	n.cluster.start(id)
}

func (n *nemesis) crashMajority() {
	all := n.cluster.up()
	n.crashMany(n.dice.some(all, len(all)/2+1))
}

func (n *nemesis) crashAll() { n.crashMany(n.cluster.up()) }

// crashMany ends several at nearly the same time and starts them in another order.
func (n *nemesis) crashMany(ids []string) {
	for _, id := range ids {
		n.crash(id)
		if n.dice.int(3) == 0 {
			n.dice.rest(0, 30)
		}
	}
	n.dice.rest(0, 3000)
	for _, id := range n.dice.shuffled(ids) {
		n.cluster.start(id)
		n.dice.rest(0, 1500)
	}
}

// absence is long enough for the others to cut their logs behind it: the node comes back to a snapshot.
func (n *nemesis) absence() {
	id := n.dice.pick(n.cluster.up())
	if id == "" {
		return
	}
	n.crash(id)
	n.dice.rest(10_000, 20_000)
	n.cluster.start(id)
}

// between holds or releases everything between two groups of hosts.
func (n *nemesis) between(as, bs []string, change func(from, to string)) {
	for _, a := range as {
		for _, b := range bs {
			if a != b {
				change(a, b)
				change(b, a)
			}
		}
	}
}

func (n *nemesis) isolate() {
	all := n.cluster.all()
	id := n.dice.pick(all)
	n.between([]string{id}, all, n.cluster.network.hold)
	n.dice.rest(300, 8000)
	n.between([]string{id}, all, n.cluster.network.release)
}

func (n *nemesis) split() {
	all := n.dice.shuffled(n.cluster.all())
	at := 1 + n.dice.int(len(all)-1)
	n.between(all[:at], all[at:], n.cluster.network.hold)
	n.dice.rest(300, 8000)
	n.between(all[:at], all[at:], n.cluster.network.release)
}

// bridge leaves one node that reaches both sides.
func (n *nemesis) bridge() {
	all := n.dice.shuffled(n.cluster.all())
	rest := all[1:]
	at := len(rest) / 2
	n.between(rest[:at], rest[at:], n.cluster.network.hold)
	n.dice.rest(300, 8000)
	n.between(rest[:at], rest[at:], n.cluster.network.release)
}

// oneWay lets nothing arrive in one direction.
func (n *nemesis) oneWay() {
	two := n.dice.shuffled(n.cluster.all())[:2]
	n.cluster.network.hold(two[0], two[1])
	n.dice.rest(300, 8000)
	n.cluster.network.release(two[0], two[1])
}

func (n *nemesis) slow() {
	all, delay := n.cluster.all(), time.Duration(5+n.dice.int(150))*time.Millisecond
	n.between(all, all, func(a, b string) { n.cluster.network.slow(a, b, delay, 0) })
	n.dice.rest(500, 8000)
	n.between(all, all, func(a, b string) { n.cluster.network.slow(a, b, 0, 0) })
}

// resets breaks connections again and again, those of clients too.
func (n *nemesis) resets() {
	all := append(n.cluster.all(), clientHost)
	n.between(all, all, func(a, b string) { n.cluster.network.slow(a, b, time.Millisecond, 2+n.dice.int(10)) })
	n.dice.rest(500, 5000)
	n.between(all, all, func(a, b string) { n.cluster.network.slow(a, b, 0, 0) })
}

func (n *nemesis) sever() {
	id := n.dice.pick(n.cluster.all())
	for _, other := range append(n.cluster.all(), clientHost) {
		n.cluster.network.sever(id, other)
	}
}

func (n *nemesis) clockStep() {
	id := n.dice.pick(n.cluster.all())
	step := []time.Duration{time.Hour, -time.Hour, 700 * time.Millisecond, -3 * time.Second}[n.dice.int(4)]
	n.cluster.clockOf(id).step(step, 0)
	n.trace.note("nemesis", "the clock of %s steps by %s", id, step)
	n.dice.rest(500, 15_000)
	n.cluster.clockOf(id).correct()
}

func (n *nemesis) clockDrift() {
	id := n.dice.pick(n.cluster.all())
	drift := []int64{-200_000, -500, 500, 50_000}[n.dice.int(4)]
	n.cluster.clockOf(id).step(0, drift)
	n.trace.note("nemesis", "the clock of %s drifts by %d ppm", id, drift)
	n.dice.rest(3000, 20_000)
	n.cluster.clockOf(id).correct()
}

// stall lets processes stand still between admission and gate, some beyond the send window.
func (n *nemesis) stall() {
	n.receivers.stall(3 * time.Second)
	n.dice.rest(500, 5000)
	n.receivers.stall(0)
}

func (n *nemesis) restartOne() {
	id := n.dice.pick(n.cluster.up())
	if id == "" {
		return
	}
	n.cluster.stop(id)
	n.dice.rest(0, 2000)
	n.cluster.start(id)
	n.cluster.awaitNode(id)
}

// rolling restarts all nodes one after the other, each only when the one before is open.
func (n *nemesis) rolling() {
	for _, id := range n.dice.shuffled(n.cluster.up()) {
		n.cluster.stop(id)
		n.cluster.start(id)
		if !n.cluster.awaitNode(id) {
			return
		}
		n.dice.rest(500, 1500)
	}
}

// restartAll stops all nodes, and starts them in another order.
func (n *nemesis) restartAll() {
	ids := n.dice.shuffled(n.cluster.up())
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() { n.cluster.stop(id) })
		n.dice.rest(0, 300)
	}
	wg.Wait()
	for _, id := range n.dice.shuffled(ids) {
		n.cluster.start(id)
		n.dice.rest(0, 2000)
	}
	for _, id := range ids {
		n.cluster.awaitNode(id)
	}
}

// name gives an operation an id of its own.
func (n *nemesis) name(kind string) string { return fmt.Sprintf("%s-%d", kind, n.operations.Add(1)) }
