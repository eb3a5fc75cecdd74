package catalog

import (
	"errors"
	"fmt"

	"github.com/sealane/sealane/policy"
)

// ErrNotFounded: the cluster has not been founded, so nothing about its nodes can be recorded yet. Found it first.
var ErrNotFounded = errors.New("catalog: cluster is not founded")

// Bounds of a cluster.
const (
	// MaxNodes bounds the nodes of a cluster that are not REMOVED.
	MaxNodes = 64
	// DefaultReplicationFactor is how many voters a shard wants where the founding command says nothing (REPLICATION, Shape).
	DefaultReplicationFactor = 3
	// MaxReplicationFactor bounds the voters of a shard.
	MaxReplicationFactor = 5
	// ControlVoters is how many voters the control group wants. Every other node holds a learner of it.
	ControlVoters = 3
	// ControlGroup is the control group's number; shard i is group i+1.
	ControlGroup = 0
)

// FoundCluster fixes what the cluster is. It is the first command of the log; a repeated one must agree in incarnation and shards and then
// changes nothing, whatever its founders.
type FoundCluster struct {
	Incarnation uint64
	Shards      uint32
	// ReplicationFactor is the number of voters a shard wants, odd, 1 to MaxReplicationFactor; 0: DefaultReplicationFactor. A cluster with
	// fewer nodes has fewer, and is raised as nodes join.
	ReplicationFactor uint32
	// Founders are the first nodes, at most MaxNodes. Their State and RegisteredAt are set at apply. The machine computes the first
	// placement from them. Empty only in logs written before there were clusters: such a cluster has no nodes and no placements.
	Founders []Node
}

func (*FoundCluster) command() {}

// Cluster is what FoundCluster fixed.
type Cluster struct {
	Incarnation uint64      `json:"incarnation"`
	Shards      uint32      `json:"shards"`
	FoundedAt   policy.Time `json:"founded_at"`
	// ReplicationFactor is 0 in a cluster without founders.
	ReplicationFactor uint32 `json:"replication_factor,omitempty"`
}

// GetCluster reads what the cluster is; ok is false before it was founded.
func GetCluster(r Reader) (Cluster, bool, error) { return get[Cluster](r, []byte{keyCluster}) }

func found(st State, m *meta, c *FoundCluster) (Result, error) {
	have, ok, err := GetCluster(st)
	if err != nil {
		return Result{}, err
	}
	if ok {
		if have.Incarnation != c.Incarnation || have.Shards != c.Shards {
			return Result{Err: fmt.Errorf("%w: incarnation %016x with %d shards", ErrForeignState, have.Incarnation, have.Shards)}, nil
		}
		return Result{}, nil
	}
	next := Cluster{Incarnation: c.Incarnation, Shards: c.Shards, FoundedAt: m.Clock}
	if len(c.Founders) > 0 {
		if err := checkFounders(c); err != nil {
			return Result{Err: err}, nil
		}
		if next.ReplicationFactor = c.ReplicationFactor; next.ReplicationFactor == 0 {
			next.ReplicationFactor = DefaultReplicationFactor
		}
		if err := saveFounders(st, m, next, c.Founders); err != nil {
			return Result{}, err
		}
	}
	return Result{Changed: true}, put(st, []byte{keyCluster}, next)
}

func checkFounders(c *FoundCluster) error {
	switch {
	case len(c.Founders) > MaxNodes:
		return fmt.Errorf("%w: %d founders, the limit is %d", ErrTooManyNodes, len(c.Founders), MaxNodes)
	case c.ReplicationFactor > MaxReplicationFactor || c.ReplicationFactor%2 == 0 && c.ReplicationFactor != 0:
		return fmt.Errorf("%w: replication factor is %d, must be odd, from 1 to %d", ErrInvalid, c.ReplicationFactor, MaxReplicationFactor)
	}
	for i := range c.Founders {
		if err := c.Founders[i].check(); err != nil {
			return err
		}
		for j := range i {
			if c.Founders[i].ID == c.Founders[j].ID {
				return fmt.Errorf("%w: founder %q is named twice", ErrInvalid, c.Founders[i].ID)
			}
		}
	}
	return nil
}

// saveFounders records the first nodes and where the first replicas are.
func saveFounders(st State, m *meta, c Cluster, founders []Node) error {
	replicas := make([]string, 0, len(founders))
	for _, n := range founders {
		n.State, n.RegisteredAt, n.RemovedAt = NodeActive, m.Clock, 0
		if err := saveNode(st, n); err != nil {
			return err
		}
		replicas = append(replicas, n.Replica)
	}
	for _, p := range FoundingPlacements(replicas, c.Shards, c.ReplicationFactor) {
		p.Changed = m.index
		if err := savePlacement(st, p); err != nil {
			return err
		}
	}
	return nil
}
