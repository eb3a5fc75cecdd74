package peer

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/metadata"
)

// Peer is what a process says of itself in every call and answer.
type Peer struct {
	Node        string // node id
	Replica     string // replica id: node, '@', store
	Boot        uint64 // drawn anew at every start of the process
	Incarnation uint64 // of its cluster; 0 while it does not know one
	Version     uint32 // of the peer protocol
}

// identityKey holds the identity in the metadata of requests and answers. The suffix lets gRPC carry any bytes.
const identityKey = "sealane-peer-bin"

// AnyNode is the name under which Network.Conn reaches a member whose node id is not known yet, at the address that Options.Resolve gives
// for it: whoever answers is accepted. No node has this id.
const AnyNode = "join"

// From tells who called, in a service registered through Options.Register.
func From(ctx context.Context) (Peer, bool) {
	p, ok := ctx.Value(peerKey{}).(Peer)
	return p, ok
}

type peerKey struct{}

// appendIdentity encodes p: version, then node, replica, boot, incarnation and the node that is meant (empty: any, and in answers).
func appendIdentity(b []byte, p Peer, to string) []byte {
	b = binary.AppendUvarint(b, uint64(p.Version))
	b = appendString(b, p.Node)
	b = appendString(b, p.Replica)
	b = binary.BigEndian.AppendUint64(b, p.Boot)
	b = binary.BigEndian.AppendUint64(b, p.Incarnation)
	return appendString(b, to)
}

// decodeIdentity reads what appendIdentity wrote. Of another version it reads only the number, and says ErrVersion.
func decodeIdentity(b []byte) (p Peer, to string, err error) {
	c := cursor{b: b}
	version := c.uvarint()
	if c.bad || version > 1<<31 {
		return Peer{}, "", fmt.Errorf("%w: identity", ErrMalformed)
	}
	p.Version = uint32(version)
	if p.Version != ProtocolVersion {
		return p, "", fmt.Errorf("%w: %d, want %d", ErrVersion, p.Version, ProtocolVersion)
	}
	p.Node = string(c.bytes(maxNodeBytes))
	p.Replica = string(c.bytes(maxReplicaBytes))
	p.Boot, p.Incarnation = c.fixed64(), c.fixed64()
	to = string(c.bytes(maxNodeBytes))
	if !c.done() {
		return Peer{}, "", fmt.Errorf("%w: identity", ErrMalformed)
	}
	return p, to, p.valid()
}

// valid checks that the parts fit each other.
func (p Peer) valid() error {
	switch {
	case p.Node == "" || len(p.Node) > maxNodeBytes || !utf8.ValidString(p.Node) || strings.Contains(p.Node, "@"):
		return fmt.Errorf("%w: node id %q, want 1 to %d bytes without '@'", ErrIdentity, p.Node, maxNodeBytes)
	case nodeOf(p.Replica) != p.Node || len(p.Replica) > maxReplicaBytes:
		return fmt.Errorf("%w: replica id %q is not one of node %q", ErrIdentity, p.Replica, p.Node)
	case p.Boot == 0:
		return fmt.Errorf("%w: boot id of %q is 0", ErrIdentity, p.Node)
	}
	return nil
}

// nodeOf gives the node of a replica id; empty if it is none.
func nodeOf(replica string) string {
	node, store, ok := strings.Cut(replica, "@")
	if !ok || store == "" {
		return ""
	}
	return node
}

// targetOf is a replica id as it stands in every frame: its FNV-1a hash.
func targetOf(replica string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(replica) {
		h = (h ^ uint64(replica[i])) * 1099511628211
	}
	return h
}

// identityFrom takes the identity out of metadata.
func identityFrom(md metadata.MD) (Peer, string, error) {
	values := md.Get(identityKey)
	if len(values) != 1 {
		return Peer{}, "", fmt.Errorf("%w: %d identities in the metadata, want 1: the other side is not a node", ErrIdentity, len(values))
	}
	return decodeIdentity([]byte(values[0]))
}

// self is this process as it is now.
func (n *Network) self() Peer {
	return Peer{Node: n.opts.Node, Replica: n.opts.Replica, Boot: n.opts.Boot, Incarnation: n.opts.Incarnation(), Version: ProtocolVersion}
}

func (n *Network) metadataTo(to string) (key, value string) {
	if to == AnyNode {
		to = ""
	}
	return identityKey, string(appendIdentity(nil, n.self(), to))
}

// check refuses a process that this one must not talk to.
func (n *Network) check(p Peer) error {
	if p.Node == n.opts.Node {
		return fmt.Errorf("%w: %s has the id of this node, %s", ErrIdentity, p.Replica, n.opts.Replica)
	}
	if own := n.opts.Incarnation(); own != 0 && p.Incarnation != 0 && own != p.Incarnation {
		return fmt.Errorf("%w: %s is of cluster %016x, this node %s of %016x", ErrIncarnation, p.Node, p.Incarnation, n.opts.Node, own)
	}
	if n.opts.Admit != nil {
		if err := n.opts.Admit(p); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrIdentity, p.Replica, err)
		}
	}
	return nil
}

// checkAnswer judges who answered a call to node.
func (n *Network) checkAnswer(node string, md metadata.MD) (Peer, error) {
	p, _, err := identityFrom(md)
	if err != nil {
		return p, err
	}
	if node != AnyNode && p.Node != node {
		return p, fmt.Errorf("%w: node %s answers in place of %s", ErrIdentity, p.Node, node)
	}
	return p, n.check(p)
}
