// Package catalog is the control group's state machine: what this cluster is, which nodes it has, where the replicas of its groups are, which
// destinations and namespaces exist, and which cluster operations were ordered.
//
// What it is. A Machine takes one entry of the control group's log and the state before it, and returns results. Destinations are immutable
// and versioned: applying one that differs makes the next version, applying the same one again changes nothing. Placements say what is wanted
// of each replica; package plan, below this one, says the next step towards it, and package server/membership makes it. placement.go says where
// a destination's lanes live.
//
// What it may not do. It is pure, like package shard: no clock, I/O, goroutine, randomness, float or map order. It does not know shards'
// state, nor what Raft's configurations are: bringing a version into the shards, and a placement into Raft, is the server's work, from what
// this package recorded.
//
// Invariants it keeps:
//   - 1 to 6 of REQUIREMENTS.md D for the control group, and that a version, once made, never changes;
//   - a replica goes only the legal steps, one at a time, compare-and-set on its placement's version, and no group is ever without a voter;
//   - a data directory that was removed never comes back, and a node id belongs to one directory at a time;
//   - an operation id stands for one operation, whose stages only go forward.
//
// Where to start. destination.go has the definition and its rules, machine.go the commands; cluster.go, node.go, replica.go and operation.go
// have what a cluster is made of.
package catalog
