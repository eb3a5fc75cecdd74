package shard

import (
	"encoding/binary"

	"github.com/sealane/sealane/policy"
)

// Key kinds, the first byte of every key. Numbers are part of the state format: a retired one is never used again (I10).
const (
	keyMeta             byte = 0x01 // -> ShardMeta
	keyLaneByName       byte = 0x02 // namespace, destination, slot -> lane number
	keyLane             byte = 0x03 // lane -> LaneRecord
	keyDestination      byte = 0x04 // namespace, name, version -> Destination
	keyNewest           byte = 0x05 // namespace, name -> newest version
	keyMessage          byte = 0x06 // local id -> Message
	keyPayload          byte = 0x07 // local id -> payload bytes
	keyGeneration       byte = 0x08 // local id, generation -> Generation
	keyAttempt          byte = 0x09 // local id, generation, attempt -> Attempt
	keyDedup            byte = 0x0a // namespace, destination, ordering key, idempotency key -> local id, expiry
	keyDue              byte = 0x0b // lane, target, due, index, ordinal, local id, generation -> work
	keyDeadline         byte = 0x0c // deadline, local id, generation -> nothing
	keyOpenAttempt      byte = 0x0d // local id, generation, attempt -> lane, target, owner, deadline, trial
	keyUncertain        byte = 0x0e // since, local id, generation, attempt -> lane
	keyTerminal         byte = 0x0f // lane, state, ended at, local id, generation -> nothing
	keyDeadLetter       byte = 0x10 // local id, generation -> DeadLetter
	keyDeadLetterByTime byte = 0x11 // failed at, local id, generation -> lane, reason
	keyOrder            byte = 0x12 // lane, ordering key hash, deliver at, index, ordinal, local id, generation -> nothing
	keyOrderHead        byte = 0x13 // lane, ordering key hash -> local id, generation, admitted
	keyOperation        byte = 0x14 // operation id -> hash, result
	keyTombstone        byte = 0x15 // local id -> Tombstone
	keyLaneMessage      byte = 0x16 // lane, local id -> nothing
	keyIncarnation      byte = 0x17 // -> cluster incarnation (u64) and shard number (u16)
)

// HotKinds are the first bytes of the keys that are read again soon after they were written, on the way from submit to outcome: a store may keep
// their newest values in memory.
func HotKinds() []byte {
	return []byte{keyMeta, keyLane, keyNewest, keyMessage, keyPayload, keyGeneration, keyAttempt}
}

// keyBuilder appends order-preserving parts to a buffer.
type keyBuilder []byte

func newKey(kind byte) keyBuilder { return append(make(keyBuilder, 0, 64), kind) }

func (k keyBuilder) u32(v uint32) keyBuilder            { return binary.BigEndian.AppendUint32(k, v) }
func (k keyBuilder) u64(v uint64) keyBuilder            { return binary.BigEndian.AppendUint64(k, v) }
func (k keyBuilder) time(t policy.Time) keyBuilder      { return k.u64(orderedTime(t)) }
func (k keyBuilder) local(id LocalID) keyBuilder        { return append(k, id[:]...) }
func (k keyBuilder) lane(l LaneID) keyBuilder           { return k.u32(uint32(l)) }
func (k keyBuilder) target(t TargetID) keyBuilder       { return k.u32(uint32(t)) }
func (k keyBuilder) state(s GenerationState) keyBuilder { return append(k, byte(s)) }

// text appends a length and the bytes: unambiguous, and equal prefixes stay together.
func (k keyBuilder) text(s string) keyBuilder {
	k = binary.BigEndian.AppendUint16(k, uint16(len(s)))
	return append(k, s...)
}

// orderedTime maps a signed time to an unsigned number of the same order.
func orderedTime(t policy.Time) uint64 { return uint64(t) ^ (1 << 63) }

func timeFromOrdered(v uint64) policy.Time { return policy.Time(v ^ (1 << 63)) }

// after returns the first key that is greater than every key with this prefix.
func after(prefix []byte) []byte {
	up := append([]byte(nil), prefix...)
	for i := len(up) - 1; i >= 0; i-- {
		if up[i] != 0xff {
			up[i]++
			return up[:i+1]
		}
	}
	return nil
}

func metaKey() []byte { return newKey(keyMeta) }

func laneNameKey(namespace, destination string, slot uint32) []byte {
	return newKey(keyLaneByName).text(namespace).text(destination).u32(slot)
}

func laneKey(id LaneID) []byte { return newKey(keyLane).lane(id) }

func destinationKey(namespace, name string, version uint64) []byte {
	return newKey(keyDestination).text(namespace).text(name).u64(version)
}

func newestKey(namespace, name string) []byte { return newKey(keyNewest).text(namespace).text(name) }

func messageKey(id LocalID) []byte { return newKey(keyMessage).local(id) }

func payloadKey(id LocalID) []byte { return newKey(keyPayload).local(id) }

func generationKey(id LocalID, number uint32) []byte {
	return newKey(keyGeneration).local(id).u32(number)
}

func generationPrefix(id LocalID) []byte { return newKey(keyGeneration).local(id) }

func attemptKey(id LocalID, generation, attempt uint32) []byte {
	return newKey(keyAttempt).local(id).u32(generation).u32(attempt)
}

func attemptPrefix(id LocalID, generation uint32) []byte {
	return newKey(keyAttempt).local(id).u32(generation)
}

func dedupKey(namespace, destination, orderingKey, idempotencyKey string) []byte {
	return newKey(keyDedup).text(namespace).text(destination).text(orderingKey).text(idempotencyKey)
}

func dueKey(g *Generation, id LocalID) []byte {
	return newKey(keyDue).lane(g.Lane).target(g.Target).time(g.NextAt).u64(g.CreatedIndex).u32(g.CreatedOrdinal).local(id).u32(g.Number)
}

func duePrefix(l LaneID, t TargetID) []byte { return newKey(keyDue).lane(l).target(t) }

func deadlineKey(at policy.Time, id LocalID, generation uint32) []byte {
	return newKey(keyDeadline).time(at).local(id).u32(generation)
}

func openAttemptKey(id LocalID, generation, attempt uint32) []byte {
	return newKey(keyOpenAttempt).local(id).u32(generation).u32(attempt)
}

func uncertainKey(since policy.Time, id LocalID, generation, attempt uint32) []byte {
	return newKey(keyUncertain).time(since).local(id).u32(generation).u32(attempt)
}

func terminalKey(g *Generation, id LocalID) []byte {
	return newKey(keyTerminal).lane(g.Lane).state(g.State).time(g.TerminalAt).local(id).u32(g.Number)
}

func terminalPrefix(l LaneID, s GenerationState) []byte { return newKey(keyTerminal).lane(l).state(s) }

func deadLetterKey(id LocalID, generation uint32) []byte {
	return newKey(keyDeadLetter).local(id).u32(generation)
}

func deadLetterTimeKey(at policy.Time, id LocalID, generation uint32) []byte {
	return newKey(keyDeadLetterByTime).time(at).local(id).u32(generation)
}

func orderKey(m *Message, g *Generation) []byte {
	return append(keyBuilder(orderPrefix(m)), newKey(0).time(g.DeliverAt).u64(g.CreatedIndex).u32(g.CreatedOrdinal).local(m.ID.Local()).u32(g.Number)[1:]...)
}

func orderPrefix(m *Message) []byte {
	h := orderHash(m.OrderingKey)
	return append(newKey(keyOrder).lane(m.Lane), h[:]...)
}

func orderHeadKey(m *Message) []byte {
	h := orderHash(m.OrderingKey)
	return append(newKey(keyOrderHead).lane(m.Lane), h[:]...)
}

func operationKey(id string) []byte { return newKey(keyOperation).text(id) }

func tombstoneKey(id LocalID) []byte { return newKey(keyTombstone).local(id) }

func laneMessageKey(l LaneID, id LocalID) []byte { return newKey(keyLaneMessage).lane(l).local(id) }

func laneMessagePrefix(l LaneID) []byte { return newKey(keyLaneMessage).lane(l) }

func incarnationKey() []byte { return newKey(keyIncarnation) }
