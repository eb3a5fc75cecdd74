package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// A destination file is YAML in the shape of the Destination message: the fields, the words of its enums and the nesting are those of the
// contract, so a field that the contract gains can be written at once. Durations are `1h30m`.
//
// Reading is strict. An unknown field, a field that stands twice and a value of another kind are refused with the line and the whole path.

const (
	maxFileBytes    = 1 << 20
	maxDestinations = 1000
)

// outputOnly are fields that answers have and requests ignore: a printed destination can be applied again.
var outputOnly = map[string]bool{"version": true, "created_at": true, "namespace": true}

// readDestinations reads all documents of a file.
func readDestinations(name string, r io.Reader) ([]*sealanev1.Destination, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, usagef("%s: %w", name, cause(err))
	}
	if len(data) > maxFileBytes {
		return nil, usagef("%s: has more than %d bytes", name, maxFileBytes)
	}
	var all []*sealanev1.Destination
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, usagef("%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
			continue
		}
		if len(all) == maxDestinations {
			return nil, usagef("%s: holds more than %d destinations", name, maxDestinations)
		}
		d := &sealanev1.Destination{}
		f := fileReader{}
		f.message(doc.Content[0], "", d.ProtoReflect())
		if d.GetName() == "" && len(f.problems) == 0 {
			f.problem(doc.Content[0], "name", "is required")
		}
		if len(f.problems) > 0 {
			return nil, &usageError{fmt.Errorf("%s: %w", name, errors.Join(f.problems...)), "nothing was applied; correct the file"}
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		return nil, usagef("%s: holds no destination", name)
	}
	return all, nil
}

// fileReader walks over a document beside the message's descriptor and gathers every problem.
type fileReader struct{ problems []error }

func (f *fileReader) problem(n *yaml.Node, path, format string, args ...any) {
	f.problems = append(f.problems, fmt.Errorf("line %d: %s %s", n.Line, path, fmt.Sprintf(format, args...)))
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// message reads a mapping into a message.
func (f *fileReader) message(n *yaml.Node, path string, m protoreflect.Message) {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		f.problem(n, or(path, "the document"), "must be a mapping with the fields %s", fieldNames(m.Descriptor()))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		fd := m.Descriptor().Fields().ByName(protoreflect.Name(key.Value))
		switch {
		case key.Kind != yaml.ScalarNode || fd == nil:
			f.problem(key, at, "is not a known field; known here: %s", fieldNames(m.Descriptor()))
		case seen[key.Value]:
			f.problem(key, at, "stands twice")
		case path == "" && outputOnly[key.Value]:
		case fd.ContainingOneof() != nil && m.WhichOneof(fd.ContainingOneof()) != nil:
			f.problem(key, at, "excludes %s: only one of them", m.WhichOneof(fd.ContainingOneof()).Name())
		default:
			f.field(value, at, m, fd)
		}
		seen[key.Value] = true
	}
}

func fieldNames(d protoreflect.MessageDescriptor) string {
	var names []string
	for i := range d.Fields().Len() {
		if n := string(d.Fields().Get(i).Name()); d.Name() != "Destination" || !outputOnly[n] {
			names = append(names, n)
		}
	}
	return strings.Join(names, ", ")
}

// field reads one value, a list or a map. Nothing (`retry:`) leaves the field unset.
func (f *fileReader) field(n *yaml.Node, path string, m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	n = resolve(n)
	switch {
	case n.Tag == "!!null":
	case fd.IsMap():
		f.mapping(n, path, m.Mutable(fd).Map())
	case fd.IsList():
		if n.Kind != yaml.SequenceNode {
			f.problem(n, path, "must be a list")
			return
		}
		list := m.Mutable(fd).List()
		for i, item := range n.Content {
			if v, ok := f.value(item, fmt.Sprintf("%s[%d]", path, i), fd, list.NewElement); ok {
				list.Append(v)
			}
		}
	default:
		if v, ok := f.value(n, path, fd, func() protoreflect.Value { return m.NewField(fd) }); ok {
			m.Set(fd, v)
		}
	}
}

// mapping reads a map from text to text; the contract has no other.
func (f *fileReader) mapping(n *yaml.Node, path string, m protoreflect.Map) {
	if n.Kind != yaml.MappingNode {
		f.problem(n, path, "must be a mapping from names to texts")
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		at := join(path, key.Value)
		k := protoreflect.ValueOfString(key.Value).MapKey()
		switch {
		case key.Kind != yaml.ScalarNode || value.Kind != yaml.ScalarNode || value.Tag == "!!null":
			f.problem(value, at, "must be a text")
		case m.Has(k):
			f.problem(key, at, "stands twice")
		default:
			m.Set(k, protoreflect.ValueOfString(value.Value))
		}
	}
}

// value reads one element.
func (f *fileReader) value(n *yaml.Node, path string, fd protoreflect.FieldDescriptor, empty func() protoreflect.Value) (protoreflect.Value, bool) {
	n = resolve(n)
	if fd.Kind() == protoreflect.MessageKind && fd.Message().FullName() != "google.protobuf.Duration" {
		v := empty()
		before := len(f.problems)
		f.message(n, path, v.Message())
		return v, len(f.problems) == before
	}
	if n.Kind != yaml.ScalarNode {
		f.problem(n, path, "must be a single value")
		return protoreflect.Value{}, false
	}
	v, want := scalar(n, fd)
	if want != "" {
		f.problem(n, path, "is %q, want %s", n.Value, want)
	}
	return v, want == ""
}

// scalar reads a single value; want says what it should have been.
func scalar(n *yaml.Node, fd protoreflect.FieldDescriptor) (v protoreflect.Value, want string) {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(n.Value), ""
	case protoreflect.BoolKind:
		if n.Tag == "!!bool" && (n.Value == "true" || n.Value == "false") {
			return protoreflect.ValueOfBool(n.Value == "true"), ""
		}
		return v, "true or false"
	case protoreflect.Uint32Kind:
		u, err := strconv.ParseUint(n.Value, 10, 32)
		if err != nil {
			return v, "a whole number from 0 to 4294967295"
		}
		return protoreflect.ValueOfUint32(uint32(u)), ""
	case protoreflect.Uint64Kind:
		u, err := strconv.ParseUint(n.Value, 10, 64)
		if err != nil {
			return v, "a whole number from 0 to 18446744073709551615"
		}
		return protoreflect.ValueOfUint64(u), ""
	case protoreflect.BytesKind:
		b, err := base64.StdEncoding.DecodeString(n.Value)
		if err != nil {
			return v, "base64"
		}
		return protoreflect.ValueOfBytes(b), ""
	case protoreflect.EnumKind:
		if e := fd.Enum().Values().ByName(protoreflect.Name(n.Value)); e != nil && e.Number() != 0 {
			return protoreflect.ValueOfEnum(e.Number()), ""
		}
		return v, words(fd.Enum())
	case protoreflect.MessageKind:
		d, err := time.ParseDuration(n.Value)
		if err != nil {
			return v, "a duration like 15s, 1h30m or 72h"
		}
		return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()), ""
	}
	return v, "a value of a kind that this version of sealane cannot read from a file"
}

// words lists an enum's choices.
func words(e protoreflect.EnumDescriptor) string {
	var names []string
	for i := range e.Values().Len() {
		if v := e.Values().Get(i); v.Number() != 0 {
			names = append(names, string(v.Name()))
		}
	}
	return strings.Join(names, " or ")
}
