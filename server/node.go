package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/host"
	"github.com/sealane/sealane/storage"
)

// ErrShardCount: the data directory was founded with another number of shards than the configuration asks for.
var ErrShardCount = errors.New("server: number of shards is fixed when a cluster is founded")

// startTimeout bounds the wait for the groups to lead at start. A node with much log to replay needs longer than an election.
const startTimeout = 2 * time.Minute

// Node is one running node: its groups, its hosts and its doors.
type Node struct {
	cfg     Config
	log     *slog.Logger
	boot    uint64
	started time.Time
	random  randomPool

	store        *storage.Store
	stamper      *host.Stamper
	carrier      *carrier
	control      *control
	cluster      catalog.Cluster
	replicas     []*replica
	destinations destinationCache
	metrics      *metrics
	doors        *doors
	space        space

	running    context.Context // ends when the node closes
	stop       context.CancelFunc
	background sync.WaitGroup

	failed    chan error
	failOnce  sync.Once
	closeOnce sync.Once
	closeErr  error
}

// Open starts a node: it opens the store, brings up the control group and the shards, waits until they lead, and opens the doors. On
// error nothing is left running.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: log, started: time.Now(), failed: make(chan error, 1), boot: drawBoot()}
	n.running, n.stop = context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
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
	if err := n.openStore(); err != nil {
		return err
	}
	n.watchSpace(n.running)
	n.stamper = host.NewStamper(host.NewClock(), 0)
	n.carrier = newCarrier(n.cfg)
	if err := n.openControl(ctx); err != nil {
		return err
	}
	if err := n.openShards(ctx); err != nil {
		return err
	}
	if err := n.reconcile(ctx); err != nil {
		return err
	}
	doors, err := openDoors(n)
	n.doors = doors
	return err
}

func (n *Node) openStore() error {
	if err := checkStartSpace(n.cfg); err != nil {
		return err
	}
	o := storage.Options{
		Dir: n.cfg.DataDir, CacheBytes: n.cfg.CacheBytes, OnFatal: n.fail, Logger: n.log, CreatedBy: "sealane " + Version,
	}
	if n.cfg.InMemory {
		o.FS, o.Dir, o.NoSync = vfs.NewMem(), "memory", true
	}
	store, err := storage.Open(o)
	if err != nil {
		return err
	}
	n.store = store
	return nil
}

// identity binds the data directory to this node and, if it is new, founds a cluster incarnation.
func (n *Node) identity() (incarnation uint64, err error) {
	_, incarnation, bound := n.store.Node()
	if !bound {
		incarnation = drawBoot()
	}
	return incarnation, n.store.SetNode(n.cfg.NodeID, incarnation)
}

func (n *Node) openControl(ctx context.Context) error {
	incarnation, err := n.identity()
	if err != nil {
		return err
	}
	c := &control{state: n.store.State(controlGroup), led: make(chan struct{})}
	n.control = c
	if c.group, err = n.openGroup(controlGroup, c); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	if err := n.await(ctx, c.led); err != nil {
		return fmt.Errorf("control group does not lead: %w", err)
	}
	if err := n.found(ctx, incarnation); err != nil {
		return err
	}
	cluster, ok, err := catalog.GetCluster(c.state)
	if err == nil && !ok {
		err = catalog.ErrCorrupt
	}
	n.cluster = cluster
	return err
}

// found fixes what the cluster is, or checks that the data directory agrees with the configuration.
func (n *Node) found(ctx context.Context, incarnation uint64) error {
	shards := n.cfg.Shards
	have, ok, err := catalog.GetCluster(n.control.state)
	if err != nil {
		return err
	}
	if ok {
		if shards != 0 && shards != have.Shards {
			return fmt.Errorf("%w: it has %d, the configuration says shards %d", ErrShardCount, have.Shards, shards)
		}
		shards = have.Shards
	}
	if shards == 0 {
		shards = DefaultShards
	}
	_, err = n.control.do(ctx, &catalog.FoundCluster{Incarnation: incarnation, Shards: shards})
	return err
}

// openGroup starts one replication group of this node, its only voter for now.
func (n *Node) openGroup(number uint32, machine replication.StateMachine) (*replication.Group, error) {
	return replication.NewGroup(replication.Options{
		Store: n.store, Group: number, NodeID: n.cfg.NodeID, BootID: n.boot, Stamp: n.stamp, Machine: machine, Logger: n.log,
		Bootstrap: []replication.Server{{ID: n.cfg.NodeID, Address: n.cfg.NodeID}}, Observer: n.metrics.replication(number), OnFailure: n.fail,
	})
}

func (n *Node) stamp() int64 { return int64(n.stamper.Stamp()) }

func (n *Node) openShards(ctx context.Context) error {
	n.replicas = make([]*replica, n.cluster.Shards)
	for i := range n.replicas {
		r, err := n.openReplica(uint16(i))
		if err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
		n.replicas[i] = r
	}
	for _, r := range n.replicas {
		if err := n.await(ctx, r.led); err != nil {
			return fmt.Errorf("shard %d does not lead: %w", r.shard, err)
		}
	}
	return nil
}

func (n *Node) openReplica(number uint16) (*replica, error) {
	state := n.store.State(groupOf(number))
	state.KeepRecent(shard.HotKinds()...)
	meta, err := shard.ReadMeta(state)
	if err != nil {
		return nil, err
	}
	n.stamper.Anchor(meta.Clock)
	r := &replica{
		shard: number, state: state, machine: shard.NewMachine(number, n.cluster.Incarnation), watch: newWatchers(), metrics: n.metrics,
		space: &n.space, led: make(chan struct{}),
	}
	r.host, err = host.New(host.Options{
		Log: r, Store: r, Carrier: n.carrier, Stamper: n.stamper, Observer: n.metrics.host(), Node: n.cfg.NodeID, Boot: n.boot,
		StillLeads: r.stillLeads, ProcessGone: n.processGone, Failed: n.fail,
	})
	if err != nil {
		return nil, err
	}
	r.group, err = n.openGroup(groupOf(number), r)
	if err != nil {
		return nil, errors.Join(err, r.host.Close())
	}
	return r, nil
}

// processGone tells whether an earlier process is known to have ended: any other boot of this node is, since the data directory is locked.
func (n *Node) processGone(node string, boot uint64) bool {
	return node == n.cfg.NodeID && boot != n.boot
}

// await waits for a signal, the end of the context, or the failure of the node.
func (n *Node) await(ctx context.Context, signal <-chan struct{}) error {
	select {
	case <-signal:
		return nil
	case err := <-n.failed:
		n.failed <- err
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
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

// GRPCAddr and HTTPAddr are where the doors really listen.
func (n *Node) GRPCAddr() string { return n.doors.grpcAddr() }

// HTTPAddr is the address of REST, metrics and health.
func (n *Node) HTTPAddr() string { return n.doors.httpAddr() }

// Close stops taking calls, stops admitting, waits for requests in flight (at most the drain timeout, or until the context ends), and
// closes the groups and the store. What is still in flight is recovered at the next start as UNKNOWN. Safe to call more than once.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(func() { n.closeErr = n.close(ctx) })
	return n.closeErr
}

func (n *Node) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DrainTimeout+closeGrace)
	defer cancel()
	n.stop()
	n.background.Wait()
	var errs []error
	if n.doors != nil {
		errs = append(errs, n.doors.close(ctx))
	}
	errs = append(errs, n.drain(ctx))
	for _, r := range n.replicas {
		if r != nil {
			errs = append(errs, r.close(ctx))
		}
	}
	if n.control != nil && n.control.group != nil {
		errs = append(errs, n.control.group.Close(ctx))
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	return errors.Join(errs...)
}

// closeGrace is what closing the groups and flushing may take beyond the drain.
const closeGrace = 20 * time.Second

// drain lets requests in flight return and their outcomes be recorded, in all shards at once.
func (n *Node) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DrainTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, r := range n.replicas {
		if r == nil || !r.leading() {
			continue
		}
		wg.Go(func() {
			if left, err := r.host.Drain(ctx); err != nil {
				n.log.Warn("requests were still in flight at the end; they are recovered as UNKNOWN at the next start",
					"shard", r.shard, "left", left, "error", err)
			}
		})
	}
	wg.Wait()
	return nil
}
