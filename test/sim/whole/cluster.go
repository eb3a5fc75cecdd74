package whole

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/server"
)

// clientHost is the host that all clients run on.
const clientHost = "client"

// cluster is the machines and the processes on them.
type cluster struct {
	run     *Run
	network *network
	clients *station

	mu      sync.Mutex
	members map[string]*member
	order   []string
	doors   map[string]door
}

// member is one machine: a disk, clocks, addresses, and at most one process.
type member struct {
	id      string
	port    int
	disk    *vfs.MemFS
	clock   *clock
	boots   int
	join    string   // peer address to join through; empty: it founds
	peers   []string // initial-cluster
	process *process
	gone    bool // removed from the cluster for ever
	leaving bool // one fault at a time takes a node out
}

// process is one run of a node on a machine.
type process struct {
	m       *member
	boot    int
	station *station
	carrier *carrier
	cancel  context.CancelFunc
	opened  chan struct{} // closed when Open has returned
	node    *server.Node  // after opened; nil where it failed
	killed  bool          // the cluster's lock guards it
	closed  chan struct{} // closed when nothing of it is left
}

func newCluster(run *Run) *cluster {
	c := &cluster{run: run, network: newNetwork(run.seed), members: map[string]*member{}, doors: map[string]door{}}
	c.clients = c.network.boot(clientHost)
	return c
}

func (m *member) address(door int) string { return fmt.Sprintf("127.0.0.1:%d", m.port+door) }

// Doors of a node, added to its port.
const (
	doorGRPC = iota
	doorHTTP
	doorPeer
)

// add makes a machine without a process.
func (c *cluster) add(id string) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &member{id: id, port: 10_000 + 10*len(c.order), disk: vfs.NewCrashableMem(), clock: newClock()}
	c.members[id] = m
	c.order = append(c.order, id)
	return m
}

// found makes so many machines that will found a cluster together.
func (c *cluster) found(size int) {
	var initial []string
	for i := range size {
		m := c.add(fmt.Sprintf("n%d", i+1))
		initial = append(initial, m.id+"="+m.address(doorPeer))
	}
	if size > 1 {
		for _, m := range c.members {
			m.peers = initial
		}
	}
}

func (c *cluster) config(m *member, s *station, k *carrier) server.Config {
	cfg := server.DefaultConfig()
	cfg.NodeID, cfg.InMemory, cfg.AllowLoopbackDestinations, cfg.MinFreeBytes = m.id, true, true, 0
	cfg.DrainTimeout, cfg.CacheBytes = 5*time.Second, 4<<20
	cfg.GRPCAddr, cfg.HTTPAddr, cfg.PeerAddr = m.address(doorGRPC), m.address(doorHTTP), m.address(doorPeer)
	cfg.InitialCluster, cfg.Join = m.peers, m.join
	if m.join == "" {
		cfg.Shards = c.run.plan.shards
	}
	cfg.Seams = server.Seams{
		FS: m.disk, Listen: s.listen, Dial: s.dial, Clock: m.clock, Carrier: k,
		SnapshotEntries: c.run.plan.snapshotEntries, TrailingEntries: c.run.plan.trailingEntries,
	}
	return cfg
}

// start begins a process on a machine that has none. It does not wait.
func (c *cluster) start(id string) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[id]
	if m.process != nil || m.gone {
		return m.process
	}
	m.boots++
	p := &process{m: m, boot: m.boots, opened: make(chan struct{}), closed: make(chan struct{})}
	p.station, p.carrier = c.network.boot(id), c.run.receivers.carrier(id, m.boots)
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	m.process = p
	cfg := c.config(m, p.station, p.carrier)
	c.run.trace.note("cluster", "start %s, boot %d", id, m.boots)
	c.run.background.Go(func() { c.live(ctx, p, cfg) })
	return p
}

// live is the life of one process.
func (c *cluster) live(ctx context.Context, p *process, cfg server.Config) {
	defer close(p.closed)
	node, err := server.Open(ctx, cfg, c.run.trace.logger(cfg.NodeID))
	p.node = node
	close(p.opened)
	if err != nil {
		if !c.wasKilled(p) {
			c.ended(p, fmt.Errorf("open: %w", err))
		}
		return
	}
	c.run.trace.note("cluster", "%s is open", cfg.NodeID)
	select {
	case <-ctx.Done():
	case err := <-node.Failed():
		if !c.wasKilled(p) {
			c.ended(p, err)
		}
	}
	patience := time.Minute
	if c.wasKilled(p) {
		patience = 20 * time.Second // what is left of it talks to nobody; it must end all the same
	}
	leave, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := node.Close(leave); err != nil && !c.wasKilled(p) {
		c.run.trace.note("cluster", "close %s: %v", cfg.NodeID, err)
		if errors.Is(err, context.DeadlineExceeded) {
			c.run.problem("%s did not close in time: %v", cfg.NodeID, err)
		}
	}
}

func (c *cluster) wasKilled(p *process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.killed
}

// ended is told that a process stopped by itself.
func (c *cluster) ended(p *process, err error) {
	c.mu.Lock()
	if p.m.process == p {
		p.m.process = nil
	}
	p.killed = true
	c.mu.Unlock()
	p.station.kill(false)
	p.carrier.kill()
	c.run.trace.note("cluster", "%s stopped by itself: %v", p.m.id, err)
	c.run.stopped(p.m.id, err)
}

// crash ends a process at any moment, keeping a part of what was not synced. The network goes first: what the dead process still does in its
// world reaches nobody.
func (c *cluster) crash(id string, keep int, silently bool, random *rand.Rand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[id]
	p := m.process
	if p == nil {
		return
	}
	c.run.trace.note("cluster", "crash %s, keeping %d %% of what was not synced, silently %v", id, keep, silently)
	p.killed = true
	p.station.kill(silently)
	p.carrier.kill()
	m.disk = m.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: random})
	m.process = nil
	p.cancel()
	if d, ok := c.doors[id]; ok { // a silent crash leaves it waiting for ever, as it would a client without keepalive
		delete(c.doors, id)
		go d.Close() // its error says only that it was not idle
	}
}

// stop ends a process in order and waits.
func (c *cluster) stop(id string) {
	c.mu.Lock()
	p := c.members[id].process
	c.mu.Unlock()
	if p == nil {
		return
	}
	c.run.trace.note("cluster", "stop %s", id)
	p.cancel()
	<-p.closed
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.m.process == p {
		p.m.process = nil
	}
	p.station.kill(false)
	p.carrier.kill()
	c.run.trace.note("cluster", "%s is stopped", id)
}

// wipe gives a machine without a process an empty disk.
func (c *cluster) wipe(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run.trace.note("cluster", "wipe %s", id)
	c.members[id].disk = vfs.NewCrashableMem()
}

// up are the machines with a process, in the order in which they came.
func (c *cluster) up() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.filter(func(m *member) bool { return m.process != nil })
}

// down are the machines without one, of those that belong to the cluster.
func (c *cluster) down() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.filter(func(m *member) bool { return m.process == nil && !m.gone })
}

// all are the machines that belong to the cluster.
func (c *cluster) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.filter(func(m *member) bool { return !m.gone })
}

func (c *cluster) filter(ok func(*member) bool) []string {
	var out []string
	for _, id := range c.order {
		if ok(c.members[id]) {
			out = append(out, id)
		}
	}
	return out
}

// awaitOpen waits until all processes are open.
func (c *cluster) awaitOpen(within time.Duration) bool {
	deadline := time.Now().Add(within)
	for {
		missing := []string{}
		c.mu.Lock()
		for _, id := range c.order {
			m := c.members[id]
			if m.gone {
				continue
			}
			if m.process == nil || !isClosed(m.process.opened) {
				missing = append(missing, id)
			}
		}
		c.mu.Unlock()
		if len(missing) == 0 {
			return true
		}
		if time.Now().After(deadline) {
			c.run.problem("not open after %s: %v", within, missing)
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// closeAll ends every process in order, and then every connection of the clients.
func (c *cluster) closeAll() {
	var wg sync.WaitGroup
	for _, id := range c.up() {
		wg.Go(func() { c.stop(id) })
	}
	wg.Wait()
	c.mu.Lock()
	doors := slices.Collect(maps.Values(c.doors))
	c.mu.Unlock()
	for _, d := range doors {
		_ = d.Close() // the only error is that it was closed before
	}
	c.clients.kill(false)
}

// door is a connection to one node, for what must be asked of that node.
type door struct {
	*grpc.ClientConn
	id string
}

// door gives the connection to a node; it is made once.
func (c *cluster) door(id string) door {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d, ok := c.doors[id]; ok {
		return d
	}
	conn, err := grpc.NewClient("passthrough:///"+c.members[id].address(doorGRPC),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(c.clients.dial), grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0), grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, MaxDelay: 500 * time.Millisecond}, MinConnectTimeout: 2 * time.Second,
		}))
	if err != nil {
		panic(err) // only a programmer's error can be the cause
	}
	c.doors[id] = door{conn, id}
	return c.doors[id]
}

func (d door) delivery() sealanev1.DeliveryServiceClient {
	return sealanev1.NewDeliveryServiceClient(d)
}
func (d door) query() sealanev1.QueryServiceClient { return sealanev1.NewQueryServiceClient(d) }

// clockOf gives the clocks of a machine.
func (c *cluster) clockOf(id string) *clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[id].clock
}

// awaitNode waits until the process of a node, if it has one, is open or has ended.
func (c *cluster) awaitNode(id string) bool {
	c.mu.Lock()
	p := c.members[id].process
	c.mu.Unlock()
	if p == nil {
		return true
	}
	t := time.NewTimer(openWithin)
	defer t.Stop()
	select {
	case <-p.opened:
		return true
	case <-t.C:
		return false
	}
}

// awaitRefusal waits a while for a process that may not open. It can wait for ever where nobody can tell it so; then it is ended.
func (c *cluster) awaitRefusal(p *process) {
	t := time.NewTimer(10 * time.Second)
	defer t.Stop()
	select {
	case <-p.opened:
	case <-t.C:
	}
	c.mu.Lock()
	node, current := p.node, p.m.process == p
	c.mu.Unlock()
	if isClosed(p.opened) && node != nil {
		c.run.problem("%s opened with an empty disk under its old name", p.m.id)
	}
	if current {
		c.crash(p.m.id, 0, false, rand.New(rand.NewPCG(c.run.seed, 0)))
		c.wipe(p.m.id)
	}
}

// addNext makes the next machine, for a node that joins.
func (c *cluster) addNext() string {
	c.mu.Lock()
	id := fmt.Sprintf("n%d", len(c.order)+1)
	c.mu.Unlock()
	c.add(id)
	return id
}

// joins lets a machine's next process join through another's.
func (c *cluster) joins(id, through string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[id]
	m.peers, m.join = nil, c.members[through].address(doorPeer)
}

// leave lets one fault take a node out; false where another one does already, or too few would stay.
func (c *cluster) leave(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := 0
	for _, m := range c.members {
		if !m.gone && !m.leaving {
			left++
		}
	}
	if c.members[id].leaving || c.members[id].gone || left < 3 {
		return false
	}
	for _, m := range c.members {
		if m.leaving && !m.gone {
			return false
		}
	}
	c.members[id].leaving = true
	return true
}

// returns ends what leave began: the node is a member again.
func (c *cluster) returns(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[id].leaving = false
}

// retire takes a machine away: its node was removed.
func (c *cluster) retire(id string) {
	c.mu.Lock()
	m := c.members[id]
	m.gone = true
	p := m.process
	c.mu.Unlock()
	if p != nil {
		c.run.problem("%s still runs although it was removed", id)
		c.crash(id, 100, false, rand.New(rand.NewPCG(c.run.seed, 0)))
	}
}
