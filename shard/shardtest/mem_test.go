package shardtest_test

import (
	"fmt"
	"slices"
	"sort"
	"testing"

	"github.com/sealane/sealane/shard/shardtest"
	"pgregory.net/rapid"
)

// TestMem compares Mem with a plain map that is sorted for every scan.
func TestMem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, plain := shardtest.NewMem(), map[string]string{}
		key := rapid.StringN(0, 2, 2)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			k, v := key.Draw(t, "key"), key.Draw(t, "value")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				plain[k] = v
				must(t, m.Set([]byte(k), []byte(v)))
			case 2:
				delete(plain, k)
				must(t, m.Delete([]byte(k)))
			case 3:
				compareScan(t, m, plain, k, v, rapid.Bool().Draw(t, "open"), rapid.Bool().Draw(t, "reverse"))
			}
			got, ok, _ := m.Get([]byte(k))
			want, there := plain[k]
			if ok != there || string(got) != want {
				t.Fatalf("get %q: %q %v, want %q %v", k, got, ok, want, there)
			}
		}
		c := m.Clone()
		if !c.Equal(m) || c.Len() != len(plain) {
			t.Fatal("the clone differs")
		}
		must(t, c.Set([]byte("new"), []byte("value")))
		if c.Equal(m) {
			t.Fatal("the clone is not a copy")
		}
	})
}

func must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func compareScan(t *rapid.T, m *shardtest.Mem, plain map[string]string, lower, upper string, open, reverse bool) {
	t.Helper()
	var want, got []string
	for k, v := range plain {
		if k >= lower && (open || k < upper) {
			want = append(want, fmt.Sprintf("%q=%q", k, v))
		}
	}
	sort.Slice(want, func(i, j int) bool { return want[i] < want[j] })
	var up []byte
	if !open {
		up = []byte(upper)
	}
	must(t, m.Scan([]byte(lower), up, reverse, func(k, v []byte) (bool, error) {
		got = append(got, fmt.Sprintf("%q=%q", k, v))
		return true, nil
	}))
	if reverse {
		slices.Reverse(got)
	}
	sorted := slices.Clone(got)
	sort.Strings(sorted)
	if !slices.Equal(sorted, want) {
		t.Fatalf("scan [%q, %q) open=%v: %q, want %q", lower, upper, open, got, want)
	}
}

// TestMemOrder: a scan is in byte order, and what its callback deletes ahead is not seen.
func TestMemOrder(t *testing.T) {
	m := shardtest.NewMem()
	for _, k := range []string{"b", "a", "\xff", "", "ab", "c"} {
		if err := m.Set([]byte(k), nil); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	err := m.Scan(nil, nil, false, func(k, _ []byte) (bool, error) {
		got = append(got, string(k))
		return len(got) < 5, m.Delete([]byte("b"))
	})
	if err != nil || !slices.Equal(got, []string{"", "a", "ab", "c", "\xff"}) {
		t.Fatalf("%q %v", got, err)
	}
}
