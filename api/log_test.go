package api_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	logv1 "github.com/sealane/sealane/api/gen/sealane/log/v1"
)

// The envelope is built and read by hand where speed counts, so its wire form is fixed here byte for byte.
func TestLogEntryWireForm(t *testing.T) {
	commands := []*logv1.Command{
		{Kind: &logv1.Command_Tick{Tick: &logv1.Tick{}}},
		{Kind: &logv1.Command_Expire{Expire: &logv1.Expire{Id: []byte{1, 2}, Generation: 3}}},
	}
	var want []byte
	want = protowire.AppendTag(want, 1, protowire.Fixed64Type)
	want = protowire.AppendFixed64(want, 1_700_000_000_123_456_789)
	want = protowire.AppendTag(want, 2, protowire.BytesType)
	want = protowire.AppendString(want, "n1")
	want = protowire.AppendTag(want, 3, protowire.Fixed64Type)
	want = protowire.AppendFixed64(want, 0xfeed)
	for _, c := range commands {
		b, err := proto.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		want = protowire.AppendTag(want, 4, protowire.BytesType)
		want = protowire.AppendBytes(want, b)
	}
	want = protowire.AppendTag(want, 5, protowire.VarintType)
	want = protowire.AppendVarint(want, 1)
	got, err := proto.MarshalOptions{Deterministic: true}.Marshal(&logv1.Entry{
		StampUnixNanos: 1_700_000_000_123_456_789, NodeId: "n1", BootId: 0xfeed, Commands: commands, Digest: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("wire form %x, want %x", got, want)
	}
}

// Both envelopes are read by the same code, which looks at commands only as bytes.
func TestControlEntryHasTheEnvelopeOfEntry(t *testing.T) {
	a := (&logv1.Entry{}).ProtoReflect().Descriptor().Fields()
	b := (&logv1.ControlEntry{}).ProtoReflect().Descriptor().Fields()
	if a.Len() != 5 || b.Len() != a.Len() {
		t.Fatalf("%d and %d fields, want 5", a.Len(), b.Len())
	}
	for i := range a.Len() {
		x, y := a.Get(i), b.ByNumber(a.Get(i).Number())
		if y == nil || x.Name() != y.Name() || x.Kind() != y.Kind() || x.Cardinality() != y.Cardinality() {
			t.Errorf("%s differs", x.FullName())
		}
	}
}

// Numbers of commands are for ever (I10). A new one is added at the end of this table; none is ever changed.
func TestLogCommandNumbers(t *testing.T) {
	for _, c := range []struct {
		of   protoreflect.MessageDescriptor
		want map[protoreflect.Name]protoreflect.FieldNumber
	}{
		{(&logv1.Command{}).ProtoReflect().Descriptor(), map[protoreflect.Name]protoreflect.FieldNumber{
			"submit": 1, "cancel": 2, "reschedule": 3, "install_destination": 4, "admit": 5, "record_outcome": 6, "attach_evidence": 7,
			"expire": 8, "lane_event": 9, "export_admit": 10, "export_outcome": 11, "control_step": 12, "trim": 13, "tick": 14,
		}},
		{(&logv1.CatalogCommand{}).ProtoReflect().Descriptor(), map[protoreflect.Name]protoreflect.FieldNumber{
			"found_cluster": 1, "apply_destination": 2, "delete_destination": 3, "create_namespace": 4, "register_node": 5, "set_node_state": 6,
			"change_placement": 7, "prefer_leader": 8, "register_operation": 9, "advance_operation": 10, "finish_operation": 11,
		}},
	} {
		kinds := c.of.Oneofs().ByName("kind")
		if kinds == nil || kinds.Fields().Len() != c.of.Fields().Len() {
			t.Fatalf("%s is more than its oneof kind", c.of.FullName())
		}
		if got := kinds.Fields().Len(); got != len(c.want) {
			t.Errorf("%s has %d kinds, the table has %d", c.of.FullName(), got, len(c.want))
		}
		for i := range kinds.Fields().Len() {
			f := kinds.Fields().Get(i)
			if n, ok := c.want[f.Name()]; !ok || n != f.Number() {
				t.Errorf("%s has number %d, the table says %d", f.FullName(), f.Number(), n)
			}
		}
	}
}
