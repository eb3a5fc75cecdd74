package shardtest

import (
	"crypto/sha256"
	"strings"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// Garbage draws a command that no leader writes, of a kind this build knows: ids from elsewhere, numbers out of every range, texts over every
// limit. A machine refuses it and goes on.
func (t *Traffic) Garbage() shard.Command {
	id, generation, attempt := t.garbageID(), uint32(t.garbageInt()), uint32(t.garbageInt())
	switch t.pick(10) {
	case 0:
		return &shard.Admit{ID: id, Generation: generation, Attempt: attempt}
	case 1:
		return &shard.RecordOutcome{ID: id, Generation: generation, Attempt: attempt, Outcome: shard.Outcome{
			SideEffect: policy.SideEffect(t.pick(256)), Disposition: policy.Disposition(t.pick(256)), HasRetryAfter: true, RetryAfter: time.Duration(t.garbageInt()),
		}}
	case 2:
		return &shard.AttachEvidence{ID: id, Generation: generation, Attempt: attempt, SideEffect: policy.SideEffect(t.pick(256)), Actor: t.garbageText()}
	case 3:
		return &shard.Cancel{ID: id, Generation: generation, Reason: t.garbageText()}
	case 4:
		return &shard.Reschedule{ID: id, Generation: generation, DeliverAt: policy.Time(t.garbageInt()), ExpireAt: policy.Time(t.garbageInt()), RequestID: t.garbageText()}
	case 5:
		return &shard.Expire{ID: id, Generation: generation}
	case 6:
		return &shard.LaneEvent{Lane: shard.LaneID(t.garbageInt()), Target: shard.TargetID(t.pick(3)), Event: shard.LaneEventKind(t.pick(256)), Detail: t.garbageText()}
	case 7:
		return &shard.Trim{Lane: shard.LaneID(t.garbageInt()), State: shard.GenerationState(t.pick(256)), Before: policy.Time(t.garbageInt()), Max: uint32(t.garbageInt())}
	case 8:
		return &shard.ControlStep{
			OperationID: t.garbageText(), Actor: t.garbageText(), Reason: t.garbageText(), Action: shard.ControlAction(1 + t.pick(4)), Namespace: t.garbageText(),
			Destination: t.garbageText(), Slot: uint32(t.garbageInt()), ID: id, Generation: generation, Attempt: attempt, Verdict: shard.ResolveVerdict(t.pick(256)),
		}
	}
	payload := []byte(t.garbageText())
	return &shard.Submit{
		ID: id, Namespace: t.garbageText(), Destination: t.garbageText(), Slot: uint32(t.garbageInt()), OrderingKey: t.garbageText(), IdempotencyKey: t.garbageText(),
		ContentType: t.garbageText(), Attributes: make([]shard.Attribute, t.pick(100)), Payload: payload, PayloadHash: sha256.Sum256(payload),
		DeliverAt: policy.Time(t.garbageInt()), ExpireAt: policy.Time(t.garbageInt()),
	}
}

// Stop draws a command that must stop a shard: of a kind, or with an action, that this build does not know.
func (t *Traffic) Stop() shard.Command {
	switch t.pick(4) {
	case 0:
		return &shard.ExportAdmit{}
	case 1:
		return &shard.ExportOutcome{}
	case 2:
		return nil
	}
	c := t.operation(shard.ControlAction(5 + t.pick(250)))
	c.OperationID = "unknown"
	return c
}

func (t *Traffic) garbageID() shard.MessageID {
	id := t.someID()
	switch t.pick(5) {
	case 0:
		return shard.MessageID{}
	case 1, 2: // the same local part, made elsewhere
		var random [10]byte
		local := id.Local()
		copy(random[:], local[6:])
		return shard.NewMessageID(Incarnation+uint64(t.pick(2)), ShardNumber+uint16(t.pick(2)), id.UnixMillis(), random)
	case 3:
		return shard.NewMessageID(Incarnation, ShardNumber, 0, [10]byte{7})
	}
	return id
}

func (t *Traffic) garbageInt() int64 {
	values := []int64{0, 1, 2, 3, -1, 1 << 31, 1<<32 - 1, 1<<63 - 1, -1 << 63}
	return values[t.pick(len(values))]
}

func (t *Traffic) garbageText() string {
	switch t.pick(5) {
	case 0:
		return ""
	case 1:
		return strings.Repeat("x", 255)
	case 2:
		return strings.Repeat("é", 4000)
	case 3:
		return "\x00\xff\xfe"
	}
	return "default"
}
