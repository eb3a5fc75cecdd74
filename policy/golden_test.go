package policy

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "write the golden vectors anew")

// golden compares lines with a file of testdata. The vectors pin the arithmetic: a change that moves one changes every replica's decisions.
func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	got := strings.Join(lines, "\n") + "\n"
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (review, then -rewrite):\n%s", path, got)
	}
}

// fields lists the fields of problems, in their order.
func fields(ps []Problem) string {
	var fs []string
	for _, p := range ps {
		fs = append(fs, p.Field)
	}
	return strings.Join(fs, " ")
}

func durations(lo, hi time.Duration) *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(int64(lo), int64(hi)).Draw(t, "ns"))
	})
}

// retries draws policies that Validate accepts.
func retries() *rapid.Generator[Retry] {
	return rapid.Custom(func(t *rapid.T) Retry {
		r := Retry{
			MaxAttempts: rapid.Uint32Range(1, MaxAttemptsLimit).Draw(t, "attempts"), MaxBackoff: durations(0, MaxBackoffLimit).Draw(t, "max"),
			Multiplier: rapid.Uint32Range(1, MaxMultiplier).Draw(t, "multiplier"), Jitter: Jitter(rapid.IntRange(0, 2).Draw(t, "jitter")),
			Schedule: rapid.SliceOfN(durations(0, MaxBackoffLimit), 0, 5).Draw(t, "schedule"), Lifetime: durations(1, MaxLifetime).Draw(t, "lifetime"),
		}
		r.InitialBackoff = durations(0, r.MaxBackoff).Draw(t, "initial")
		return r
	})
}

// wild draws policies of any content at all: no field is trusted by the arithmetic.
func wild() *rapid.Generator[Retry] {
	span := rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64().Draw(t, "ns")) })
	return rapid.Custom(func(t *rapid.T) Retry {
		return Retry{
			MaxAttempts: rapid.Uint32().Draw(t, "attempts"), InitialBackoff: span.Draw(t, "initial"), MaxBackoff: span.Draw(t, "max"),
			Multiplier: rapid.Uint32().Draw(t, "multiplier"), Jitter: Jitter(rapid.Uint8().Draw(t, "jitter")),
			Schedule: rapid.SliceOfN(span, 0, 3).Draw(t, "schedule"), Lifetime: span.Draw(t, "lifetime"),
		}
	})
}

func keys() *rapid.Generator[JitterKey] {
	return rapid.Custom(func(t *rapid.T) JitterKey {
		k := JitterKey{Generation: rapid.Uint64().Draw(t, "generation"), Attempt: rapid.Uint64().Draw(t, "attempt"), Export: rapid.Bool().Draw(t, "export")}
		copy(k.Message[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "message"))
		return k
	})
}
