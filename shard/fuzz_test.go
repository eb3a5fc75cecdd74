package shard_test

import (
	"testing"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/shardtest"
)

// damaged copies a state and overwrites a part of its nth value, or cuts the value there; or, with key set, stores the value under a
// damaged key.
func damaged(t *testing.T, base *shardtest.Mem, nth, at uint16, with []byte, key bool) *shardtest.Mem {
	t.Helper()
	st := base.Clone()
	k, v := nthKey(t, st, int(nth)%st.Len())
	part := v
	if key {
		part = k
	}
	at %= uint16(len(part) + 1)
	b := append(append([]byte{}, part[:at]...), with...)
	if len(with) > 0 && len(b) < len(part) {
		b = append(b, part[len(b):]...)
	}
	if key {
		k = b
	} else {
		v = b
	}
	if len(k) == 0 {
		return st
	}
	if err := st.Set(k, v); err != nil {
		t.Fatal(err)
	}
	return st
}

func nthKey(t *testing.T, st *shardtest.Mem, n int) (key, value []byte) {
	t.Helper()
	err := st.Scan(nil, nil, false, func(k, v []byte) (bool, error) {
		key, value = k, v
		n--
		return n >= 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return key, value
}

// manyAttempts tells whether a generation now claims more attempts than anybody makes.
func manyAttempts(st *shardtest.Mem) bool {
	many := false
	_ = st.Scan([]byte{0x08}, []byte{0x09}, false, func(k, _ []byte) (bool, error) {
		if len(k) == 21 {
			var random [10]byte
			copy(random[:], k[7:17])
			ms := int64(k[1])<<40 | int64(k[2])<<32 | int64(k[3])<<24 | int64(k[4])<<16 | int64(k[5])<<8 | int64(k[6])
			g, err := shard.GetGeneration(st, shard.Ref{ID: shard.NewMessageID(shardtest.Incarnation, shardtest.ShardNumber, ms, random), Generation: uint32(k[20])})
			many = many || err == nil && g != nil && g.Attempts > 1000
		}
		return true, nil
	})
	return many
}

func addDamage(f *testing.F, size int) {
	f.Helper()
	for i := range size {
		f.Add(uint16(i), uint16(1+i%20), []byte{0xff}, i%2 == 0, uint8(i))
		f.Add(uint16(i), uint16(i%30), []byte{}, i%3 == 0, uint8(i+7))
		f.Add(uint16(i), uint16(5), []byte{0}, false, uint8(i+3))
	}
}

// FuzzState damages one key or value: every read and the recount say so or do not notice, but never panic.
func FuzzState(f *testing.F) {
	base := tell(f, goldenStory)
	addDamage(f, base.State.Len())
	f.Fuzz(func(t *testing.T, nth, at uint16, with []byte, key bool, _ uint8) {
		readEverything(t, damaged(t, base.State, nth, at, with, key))
	})
}

// FuzzApply runs commands over a damaged state. The machine says that it is corrupt, or does not notice; it never panics, because that would
// take down the other shards of the node too.
func FuzzApply(f *testing.F) {
	base := tell(f, goldenStory)
	commands := []string{
		"tick", "submit a key=k1 attr=v type=text/plain", "submit n", "submit o order=o", "cancel b", "reschedule c deliver=2h", "admit b", "admit c", "admit x attempt=2",
		"outcome a attempt=1 is=published", "outcome a attempt=2 is=unknown", "evidence u is=retriable", "expire b", "event d is=connect_failed",
		"control d op=op-2 do=pause", "control a op=op-3 do=not_published", "control u op=op-1 do=dead_letter", "trim d state=DELIVERED", "trim d state=DEAD_LETTERED",
	}
	addDamage(f, base.State.Len())
	f.Fuzz(func(t *testing.T, nth, at uint16, with []byte, key bool, which uint8) {
		s := base.Clone()
		s.State = damaged(t, base.State, nth, at, with, key)
		if manyAttempts(s.State) {
			return // it would only take long: what is read or removed by number has no other bound than the record
		}
		for i := range 3 {
			// What the script shows is not judged: a damaged state may say anything, in words.
			_, _ = s.Do(commands[(int(which)+i)%len(commands)])
		}
	})
}

// readEverything calls every query. Errors are fine; a panic is not.
func readEverything(t *testing.T, st *shardtest.Mem) {
	t.Helper()
	ids := []shard.MessageID{}
	for l := range shard.LaneID(3) {
		items, _, _ := shard.ListMessages(st, l, shard.StateUnspecified, nil, 100)
		for _, it := range items {
			ids = append(ids, it.Ref.ID)
		}
		_, _, _ = shard.ListMessages(st, l, shard.StateDeadLettered, nil, 100)
		_, _, _ = shard.GetLane(st, l)
		_, _, _ = shard.OldestTerminal(st, l, shard.StateDelivered)
		_, _ = shard.ScanDue(st, l, 1, nil, 100)
	}
	for _, id := range ids {
		_, _ = shard.GetMessage(st, id, true)
		_, _, _ = shard.LoadDelivery(st, shard.Ref{ID: id, Generation: 1})
		_, _ = shard.GetDeadLetter(st, shard.Ref{ID: id, Generation: 1})
		_, _ = shard.GetTombstone(st, id)
	}
	_, _, _ = shard.ListDeadLetters(st, nil, 100, nil)
	_, _ = shard.ScanUncertain(st, nil, 100)
	_, _ = shard.ScanOpenAttempts(st, nil, 100)
	_, _ = shard.ScanDeadlines(st, policy.MaxTime, 100)
	_, _, _ = shard.NextDeadline(st)
	_, _ = shard.ScanLanes(st, 0, 100)
	_, _ = shard.ScanLaneNames(st, "default", "", 0, 100)
	_, _, _ = shard.LaneByName(st, "default", "d", 0)
	_, _, _ = shard.NewestDestination(st, "default", "d")
	_, _ = shard.ReadMeta(st)
	_, _ = shard.Check(st)
}
