package shard

import "github.com/sealane/sealane/policy"

// Epoch names the process and the leadership that proposed an entry. Only that process acts on the entry's effects (DESIGN 3).
type Epoch struct {
	Node string
	Boot uint64 // drawn anew at every start of a process
	Term uint64 // Raft term of the entry
}

// Entry is one log entry: commands that apply in vector order, each seeing the earlier ones, all at one stamped time.
type Entry struct {
	Index    uint64
	Stamp    policy.Time // stamped by the proposer; clamped to the shard clock at apply
	Owner    Epoch
	Commands []Command
}

// Ref names one generation of one message.
type Ref struct {
	ID         MessageID
	Generation uint32
}

// LaneID is the number a shard gave to a lane (destination, slot) when its first message arrived. Local to the shard.
type LaneID uint32

// TargetID numbers a target inside its lane, from 1. Readiness and circuit belong to it.
type TargetID uint32
