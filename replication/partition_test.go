package replication

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
)

// TestPartitions lets real groups on fake time live through random partitions and losses of power, with a snapshot every few entries and
// next to nothing kept behind it, so that replicas that were away get the state itself, and leaders that were cut off come back with long tails
// that were never committed. What must hold: every replica that reaches an index has the same state there, what was acknowledged is
// there in the end, nobody is stuck, and no replica is sent the same snapshot again and again. SEALANE_TEST_ROUNDS and SEALANE_TEST_SEED set how
// many rounds and where they begin, SEALANE_TEST_TRAILING the entries kept. Checked without the remedies: with InstalledSnapshot's part left out of an
// install, replicas get stuck in repeated installs; with Installed not called or the applied index not taken over, states differ.
func TestPartitions(t *testing.T) {
	rounds, seed := number(t, "SEALANE_TEST_ROUNDS", 6), number(t, "SEALANE_TEST_SEED", uint64(time.Now().UnixNano()%1e9))
	trailing := number(t, "SEALANE_TEST_TRAILING", 4)
	var total partitionCounts
	for round := range rounds {
		again := fmt.Sprintf("SEALANE_TEST_ROUNDS=1 SEALANE_TEST_SEED=%d SEALANE_TEST_TRAILING=%d go test -count=1 -run '^TestPartitions$' ./replication",
			seed+round, trailing)
		synctest.Test(t, func(t *testing.T) {
			w := newPartitionWorld(t, seed+round, trailing, again)
			w.run()
			total.add(&w.counts)
		})
		if t.Failed() {
			t.Fatalf("repeat with: %s", again)
		}
	}
	t.Logf("seed %d, %d rounds: %d indexes compared, %d acknowledged, %d installs, %d crashes, %d raw entries", seed, rounds,
		total.indexes.Load(), total.acked.Load(), total.installs.Load(), total.crashes.Load(), total.raw.Load())
	if rounds >= 6 && (total.installs.Load() == 0 || total.acked.Load() == 0 || total.crashes.Load() == 0) {
		t.Error("the rounds show nothing")
	}
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(v, 10, 63)
	if err != nil {
		t.Fatalf("%s=%q is not a number", name, v)
	}
	return n
}

type partitionCounts struct{ indexes, acked, installs, crashes, raw atomic.Int64 }

func (c *partitionCounts) add(o *partitionCounts) {
	for _, p := range [][2]*atomic.Int64{{&c.indexes, &o.indexes}, {&c.acked, &o.acked}, {&c.installs, &o.installs}, {&c.crashes, &o.crashes}, {&c.raw, &o.raw}} {
		p[0].Add(p[1].Load())
	}
}

const (
	partitionNodes = 3
	partitionSteps = 10
	// repeatedInstalls is how often one process may install the same snapshot before that counts as endless.
	repeatedInstalls = 6
)

type partitionWorld struct {
	t        *testing.T
	rng      *rand.Rand
	seed     uint64
	trailing uint64
	again    string
	counts   partitionCounts

	mu     sync.Mutex
	nodes  [partitionNodes]*partitionNode
	up     [partitionNodes][partitionNodes]bool
	hashes map[uint64][32]byte // of the chain, by index
	acked  map[string]bool
	next   int // number of the next command
}

// partitionNode is one process; a restart makes another.
type partitionNode struct {
	world     *partitionWorld
	number    int
	boot      uint64
	fs        *vfs.MemFS
	store     *storage.Store
	group     *Group
	transport *raft.InmemTransport
	installs  map[uint64]int // by snapshot index
}

func newPartitionWorld(t *testing.T, seed, trailing uint64, again string) *partitionWorld {
	w := &partitionWorld{t: t, rng: rand.New(rand.NewPCG(seed, 77)), seed: seed, trailing: trailing, again: again,
		hashes: map[uint64][32]byte{}, acked: map[string]bool{}}
	for i := range w.nodes {
		w.nodes[i] = w.boot(i, vfs.NewCrashableMem(), 1)
	}
	w.link(func(int, int) bool { return true })
	return w
}

func partitionID(i int) string { return rid(fmt.Sprintf("n%d", i+1)) }

// boot starts a node on a disk. It is connected to nobody.
func (w *partitionWorld) boot(i int, fs *vfs.MemFS, boot uint64) *partitionNode {
	n := &partitionNode{world: w, number: i, boot: boot, fs: fs, store: openStore(w.t, "data", fs), installs: map[uint64]int{}}
	_, n.transport = raft.NewInmemTransport(raft.ServerAddress(partitionID(i)))
	var founders []string
	for k := range partitionNodes {
		founders = append(founders, partitionID(k))
	}
	o := options(n.store, &chainMachine{node: n})
	o.NodeID, o.ReplicaID, o.BootID = fmt.Sprintf("n%d", i+1), partitionID(i), boot
	o.Bootstrap, o.Transport = founders, n.transport
	o.SnapshotEntries, o.TrailingEntries = 12, 4*MaxEntriesInFlight
	g, err := NewGroup(o)
	if err != nil {
		w.t.Fatalf("node %d: %v\nrepeat with: %s", i, err, w.again)
	}
	n.group = g
	// Fewer than Options allows, and not bounded by what is in flight: here the remedies must hold alone.
	c := g.current().ReloadableConfig()
	c.TrailingLogs = w.trailing
	if err := g.current().ReloadConfig(c); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// link connects and cuts pairs of nodes.
func (w *partitionWorld) link(connected func(i, k int) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.nodes {
		for k := range i {
			a, b := w.nodes[i], w.nodes[k]
			if w.up[i][k] = connected(i, k); w.up[i][k] {
				a.transport.Connect(b.transport.LocalAddr(), b.transport)
				b.transport.Connect(a.transport.LocalAddr(), a.transport)
			} else {
				a.transport.Disconnect(b.transport.LocalAddr())
				b.transport.Disconnect(a.transport.LocalAddr())
			}
		}
	}
}

func (w *partitionWorld) node(i int) *partitionNode {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[i]
}

// crash takes a node's power away: what it had not synced is gone in part. The network goes first, so that nothing it says later counts.
func (w *partitionWorld) crash(i int) {
	up := w.up
	w.link(func(a, b int) bool { return up[a][b] && a != i && b != i })
	synctest.Wait()
	old := w.node(i)
	disk := old.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(3) * 50, RNG: w.rng})
	old.end()
	fresh := w.boot(i, disk, old.boot+1)
	w.mu.Lock()
	w.nodes[i] = fresh
	w.mu.Unlock()
	w.counts.crashes.Add(1)
	w.link(func(a, b int) bool { return up[a][b] })
}

// end stops a process whose disk nobody reads again.
func (n *partitionNode) end() {
	closeGroup(n.world.t, n.group)
	n.transport.DisconnectAll()
	if err := n.store.Close(); err != nil {
		n.world.t.Errorf("close store of node %d: %v", n.number, err)
	}
}

func (w *partitionWorld) run() {
	stop := make(chan struct{})
	var proposers sync.WaitGroup
	for i := range w.nodes {
		rng := rand.New(rand.NewPCG(w.seed, uint64(i)))
		proposers.Go(func() { w.propose(i, rng, stop) })
	}
	for range partitionSteps {
		<-time.After(time.Duration(300+w.rng.IntN(2500)) * time.Millisecond)
		if w.rng.IntN(4) == 0 {
			w.crash(w.rng.IntN(partitionNodes))
		}
		w.link(func(int, int) bool { return w.rng.IntN(100) < 55 })
	}
	w.link(func(int, int) bool { return true })
	<-time.After(3 * time.Second)
	close(stop)
	proposers.Wait()
	w.settle()
	for i := range w.nodes {
		w.nodes[i].end()
	}
}

// propose offers commands to one node while it leads, now and then a burst that passes by the proposer and its bounds.
func (w *partitionWorld) propose(i int, rng *rand.Rand, stop chan struct{}) {
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-stop:
			return
		case <-pace.C:
		}
		g := w.node(i).group
		if g.current().State() != raft.Leader {
			continue
		}
		if rng.IntN(40) == 0 {
			for range rng.IntN(60) {
				e := Entry{Stamp: 1, NodeID: "raw", BootID: 1, Commands: [][]byte{w.command(rng)}}
				g.current().Apply(AppendEntry(nil, &e), 10*time.Millisecond) // whatever comes of it
				w.counts.raw.Add(1)
			}
			continue
		}
		command := w.command(rng)
		// A refusal is an answer too: there is nothing to do about it.
		_ = g.Propose(context.Background(), Client, command, func(_ any, _ uint64, err error) {
			if err == nil {
				w.mu.Lock()
				w.acked[string(command)] = true
				w.mu.Unlock()
				w.counts.acked.Add(1)
			}
		})
	}
}

// command makes one that was never made before, some of them large.
func (w *partitionWorld) command(rng *rand.Rand) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	c := fmt.Appendf(nil, "%06d", w.next)
	if rng.IntN(8) == 0 {
		c = append(c, make([]byte, rng.IntN(4000))...)
	}
	return c
}

// settle waits until every replica has what the leader has, and compares all.
func (w *partitionWorld) settle() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	index := w.leaderIndex(ctx)
	for i, n := range w.nodes {
		if err := n.group.WaitApplied(ctx, index); err != nil {
			w.t.Errorf("node %d is stuck: %v, want %d: %+v\nrepeat with: %s", i, err, index, n.group.Status(), w.again)
		}
	}
	first := w.nodes[0].fingerprint()
	for _, n := range w.nodes[1:] {
		if got := n.fingerprint(); got != first {
			w.t.Errorf("node %d: state %x, node 0 has %x", n.number, got[:8], first[:8])
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		for command := range w.acked {
			if _, ok, err := n.store.State(1).Get(commandKey([]byte(command))); err != nil || !ok {
				w.t.Errorf("node %d lost the acknowledged command %.6s (%v)", n.number, command, err)
			}
		}
	}
	w.counts.indexes.Store(int64(len(w.hashes)))
}

// leaderIndex waits for a leader and gives an index that holds everything acknowledged; 0 after an error.
func (w *partitionWorld) leaderIndex(ctx context.Context) uint64 {
	w.t.Helper()
	for ; ctx.Err() == nil; <-time.After(50 * time.Millisecond) {
		for _, n := range w.nodes {
			if !n.group.Status().Ready {
				continue
			}
			if index, err := n.group.ReadIndex(ctx); err == nil {
				return index
			}
		}
	}
	for i, n := range w.nodes {
		w.t.Errorf("no leader: node %d: %+v\nrepeat with: %s", i, n.group.Status(), w.again)
	}
	return 0
}

// fingerprint covers the whole state.
func (n *partitionNode) fingerprint() (sum [32]byte) {
	h := sha256.New()
	err := n.store.State(1).Scan(nil, nil, false, func(k, v []byte) (bool, error) {
		hashBytes(h, k)
		hashBytes(h, v)
		return true, nil
	})
	if err != nil {
		n.world.t.Error(err)
	}
	h.Sum(sum[:0])
	return sum
}

// saw compares the state at an index with what another replica had there.
func (w *partitionWorld) saw(node int, index uint64, hash [32]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if other, ok := w.hashes[index]; ok && other != hash {
		w.t.Errorf("node %d at index %d has %x, another had %x\nrepeat with: %s", node, index, hash[:8], other[:8], w.again)
	}
	w.hashes[index] = hash
}

// chainMachine keeps a hash over everything that was ever applied, and every command under its own key.
type chainMachine struct{ node *partitionNode }

var chainKey = []byte("chain")

func commandKey(command []byte) []byte { return append([]byte("c/"), command[:6]...) }

func (m *chainMachine) Apply(b *storage.Batch, e Entry) ([]any, error) {
	before, _, err := b.Get(chainKey)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	h.Write(before)
	h.Write(binary.BigEndian.AppendUint64(nil, e.Index))
	results := make([]any, 0, len(e.Commands))
	for _, c := range e.Commands {
		hashBytes(h, c)
		if err := b.Set(commandKey(c), c); err != nil {
			return nil, err
		}
		results = append(results, e.Index)
	}
	var sum [32]byte
	h.Sum(sum[:0])
	m.node.world.saw(m.node.number, e.Index, sum)
	return results, b.Set(chainKey, append(binary.BigEndian.AppendUint64(nil, e.Index), sum[:]...))
}

func (m *chainMachine) Installed(applied uint64) {
	n := m.node
	n.world.counts.installs.Add(1)
	v, ok, err := n.store.State(1).Get(chainKey)
	if err != nil || ok && len(v) != 40 {
		n.world.t.Errorf("node %d: chain of %d bytes (%v) at %d", n.number, len(v), err, applied)
	}
	if ok {
		n.world.saw(n.number, binary.BigEndian.Uint64(v), [32]byte(v[8:]))
	}
	at := n.group.log.SnapshotIndex()
	if n.installs[at]++; n.installs[at] > repeatedInstalls {
		// Not an error of the test: endless installs take no fake time, and nothing else would ever run again.
		panic(fmt.Sprintf("node %d installs the snapshot at %d for the %dth time\nrepeat with: %s", n.number, at, n.installs[at], n.world.again))
	}
}

func (m *chainMachine) Committed(uint64) {}
func (m *chainMachine) Led(uint64)       {}
func (m *chainMachine) Deposed()         {}
