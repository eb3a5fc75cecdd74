// Package catalog is the control group's state machine: which destinations exist, in which versions, and what this cluster is.
//
// What it is. A Machine takes one entry of the control group's log and the state before it, and returns results. Destinations are immutable
// and versioned: applying one that differs makes the next version, applying the same one again changes nothing. It also says where a
// destination's lanes live (placement.go).
//
// What it may not do. It is pure, like package shard: no clock, I/O, goroutine, randomness, float or map order. It does not know shards'
// state; bringing a version into the shards is the server's work, from what this package recorded.
//
// Invariants it keeps: 1 to 6 of REQUIREMENTS.md D for the control group, and that a version, once made, never changes.
//
// Where to start. destination.go has the definition and its rules, machine.go the commands.
package catalog
