package replication

import (
	"bytes"
	"testing"

	logv1 "github.com/sealane/sealane/api/gen/sealane/log/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// The hand-written wire form and the generated type must read each other's bytes, and write the same ones.
func TestEntryMatchesGeneratedType(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawEntry(t)
		want.Stamp = rapid.SampledFrom([]int64{0, want.Stamp}).Draw(t, "stamp or zero")
		for i := range want.Commands {
			// Opaque here, a Command message there: bytes of a field that the generated type does not know survive in it.
			want.Commands[i] = protowire.AppendBytes(protowire.AppendTag(nil, 10000, protowire.BytesType), want.Commands[i])
		}
		if len(want.Commands) == 0 && rapid.Bool().Draw(t, "mark") {
			want.Digest = 1
		}
		data := AppendEntry(nil, &want)
		var m logv1.Entry
		if err := proto.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		if int64(m.GetStampUnixNanos()) != want.Stamp || m.GetNodeId() != want.NodeID || m.GetBootId() != want.BootID ||
			len(m.GetCommands()) != len(want.Commands) || m.GetDigest() != want.Digest || len(m.ProtoReflect().GetUnknown()) > 0 {
			t.Fatalf("generated type read %v from %+v", &m, want)
		}
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, data) {
			t.Fatalf("generated type wrote %x, want %x", again, data)
		}
	})
}
