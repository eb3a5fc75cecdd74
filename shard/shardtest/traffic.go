package shardtest

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// Source gives numbers from 0 to n-1. Equal numbers make equal traffic; *math/rand/v2.Rand is one.
type Source interface{ IntN(n int) int }

// Traffic draws entries as a leader in trouble would write them: mostly sensible, often late, repeated or contradictory, and sometimes
// nonsense. The world is small on purpose, so that commands meet.
type Traffic struct {
	// MaxMessages bounds the messages it makes; more submits then repeat old ones.
	MaxMessages int

	src      Source
	now      policy.Time
	index    uint64
	serial   uint64
	ops      int
	made     []*shard.Submit
	versions map[string]uint64
	owners   []shard.Epoch
}

// NewTraffic begins a history.
func NewTraffic(src Source) *Traffic {
	return &Traffic{
		MaxMessages: 12, src: src, now: Start, versions: map[string]uint64{},
		owners: []shard.Epoch{{Node: "n1", Boot: 11, Term: 1}, {Node: "n2", Boot: 22, Term: 2}, {Node: "n3", Boot: 33, Term: 5}},
	}
}

// Next draws the next entry. It looks at the state to find what is due, open or uncertain.
func (t *Traffic) Next(r shard.Reader) (*shard.Entry, error) {
	t.index++
	e := &shard.Entry{Index: t.index, Owner: t.owners[t.pick(len(t.owners))]}
	if t.index == 1 {
		e.Stamp = t.now
		for _, d := range Destinations() {
			t.versions[d.Name] = 1
			e.Commands = append(e.Commands, &shard.InstallDestination{Destination: d})
		}
		return e, nil
	}
	t.moveClock()
	e.Stamp = t.now
	if t.one(20) {
		e.Stamp = t.now.Add(-time.Duration(1+t.pick(3600)) * time.Second) // a leader whose clock is behind
	}
	for range 1 + t.pick(4) {
		c, err := t.command(r)
		if err != nil {
			return nil, err
		}
		e.Commands = append(e.Commands, c)
		if _, ok := c.(*shard.Trim); ok {
			break // what was trimmed shows only after the entry, so nothing follows in it
		}
	}
	return e, nil
}

// Destinations are the ones traffic is for: one of each policy the design knows.
func Destinations() []shard.Destination {
	hold := Destination("hold")
	hold.Retry.MaxAttempts, hold.Retry.Jitter = 2, policy.JitterNone
	hold.Circuit.FailureThreshold = 3
	dedup := Destination("dedup")
	dedup.Retry.MaxAttempts = 5
	dedup.Uncertainty = policy.Uncertainty{OnUncertain: policy.UncertainRetry, MaxRetries: 3, ReceiverDedupWindow: time.Minute, WhenExhausted: policy.ExhaustedDeadLetter}
	dedup.IdempotencyWindow = 10 * time.Second
	twice := Destination("twice")
	twice.Retry = policy.Retry{MaxAttempts: 4, Schedule: []time.Duration{0, 5 * time.Second}, MaxBackoff: time.Minute, Multiplier: 1, Lifetime: 10 * time.Minute}
	twice.Uncertainty = policy.Uncertainty{OnUncertain: policy.UncertainRetry, MaxRetries: 2, AcceptDuplicates: true}
	twice.Limits.MaxPending, twice.Limits.MaxPendingBytes = 2, 64
	twice.Circuit = policy.Circuit{FailureThreshold: 2, OpenFor: time.Second, MaxOpenFor: 4 * time.Second, HalfOpenSuccesses: 1, TrialTimeout: 5 * time.Second}
	brief := Destination("brief")
	brief.Retry.Lifetime, brief.Retry.MaxAttempts = 30*time.Second, 6
	brief.Uncertainty.WhenExhausted = policy.ExhaustedDeadLetter
	return []shard.Destination{hold, dedup, twice, brief}
}

func (t *Traffic) pick(n int) int { return t.src.IntN(n) }

func (t *Traffic) one(in int) bool { return t.src.IntN(in) == 0 }

func (t *Traffic) moveClock() {
	switch t.pick(10) {
	case 0:
		t.now = t.now.Add(time.Duration(t.pick(48)) * time.Hour)
	case 1, 2:
		t.now = t.now.Add(time.Duration(t.pick(120)) * time.Second)
	case 3:
	default:
		t.now = t.now.Add(time.Duration(t.pick(3000)) * time.Millisecond)
	}
}

// command draws one command. The weights keep enough of every kind in a history of a few dozen entries.
func (t *Traffic) command(r shard.Reader) (shard.Command, error) {
	switch n := t.pick(100); {
	case n < 18:
		return t.submit(), nil
	case n < 42:
		return t.admit(r)
	case n < 62:
		return t.outcome(r)
	case n < 70:
		return t.resolution(r)
	case n < 76:
		return t.expire(r)
	case n < 81:
		return t.clientCommand(), nil
	case n < 87:
		return t.laneEvent(r)
	case n < 92:
		return t.laneControl(), nil
	case n < 95:
		return t.trim(), nil
	case n < 97:
		return t.install(), nil
	case n < 98:
		return &shard.Tick{}, nil
	}
	return t.Garbage(), nil
}

func (t *Traffic) submit() *shard.Submit {
	if len(t.made) >= t.MaxMessages || len(t.made) > 0 && t.one(6) {
		return t.repeat()
	}
	t.serial++
	var random [10]byte
	binary.BigEndian.PutUint64(random[2:], t.serial)
	c := &shard.Submit{
		ID: shard.NewMessageID(Incarnation, ShardNumber, int64(t.now)/1_000_000, random), Namespace: "default",
		Destination: []string{"hold", "dedup", "twice", "brief"}[t.pick(4)], Slot: uint32(t.pick(2)),
		OrderingKey: []string{"", "", "k1", "k2"}[t.pick(4)], IdempotencyKey: []string{"", "", "i1", "i2"}[t.pick(4)],
	}
	t.content(c)
	if t.one(4) {
		c.DeliverAt = t.now.Add(time.Duration(t.pick(20)-5) * time.Second)
	}
	if t.one(4) {
		c.ExpireAt = t.now.Add(time.Duration(t.pick(60)) * time.Second)
	}
	if t.one(8) {
		c.SubmitBy = t.now.Add(time.Duration(t.pick(10)-2) * time.Second)
	}
	if t.one(40) {
		c.DeliverAt = t.now.Add(2 * shard.MaxHorizon)
	}
	t.made = append(t.made, c)
	return c
}

func (t *Traffic) content(c *shard.Submit) {
	c.Payload = []byte(fmt.Sprint("payload ", t.pick(2)))
	c.PayloadHash = sha256.Sum256(c.Payload)
	c.ContentType = []string{"", "text/plain"}[t.pick(2)]
}

// repeat is a client's retry: the same again, under a new id, or with other content.
func (t *Traffic) repeat() *shard.Submit {
	c := *t.made[t.pick(len(t.made))]
	switch t.pick(3) {
	case 0:
		t.serial++
		var random [10]byte
		binary.BigEndian.PutUint64(random[2:], t.serial)
		c.ID = shard.NewMessageID(Incarnation, ShardNumber, int64(t.now)/1_000_000, random)
		if c.IdempotencyKey == "" {
			c.IdempotencyKey = "i1"
		}
		t.made = append(t.made, &c)
	case 1:
		t.content(&c)
	}
	return &c
}

// someID is the id of a message that was submitted, whatever became of it.
func (t *Traffic) someID() shard.MessageID {
	if len(t.made) == 0 {
		return shard.NewMessageID(Incarnation, ShardNumber, 1, [10]byte{9})
	}
	return t.made[t.pick(len(t.made))].ID
}

func (t *Traffic) clientCommand() shard.Command {
	generation := uint32(0)
	if t.one(4) {
		generation = uint32(t.pick(3))
	}
	if t.one(2) {
		return &shard.Cancel{ID: t.someID(), Generation: generation, Reason: "not wanted"}
	}
	c := &shard.Reschedule{ID: t.someID(), Generation: generation, DeliverAt: t.now.Add(time.Duration(t.pick(20)-5) * time.Second)}
	if t.one(3) {
		c.ExpireAt = c.DeliverAt.Add(time.Duration(t.pick(60)) * time.Second)
	}
	if t.one(2) {
		c.RequestID = fmt.Sprint("r", t.pick(3))
	}
	return c
}
