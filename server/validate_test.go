package server

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

const goodTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// fields are the fields that an error names, and what kind of error it is.
func fields(err error) (names []string, kind error) {
	var bad *invalidRequest
	if !errors.As(err, &bad) {
		return nil, err
	}
	for _, v := range bad.violations {
		names = append(names, v.field)
	}
	return names, bad.kind
}

func attributes(n int) map[string]string {
	m := make(map[string]string)
	for i := range n {
		m[fmt.Sprintf("a%d", i)] = "v"
	}
	return m
}

// shapeLimit is the payload limit of those rows.
const shapeLimit = 100

// shapes are the rows of TestSubmitShape; the error names field, empty means accepted.
var shapes = []struct {
	name   string
	change func(*sealanev1.SubmitRequest)
	field  string
}{
	{"plain", func(*sealanev1.SubmitRequest) {}, ""},
	{"no destination", func(m *sealanev1.SubmitRequest) { m.Destination = "" }, "destination"},
	{"upper case", func(m *sealanev1.SubmitRequest) { m.Destination = "Billing" }, "destination"},
	{"longest name", func(m *sealanev1.SubmitRequest) { m.Destination = strings.Repeat("a", 63) }, ""},
	{"longer name", func(m *sealanev1.SubmitRequest) { m.Destination = strings.Repeat("a", 64) }, "destination"},
	{"path in name", func(m *sealanev1.SubmitRequest) { m.Destination = "../x" }, "destination"},
	{"empty payload", func(m *sealanev1.SubmitRequest) { m.Payload = nil }, ""},
	{"payload at the limit", func(m *sealanev1.SubmitRequest) { m.Payload = make([]byte, shapeLimit) }, ""},
	{"payload over it", func(m *sealanev1.SubmitRequest) { m.Payload = make([]byte, shapeLimit+1) }, "payload"},
	{"key at the limit", func(m *sealanev1.SubmitRequest) { m.IdempotencyKey = strings.Repeat("k", 255) }, ""},
	{"key over it", func(m *sealanev1.SubmitRequest) { m.IdempotencyKey = strings.Repeat("k", 256) }, "idempotency_key"},
	{"key with emoji", func(m *sealanev1.SubmitRequest) { m.IdempotencyKey = "größe 🚚" }, ""},
	{"key with a line end", func(m *sealanev1.SubmitRequest) { m.IdempotencyKey = "a\r\nX: y" }, "idempotency_key"},
	{"key with NUL", func(m *sealanev1.SubmitRequest) { m.IdempotencyKey = "a\x00" }, "idempotency_key"},
	{"key that is not UTF-8", func(m *sealanev1.SubmitRequest) { m.IdempotencyKey = "\xff" }, "idempotency_key"},
	{"ordering key over the limit", func(m *sealanev1.SubmitRequest) { m.OrderingKey = strings.Repeat("k", 256) }, "ordering_key"},
	{"ordering key with DEL", func(m *sealanev1.SubmitRequest) { m.OrderingKey = "a\x7f" }, "ordering_key"},
	{"media type", func(m *sealanev1.SubmitRequest) { m.ContentType = "application/json; charset=utf-8" }, ""},
	{"media type without a slash", func(m *sealanev1.SubmitRequest) { m.ContentType = "json" }, "content_type"},
	{"media type with a line end", func(m *sealanev1.SubmitRequest) { m.ContentType = "text/plain\r\nX: y" }, "content_type"},
	{"media type with bad parameters", func(m *sealanev1.SubmitRequest) { m.ContentType = "text/plain; =" }, "content_type"},
	{"media type too long", func(m *sealanev1.SubmitRequest) { m.ContentType = "a/" + strings.Repeat("b", 254) }, "content_type"},
	{"64 attributes", func(m *sealanev1.SubmitRequest) { m.Attributes = attributes(64) }, ""},
	{"65 attributes", func(m *sealanev1.SubmitRequest) { m.Attributes = attributes(65) }, "attributes"},
	{"8 KiB of attributes", func(m *sealanev1.SubmitRequest) { m.Attributes = map[string]string{"a": strings.Repeat("v", 8<<10-1)} }, ""},
	{"more than that", func(m *sealanev1.SubmitRequest) { m.Attributes = map[string]string{"a": strings.Repeat("v", 8<<10)} }, "attributes"},
	{"attribute in upper case", func(m *sealanev1.SubmitRequest) { m.Attributes = map[string]string{"Tenant": "x"} }, "attributes.Tenant"},
	{"attribute with a line end", func(m *sealanev1.SubmitRequest) { m.Attributes = map[string]string{"a": "x\r\nY: z"} }, "attributes.a"},
	{"attribute with a tab", func(m *sealanev1.SubmitRequest) { m.Attributes = map[string]string{"a": "x\ty"} }, "attributes.a"},
	{"attribute without a name", func(m *sealanev1.SubmitRequest) { m.Attributes = map[string]string{"": "x"} }, "attributes."},
	{"reserved by prefix", func(m *sealanev1.SubmitRequest) { m.Attributes = map[string]string{"sealane-attempt": "1"} }, "attributes.sealane-attempt"},
	{"reserved by the scheme", func(m *sealanev1.SubmitRequest) { m.Attributes = map[string]string{"webhook-id": "1"} }, "attributes.webhook-id"},
	{"reserved by name", func(m *sealanev1.SubmitRequest) { m.Attributes = map[string]string{"idempotency-key": "1"} }, "attributes.idempotency-key"},
	{"traceparent", func(m *sealanev1.SubmitRequest) { m.Traceparent = goodTrace }, ""},
	{"later version of it", func(m *sealanev1.SubmitRequest) { m.Traceparent = "01" + goodTrace[2:] + "-more" }, ""},
	{"version 00 with more", func(m *sealanev1.SubmitRequest) { m.Traceparent = goodTrace + "-more" }, "traceparent"},
	{"version ff", func(m *sealanev1.SubmitRequest) { m.Traceparent = "ff" + goodTrace[2:] }, "traceparent"},
	{"upper-case hex", func(m *sealanev1.SubmitRequest) { m.Traceparent = strings.ToUpper(goodTrace) }, "traceparent"},
	{"zero trace", func(m *sealanev1.SubmitRequest) {
		m.Traceparent = "00-" + strings.Repeat("0", 32) + goodTrace[35:]
	}, "traceparent"},
	{"traceparent cut short", func(m *sealanev1.SubmitRequest) { m.Traceparent = goodTrace[:54] }, "traceparent"},
	{"deliver_at in the past", func(m *sealanev1.SubmitRequest) { m.DeliverAt = &timestamppb.Timestamp{Seconds: 1} }, ""},
	{"deliver_at at the epoch", func(m *sealanev1.SubmitRequest) { m.DeliverAt = &timestamppb.Timestamp{} }, ""},
	{"deliver_at before it", func(m *sealanev1.SubmitRequest) { m.DeliverAt = &timestamppb.Timestamp{Seconds: -1} }, "deliver_at"},
	{"deliver_at in the year 9999", func(m *sealanev1.SubmitRequest) { m.DeliverAt = &timestamppb.Timestamp{Seconds: 253402300799} }, "deliver_at"},
	{"deliver_at beyond nanoseconds", func(m *sealanev1.SubmitRequest) { m.DeliverAt = &timestamppb.Timestamp{Seconds: maxTimestamp} }, "deliver_at"},
	{"bad nanoseconds", func(m *sealanev1.SubmitRequest) { m.DeliverAt = &timestamppb.Timestamp{Nanos: -1} }, "deliver_at"},
	{"expire_at at the epoch is not no limit", func(m *sealanev1.SubmitRequest) { m.ExpireAt = &timestamppb.Timestamp{} }, "expire_at"},
	{"submit_by at the epoch is not no limit", func(m *sealanev1.SubmitRequest) { m.SubmitBy = &timestamppb.Timestamp{} }, "submit_by"},
}

// Each limit of a submit, at it and one beyond; the error names the field (R150, DESIGN 12).
func TestSubmitShape(t *testing.T) {
	const limit = shapeLimit
	for _, c := range shapes {
		t.Run(c.name, func(t *testing.T) {
			m := &sealanev1.SubmitRequest{Destination: "billing", Payload: []byte("x")}
			c.change(m)
			var ch checker
			ch.submit(m, limit)
			names, kind := fields(ch.err())
			if c.field == "" {
				if names != nil {
					t.Fatalf("refused: %v", ch.err())
				}
				return
			}
			if len(names) != 1 || names[0] != c.field {
				t.Fatalf("fields %q, want %q", names, c.field)
			}
			want := ErrInvalidRequest
			if c.field == "payload" {
				want = ErrTooLarge
			}
			if kind != want {
				t.Fatalf("kind %v, want %v", kind, want)
			}
		})
	}
}

// Every problem is reported, not the first; but never without bound.
func TestAllProblemsAreReported(t *testing.T) {
	var c checker
	c.submit(&sealanev1.SubmitRequest{Destination: "X", Payload: make([]byte, 3), ContentType: "x", IdempotencyKey: "\n", Traceparent: "x"}, 2)
	names, kind := fields(c.err())
	if got := strings.Join(names, " "); got != "destination payload content_type idempotency_key traceparent" || kind != ErrInvalidRequest {
		t.Fatalf("%s, %v", got, kind)
	}
	bad := make(map[string]string)
	for i := range 64 {
		bad[fmt.Sprintf("X%d", i)] = "v"
	}
	c = checker{}
	c.submit(&sealanev1.SubmitRequest{Destination: "x", Attributes: bad}, 2)
	if names, _ := fields(c.err()); len(names) != maxViolations {
		t.Fatalf("%d violations", len(names))
	}
}

// Attributes are kept sorted, so that equal messages have equal commands whatever order the map had.
func TestAttributesAreSorted(t *testing.T) {
	var c checker
	got := c.attributes("attributes", map[string]string{"b": "2", "a": "1", "c": "3"})
	if fmt.Sprint(got) != "[{a 1} {b 2} {c 3}]" {
		t.Fatal(got)
	}
}

// The door is never laxer than the shard: what passes here has the shard's sizes.
func TestDoorLimitsAreTheShards(t *testing.T) {
	if maxBatchBytes < shard.MaxPayloadBytes || HardPayloadBytes != shard.MaxPayloadBytes || maxRequestBytes < shard.MaxPayloadBytes+shard.MaxAttributeBytes {
		t.Fatal("a permitted payload does not pass the door")
	}
}

func FuzzSubmitShape(f *testing.F) {
	for _, m := range []*sealanev1.SubmitRequest{
		{}, {Destination: "a", Traceparent: goodTrace, ContentType: "a/b;c=d"},
		{Destination: "a", Attributes: map[string]string{"a": "b"}, ExpireAt: &timestamppb.Timestamp{Seconds: 1 << 40}, IdempotencyKey: "k"},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &sealanev1.SubmitRequest{}
		if proto.Unmarshal(b, m) != nil {
			return
		}
		var c checker
		cmd := c.submit(m, 1000)
		if c.err() != nil {
			if st := statusOf(c.err()); reasonOf(st) == "" {
				t.Fatal("a refusal without a reason")
			}
			return
		}
		// What passes can become headers: no control character anywhere.
		for _, s := range []string{cmd.ContentType, cmd.TraceParent, cmd.IdempotencyKey, cmd.OrderingKey, cmd.Destination} {
			if strings.IndexFunc(s, isControl) >= 0 {
				t.Fatalf("%q has a control character", s)
			}
		}
		for _, a := range cmd.Attributes {
			if !attributeName(a.Name) || !printable(a.Value) {
				t.Fatalf("attribute %q=%q", a.Name, a.Value)
			}
		}
		if !bytes.Equal(cmd.Payload, m.GetPayload()) {
			t.Fatal("the payload changed")
		}
	})
}
