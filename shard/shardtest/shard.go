package shardtest

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// Incarnation and ShardNumber are what a Shard is made with.
const (
	Incarnation = 0x5ea1
	ShardNumber = 3
)

// Start is the stamp of a Shard's first entry: a round time, so that scripts read well.
const Start = policy.Time(1_000_000_000_000_000_000)

// Shard runs entries over a state in memory, with a clock the test moves.
type Shard struct {
	State   *Mem
	Machine *shard.Machine
	Now     policy.Time
	Index   uint64
	Owner   shard.Epoch
	serial  uint64
}

// NewShard returns an empty shard.
func NewShard() *Shard {
	return &Shard{
		State: NewMem(), Machine: shard.NewMachine(ShardNumber, Incarnation), Now: Start,
		Owner: shard.Epoch{Node: "n1", Boot: 1, Term: 1},
	}
}

// Clone copies the shard. The copy's machine has empty caches, as after a restart.
func (s *Shard) Clone() *Shard {
	c := *s
	c.State, c.Machine = s.State.Clone(), shard.NewMachine(ShardNumber, Incarnation)
	return &c
}

// Apply runs one entry holding the commands, then recounts. A disagreement is an error.
func (s *Shard) Apply(cmds ...shard.Command) ([]shard.Result, []shard.Effect, error) {
	s.Index++
	results, effects, err := s.Machine.ApplyEntry(s.State, &shard.Entry{Index: s.Index, Stamp: s.Now, Owner: s.Owner, Commands: cmds})
	if err != nil {
		return nil, nil, err
	}
	problems, err := shard.Check(s.State)
	if err != nil {
		return nil, nil, fmt.Errorf("check: %w", err)
	}
	if len(problems) > 0 {
		return nil, nil, fmt.Errorf("recount after index %d: %q", s.Index, problems)
	}
	return results, effects, nil
}

// Advance moves the clock that stamps entries.
func (s *Shard) Advance(d time.Duration) { s.Now = s.Now.Add(d) }

// NextID makes the ids of a test: distinct, ordered, the same on every run.
func (s *Shard) NextID() shard.MessageID {
	s.serial++
	var random [10]byte
	binary.BigEndian.PutUint64(random[2:], s.serial)
	return shard.NewMessageID(Incarnation, ShardNumber, int64(s.Now)/1_000_000, random)
}

// Submit makes a submit of a payload to a destination of the namespace "default".
func (s *Shard) Submit(destination, payload string) *shard.Submit {
	return &shard.Submit{
		ID: s.NextID(), Namespace: "default", Destination: destination, Payload: []byte(payload), PayloadHash: sha256.Sum256([]byte(payload)),
	}
}

// Destination is a definition with the defaults of the design.
func Destination(name string) shard.Destination {
	return shard.Destination{
		Namespace: "default", Name: name, Version: 1, Adapter: "http", Target: []byte(`{}`), TargetKey: "http://" + name,
		Timeout: 15 * time.Second, Retry: policy.DefaultRetry(), Spread: 1, Limits: shard.LaneLimits{MaxInFlight: 32},
		Circuit: policy.DefaultCircuit(), Retention: 7 * 24 * time.Hour, DeadLetterRetention: 30 * 24 * time.Hour,
		IdempotencyWindow: 24 * time.Hour,
	}
}
