package shard_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/sealane/sealane/policy"
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
