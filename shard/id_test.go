package shard_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sealane/sealane/shard"
	"pgregory.net/rapid"
)

func drawID(t *rapid.T) shard.MessageID {
	var random [10]byte
	copy(random[:], rapid.SliceOfN(rapid.Byte(), 10, 10).Draw(t, "random"))
	return shard.NewMessageID(rapid.Uint64().Draw(t, "incarnation"), rapid.Uint16().Draw(t, "shard"), rapid.Int64Range(0, 1<<48-1).Draw(t, "millis"), random)
}

func TestIDParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		incarnation, number, ms := rapid.Uint64().Draw(t, "incarnation"), rapid.Uint16().Draw(t, "shard"), rapid.Int64Range(0, 1<<48-1).Draw(t, "millis")
		var random [10]byte
		copy(random[:], rapid.SliceOfN(rapid.Byte(), 10, 10).Draw(t, "random"))
		id := shard.NewMessageID(incarnation, number, ms, random)
		if id.Incarnation() != incarnation || id.Shard() != number || id.UnixMillis() != ms || id.IsZero() || id.Validate() != nil {
			t.Fatalf("%s: %x %d %d", id, id.Incarnation(), id.Shard(), id.UnixMillis())
		}
		local := id.Local()
		if string(local[6:]) != string(random[:]) {
			t.Fatalf("local part %x, random %x", local, random)
		}
		parsed, err := shard.ParseID(id.String())
		if err != nil || parsed != id || len(id.String()) != shard.IDTextLen {
			t.Fatalf("%s parsed as %s: %v", id, parsed, err)
		}
		raw, err := shard.IDFromBytes(id[:])
		if err != nil || raw != id {
			t.Fatalf("%v", err)
		}
	})
}

// TestIDDamage: one changed character or bit is found, whatever it is (R151).
func TestIDDamage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := drawID(t)
		text := []byte(id.String())
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		c := rapid.Byte().Filter(func(c byte) bool { return c != text[at] }).Draw(t, "char")
		text[at] = c
		if _, err := shard.ParseID(string(text)); !errors.Is(err, shard.ErrInvalidID) {
			t.Fatalf("%q is accepted: %v", text, err)
		}
		bit := rapid.IntRange(0, len(id)*8-1).Draw(t, "bit")
		id[bit/8] ^= 1 << (bit % 8)
		if err := id.Validate(); !errors.Is(err, shard.ErrInvalidID) {
			t.Fatalf("bit %d changed, and nobody noticed", bit)
		}
	})
}

// TestIDOrder: ids of one shard sort by time, as text and as bytes, so that listings are in the order of submission.
func TestIDOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(0, 1<<48-2).Draw(t, "millis")
		a, b := shard.NewMessageID(1, 2, ms, [10]byte{0xff}), shard.NewMessageID(1, 2, ms+1, [10]byte{})
		if a.String() >= b.String() || string(a[:]) >= string(b[:]) {
			t.Fatalf("%s does not come before %s", a, b)
		}
	})
}

func TestIDTexts(t *testing.T) {
	good := shard.NewMessageID(1, 2, 3, [10]byte{4}).String()
	for name, text := range map[string]string{
		"empty": "", "prefix only": shard.IDPrefix, "no prefix": good[len(shard.IDPrefix):], "upper case": strings.ToUpper(good), "other prefix": "dlq_" + good[4:],
		"too long": good + "0", "too short": good[:len(good)-1], "line break": good[:20] + "\n" + good[21:], "line break for the last": good[:len(good)-1] + "\n",
		"letter outside the alphabet": good[:20] + "u" + good[21:], "zero": shard.IDPrefix + strings.Repeat("0", shard.IDTextLen-len(shard.IDPrefix)),
	} {
		if id, err := shard.ParseID(text); !errors.Is(err, shard.ErrInvalidID) {
			t.Errorf("%s: %q is accepted as %s", name, text, id)
		}
	}
}

// TestIDLineBreak: the text decoder skips line breaks, so an id whose sum ends in zero could lose its last character. It may not.
func TestIDLineBreak(t *testing.T) {
	for n := range 10_000 {
		id := shard.NewMessageID(1, 2, int64(n), [10]byte{})
		if id[len(id)-1] != 0 {
			continue
		}
		text := id.String()
		if got, err := shard.ParseID(text[:len(text)-1] + "\n"); !errors.Is(err, shard.ErrInvalidID) {
			t.Fatalf("%q without its last character is accepted as %s", text, got)
		}
	}
}

func FuzzID(f *testing.F) {
	good := shard.NewMessageID(0x5ea1, 3, 1_700_000_000_000, [10]byte{1, 2, 3}).String()
	for _, s := range []string{good, good[:30], strings.ToUpper(good), "msg_", good[:51] + "\n", strings.Repeat("0", 52)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := shard.ParseID(s); err == nil && id.String() != s {
			t.Fatalf("%q and %q are the same id", s, id)
		} else if err != nil && !errors.Is(err, shard.ErrInvalidID) {
			t.Fatal(err)
		}
		if id, err := shard.IDFromBytes([]byte(s)); err == nil && string(id[:]) != s {
			t.Fatalf("%x became %x", s, id)
		}
	})
}

func TestPositionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := shard.Position{Shard: rapid.Uint16().Draw(t, "shard"), Index: rapid.Uint64().Draw(t, "index")}
		got, err := shard.ParsePosition(p.String())
		if err != nil || got != p {
			t.Fatalf("%s parsed as %s: %v", p, got, err)
		}
	})
	for _, s := range []string{"", "1", ":", "1:", ":1", "-1:1", "65536:1", "1:18446744073709551616", "1:2:3", "a:b", " 1:1", "1: 1", strings.Repeat("9", 1000) + ":1"} {
		_, err := shard.ParsePosition(s)
		if !errors.Is(err, shard.ErrInvalidPosition) {
			t.Errorf("%q is accepted: %v", s, err)
		} else if len(err.Error()) > 200 {
			t.Errorf("the error repeats %d bytes of input", len(err.Error()))
		}
	}
}

func FuzzPosition(f *testing.F) {
	for _, s := range []string{"0:0", "3:1042", "65535:18446744073709551615", "1", "x:y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := shard.ParsePosition(s)
		if err != nil {
			if !errors.Is(err, shard.ErrInvalidPosition) {
				t.Fatal(err)
			}
			return
		}
		if again, err := shard.ParsePosition(p.String()); err != nil || again != p {
			t.Fatalf("%q: %s, then %s: %v", s, p, again, err)
		}
	})
}
