package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sealane/sealane/policy"
)

// Errors of the commands about nodes.
var (
	// ErrNodeNotFound: no node of that id is registered.
	ErrNodeNotFound = errors.New("catalog: node not found")
	// ErrNodeConflict: the node id is registered with another data directory. If that directory is lost, remove the node and join again;
	// otherwise start the node with the directory it had.
	ErrNodeConflict = errors.New("catalog: node id belongs to another data directory")
	// ErrNodeRemoved: this data directory belongs to a node that was removed; it can never come back. Join with an empty directory.
	ErrNodeRemoved = errors.New("catalog: node was removed")
	// ErrTooManyNodes: the cluster has MaxNodes nodes.
	ErrTooManyNodes = errors.New("catalog: too many nodes")
	// ErrLastNode: the change would leave the cluster without any ACTIVE node.
	ErrLastNode = errors.New("catalog: the last active node must stay")
	// ErrNodeInUse: the node still holds replicas of shards or votes in the control group, so it cannot be recorded as REMOVED without the
	// word that it is gone. Move them off first.
	ErrNodeInUse = errors.New("catalog: node still holds replicas")
)

// NodeState says what the cluster may put on a node.
type NodeState uint8

// The states of a node. Numbers are part of the format.
const (
	// NodeActive takes replicas and leaderships.
	NodeActive NodeState = 1
	// NodeDraining keeps its replicas, takes no new ones, and hands its leaderships over.
	NodeDraining NodeState = 2
	// NodeRemoved is for ever: its data directory is not a member any more.
	NodeRemoved NodeState = 3
)

func (s NodeState) String() string {
	switch s {
	case NodeActive:
		return "ACTIVE"
	case NodeDraining:
		return "DRAINING"
	case NodeRemoved:
		return "REMOVED"
	}
	return fmt.Sprintf("NodeState(%d)", uint8(s))
}

// Node is one registered node: who it is, which process runs it, and how it is reached.
type Node struct {
	ID          string `json:"id"`      // stable; up to MaxNodeIDBytes
	Replica     string `json:"replica"` // its replica id: the node id, '@', 16 hex digits of its store id
	PeerAddress string `json:"peer_address"`
	GRPCAddress string `json:"grpc_address,omitempty"`
	HTTPAddress string `json:"http_address,omitempty"`
	Version     string `json:"version,omitempty"` // of its binary
	Boot        uint64 `json:"boot"`              // of the process that registered last
	// PastBoots are processes that registered before with the same data directory, newest first; 0 fills. They have ended: a directory has one
	// process at a time. A boot id that is in neither place is not known to have ended.
	PastBoots  [MaxPastBoots]uint64 `json:"past_boots"`
	LogVersion uint32               `json:"log_version,omitempty"` // newest version of log commands it knows
	// State is kept over restarts: a DRAINING node that registers again is still DRAINING.
	State        NodeState   `json:"state"`
	RegisteredAt policy.Time `json:"registered_at"`
	RemovedAt    policy.Time `json:"removed_at,omitempty"`
}

// Bounds of a node's record.
const (
	MaxNodeIDBytes  = 63
	MaxAddressBytes = 261 // a host of 253 bytes, brackets, a colon and a port
	MaxVersionBytes = 128
	// MaxPastBoots is how many earlier processes of a node are remembered.
	MaxPastBoots = 8
	// maxRemovedNodes bounds the records of nodes that are gone; the oldest that no placement names is forgotten.
	maxRemovedNodes = 256

	storeDigits = 16
)

// RegisterNode records a node or a new start of its process. A node's registration with the data directory that is recorded renews
// addresses, boot id and versions. Another data directory is refused while the old one is not REMOVED; after that it is a new node.
type RegisterNode struct{ Node Node } // State, RegisteredAt and RemovedAt are set at apply

// SetNodeState drains a node, makes it active again, or ends it.
type SetNodeState struct {
	Node  string
	State NodeState
	// Replica must be the recorded replica id; empty: any. It keeps a late command from ending the node's successor.
	Replica string
	// Gone is the operator's word that the node will never come back: it may then be REMOVED while it still holds replicas.
	Gone bool
}

func (*RegisterNode) command() {}
func (*SetNodeState) command() {}

// ValidNodeID is the rule for node ids: 1 to MaxNodeIDBytes of printable ASCII, without space, '@', '=' and ','.
func ValidNodeID(id string) bool {
	if id == "" || len(id) > MaxNodeIDBytes {
		return false
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c >= 0x7f || c == '@' || c == '=' || c == ',' {
			return false
		}
	}
	return true
}

// splitReplica takes a replica id apart.
func splitReplica(replica string) (node, store string, ok bool) {
	node, store, found := strings.Cut(replica, "@")
	if !found || !ValidNodeID(node) || len(store) != storeDigits || strings.Trim(store, "0123456789abcdef") != "" {
		return "", "", false
	}
	return node, store, true
}

// NodeOf gives the node of a replica id; empty for what is none.
func NodeOf(replica string) string {
	node, _, _ := splitReplica(replica)
	return node
}

func (n *Node) check() error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("%w: node %s %s", ErrInvalid, field, fmt.Sprintf(format, args...))
	}
	if !ValidNodeID(n.ID) {
		return bad("id", "must be 1 to %d bytes of printable ASCII without space, '@', '=' and ','", MaxNodeIDBytes)
	}
	if node, _, ok := splitReplica(n.Replica); !ok || node != n.ID {
		return bad("replica", "is %.80q, must be %q, '@' and %d lower-case hex digits", n.Replica, n.ID, storeDigits)
	}
	if n.PeerAddress == "" {
		return bad("peer_address", "is required")
	}
	for _, f := range []struct{ name, value string }{{"peer_address", n.PeerAddress}, {"grpc_address", n.GRPCAddress}, {"http_address", n.HTTPAddress}} {
		if len(f.value) > MaxAddressBytes || !utf8.ValidString(f.value) {
			return bad(f.name, "must be at most %d bytes of UTF-8", MaxAddressBytes)
		}
	}
	if len(n.Version) > MaxVersionBytes || !utf8.ValidString(n.Version) {
		return bad("version", "must be at most %d bytes of UTF-8", MaxVersionBytes)
	}
	if n.Boot == 0 {
		return bad("boot", "must not be 0")
	}
	return nil
}

// GetNode reads one node, REMOVED ones included.
func GetNode(r Reader, id string) (Node, bool, error) { return get[Node](r, nodeKey(id)) }

// Nodes reads all nodes in the order of their ids, REMOVED ones included.
func Nodes(r Reader) ([]Node, error) {
	var out []Node
	err := r.Scan([]byte{keyNode}, []byte{keyNode + 1}, false, func(_, b []byte) (bool, error) {
		var n Node
		if err := json.Unmarshal(b, &n); err != nil {
			return false, fmt.Errorf("%w: node: %w", ErrCorrupt, err)
		}
		out = append(out, n)
		return true, nil
	})
	return out, err
}

func nodeKey(id string) []byte { return append([]byte{keyNode}, id...) }

func saveNode(st State, n Node) error { return put(st, nodeKey(n.ID), n) }

func registerNode(st State, m *meta, c *RegisterNode) (Result, error) {
	if err := c.Node.check(); err != nil {
		return Result{Err: err}, nil
	}
	if _, ok, err := GetCluster(st); err != nil || !ok {
		return Result{Err: ErrNotFounded}, err
	}
	have, ok, err := GetNode(st, c.Node.ID)
	if err != nil {
		return Result{}, err
	}
	next := c.Node
	next.State, next.RegisteredAt, next.RemovedAt, next.PastBoots = NodeActive, m.Clock, 0, [MaxPastBoots]uint64{}
	switch {
	case ok && have.Replica == next.Replica && have.State == NodeRemoved:
		return Result{Node: &have, Err: fmt.Errorf("%w: %s", ErrNodeRemoved, have.Replica)}, nil
	case ok && have.Replica == next.Replica:
		next.State, next.RegisteredAt = have.State, have.RegisteredAt
		next.follow(&have)
		return Result{Node: &next, Changed: next != have}, saveNode(st, next)
	case ok && have.State != NodeRemoved:
		return Result{Node: &have, Err: fmt.Errorf("%w: %s is registered as %s", ErrNodeConflict, have.ID, have.Replica)}, nil
	}
	if full, err := makeRoom(st); err != nil || full {
		return Result{Err: fmt.Errorf("%w: the limit is %d", ErrTooManyNodes, MaxNodes)}, err
	}
	return Result{Node: &next, Changed: true}, saveNode(st, next)
}

// follow takes over the processes that have ended. A registration of one of those that arrives late changes nothing about who runs now.
func (n *Node) follow(have *Node) {
	n.PastBoots = have.PastBoots
	switch {
	case n.Boot == have.Boot:
	case slices.Contains(have.PastBoots[:], n.Boot):
		boot := have.PastBoots
		*n = *have
		n.PastBoots = boot
	default:
		copy(n.PastBoots[1:], have.PastBoots[:])
		n.PastBoots[0] = have.Boot
	}
}

// makeRoom says whether the cluster is full, and forgets the longest removed node where there are too many of those.
func makeRoom(st State) (full bool, err error) {
	nodes, err := Nodes(st)
	if err != nil {
		return false, err
	}
	live, removed, oldest := 0, 0, -1
	for i, n := range nodes {
		if n.State != NodeRemoved {
			live++
			continue
		}
		removed++
		if oldest >= 0 && n.RemovedAt >= nodes[oldest].RemovedAt {
			continue
		}
		named, err := placed(st, n.Replica)
		if err != nil {
			return false, err
		}
		if !named {
			oldest = i
		}
	}
	if live >= MaxNodes {
		return true, nil
	}
	if removed >= maxRemovedNodes && oldest >= 0 {
		return false, st.Delete(nodeKey(nodes[oldest].ID))
	}
	return false, nil
}

func setNodeState(st State, m *meta, c *SetNodeState) (Result, error) {
	if c.State < NodeActive || c.State > NodeRemoved {
		return Result{Err: fmt.Errorf("%w: node state %d, must be ACTIVE, DRAINING or REMOVED", ErrInvalid, c.State)}, nil
	}
	n, ok, err := GetNode(st, c.Node)
	if err != nil {
		return Result{}, err
	}
	switch {
	case !ok:
		return Result{Err: fmt.Errorf("%w: %.80q", ErrNodeNotFound, c.Node)}, nil
	case c.Replica != "" && c.Replica != n.Replica:
		return Result{Node: &n, Err: fmt.Errorf("%w: node %s is now %s", ErrStale, n.ID, n.Replica)}, nil
	case n.State == c.State:
		return Result{Node: &n}, nil
	case n.State == NodeRemoved:
		return Result{Node: &n, Err: fmt.Errorf("%w: %s", ErrNodeRemoved, n.Replica)}, nil
	}
	if n.State == NodeActive {
		if last, err := lastActive(st, n.ID); err != nil || last {
			return Result{Node: &n, Err: fmt.Errorf("%w: %s", ErrLastNode, n.ID)}, err
		}
	}
	if c.State == NodeRemoved {
		if !c.Gone {
			held, err := holds(st, n.Replica)
			if err != nil || held != "" {
				return Result{Node: &n, Err: fmt.Errorf("%w: %s %s", ErrNodeInUse, n.ID, held)}, err
			}
		}
		n.RemovedAt = m.Clock
	}
	n.State = c.State
	return Result{Node: &n, Changed: true}, saveNode(st, n)
}

func lastActive(r Reader, id string) (bool, error) {
	nodes, err := Nodes(r)
	for _, n := range nodes {
		if n.ID != id && n.State == NodeActive {
			return false, err
		}
	}
	return true, err
}

// holds says what keeps a replica's node from leaving: any replica of a shard, or a vote in the control group. Tombstones do not.
func holds(r Reader, replica string) (string, error) {
	placements, err := Placements(r)
	for _, p := range placements {
		s := p.State(replica)
		switch {
		case s == ReplicaNone || s == ReplicaTombstone:
		case p.Group != ControlGroup:
			return fmt.Sprintf("holds a replica of group %d, %s", p.Group, s), err
		case s != ReplicaLearner && s != ReplicaRemoving:
			return "may vote in the control group", err
		}
	}
	return "", err
}

// placed says whether any placement names a replica, as a tombstone too.
func placed(r Reader, replica string) (bool, error) {
	placements, err := Placements(r)
	for i := range placements {
		if placements[i].State(replica) != ReplicaNone {
			return true, err
		}
	}
	return false, err
}
