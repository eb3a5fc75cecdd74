package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/server/fault"
	"github.com/sealane/sealane/shard/host"
	"github.com/sealane/sealane/storage"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
)

// ErrShardCount: the data directory was founded with another number of shards than the configuration asks for.
var ErrShardCount = errors.New("server: number of shards is fixed when a cluster is founded")

// startTimeout bounds the start of a node that needs no other. A node with much log to replay needs longer than an election. A node of a
// cluster waits for the others without a bound.
const startTimeout = 2 * time.Minute

// Node is one running node: its groups, its hosts, its peers and its doors.
type Node struct {
	cfg     Config
	log     *slog.Logger
	boot    uint64
	self    string // its replica id
	started time.Time
	random  randomPool

	store    *storage.Store
	hadState bool // the directory held a control group when it was opened
	clock    host.Clock
	stamper  *host.Stamper
	carrier  host.Carrier

	peers       *peers
	founding    []string          // replica ids of the founders; nil unless this start founds a cluster
	metBoots    map[string]uint64 // boot ids of the other founders, by node
	incarnation atomic.Uint64
	control     *control
	cluster     catalog.Cluster // set before shardRefs
	shardRefs   atomic.Pointer[[]*shardRef]
	caring      sync.Mutex // one change of the set of replicas here at a time

	destinations destinationCache
	installs     installs
	steward      steward
	metrics      *metrics
	bound        *listeners
	doors        *doors
	space        space
	draining     atomic.Bool

	running    context.Context // ends when the node closes
	stop       context.CancelFunc
	background sync.WaitGroup

	failed    chan error
	failOnce  sync.Once
	closeOnce sync.Once
	closeErr  error
}

// Open starts a node: it opens the store, finds or founds its cluster, brings up its replicas, opens the doors, and returns once every shard
// has a leader that it knows of. On error nothing is left running.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: log, started: time.Now(), failed: make(chan error, 1), boot: drawBoot()}
	n.running, n.stop = context.WithCancel(context.Background())
	if err := n.open(ctx); err != nil {
		return nil, errors.Join(err, n.Close(context.Background()))
	}
	return n, nil
}

// drawBoot draws the boot id that tells this process from every other in owner epochs.
func drawBoot() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: the runtime ends the process instead
	return binary.BigEndian.Uint64(b[:]) | 1
}

func (n *Node) open(ctx context.Context) error {
	n.metrics = newMetrics(n)
	if err := fault.Start(n.log); err != nil {
		return err
	}
	if err := n.openStore(); err != nil {
		return err
	}
	n.watchSpace(n.running)
	n.clock = fault.Clock(n.cfg.Seams.clock())
	n.stamper = host.NewStamper(n.clock, 0)
	n.carrier = n.cfg.Seams.Carrier
	if n.carrier == nil {
		n.carrier = newCarrier(n.cfg)
	}
	var err error
	if n.bound, err = n.bindDoors(); err != nil {
		return err
	}
	n.prepareControl()
	if err := n.openPeers(); err != nil {
		return err
	}
	if n.alone() {
		bounded, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		ctx = bounded
	}
	if err := n.openControl(ctx); err != nil {
		return err
	}
	n.background.Go(func() { n.greet(n.running) })
	n.background.Go(func() { n.follow(n.running) })
	if n.doors, err = openDoors(n); err != nil {
		return err
	}
	return n.awaitLeaders(ctx)
}

// alone tells whether this start depends on no other node.
func (n *Node) alone() bool { return len(n.cfg.InitialCluster) == 0 && n.cfg.Join == "" && !n.hadState }

func (n *Node) openStore() error {
	if err := checkStartSpace(n.cfg); err != nil {
		return err
	}
	o := storage.Options{
		Dir: n.cfg.DataDir, CacheBytes: n.cfg.CacheBytes, OnFatal: n.fail, Logger: n.log, CreatedBy: "sealane " + Version, FS: fault.FS(n.cfg.Seams.FS),
	}
	if n.cfg.InMemory {
		o.Dir = "memory"
		if n.cfg.Seams.FS == nil {
			o.FS, o.NoSync = vfs.NewMem(), true
		}
	}
	store, err := storage.Open(o)
	if err != nil {
		return err
	}
	n.store = store
	n.self = replication.ReplicaID(n.cfg.NodeID, store.Identity().StoreID)
	if n.hadState, err = hasControlState(store); err != nil {
		return err
	}
	node, incarnation, bound := store.Node()
	if bound && node != n.cfg.NodeID {
		return fmt.Errorf("%w: it is bound to node-id %q, the configuration says %q", storage.ErrIdentity, node, n.cfg.NodeID)
	}
	n.incarnation.Store(incarnation)
	return nil
}

// hasControlState tells whether a directory holds a control group: entries of its log, or a snapshot of it. A term or a vote alone is no state: a
// process that stopped in the middle of founding or joining begins that again.
func hasControlState(store *storage.Store) (bool, error) {
	groups, err := store.Groups()
	if err != nil || !slices.Contains(groups, controlGroup) {
		return false, err
	}
	log, err := store.RaftLog(controlGroup)
	if err != nil {
		return false, err
	}
	last, err := log.LastIndex()
	if err != nil || last > 0 {
		return last > 0, err
	}
	_, marked, err := store.LoadSnapshotMarker(controlGroup)
	return marked, err
}

// newRef makes the way to a group.
func (n *Node) newRef(number uint32, decode func(*peerv1.CommandResult) (any, error)) *groupRef {
	return &groupRef{number: number, self: n.cfg.NodeID, links: n.link, decode: decode}
}

// prepareControl makes the control group's place before other nodes ask for it.
func (n *Node) prepareControl() {
	n.control = &control{
		ref: n.newRef(controlGroup, catalogResult), state: n.store.State(controlGroup), changed: make(chan struct{}, 1),
		took: n.leadControl, lost: func() { n.steward.lost() }, made: func(v catalog.Version) { n.destinations.put(v); n.installs.one(v) },
	}
	n.installs.wake = make(chan struct{}, 1)
}

// controlState is the control group's committed state on this node.
func (n *Node) controlState() catalog.Reader { return n.control.state }

// openControl brings up the control group and waits until it says what the cluster is.
func (n *Node) openControl(ctx context.Context) error {
	voters, err := n.founders(ctx)
	if err != nil {
		return err
	}
	if n.control.group, _, err = n.openGroup(controlGroup, n.control, voters); err != nil { // unplugged with all others, when the peers close
		return fmt.Errorf("control group: %w", err)
	}
	n.control.ref.local.Store(n.control.group)
	complain := time.Now().Add(complainEvery)
	for {
		known, err := n.clusterKnown()
		if err != nil || known {
			return err
		}
		if time.Now().After(complain) {
			n.log.Info("waiting for the control group", "leader", n.control.ref.leader())
			complain = time.Now().Add(complainEvery)
		}
		if err := n.await(ctx, n.control.changed, askPause); err != nil {
			return fmt.Errorf("control group: %w", err)
		}
	}
}

// openGroup starts this node's replica of one group. It is bootstrapped only where voters are given and it has no state. Unplug the group from the
// peers once it is closed: it may be opened again.
func (n *Node) openGroup(number uint32, machine replication.StateMachine, voters []string) (group *replication.Group, unplug func() error, err error) {
	o := replication.Options{
		Store: n.store, Group: number, NodeID: n.cfg.NodeID, ReplicaID: n.self, BootID: n.boot, Stamp: n.stamp, Machine: machine, Logger: n.log,
		Bootstrap: voters, Observer: n.metrics.replication(number), OnFailure: n.fail, SnapshotEntries: fault.SnapshotEntries(),
		TrailingEntries: fault.TrailingEntries(),
	}
	if n.cfg.Seams.SnapshotEntries != 0 {
		o.SnapshotEntries = n.cfg.Seams.SnapshotEntries
	}
	if n.cfg.Seams.TrailingEntries != 0 {
		o.TrailingEntries = n.cfg.Seams.TrailingEntries
	}
	unplug = func() error { return nil }
	if n.peers.network != nil {
		t := n.peers.network.Transport(number)
		o.Transport, unplug = t, t.Close
	}
	if group, err = replication.NewGroup(o); err != nil {
		return nil, nil, errors.Join(err, unplug())
	}
	return group, unplug, nil
}

// wall is the wall clock as the stamper sees it.
func (n *Node) wall() policy.Time {
	_, wall := n.clock.Read()
	return wall
}

func (n *Node) stamp() int64 { return int64(n.stamper.Stamp()) }

// leadControl is told that this node leads the control group.
func (n *Node) leadControl(term uint64) {
	n.background.Go(func() {
		if err := n.foundCluster(n.running); err != nil && n.control.ref.term.Load() == term && n.running.Err() == nil {
			n.fail(fmt.Errorf("found the cluster: %w", err))
			return
		}
		n.steward.start(n, term)
	})
}

// await waits for a signal or a while, the end of the context, or the failure of the node.
func (n *Node) await(ctx context.Context, signal <-chan struct{}, most time.Duration) error {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-signal:
		return nil
	case <-t.C:
		return nil
	case err := <-n.failed:
		n.failed <- err
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leaderPoll is how often a start looks whether every group has a leader.
const leaderPoll = 10 * time.Millisecond

// awaitLeaders waits until this node knows a leader of every group, and takes proposals where it is the leader itself.
func (n *Node) awaitLeaders(ctx context.Context) error {
	complain := time.Now().Add(complainEvery)
	for {
		var missing []uint32
		for number, ref := range n.refs() {
			if leader := ref.leader(); leader == "" || leader == n.cfg.NodeID && !ref.leads() {
				missing = append(missing, number)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		if time.Now().After(complain) {
			n.log.Info("waiting for leaders", "groups", fmt.Sprint(missing))
			complain = time.Now().Add(complainEvery)
		}
		if err := n.await(ctx, nil, leaderPoll); err != nil {
			if ctx.Err() == nil {
				return err // the node has failed, whatever it waited for
			}
			return fmt.Errorf("waiting for the leaders of groups %v: %w", missing, err)
		}
	}
}

// processGone tells whether a process is known to have ended. This node's earlier ones have: the data directory is locked. Another node's have
// once a later process of it has registered, or the node was removed.
func (n *Node) processGone(node string, boot uint64) bool {
	if node == n.cfg.NodeID {
		return boot != n.boot
	}
	known, ok, err := catalog.GetNode(n.control.state, node)
	if err != nil || !ok {
		return false // nothing is known; the attempt's deadline decides
	}
	return known.State == catalog.NodeRemoved || known.Boot != boot && slices.Contains(known.PastBoots[:], boot)
}

// fail is called when the process must stop: a write to the log failed, or a shard met what it cannot apply. The first reason counts.
func (n *Node) fail(err error) {
	n.failOnce.Do(func() {
		n.log.Error("the node must stop", "error", err)
		n.failed <- err
	})
}

// Failed delivers at most one error: why the process must stop. Fail-stop is the remedy; state is recovered from the log at the next start.
func (n *Node) Failed() <-chan error { return n.failed }

// GRPCAddr is where the gRPC door really listens.
func (n *Node) GRPCAddr() string { return n.bound.grpc.Addr().String() }

// HTTPAddr is the address of REST, metrics and health.
func (n *Node) HTTPAddr() string { return n.bound.http.Addr().String() }

// noPeerAddress is recorded for a node without a peer port.
const noPeerAddress = "none:0"

// peerAddr is where peers reach this node.
func (n *Node) peerAddr() string {
	if n.peers == nil || n.peers.listener == nil {
		return noPeerAddress
	}
	return n.peers.listener.Addr().String()
}

func (n *Node) listen(address string) (net.Listener, error) {
	if n.cfg.Seams.Listen != nil {
		return n.cfg.Seams.Listen(address)
	}
	return net.Listen("tcp", address)
}
