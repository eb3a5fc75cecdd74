package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/shard"
)

// Errors of finding the shard a call belongs to.
var (
	// ErrForeignIncarnation: the id was made by another cluster, or by this one before it was restored from a backup.
	ErrForeignIncarnation = errors.New("server: message id belongs to another cluster incarnation")
	// ErrUnknownShard: the id or position names a shard this cluster does not have.
	ErrUnknownShard = errors.New("server: no such shard in this cluster")
	// ErrDestinationNotFound: the control group knows no such destination in the caller's namespace.
	ErrDestinationNotFound = errors.New("server: destination not found")
)

// shardFor routes a message id without a look-up (R151).
func (n *Node) shardFor(id shard.MessageID) (*shardRef, error) {
	if id.Incarnation() != n.cluster.Incarnation {
		return nil, ErrForeignIncarnation
	}
	return n.shardAt(id.Shard())
}

func (n *Node) shardAt(number uint16) (*shardRef, error) {
	shards := n.shards()
	if int(number) >= len(shards) {
		return nil, fmt.Errorf("%w: %d, there are %d", ErrUnknownShard, number, len(shards))
	}
	return shards[number], nil
}

// shardOfSlot is the shard that holds a slot of a destination.
func (n *Node) shardOfSlot(namespace, destination string, slot uint32) *shardRef {
	return n.shards()[catalog.ShardOf(namespace, destination, slot, n.cluster.Shards)]
}

// randomPool draws from the system's generator in blocks: one system call for many ids.
type randomPool struct {
	mu   sync.Mutex
	buf  [4096]byte
	left int
}

func (p *randomPool) read(dst []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left < len(dst) {
		rand.Read(p.buf[:]) // never fails: the runtime ends the process instead
		p.left = len(p.buf)
	}
	copy(dst, p.buf[len(p.buf)-p.left:])
	p.left -= len(dst)
}

type destinationName struct{ namespace, name string }

// destinationCache holds the newest version of destinations this node was asked for. It is filled from the control group's state and
// refreshed by every apply and delete on this node.
type destinationCache struct {
	mu sync.RWMutex
	m  map[destinationName]catalog.Version
}

const cachedDestinations = 1 << 16

func (c *destinationCache) get(k destinationName) (catalog.Version, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.m[k]
	return v, ok
}

func (c *destinationCache) put(v catalog.Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := destinationName{v.Namespace, v.Spec.Name}
	if old, ok := c.m[k]; ok && old.Version > v.Version {
		return
	}
	if c.m == nil || len(c.m) >= cachedDestinations {
		c.m = make(map[destinationName]catalog.Version)
	}
	c.m[k] = v
}

// destination returns the newest version of a destination. A miss is checked against the control group's leader before it is an error, so that
// apply on one node and submit on another work (DESIGN 12).
func (n *Node) destination(ctx context.Context, namespace, name string) (catalog.Version, error) {
	if v, ok := n.destinations.get(destinationName{namespace, name}); ok && !v.Deleted {
		return v, nil
	}
	v, ok, err := catalog.Newest(n.control.state, namespace, name)
	if err == nil && (!ok || v.Deleted) && !n.control.ref.leads() {
		if err = n.control.refresh(ctx); err == nil {
			v, ok, err = catalog.Newest(n.control.state, namespace, name)
		}
	}
	if err != nil {
		return catalog.Version{}, err
	}
	if !ok || v.Deleted {
		return catalog.Version{}, fmt.Errorf("%w: %q", ErrDestinationNotFound, name)
	}
	n.destinations.put(v)
	return v, nil
}
