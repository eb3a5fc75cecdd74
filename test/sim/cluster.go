package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/logcodec"
	"github.com/sealane/sealane/shard/shardtest"
)

// Cluster is one agreed log, the reference that judges it, and the members that apply it.
type Cluster struct {
	t       testing.TB
	rng     *rand.Rand
	traffic *shardtest.Traffic
	model   *shardtest.Model

	log     []record   // log[i] is the entry of index i+1
	digests [][32]byte // digests[i] is the reference's digest after index i
	ref     *shardtest.Shard

	members   []*member
	snapshots []*snapshot
	step      int
	did       map[string]int // how often each kind of step was made
}

// record is an entry as the log holds it: every member decodes its own commands.
type record struct {
	index    uint64
	stamp    int64
	owner    shard.Epoch
	commands [][]byte
}

// NewCluster makes a cluster of n members; everything it will do follows from the seed.
func NewCluster(t testing.TB, seed uint64, n int) *Cluster {
	c := &Cluster{
		t: t, rng: rand.New(rand.NewPCG(seed, 0x5ea1)), model: shardtest.NewModel(), ref: shardtest.NewShard(), did: map[string]int{},
	}
	c.traffic = shardtest.NewTraffic(c.rng)
	c.traffic.MaxMessages = 30
	empty, err := shard.Digest(c.ref.State)
	if err != nil {
		t.Fatal(err)
	}
	c.digests = [][32]byte{empty}
	for i := range n {
		c.members = append(c.members, newMember(c, i, seed))
	}
	return c
}

func (c *Cluster) fatalf(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("step %d, log of %d: %s", c.step, len(c.log), fmt.Sprintf(format, args...))
}

// append agrees on the next entry: the reference applies it, is recounted, and is judged by the model.
func (c *Cluster) append() {
	c.t.Helper()
	e, err := c.traffic.Next(c.ref.State)
	if err != nil {
		c.fatalf("traffic: %v", err)
	}
	rec := record{index: e.Index, stamp: int64(e.Stamp), owner: e.Owner}
	for _, cmd := range e.Commands {
		b, err := logcodec.Append(nil, cmd)
		if err != nil {
			// Garbage that the log cannot hold, a text that is not UTF-8 for example, is refused where it is proposed.
			c.did["refused before the log"]++
			continue
		}
		if _, err := logcodec.Decode(b); err != nil {
			c.did["refused before the log"]++ // an id that is none, a number that is not known: a proposer never writes it
			continue
		}
		rec.commands = append(rec.commands, b)
	}
	c.log = append(c.log, rec)
	e = c.entry(rec.index)
	results, _, err := c.ref.Machine.ApplyEntry(c.ref.State, e)
	if err != nil {
		c.fatalf("reference at index %d: %v", e.Index, err)
	}
	if err := c.model.Step(e, results, c.ref.State); err != nil {
		c.fatalf("the model at index %d: %v", e.Index, err)
	}
	problems, err := shard.Check(c.ref.State)
	if err != nil || len(problems) > 0 {
		c.fatalf("recount of the reference at index %d: %q %v", e.Index, problems, err)
	}
	d, err := shard.Digest(c.ref.State)
	if err != nil {
		c.fatalf("%v", err)
	}
	c.digests = append(c.digests, d)
}

// entry decodes the entry of an index, as a replica does.
func (c *Cluster) entry(index uint64) *shard.Entry {
	c.t.Helper()
	rec := c.log[index-1]
	e := &shard.Entry{Index: rec.index, Stamp: policyTime(rec.stamp), Owner: rec.owner}
	for _, b := range rec.commands {
		cmd, err := logcodec.Decode(b)
		if err != nil {
			c.fatalf("index %d: %v", index, err)
		}
		e.Commands = append(e.Commands, cmd)
	}
	return e
}

// Run makes steps, then lets every member catch up and compares them once more.
func (c *Cluster) Run(steps int) {
	c.t.Helper()
	for c.step = 1; c.step <= steps; c.step++ {
		c.once()
		for _, m := range c.members {
			m.compare()
		}
	}
	for _, m := range c.members {
		for m.applied() < uint64(len(c.log)) {
			m.apply(16)
		}
		m.compare()
		m.recount()
	}
	for _, s := range c.snapshots {
		s.close()
	}
	c.snapshots = nil
}

// once makes one random step.
func (c *Cluster) once() {
	c.t.Helper()
	m := c.members[c.rng.IntN(len(c.members))]
	switch n := c.rng.IntN(100); {
	case n < 40:
		c.append()
	case n < 75:
		m.apply(1 + c.rng.IntN(12))
	case n < 80:
		m.flush()
	case n < 84:
		m.forget()
	case n < 87:
		m.restart()
	case n < 91:
		m.crash([]int{0, 0, 30, 70, 100}[c.rng.IntN(5)])
	case n < 95:
		c.take(m)
	case n < 99:
		c.install(m)
	default:
		m.wipe()
	}
}

// take opens a snapshot of a member. It is installed later, when the member has gone on.
func (c *Cluster) take(m *member) {
	c.t.Helper()
	c.did["snapshot taken"]++
	if len(c.snapshots) >= 3 {
		c.snapshots[0].close()
		c.snapshots = c.snapshots[1:]
	}
	c.snapshots = append(c.snapshots, m.snapshot())
}

// install gives a member that is behind the newest snapshot of another one.
func (c *Cluster) install(m *member) {
	c.t.Helper()
	for i := len(c.snapshots) - 1; i >= 0; i-- {
		s := c.snapshots[i]
		if s.of != m && s.applied > m.applied() {
			m.install(s)
			return
		}
	}
}
