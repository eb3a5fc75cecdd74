package shard_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/shardtest"
)

// goldenStory leaves at least one key of every kind behind.
var goldenStory = []string{
	"install d uncertain_retries=3 dedup_window=1h",
	"submit a key=k1 attr=v type=text/plain",
	"admit a",
	"outcome a is=unknown class=RESET",
	"wait for=1s",
	"admit a attempt=2",
	"submit b order=o",
	"submit c order=o deliver=1h",
	"submit p",
	"admit p",
	"outcome p is=permanent class=HTTP_422",
	"submit u",
	"admit u",
	"outcome u is=unknown",
	"control u op=op-1 do=dead_letter",
	"wait for=1s",
	"submit x",
	"admit x",
	"outcome x is=published",
	"trim d state=DEAD_LETTERED older=1s max=2",
	"submit y",
	"admit y",
	"outcome y is=permanent",
}

// kinds are the names of the key kinds, by number.
var kinds = []string{
	1: "meta", 2: "lane by name", 3: "lane", 4: "destination", 5: "newest", 6: "message", 7: "payload", 8: "generation", 9: "attempt", 10: "dedup", 11: "due",
	12: "deadline", 13: "open attempt", 14: "uncertain", 15: "terminal", 16: "dead letter", 17: "dead letter by time", 18: "order", 19: "order head",
	20: "operation", 21: "tombstone", 22: "lane message", 23: "incarnation",
}

func tell(t testing.TB, story []string) *shardtest.Script {
	t.Helper()
	s := shardtest.NewScript()
	for _, line := range story {
		out, err := s.Do(line)
		if err != nil || out != "" && !strings.HasPrefix(out, "ok") {
			t.Fatalf("%q: %s%v", line, out, err)
		}
	}
	return s
}

// TestGoldenState pins what a short story leaves on disk: the first key of every kind with its value. It covers the records that have no
// encoder of their own.
func TestGoldenState(t *testing.T) {
	s := tell(t, goldenStory)
	datadriven.RunTest(t, "testdata/golden/state", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		last := byte(0)
		err := s.State.Scan(nil, nil, false, func(k, v []byte) (bool, error) {
			if k[0] != last {
				if k[0] != last+1 {
					t.Errorf("the story leaves no key of kind %d", last+1)
				}
				last = k[0]
				fmt.Fprintf(&b, "%s\n  key   %s\n  value %s\n", kinds[k[0]], hex.EncodeToString(k), hex.EncodeToString(v))
			}
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if int(last) != len(kinds)-1 {
			t.Errorf("the last kind is %d, want %d", last, len(kinds)-1)
		}
		return b.String()
	})
}

// TestGoldenJitter pins the spread of retry times: a replica of another version must compute the same.
func TestGoldenJitter(t *testing.T) {
	datadriven.RunTest(t, "testdata/golden/jitter", func(t *testing.T, d *datadriven.TestData) string {
		r := policy.DefaultRetry()
		if d.Cmd == "equal" {
			r.Jitter = policy.JitterEqual
		}
		var b strings.Builder
		for generation := range uint64(2) {
			for attempt := uint64(1); attempt <= 4; attempt++ {
				key := policy.JitterKey{Message: [16]byte{1, 2, 3}, Generation: generation + 1, Attempt: attempt}
				next := policy.NextRetry(r, policy.RetryInput{Counted: attempt, Key: key})
				fmt.Fprintf(&b, "generation %d attempt %d: %d ns %s\n", generation+1, attempt, next.Delay, next.Reason)
			}
		}
		return b.String()
	})
}

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
