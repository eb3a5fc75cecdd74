package replication

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

func drawEntry(t *rapid.T) Entry {
	return Entry{
		Stamp:  rapid.Int64().Draw(t, "stamp"),
		NodeID: rapid.StringMatching(`[a-zé]{1,40}`).Draw(t, "node"),
		BootID: rapid.Uint64().Draw(t, "boot"),
		Commands: rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 40), 0, 20).
			Draw(t, "commands"),
	}
}

func sameEntry(a, b Entry) bool {
	if a.Stamp != b.Stamp || a.NodeID != b.NodeID || a.BootID != b.BootID || a.Digest != b.Digest || len(a.Commands) != len(b.Commands) {
		return false
	}
	for i := range a.Commands {
		if !bytes.Equal(a.Commands[i], b.Commands[i]) {
			return false
		}
	}
	return true
}

func TestEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawEntry(t)
		if rapid.Bool().Draw(t, "mark") {
			want.Digest, want.Commands = digestVersion, nil
		}
		data := AppendEntry(nil, &want)
		got, err := DecodeEntry(data)
		if err != nil {
			t.Fatal(err)
		}
		if !sameEntry(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		if limit := headerBytes + sizeOf(want.Commands); len(data) > limit {
			t.Fatalf("entry has %d bytes, its estimate is %d", len(data), limit)
		}
	})
}

func sizeOf(commands [][]byte) int {
	n := 0
	for _, c := range commands {
		n += len(c) + commandOverhead
	}
	return n
}

// The exact bytes are a disk format: a change of this vector is a format change.
func TestEntryGolden(t *testing.T) {
	e := Entry{Stamp: 1, NodeID: "n1", BootID: 0x0102030405060708, Commands: [][]byte{{0xaa}, []byte("bc")}}
	got := hex.EncodeToString(AppendEntry(nil, &e))
	const want = "09" + "0100000000000000" + "12" + "02" + "6e31" + "19" + "0807060504030201" + "22" + "01" + "aa" + "22" + "02" + "6263"
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestDecodeEntryRefuses(t *testing.T) {
	good := AppendEntry(nil, &Entry{Stamp: 5, NodeID: "n1", BootID: 9, Commands: [][]byte{{1}}})
	with := func(f func([]byte) []byte) []byte { return f(bytes.Clone(good)) }
	cases := map[string]struct {
		data []byte
		text string
	}{
		"empty":         {nil, "node_id is missing"},
		"no node":       {AppendEntry(nil, &Entry{Stamp: 5, BootID: 9}), "node_id is missing"},
		"truncated":     {good[:len(good)-1], "field 4"},
		"truncated tag": {append(bytes.Clone(good), 0x80), "offset"},
		"unknown field": {with(func(b []byte) []byte {
			return protowire.AppendVarint(protowire.AppendTag(b, 6, protowire.VarintType), 1)
		}), "field 6"},
		"mark of a newer version": {AppendEntry(nil, &Entry{NodeID: "n1", Digest: 2}), "digest version 2"},
		"mark of version 0": {protowire.AppendVarint(protowire.AppendTag(AppendEntry(nil, &Entry{NodeID: "n1"}),
			fieldDigest, protowire.VarintType), 0), "digest version 0"},
		"mark twice":         {appendDigest(AppendEntry(nil, &Entry{NodeID: "n1", Digest: 1}), 1), "twice"},
		"mark with commands": {with(func(b []byte) []byte { return appendDigest(b, 1) }), "1 commands"},
		"wrong type": {with(func(b []byte) []byte {
			return protowire.AppendVarint(protowire.AppendTag(b, fieldCommands, protowire.VarintType), 1)
		}), "wire type"},
		"stamp twice": {with(func(b []byte) []byte {
			return protowire.AppendFixed64(protowire.AppendTag(b, fieldStamp, protowire.Fixed64Type), 1)
		}), "twice"},
		"node twice": {with(func(b []byte) []byte {
			return protowire.AppendString(protowire.AppendTag(b, fieldNodeID, protowire.BytesType), "n2")
		}), "twice"},
		"node empty":    {protowire.AppendString(protowire.AppendTag(nil, fieldNodeID, protowire.BytesType), ""), "0 bytes"},
		"node too long": {AppendEntry(nil, &Entry{NodeID: strings.Repeat("x", 256)}), "256 bytes"},
		"node not text": {AppendEntry(nil, &Entry{NodeID: "\xff"}), "UTF-8"},
		"group wire":    {append(bytes.Clone(good), 0x23), "wire type"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeEntry(c.data)
			if !errors.Is(err, ErrEntry) || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %v, want ErrEntry with %q", err, c.text)
			}
		})
	}
}

// Whatever decodes must survive being written and read again; nothing may panic.
func FuzzDecodeEntry(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendEntry(nil, &Entry{NodeID: "n1"}))
	f.Add(AppendEntry(nil, &Entry{Stamp: -1, NodeID: "n1", BootID: 3, Commands: [][]byte{{1}, {2, 3}, nil}}))
	f.Add(AppendEntry(nil, &Entry{Stamp: 1, NodeID: "n1", BootID: 3, Digest: digestVersion}))
	f.Add([]byte{0x12, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := DecodeEntry(data)
		if err != nil {
			if !errors.Is(err, ErrEntry) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		again, err := DecodeEntry(AppendEntry(nil, &e))
		if err != nil || !sameEntry(e, again) {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
	})
}

// Decoding into a used target must not keep anything of the entry before.
func TestDecodeEntryReuse(t *testing.T) {
	var e Entry
	for _, want := range []Entry{
		{Stamp: 5, NodeID: "n1", BootID: 9, Commands: [][]byte{{1}, {2}}},
		{NodeID: "n1", Digest: digestVersion},
		{NodeID: "n2"},
		{Stamp: 1, NodeID: "n2", Commands: [][]byte{{3}}},
	} {
		if err := decodeEntry(AppendEntry(nil, &want), &e); err != nil {
			t.Fatal(err)
		}
		if !sameEntry(e, want) {
			t.Fatalf("got %+v, want %+v", e, want)
		}
	}
}
