package sim

import (
	"context"
	"slices"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/shardtest"
	"github.com/sealane/sealane/storage"
	"github.com/sealane/sealane/storage/storagetest"
)

// group is the number under which a member's store keeps the shard.
const group = 1

func policyTime(ns int64) policy.Time { return policy.Time(ns) }

// member is one replica: a disk, the store on it, and the machine that applies the log into it.
type member struct {
	c       *Cluster
	name    int
	disk    *storagetest.Disk
	disks   uint64
	seed    uint64
	store   *storage.Store
	state   *storage.State
	machine *shard.Machine
	open    []*snapshot // of the present store: they end with it
	checked uint64      // applied index at the last comparison
}

func newMember(c *Cluster, name int, seed uint64) *member {
	m := &member{c: c, name: name, seed: seed}
	m.newDisk()
	return m
}

func (m *member) newDisk() {
	m.c.t.Helper()
	m.disks++
	m.disk = storagetest.NewDisk(m.c.t, m.seed*1000+uint64(m.name)*100+m.disks)
	m.start()
}

func (m *member) start() {
	m.c.t.Helper()
	m.store = m.disk.MustOpen()
	m.state = m.store.State(group)
	m.machine = shard.NewMachine(shardtest.ShardNumber, shardtest.Incarnation)
	m.checked = 1<<64 - 1 // compare again, whatever the index
}

func (m *member) must(err error) {
	m.c.t.Helper()
	if err != nil {
		m.c.fatalf("member %d: %v", m.name, err)
	}
}

func (m *member) applied() uint64 {
	m.c.t.Helper()
	n, err := m.state.Applied()
	m.must(err)
	return n
}

// apply runs up to n entries in one batch of the store.
func (m *member) apply(n int) {
	m.c.t.Helper()
	from := m.applied()
	to := min(from+uint64(n), uint64(len(m.c.log)))
	if from == to {
		return
	}
	m.c.did["batch applied"]++
	b := m.state.NewBatch()
	defer b.Close()
	for index := from + 1; index <= to; index++ {
		_, _, err := m.machine.ApplyEntry(b, m.c.entry(index))
		m.must(err)
		b.SetApplied(index)
	}
	m.must(b.Commit())
}

func (m *member) flush() {
	m.c.t.Helper()
	m.c.did["flush"]++
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m.must(m.store.Flush(ctx))
	if d := m.state.DurableApplied(); d != m.applied() {
		m.c.fatalf("member %d: flushed up to %d, applied %d", m.name, d, m.applied())
	}
}

func (m *member) forget() {
	m.c.did["caches forgotten"]++
	m.machine.Reset()
}

// restart stops the member in order: nothing that was applied is lost.
func (m *member) restart() {
	m.c.t.Helper()
	m.c.did["restart"]++
	before := m.applied()
	m.closeSnapshots()
	m.must(m.store.Close())
	m.start()
	if after := m.applied(); after != before {
		m.c.fatalf("member %d: a clean restart went from %d to %d", m.name, before, after)
	}
}

// crash cuts the power, keeping a part of what was not synced. What was durable is there; what was not is applied again from the log.
func (m *member) crash(percent int) {
	m.c.t.Helper()
	m.c.did["crash"]++
	durable, before := m.state.DurableApplied(), m.applied()
	m.closeSnapshots()
	m.disk.Crash(percent)
	m.must(m.store.Close()) // writes to the old disk, which nobody reads again
	m.start()
	after := m.applied()
	if after < durable || after > before {
		m.c.fatalf("member %d: after a crash at %d, durable %d, the state is at %d", m.name, before, durable, after)
	}
	if after < before {
		m.c.did["crash with loss"]++
	}
}

// wipe gives the member an empty disk: it begins again, from the log or a snapshot.
func (m *member) wipe() {
	m.c.t.Helper()
	m.c.did["disk wiped"]++
	m.closeSnapshots()
	m.must(m.store.Close())
	m.newDisk()
}

// compare holds the state against the reference at the same index.
func (m *member) compare() {
	m.c.t.Helper()
	at := m.applied()
	if at == m.checked {
		return
	}
	m.checked = at
	d, err := shard.Digest(m.state)
	m.must(err)
	if d != m.c.digests[at] {
		m.c.fatalf("member %d at index %d has digest %x, the reference had %x", m.name, at, d[:8], m.c.digests[at][:8])
	}
	if at%8 == 0 { // equal digests mean equal books; the recount over the store is a check of the store's reads
		m.recount()
	}
}

func (m *member) recount() {
	m.c.t.Helper()
	problems, err := shard.Check(m.state)
	m.must(err)
	if len(problems) > 0 {
		m.c.fatalf("member %d at index %d: recount %q", m.name, m.applied(), problems)
	}
}

// snapshot is the state of a member at one time.
type snapshot struct {
	of      *member
	snap    *storage.Snapshot
	applied uint64
	done    bool
}

func (m *member) snapshot() *snapshot {
	m.c.t.Helper()
	s := &snapshot{of: m, snap: m.state.NewSnapshot()}
	var err error
	s.applied, err = s.snap.Applied()
	m.must(err)
	m.open = append(m.open, s)
	return s
}

// closeSnapshots ends the snapshots of a store that is about to be closed.
func (m *member) closeSnapshots() {
	m.c.t.Helper()
	for _, s := range m.open {
		s.close()
	}
	m.open = nil
	m.c.snapshots = slices.DeleteFunc(m.c.snapshots, func(s *snapshot) bool { return s.done })
}

func (s *snapshot) close() {
	if s.done {
		return
	}
	s.done = true
	s.of.must(s.snap.Close())
}

// install replaces the member's whole state by a snapshot's, with its applied index, in one batch. The machine must forget what it knew.
func (m *member) install(s *snapshot) {
	m.c.t.Helper()
	m.c.did["snapshot installed"]++
	d, err := shard.Digest(s.snap)
	m.must(err)
	if d != m.c.digests[s.applied] {
		m.c.fatalf("the snapshot of member %d at %d moved with it", s.of.name, s.applied)
	}
	b := m.state.NewBatch()
	defer b.Close()
	m.must(m.state.Scan(nil, nil, false, func(k, _ []byte) (bool, error) { return true, b.Delete(k) }))
	m.must(s.snap.Scan(nil, nil, false, func(k, v []byte) (bool, error) { return true, b.Set(k, v) }))
	b.SetApplied(s.applied)
	m.must(b.Commit())
	m.machine.Reset()
}
