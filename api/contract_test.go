// Package api_test checks the contract as generated: names in JSON, paths over HTTP, and the wall between the public API and the log.
package api_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	logv1 "github.com/sealane/sealane/api/gen/sealane/log/v1"
	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

const (
	publicPackage protoreflect.FullName = "sealane.v1"
	logPackage    protoreflect.FullName = "sealane.log.v1"
)

// Naming a file of each package links both into the test.
var (
	_ = sealanev1.File_sealane_v1_message_proto
	_ = logv1.File_sealane_log_v1_entry_proto
)

// files returns the files of a package, sorted by path.
func files(t *testing.T, pkg protoreflect.FullName) []protoreflect.FileDescriptor {
	t.Helper()
	var out []protoreflect.FileDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(f protoreflect.FileDescriptor) bool {
		out = append(out, f)
		return true
	})
	slices.SortFunc(out, func(a, b protoreflect.FileDescriptor) int { return strings.Compare(a.Path(), b.Path()) })
	if len(out) < 5 {
		t.Fatalf("package %s has %d files, the test looks in the wrong place", pkg, len(out))
	}
	return out
}

// messages calls fn for every message of a package, nested ones and map entries included.
func messages(t *testing.T, pkg protoreflect.FullName, fn func(protoreflect.MessageDescriptor)) {
	t.Helper()
	var walk func(protoreflect.MessageDescriptors)
	walk = func(ms protoreflect.MessageDescriptors) {
		for i := range ms.Len() {
			fn(ms.Get(i))
			walk(ms.Get(i).Messages())
		}
	}
	for _, f := range files(t, pkg) {
		walk(f.Messages())
	}
}

// Every value of every enum field of the public contract prints as its name and is read back from it. Since the names are the short ones
// (checked below), JSON shows DELIVERED.
func TestEnumsPrintTheirNames(t *testing.T) {
	marshal := protojson.MarshalOptions{UseProtoNames: true}
	fields := 0
	messages(t, publicPackage, func(m protoreflect.MessageDescriptor) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if f.Kind() != protoreflect.EnumKind {
				continue
			}
			fields++
			for j := range f.Enum().Values().Len() {
				v := f.Enum().Values().Get(j)
				if v.Number() == 0 {
					continue // absent in JSON
				}
				msg := dynamicpb.NewMessage(m)
				if f.IsList() {
					msg.Mutable(f).List().Append(protoreflect.ValueOfEnum(v.Number()))
				} else {
					msg.Set(f, protoreflect.ValueOfEnum(v.Number()))
				}
				b, err := marshal.Marshal(msg)
				if err != nil {
					t.Fatalf("%s: %v", f.FullName(), err)
				}
				if !strings.Contains(string(b), `"`+string(v.Name())+`"`) || !strings.Contains(string(b), `"`+string(f.Name())+`"`) {
					t.Errorf("%s with %s prints as %s", f.FullName(), v.Name(), b)
				}
				back := dynamicpb.NewMessage(m)
				if err := protojson.Unmarshal(b, back); err != nil {
					t.Errorf("%s: %s is not read back: %v", f.FullName(), b, err)
				}
			}
		}
	})
	if fields < 40 {
		t.Errorf("only %d enum fields were looked at", fields)
	}
}

// Values carry no prefix made from their enum's name, zero values do and end in _UNSPECIFIED, and what people write in files is lower case.
func TestEnumValuesAreShortNames(t *testing.T) {
	messages(t, publicPackage, func(m protoreflect.MessageDescriptor) {
		for i := range m.Enums().Len() {
			e := m.Enums().Get(i)
			if m.Fields().Len() != 0 || e.Name() != "Value" {
				t.Errorf("%s: an enum is called Value and stands alone in a message named for it", e.FullName())
			}
			lower := strings.HasSuffix(string(e.ParentFile().Path()), "/words.proto")
			for j := range e.Values().Len() {
				v := e.Values().Get(j)
				name := string(v.Name())
				switch {
				case v.Number() == 0:
					if !strings.HasSuffix(name, "_UNSPECIFIED") {
						t.Errorf("%s: zero value %s does not end in _UNSPECIFIED", e.FullName(), name)
					}
				case strings.HasPrefix(squash(name), squash(string(m.Name()))):
					t.Errorf("%s: %s repeats the enum's name", e.FullName(), name)
				case lower != (name == strings.ToLower(name)):
					t.Errorf("%s: %s has the wrong case for %s", e.FullName(), name, e.ParentFile().Path())
				}
			}
		}
	})
	for _, f := range files(t, publicPackage) {
		if f.Enums().Len() != 0 {
			t.Errorf("%s has an enum outside a message: its values would need a prefix", f.Path())
		}
	}
}

func squash(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }

// The words that clients, documents and scripts rely on most.
func TestJSONOfKnownWords(t *testing.T) {
	marshal := protojson.MarshalOptions{UseProtoNames: true}
	for _, c := range []struct {
		msg  protoreflect.ProtoMessage
		want string
	}{
		{&sealanev1.Message{State: sealanev1.GenerationState_DELIVERED}, `{"state":"DELIVERED"}`},
		{&sealanev1.Message{State: sealanev1.GenerationState_DEAD_LETTERED}, `{"state":"DEAD_LETTERED"}`},
		{&sealanev1.Attempt{SideEffect: sealanev1.SideEffect_NOT_PUBLISHED}, `{"side_effect":"NOT_PUBLISHED"}`},
		{&sealanev1.Outcome{Disposition: sealanev1.Disposition_LANE_THROTTLED}, `{"disposition":"LANE_THROTTLED"}`},
		{&sealanev1.Operation{State: sealanev1.OperationState_COMPLETED_WITH_OUTSTANDING}, `{"state":"COMPLETED_WITH_OUTSTANDING"}`},
		{&sealanev1.SubmitErrorDetail{Acceptance: sealanev1.Acceptance_NOT_ACCEPTED}, `{"acceptance":"NOT_ACCEPTED"}`},
		{&sealanev1.GetMessageRequest{Consistency: sealanev1.Consistency_linearizable}, `{"consistency":"linearizable"}`},
		{&sealanev1.RetryPolicy{Jitter: sealanev1.Jitter_full}, `{"jitter":"full"}`},
		{
			&sealanev1.SubmitResponse{MessageId: "msg_x", Generation: 1, Position: "3:17", Deduplicated: true},
			`{"message_id":"msg_x","generation":1,"position":"3:17","deduplicated":true}`,
		},
	} {
		b, err := marshal.Marshal(c.msg)
		if err != nil {
			t.Fatal(err)
		}
		if got := compact(t, b); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// JSON names are the proto names: no field sets another one.
func TestNoFieldHasItsOwnJSONName(t *testing.T) {
	messages(t, publicPackage, func(m protoreflect.MessageDescriptor) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if f.JSONName() != camel(string(f.Name())) {
				t.Errorf("%s has the JSON name %s", f.FullName(), f.JSONName())
			}
		}
	})
}

func camel(s string) string {
	var b strings.Builder
	up := false
	for _, r := range s {
		switch {
		case r == '_':
			up = true
		case up:
			b.WriteString(strings.ToUpper(string(r)))
			up = false
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// An edit of the API must never become an edit of the log's format, nor the other way round: the packages import nothing of each other.
func TestPublicAndLogAreApart(t *testing.T) {
	for _, c := range []struct {
		pkg, foreign protoreflect.FullName
		allowed      []string
	}{
		{logPackage, publicPackage, []string{"sealane/log/v1/"}},
		{publicPackage, logPackage, []string{"sealane/v1/", "google/"}},
	} {
		for _, f := range files(t, c.pkg) {
			for i := range f.Imports().Len() {
				path := f.Imports().Get(i).Path()
				if !slices.ContainsFunc(c.allowed, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
					t.Errorf("%s imports %s", f.Path(), path)
				}
			}
		}
		messages(t, c.pkg, func(m protoreflect.MessageDescriptor) {
			for i := range m.Fields().Len() {
				if f := m.Fields().Get(i); f.Message() != nil && f.Message().ParentFile().Package() == c.foreign {
					t.Errorf("%s embeds %s", f.FullName(), f.Message().FullName())
				}
			}
		})
	}
}

// Two operations of the same kind must look the same when they are asked for and when they are read.
func TestOperationParametersAreTheSameInRequestAndAnswer(t *testing.T) {
	ask := (&sealanev1.CreateOperationRequest{}).ProtoReflect().Descriptor().Oneofs().ByName("parameters").Fields()
	read := (&sealanev1.Operation{}).ProtoReflect().Descriptor().Oneofs().ByName("parameters").Fields()
	if ask.Len() != read.Len() || ask.Len() < 10 {
		t.Fatalf("%d kinds in the request, %d in the answer", ask.Len(), read.Len())
	}
	for i := range ask.Len() {
		a := ask.Get(i)
		r := read.ByName(a.Name())
		if r == nil || r.Number() != a.Number() || r.Message() != a.Message() {
			t.Errorf("%s differs in the answer", a.FullName())
		}
	}
	for _, kind := range []protoreflect.Name{
		"replay", "resolve", "purge", "abandon_export", "pause_lane", "resume_lane", "close_lane", "reset_circuit", "repin_messages",
		"cancel_operation", "add_node", "remove_node", "move_replica", "transfer_leadership", "snapshot", "backup", "verify_digests",
	} {
		if ask.ByName(kind) == nil {
			t.Errorf("kind %s is missing", kind)
		}
	}
}
