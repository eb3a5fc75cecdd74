package storage

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

func drawEntry(t *rapid.T) *raft.Log {
	l := &raft.Log{
		Index:      rapid.Uint64().Draw(t, "index"),
		Term:       rapid.Uint64().Draw(t, "term"),
		Type:       raft.LogType(rapid.Byte().Draw(t, "type")),
		Data:       rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "data"),
		Extensions: rapid.SliceOfN(rapid.Byte(), 0, 10).Draw(t, "extensions"),
	}
	if ns := rapid.Int64().Draw(t, "at"); ns != 0 {
		l.AppendedAt = time.Unix(0, ns)
	}
	return l
}

func encoded(group uint32, l *raft.Log) []byte {
	v := make([]byte, entrySize(l))
	encodeEntry(v, group, l)
	return v
}

func TestEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		group, in := rapid.Uint32().Draw(t, "group"), drawEntry(t)
		var out raft.Log
		if err := decodeEntry(group, in.Index, encoded(group, in), &out); err != nil {
			t.Fatal(err)
		}
		if out.Index != in.Index || out.Term != in.Term || out.Type != in.Type || !bytes.Equal(out.Data, in.Data) ||
			!bytes.Equal(out.Extensions, in.Extensions) || !out.AppendedAt.Equal(in.AppendedAt) {
			t.Fatalf("got %+v, want %+v", out, *in)
		}
	})
}

// TestEntryDamage flips every bit, cuts at every length, and reads from another place: each is noticed, none is an entry.
func TestEntryDamage(t *testing.T) {
	l := &raft.Log{Index: 9, Term: 3, Type: raft.LogCommand, Data: []byte("payload"), Extensions: []byte("x"), AppendedAt: time.Unix(5, 6)}
	good := encoded(7, l)
	refused := func(what string, at int, group uint32, index uint64, v []byte) {
		t.Helper()
		var out raft.Log
		if err := decodeEntry(group, index, v, &out); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s %d: error is %v, entry %+v", what, at, err, out)
		}
	}
	for bit := range len(good) * 8 {
		v := bytes.Clone(good)
		v[bit/8] ^= 1 << (bit % 8)
		refused("bit", bit, 7, 9, v)
	}
	for n := range good {
		refused("length", n, 7, 9, good[:n])
	}
	refused("longer", 1, 7, 9, append(bytes.Clone(good), 0))
	refused("other group", 8, 8, 9, good)
	refused("other index", 10, 7, 10, good)
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(uint32(1), uint64(2), encoded(1, &raft.Log{Index: 2, Term: 3, Data: []byte("abc")}))
	f.Add(uint32(1), uint64(2), encoded(1, &raft.Log{Index: 2, Term: 3, Extensions: []byte("e"), AppendedAt: time.Unix(1, 1)}))
	f.Add(uint32(0), uint64(0), []byte{})
	f.Add(uint32(0), uint64(0), bytes.Repeat([]byte{1}, entryHeader))
	f.Fuzz(func(t *testing.T, group uint32, index uint64, v []byte) {
		var l raft.Log
		if err := decodeEntry(group, index, v, &l); err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error is %v", err)
			}
			return
		}
		if again := encoded(group, &l); !bytes.Equal(again, v) {
			t.Fatalf("%x was accepted, but encodes as %x", v, again)
		}
	})
}

func FuzzDecodeMarker(f *testing.F) {
	f.Add(uint32(1), encodeMarker(1, SnapshotMarker{Index: 5, Term: 2, Configuration: []byte("c"), ConfigurationIndex: 1}))
	f.Add(uint32(1), encodeMarker(2, SnapshotMarker{Index: 5, Term: 2}))
	f.Add(uint32(0), []byte{markerVersion})
	f.Fuzz(func(t *testing.T, group uint32, v []byte) {
		m, err := decodeMarker(group, v)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error is %v", err)
			}
			return
		}
		if again := encodeMarker(group, m); !bytes.Equal(again, v) {
			t.Fatalf("%x was accepted, but encodes as %x", v, again)
		}
	})
}

func FuzzDecodeIdentity(f *testing.F) {
	id := identityFile{Identity: Identity{FormatVersion: FormatVersion, CreatedBy: "test"}}
	f.Add(id.encode())
	id.ready, id.node, id.incarnation = true, "n\"1\n", 7
	f.Add(id.encode())
	f.Add([]byte("sealane-store 2\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := decodeIdentity(text)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFormatVersion) {
				t.Fatalf("error is %v", err)
			}
			return
		}
		if again := got.encode(); !bytes.Equal(again, text) {
			t.Fatalf("%q was accepted, but encodes as %q", text, again)
		}
	})
}

// TestMarkerDamage flips every bit of a stored marker (F6).
func TestMarkerDamage(t *testing.T) {
	good := encodeMarker(3, SnapshotMarker{Index: 5, Term: 2, Configuration: []byte("conf"), ConfigurationIndex: 1})
	if _, err := decodeMarker(3, good); err != nil {
		t.Fatal(err)
	}
	for bit := range len(good) * 8 {
		v := bytes.Clone(good)
		v[bit/8] ^= 1 << (bit % 8)
		if _, err := decodeMarker(3, v); !errors.Is(err, ErrCorrupt) {
			t.Errorf("bit %d: error is %v", bit, err)
		}
	}
	if _, err := decodeMarker(4, good); !errors.Is(err, ErrCorrupt) {
		t.Errorf("marker of another group: error is %v", err)
	}
}

// TestRing compares the ring with a map of the newest entries.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, maxBytes := rapid.IntRange(1, 8).Draw(t, "size"), rapid.IntRange(0, 60).Draw(t, "bytes")
		r := newRing(size, maxBytes)
		model := map[uint64]string{}
		next := uint64(1)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0:
				to := rapid.Uint64Range(0, next).Draw(t, "to")
				r.removeTo(to)
				for i := range to + 1 {
					delete(model, i)
				}
			case 1:
				from := rapid.Uint64Range(1, next).Draw(t, "from")
				r.removeFrom(from)
				for i := from; i < next; i++ {
					delete(model, i)
				}
				next = from
			case 2:
				next += 5 // a jump, as after an install
				fallthrough
			default:
				data := rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "data")
				r.put(&raft.Log{Index: next, Data: data})
				if model[next] = string(data); !r.get(next, &raft.Log{}) {
					t.Fatalf("the newest entry %d is missing", next)
				}
				next++
			}
			checkRing(t, r, model, next, size, maxBytes)
		}
	})
}

func checkRing(t *rapid.T, r *ring, model map[uint64]string, next uint64, size, maxBytes int) {
	held, bytes := 0, 0
	for i := range next + 3 {
		var l raft.Log
		if !r.get(i, &l) {
			continue
		}
		want, ok := model[i]
		if !ok || l.Index != i || string(l.Data) != want {
			t.Fatalf("entry %d is %+v, want %q %t", i, l, want, ok)
		}
		held, bytes = held+1, bytes+len(l.Data)
	}
	if held > size || held > 1 && bytes > maxBytes || bytes != r.bytes {
		t.Fatalf("ring of %d entries, %d bytes holds %d, %d (counted %d)", size, maxBytes, held, bytes, r.bytes)
	}
}
