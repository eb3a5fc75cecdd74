package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// limitedBody refuses to read past a limit and remembers that it did.
type limitedBody struct {
	io.ReadCloser
	limit, left int64
	exceeded    bool
}

func (b *limitedBody) err() error {
	return &invalidRequest{kind: ErrTooLarge, violations: []violation{{"body", fmt.Sprintf("has more than %d bytes, the limit of this call", b.limit)}}}
}

// Read reads one byte more than the limit to tell a body that is at it from one that is over it.
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.exceeded {
		return 0, b.err()
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) > b.left {
		b.exceeded = true
		n = int(b.left)
		b.left = 0
		return n, b.err()
	}
	b.left -= int64(n)
	return n, err
}

// invalidJSONPrefix marks the decoder's complaints, which reach the error handler only as text.
const invalidJSONPrefix = "invalid JSON: "

// jsonCodec is protobuf's JSON, with durations also in the form of destination files: "1h30m" as well as "5400s".
type jsonCodec struct{ runtime.JSONPb }

// NewDecoder reads one whole body.
func (c *jsonCodec) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(b)) == 0 {
			return io.EOF
		}
		if err := oneValue(b); err != nil {
			return errors.New(invalidJSONPrefix + err.Error())
		}
		if d := descriptorOf(v); d != nil && hasDuration(d) {
			b = rewriteDurations(b, d)
		}
		if err := c.Unmarshal(b, v); err != nil {
			return errors.New(invalidJSONPrefix + plainError(err))
		}
		return nil
	})
}

// oneValue refuses a body that goes on after its first value: the decoder below would read that one and drop the rest without a word.
func oneValue(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	var first json.RawMessage
	if err := d.Decode(&first); err != nil {
		return nil // the message's own decoder says better what is wrong
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the body goes on after its first value, at byte %d", d.InputOffset())
	}
	return nil
}

// plainError is protojson's complaint without the marks that keep programs from parsing it.
func plainError(err error) string {
	s := err.Error()
	for _, mark := range []string{"proto:\u00a0", "proto: "} {
		if rest, ok := bytes.CutPrefix([]byte(s), []byte(mark)); ok {
			return string(rest)
		}
	}
	return s
}

// descriptorOf finds what kind of message a decoder is to fill: a message, or a field that holds one.
func descriptorOf(v any) protoreflect.MessageDescriptor {
	if m, ok := v.(proto.Message); ok {
		return m.ProtoReflect().Descriptor()
	}
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Pointer {
		return nil
	}
	if m, ok := reflect.Zero(t.Elem()).Interface().(proto.Message); ok {
		return m.ProtoReflect().Descriptor()
	}
	return nil
}

const durationName = "google.protobuf.Duration"

var durationCache sync.Map // protoreflect.FullName to bool

// hasDuration tells whether a message holds a duration at any depth.
func hasDuration(d protoreflect.MessageDescriptor) bool {
	if known, ok := durationCache.Load(d.FullName()); ok {
		return known.(bool)
	}
	found := searchDuration(d, map[protoreflect.FullName]bool{})
	durationCache.Store(d.FullName(), found)
	return found
}

func searchDuration(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if d.FullName() == durationName {
		return true
	}
	if seen[d.FullName()] {
		return false
	}
	seen[d.FullName()] = true
	for i := range d.Fields().Len() {
		if m := d.Fields().Get(i).Message(); m != nil && searchDuration(m, seen) {
			return true
		}
	}
	return false
}

// member is one name and value of a JSON object, in the object's order.
type member struct {
	name  string
	value json.RawMessage
}

// membersOf takes an object apart; false for anything else, and for an object that names a member twice.
func membersOf(b []byte) ([]member, bool) {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var out []member
	seen := make(map[string]bool)
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok || seen[name] {
			return nil, false
		}
		seen[name] = true
		m := member{name: name}
		if err := d.Decode(&m.value); err != nil {
			return nil, false
		}
		out = append(out, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	_, err := d.Token()
	return out, errors.Is(err, io.EOF)
}

// rewriteDurations replaces durations that protobuf's JSON does not read. What is not JSON, or not of the expected shape, is left for the
// decoder to complain about.
func rewriteDurations(b []byte, d protoreflect.MessageDescriptor) []byte {
	members, ok := membersOf(b)
	if !ok {
		return b
	}
	changed := false
	for i := range members {
		m := &members[i]
		f := d.Fields().ByJSONName(m.name)
		if f == nil {
			f = d.Fields().ByTextName(m.name)
		}
		if f == nil || f.Message() == nil || !hasDuration(f.Message()) {
			continue
		}
		if now := rewriteField(m.value, f); !bytes.Equal(now, m.value) {
			m.value, changed = now, true
		}
	}
	if !changed {
		return b
	}
	out := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return b
		}
		out = append(append(append(out, name...), ':'), m.value...)
	}
	return append(out, '}')
}

func rewriteField(raw json.RawMessage, f protoreflect.FieldDescriptor) json.RawMessage {
	if !f.IsList() {
		return rewriteValue(raw, f.Message())
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return raw
	}
	for i := range items {
		items[i] = rewriteValue(items[i], f.Message())
	}
	out, err := json.Marshal(items)
	if err != nil {
		return raw
	}
	return out
}

func rewriteValue(raw json.RawMessage, d protoreflect.MessageDescriptor) json.RawMessage {
	if d.FullName() != durationName {
		return rewriteDurations(raw, d)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return raw
	}
	if seconds, ok := secondsForm(s); ok {
		return json.RawMessage(strconv.Quote(seconds))
	}
	return raw
}

// secondsForm turns "1h30m" into "5400s", exactly.
func secondsForm(s string) (string, bool) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return "", false
	}
	sign := ""
	if d < 0 {
		sign = "-"
	}
	seconds, nanos := d/time.Second, d%time.Second
	if nanos == 0 {
		return fmt.Sprintf("%s%ds", sign, seconds.Abs()), true
	}
	return fmt.Sprintf("%s%d.%09ds", sign, seconds.Abs(), nanos.Abs()), true
}

// expandDurations does the same for the two durations of query strings.
func expandDurations(r *http.Request) {
	if r.URL.RawQuery == "" {
		return
	}
	q := r.URL.Query()
	changed := false
	for _, name := range []string{"wait", "min_age"} {
		for i, v := range q[name] {
			if s, ok := secondsForm(v); ok && s != v {
				q[name][i], changed = s, true
			}
		}
	}
	if changed {
		r.URL.RawQuery = q.Encode()
	}
}
