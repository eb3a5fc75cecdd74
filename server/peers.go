package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/replication/peer"
	"github.com/sealane/sealane/server/fault"
	"github.com/sealane/sealane/shard/host"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
)

// ErrNoPeers: this node was started without a peer address, so it can reach no other.
var ErrNoPeers = errors.New("server: node has no peer port")

// Pace of the greetings between nodes: who is there, who leads what, what time it is.
const (
	greetEvery   = time.Second
	greetTimeout = 2 * time.Second
	// reachableFor is how long after the last greeting a node counts as reachable.
	reachableFor = 5 * time.Second
)

// peers are the other nodes as this one knows them.
type peers struct {
	network  *peer.Network
	listener net.Listener

	naming sync.Mutex        // of flags alone: the transport resolves names while a link is made
	flags  map[string]string // addresses from the configuration, and those a join was told

	mu      sync.Mutex
	links   map[string]*link
	greeted map[string]greeting
	silent  map[string]bool // nodes that did not answer last time
}

// greeting is what a node said last.
type greeting struct {
	at     time.Time
	answer *peerv1.HelloResponse
	skew   time.Duration // its wall clock against this node's, at the middle of the call
}

// openPeers binds the peer port and begins to talk.
func (n *Node) openPeers() error {
	n.peers = &peers{flags: n.cfg.founders(), links: map[string]*link{}, greeted: map[string]greeting{}, silent: map[string]bool{}}
	if n.cfg.PeerAddr == "" {
		return nil
	}
	listener, err := n.listen(n.cfg.PeerAddr)
	if err != nil {
		return fmt.Errorf("peer-addr: %w", err)
	}
	n.peers.listener = listener
	credentials, err := n.cfg.peerCredentials()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	service := &peerService{n: n}
	n.peers.network, err = peer.New(peer.Options{
		Node: n.cfg.NodeID, Replica: n.self, Boot: n.boot, Incarnation: n.incarnation.Load, Listener: listener,
		Dial: fault.Dial(n.cfg.Seams.Dial), Resolve: n.resolve, Credentials: credentials, Logger: n.log, Heard: func(peer.Peer) {},
		Register: func(r grpc.ServiceRegistrar) { peerv1.RegisterPeerServiceServer(r, service) },
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return nil
}

// resolve gives the newest peer address of a node: what the control group has, else what the configuration says.
func (n *Node) resolve(node string) (string, bool) {
	if n.control != nil {
		if known, ok, err := catalog.GetNode(n.control.state, node); err == nil && ok && known.PeerAddress != "" {
			return known.PeerAddress, true
		}
	}
	n.peers.naming.Lock()
	defer n.peers.naming.Unlock()
	address, ok := n.peers.flags[node]
	return address, ok
}

// learn keeps addresses until the control group's state has them.
func (n *Node) learn(nodes []*peerv1.NodeInfo) {
	n.peers.naming.Lock()
	defer n.peers.naming.Unlock()
	for _, node := range nodes {
		if node.GetPeerAddress() != "" {
			n.peers.flags[node.GetId()] = node.GetPeerAddress()
		}
	}
}

// link gives the way to another node.
func (n *Node) link(node string) (*link, error) {
	if n.peers == nil || n.peers.network == nil {
		return nil, ErrNoPeers
	}
	n.peers.mu.Lock()
	defer n.peers.mu.Unlock()
	if l := n.peers.links[node]; l != nil {
		return l, nil
	}
	conn, err := n.peers.network.Conn(node)
	if err != nil {
		return nil, err
	}
	l := newLink(n.running, conn)
	n.peers.links[node] = l
	return l, nil
}

// others are the other nodes of the cluster that were not removed, sorted.
func (n *Node) others() []string {
	nodes, err := catalog.Nodes(n.controlState())
	if err != nil {
		n.fail(err)
		return nil
	}
	var out []string
	for i := range nodes {
		if nodes[i].ID != n.cfg.NodeID && nodes[i].State != catalog.NodeRemoved {
			out = append(out, nodes[i].ID)
		}
	}
	return out
}

// greet keeps in touch with the other nodes until the node stops.
func (n *Node) greet(ctx context.Context) {
	tick := time.NewTicker(greetEvery)
	defer tick.Stop()
	for {
		n.greetAll(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) greetAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, node := range n.others() {
		wg.Go(func() {
			l, err := n.link(node)
			if err != nil {
				return
			}
			began, wall := time.Now(), n.wall()
			answer, err := l.peer().Hello(ctx, &peerv1.HelloRequest{})
			n.noteReach(node, err)
			if err != nil {
				return // how long since shows in greetings
			}
			if answer.GetRemoved() && answer.GetRecordedReplica() == n.self && answer.GetIncarnation() == n.incarnation.Load() {
				n.fail(fmt.Errorf("%w: node %s says so", ErrRemoved, node)) // it was out of reach when that was recorded
				return
			}
			if answer.GetSuperseded() && answer.GetIncarnation() == n.incarnation.Load() {
				n.fail(fmt.Errorf("%w: node %s says so", ErrTwoProcesses, node)) // the others talk to the later one, so that only they can tell
				return
			}
			middle := wall.Add(time.Since(began) / 2)
			n.noteGreeting(node, greeting{at: time.Now(), answer: answer, skew: stampTime(answer.GetWallUnixNanos()).Sub(middle)})
		})
	}
	wg.Wait()
	n.compareClocks()
}

// noteReach logs when a node falls silent and when it is back. Raft's own lines about it, one per group and try, are not for operators.
func (n *Node) noteReach(node string, err error) {
	n.peers.mu.Lock()
	was := n.peers.silent[node]
	n.peers.silent[node] = err != nil
	n.peers.mu.Unlock()
	switch {
	case err != nil && !was && n.running.Err() == nil:
		n.log.Warn("a node is out of reach", "peer", node, "error", peerError(err))
	case err == nil && was:
		n.log.Info("a node is in reach again", "peer", node)
	}
}

func (n *Node) noteGreeting(node string, g greeting) {
	n.peers.mu.Lock()
	n.peers.greeted[node] = g
	n.peers.mu.Unlock()
	for _, led := range g.answer.GetLeads() {
		if ref, err := n.ref(led.GetGroup()); err == nil {
			ref.heard(node)
		}
	}
}

// greetings are what every other node said last.
func (n *Node) greetings() map[string]greeting {
	if n.peers == nil {
		return nil
	}
	n.peers.mu.Lock()
	defer n.peers.mu.Unlock()
	return maps.Clone(n.peers.greeted)
}

func (g *greeting) reachable() bool { return g.answer != nil && time.Since(g.at) < reachableFor }

// compareClocks opens this node's clock gate when a majority of the cluster, itself included, has the same wall time (DESIGN 3, Time).
func (n *Node) compareClocks() {
	if !n.stamper.State().GateClosed {
		return
	}
	agree, all := 1, 1
	for _, node := range n.others() {
		all++
		g := n.greetings()[node]
		if g.reachable() && !g.answer.GetClockGateClosed() && g.skew < host.MaxClockSkew && g.skew > -host.MaxClockSkew {
			agree++
		}
	}
	if all > 1 && agree > all/2 {
		n.log.Info("the wall clock agrees with most of the cluster again", "nodes", agree, "of", all)
		n.stamper.PeersAgree()
	}
}

// holders are the nodes to ask for a read of a group, best first: the leader, then those that can be reached, then the rest.
func (n *Node) holders(ref *groupRef) []string {
	p, ok, err := catalog.GetPlacement(n.controlState(), ref.number)
	if err != nil || !ok {
		return nil
	}
	greeted, leader := n.greetings(), ref.leader()
	var out []string
	voters := map[string]bool{}
	for _, r := range p.Replicas {
		if node := catalog.NodeOf(r.ID); node != n.cfg.NodeID && r.State.Open() {
			out = append(out, node)
			voters[node] = r.State == catalog.ReplicaVoter
		}
	}
	rank := func(node string) int {
		g := greeted[node]
		switch {
		case node == leader:
			return 0
		case g.reachable() && voters[node]:
			return 1
		case g.reachable():
			return 2
		}
		return 3
	}
	slices.SortStableFunc(out, func(a, b string) int { return rank(a) - rank(b) })
	return out
}

func (p *peers) close() error {
	if p == nil || p.network == nil {
		return nil
	}
	return p.network.Close()
}
