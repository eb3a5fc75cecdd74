package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// operationKind is an operation's kind: the name of the one parameter field that is set.
func operationKind(op *sealanev1.Operation) string {
	if f := parametersOf(op); f != nil {
		return string(f.Name())
	}
	return "-"
}

func parametersOf(op *sealanev1.Operation) protoreflect.FieldDescriptor {
	r := op.ProtoReflect()
	return r.WhichOneof(r.Descriptor().Oneofs().ByName("parameters"))
}

// whatOf is an operation's kind with its parameters.
func whatOf(op *sealanev1.Operation) string {
	return operationKind(op) + prefixed(" ", parameters(op))
}

// parameters shows what an operation was told to do: name=value of every parameter that was given, in the order of the API.
func parameters(op *sealanev1.Operation) string {
	field := parametersOf(op)
	if field == nil {
		return ""
	}
	m := op.ProtoReflect().Get(field).Message()
	var list []string
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		if m.Has(f) || f.Name() == "shard" && !f.HasPresence() { // shard 0 is one like the others
			list = append(list, fmt.Sprintf("%s=%s", f.Name(), parameter(f, m.Get(f))))
		}
	}
	return strings.Join(list, " ")
}

func parameter(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch {
	case f.IsList():
		return fmt.Sprintf("(%d)", v.List().Len())
	case f.Message() != nil:
		b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(v.Message().Interface())
		var text bytes.Buffer
		if err != nil || json.Compact(&text, b) != nil {
			return "?"
		}
		return printable(text.String())
	case f.Enum() != nil:
		if d := f.Enum().Values().ByNumber(v.Enum()); d != nil {
			return string(d.Name())
		}
	}
	return printable(v.String())
}

// progressText tells how far an operation is.
func progressText(op *sealanev1.Operation) string {
	done, waits := 0, ""
	for _, t := range op.GetTargets() {
		switch {
		case t.GetState() >= sealanev1.TargetState_COMPLETED:
			done++
		case waits == "" && t.GetNote() != "":
			waits = targetName(t) + ": " + printable(t.GetNote())
		}
	}
	text := ""
	if n := len(op.GetTargets()); n > 0 {
		text = fmt.Sprintf("%d of %d targets done", done, n)
	}
	if p := op.GetProgress(); p.GetMatched() > 0 {
		text += prefixed(map[bool]string{true: ", ", false: ""}[text != ""], fmt.Sprintf("%d of %d steps applied", p.GetApplied(), p.GetMatched()))
		if p.GetFailed() > 0 {
			text += fmt.Sprintf(", %d failed", p.GetFailed())
		}
	}
	return text + prefixed("; ", waits)
}

func targetName(t *sealanev1.OperationTarget) string {
	if t.GetControlGroup() {
		return "control group"
	}
	return fmt.Sprintf("shard %d", t.GetShard())
}

// targetTable lists an operation's targets.
func targetTable(targets []*sealanev1.OperationTarget) *table {
	t := &table{}
	t.add("TARGET", "STATE", "POSITION", "MATCHED", "APPLIED", "SKIPPED", "FAILED", "NOTE")
	for _, x := range targets {
		p := x.GetProgress()
		note := x.GetNote()
		if note == "" {
			note = x.GetError().GetMessage()
		}
		t.add(targetName(x), x.GetState().String(), or(x.GetPosition(), "-"), number(p.GetMatched()), number(p.GetApplied()), number(p.GetSkipped()),
			number(p.GetFailed()), or(printable(note), "-"))
	}
	return t
}

// digestTable lists what verify_digests found, and says how many groups differ and of how many replicas there is nothing to compare.
func digestTable(targets []*sealanev1.OperationTarget) (t *table, differ, missing int) {
	t = &table{}
	t.add("TARGET", "POSITION", "NODE", "DIGEST", "RESULT")
	for _, x := range targets {
		found := map[string]bool{}
		for _, d := range x.GetDigests() {
			if d.GetSha256() != "" {
				found[d.GetSha256()] = true
			}
		}
		if len(found) > 1 {
			differ++
		}
		for _, d := range x.GetDigests() {
			result := d.GetState()
			switch {
			case d.GetSha256() == "":
				missing++
			case len(found) > 1:
				result = "DIFFERS"
			default:
				result = "EQUAL"
			}
			t.add(targetName(x), or(d.GetPosition(), "-"), d.GetNodeId(), or(fmt.Sprintf("%.16s", d.GetSha256()), "-"), result)
		}
	}
	return t, differ, missing
}
