package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/replication/peer"
	"github.com/sealane/sealane/shard/logcodec"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
)

// Errors of founding and joining a cluster.
var (
	// ErrDirectoryLost: the cluster knows this node under another data directory. A node without its log must not vote as the node it was:
	// remove it from the cluster (`sealane cluster remove`), give it a new id or wait until it is removed, and start it with --join.
	ErrDirectoryLost = errors.New("server: the cluster knows this node with another data directory")
	// ErrAlreadyFounded: other nodes of --initial-cluster have a cluster already, and this node is not of it. Start it with --join.
	ErrAlreadyFounded = errors.New("server: the initial cluster exists already")
	// ErrJoin: the cluster refused to take the node; the text says why.
	ErrJoin = errors.New("server: the cluster refused this node")
	// ErrTwoProcesses: a later process registered as this node with a copy of this data directory. Only one may run: this one stops.
	ErrTwoProcesses = errors.New("server: another process runs as this node")
	// ErrRemoved: this node was removed from the cluster for ever. Use another node id and an empty data directory.
	ErrRemoved = errors.New("server: this node was removed from the cluster")
)

// How a start waits for other nodes.
const (
	askTimeout = 2 * time.Second
	askPause   = 250 * time.Millisecond
	// complainEvery is how often a start that waits says for what.
	complainEvery = 5 * time.Second
)

// founded tells whether this directory belongs to a cluster.
func (n *Node) founded() bool { return n.incarnation.Load() != 0 || n.hadState }

// founders decides how the control group begins here: with which voters it is bootstrapped, none where it has state or will be filled by others.
func (n *Node) founders(ctx context.Context) ([]string, error) {
	switch {
	case n.hadState:
		return nil, nil
	case n.cfg.Join != "":
		return nil, n.join(ctx)
	case len(n.cfg.InitialCluster) == 0:
		return []string{n.self}, nil
	}
	all, err := n.meet(ctx)
	if err != nil {
		return nil, err
	}
	n.founding = all
	voters := catalog.FoundingVoters(all)
	if !slices.Contains(voters, n.self) {
		return nil, nil // it learns
	}
	return voters, nil
}

// meet asks every other founder who it is, until all have answered: only then is it certain that none of them has a cluster already, and which
// data directories it begins with. All founders come to the same list.
func (n *Node) meet(ctx context.Context) ([]string, error) {
	addresses := n.cfg.founders()
	met := map[string]string{n.cfg.NodeID: n.self}
	n.metBoots = map[string]uint64{}
	complain := time.Now().Add(complainEvery)
	for {
		var missing []string
		for node := range addresses {
			if met[node] != "" {
				continue
			}
			replica, err := n.askFounder(ctx, node)
			switch {
			case err == nil:
				met[node] = replica
			case errors.Is(err, ErrAlreadyFounded) || errors.Is(err, ErrDirectoryLost):
				return nil, err
			default:
				missing = append(missing, node)
			}
		}
		if len(missing) == 0 {
			break
		}
		if time.Now().After(complain) {
			slices.Sort(missing)
			n.log.Info("waiting for the other nodes of the initial cluster", "missing", strings.Join(missing, ","))
			complain = time.Now().Add(complainEvery)
		}
		if err := pause(ctx, askPause); err != nil {
			return nil, fmt.Errorf("waiting for the initial cluster: %w", err)
		}
	}
	all := make([]string, 0, len(met))
	for _, replica := range met {
		all = append(all, replica)
	}
	slices.Sort(all)
	return all, nil
}

// askFounder gives another founder's replica id. A founder may have come to its list earlier and begun: then its cluster must know this node by
// this directory.
func (n *Node) askFounder(ctx context.Context, node string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	l, err := n.link(node)
	if err != nil {
		return "", err
	}
	answer, err := l.peer().Hello(ctx, &peerv1.HelloRequest{})
	if err != nil {
		return "", err
	}
	if answer.GetFounded() {
		switch recorded := answer.GetRecordedReplica(); {
		case recorded == "" && answer.GetIncarnation() != 0:
			return "", fmt.Errorf("%w: node %s belongs to cluster %016x, which does not know node %s; start it with --join", ErrAlreadyFounded,
				node, answer.GetIncarnation(), n.cfg.NodeID)
		case recorded != "" && recorded != n.self:
			return "", fmt.Errorf("%w: node %s of cluster %016x knows %s, and this directory is %s; %s", ErrDirectoryLost, node,
				answer.GetIncarnation(), recorded, n.self, lostAdvice(n.cfg.NodeID))
		case recorded == "":
			return "", errors.New("its cluster is just beginning") // it has begun and knows its members in a moment
		}
	}
	n.metBoots[node] = answer.GetBoot()
	return answer.GetReplica(), nil
}

// lostAdvice says what to do about a data directory that the cluster does not know.
func lostAdvice(node string) string {
	return fmt.Sprintf("start it with the directory it had, or, if that is lost, run `sealane cluster remove %s --gone --reason TEXT` and start it "+
		"with an empty directory and --join", node)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// joinName is how the transport is asked for the member at an address whose node id is not known yet.
const joinName = peer.AnyNode

// join asks a member of the cluster to take this node in, until it does or says that it never will.
func (n *Node) join(ctx context.Context) error {
	n.peers.naming.Lock()
	n.peers.flags[joinName] = n.cfg.Join
	n.peers.naming.Unlock()
	complain := time.Now().Add(complainEvery)
	for {
		answer, err := n.askToJoin(ctx)
		if err == nil {
			n.learn(answer.GetNodes())
			n.incarnation.Store(answer.GetIncarnation())
			return nil
		}
		if code := status.Code(err); code == codes.FailedPrecondition || code == codes.PermissionDenied {
			text := status.Convert(err).Message()
			if strings.HasPrefix(text, catalog.ErrNodeConflict.Error()) {
				text += "; " + lostAdvice(n.cfg.NodeID)
			}
			return fmt.Errorf("%w: %s", ErrJoin, text)
		}
		if time.Now().After(complain) {
			n.log.Info("waiting to join the cluster", "at", n.cfg.Join, "error", err)
			complain = time.Now().Add(complainEvery)
		}
		if err := pause(ctx, askPause); err != nil {
			return fmt.Errorf("waiting to join at %s: %w", n.cfg.Join, err)
		}
	}
}

func (n *Node) askToJoin(ctx context.Context) (*peerv1.RegisterResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, refreshWait+askTimeout)
	defer cancel()
	l, err := n.link(joinName)
	if err != nil {
		return nil, err
	}
	self := n.info()
	return l.peer().Register(ctx, &peerv1.RegisterRequest{Node: nodeToPeer(&self)})
}

// info is this node as the control group shall record it.
func (n *Node) info() catalog.Node {
	out := catalog.Node{
		ID: n.cfg.NodeID, Replica: n.self, PeerAddress: n.peerAddr(), Version: Version, Boot: n.boot, LogVersion: logcodec.Version,
	}
	if n.bound != nil {
		out.GRPCAddress, out.HTTPAddress = n.bound.grpc.Addr().String(), n.bound.http.Addr().String()
	}
	return out
}

// register records a node's process in the control group.
func (n *Node) register(ctx context.Context, node catalog.Node) error {
	_, err := n.control.do(ctx, &catalog.RegisterNode{Node: node})
	return err
}

// keepRegistered makes the control group's record say what this process is, and again whenever it does not.
func (n *Node) keepRegistered(ctx context.Context) {
	self := n.info()
	have, ok, err := catalog.GetNode(n.control.state, self.ID)
	switch {
	case err != nil:
		n.fail(err)
		return
	case ok && have.State == catalog.NodeRemoved && have.Replica == n.self:
		n.fail(fmt.Errorf("%w: %s", ErrRemoved, self.ID))
		return
	case ok && have.Replica == n.self && slices.Contains(have.PastBoots[:], n.boot):
		n.fail(fmt.Errorf("%w: process %016x", ErrTwoProcesses, have.Boot))
		return
	case ok && have.Replica == self.Replica && have.Boot == self.Boot && have.PeerAddress == self.PeerAddress &&
		have.GRPCAddress == self.GRPCAddress && have.HTTPAddress == self.HTTPAddress:
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refreshWait)
	defer cancel()
	if err := n.register(ctx, self); err != nil && ctx.Err() == nil && !notAccepted(err) {
		n.log.Warn("this node is not registered yet", "error", err)
	}
}

// foundCluster fixes what the cluster is. The control group's leader does it once, in its first term.
func (n *Node) foundCluster(ctx context.Context) error {
	if _, ok, err := catalog.GetCluster(n.control.state); err != nil || ok {
		return err
	}
	shards := n.cfg.Shards
	if shards == 0 {
		shards = DefaultShards
	}
	founding := n.founding
	if len(founding) == 0 {
		founding = []string{n.self}
	}
	addresses := n.cfg.founders()
	cmd := &catalog.FoundCluster{Incarnation: drawBoot(), Shards: shards, ReplicationFactor: catalog.DefaultReplicationFactor}
	for _, replica := range founding {
		node, _, _ := replication.SplitReplicaID(replica)
		f := catalog.Node{ID: node, Replica: replica, PeerAddress: addresses[node], Boot: n.metBoots[node]}
		if node == n.cfg.NodeID {
			f = n.info()
		}
		cmd.Founders = append(cmd.Founders, f)
	}
	_, err := n.control.do(ctx, cmd)
	return err
}

// clusterKnown takes over what the cluster is, once this node's state says it.
func (n *Node) clusterKnown() (bool, error) {
	cluster, ok, err := catalog.GetCluster(n.control.state)
	if err != nil || !ok {
		return false, err
	}
	if n.cfg.Shards != 0 && n.cfg.Shards != cluster.Shards {
		return false, fmt.Errorf("%w: it has %d, the configuration says shards %d", ErrShardCount, cluster.Shards, n.cfg.Shards)
	}
	if known := n.incarnation.Load(); known != 0 && known != cluster.Incarnation {
		return false, fmt.Errorf("%w: the data directory is of cluster %016x, its control group of %016x", catalog.ErrForeignState, known, cluster.Incarnation)
	}
	if err := n.store.SetNode(n.cfg.NodeID, cluster.Incarnation); err != nil {
		return false, err
	}
	n.incarnation.Store(cluster.Incarnation)
	n.cluster = cluster
	refs := make([]*shardRef, cluster.Shards)
	for i := range refs {
		refs[i] = &shardRef{shard: uint16(i), n: n, ref: n.newRef(groupOf(uint16(i)), shardResult)}
	}
	n.shardRefs.Store(&refs)
	return true, nil
}
