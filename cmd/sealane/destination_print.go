package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// writeDestination prints a destination as a file that can be applied again, with what the node added as a comment.
func writeDestination(w io.Writer, d *sealanev1.Destination) error {
	d = proto.CloneOf(d)
	fmt.Fprintf(w, "# version %d, applied %s, namespace %s\n", d.GetVersion(), at(d.GetCreatedAt()), d.GetNamespace())
	d.Version, d.CreatedAt, d.Namespace = 0, nil, ""
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(yamlMessage(d.ProtoReflect())); err != nil {
		return err
	}
	return enc.Close()
}

// yamlMessage is a message as a mapping of its set fields, in the order of the contract.
func yamlMessage(m protoreflect.Message) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		n.Content = append(n.Content, yamlText(string(fd.Name())), yamlField(m.Get(fd), fd))
	}
	return n
}

func yamlField(v protoreflect.Value, fd protoreflect.FieldDescriptor) *yaml.Node {
	switch {
	case fd.IsMap():
		n := &yaml.Node{Kind: yaml.MappingNode}
		var names []string
		v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			names = append(names, k.String())
			return true
		})
		slices.Sort(names)
		for _, name := range names {
			n.Content = append(n.Content, yamlText(name), yamlText(v.Map().Get(protoreflect.ValueOfString(name).MapKey()).String()))
		}
		return n
	case fd.IsList():
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for i := range v.List().Len() {
			n.Content = append(n.Content, yamlValue(v.List().Get(i), fd))
		}
		return n
	}
	return yamlValue(v, fd)
}

func yamlValue(v protoreflect.Value, fd protoreflect.FieldDescriptor) *yaml.Node {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		if d, ok := v.Message().Interface().(*durationpb.Duration); ok {
			return &yaml.Node{Kind: yaml.ScalarNode, Value: fileDuration(d.AsDuration())}
		}
		return yamlMessage(v.Message())
	case protoreflect.EnumKind:
		return yamlText(string(fd.Enum().Values().ByNumber(v.Enum()).Name()))
	case protoreflect.StringKind:
		return yamlText(v.String())
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(v.Interface())}
}

// yamlText is a text; the encoder quotes it where YAML would read something else.
func yamlText(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// fileDuration writes a duration as files have it: 1h30m, not 1h30m0s.
func fileDuration(d time.Duration) string {
	s := d.String()
	if d != 0 && d%time.Minute == 0 {
		s = strings.TrimSuffix(s, "0s")
	}
	if d != 0 && d%time.Hour == 0 {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
