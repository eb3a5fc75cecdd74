package server

import (
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"google.golang.org/protobuf/types/known/timestamppb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Limits of what clients send, beside those of package shard.
const (
	// maxBatch bounds the items of one batch, and of one request of a stream.
	maxBatch = 1000
	// maxBatchBytes bounds the payloads of one batch together.
	maxBatchBytes = 16 << 20
	// maxReasonBytes bounds the reason of an operation.
	maxReasonBytes = 256
	// maxAttributeName bounds one attribute's name.
	maxAttributeName = 63
	// maxViolations bounds the problems that one error lists.
	maxViolations = 16
	// maxTimestamp is the end of what a time in nanoseconds can say, in seconds: 2262-04-11.
	maxTimestamp = 1<<63/1_000_000_000 - 1
)

// checker collects every problem of a request, in the order of its fields. The zero value is ready; without problems it allocates nothing.
type checker struct {
	kind       error
	violations []violation
}

func (c *checker) bad(field, format string, args ...any) {
	if len(c.violations) < maxViolations {
		c.violations = append(c.violations, violation{field, fmt.Sprintf(format, args...)})
	}
}

func (c *checker) err() error {
	if len(c.violations) == 0 {
		return nil
	}
	kind := c.kind
	if kind == nil {
		kind = ErrInvalidRequest
	}
	return &invalidRequest{kind: kind, violations: c.violations}
}

func (c *checker) destination(field, name string) {
	switch {
	case name == "":
		c.bad(field, "is required")
	case !catalog.ValidName(name):
		c.bad(field, "is %q, want [a-z0-9][a-z0-9._-]{0,62}", clipped(name))
	}
}

// key checks an opaque key: it may become a header and a part of a log line.
func (c *checker) key(field, s string) {
	if len(s) > shard.MaxKeyBytes {
		c.bad(field, "has %d bytes, the limit is %d", len(s), shard.MaxKeyBytes)
		return
	}
	if !utf8.ValidString(s) {
		c.bad(field, "is not UTF-8")
		return
	}
	if i := strings.IndexFunc(s, isControl); i >= 0 {
		c.bad(field, "has a control character at byte %d", i)
	}
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }

// payload checks a size against the node's limit. Being too large has its own reason.
func (c *checker) payload(field string, n, limit int) {
	if n > limit {
		if len(c.violations) == 0 {
			c.kind = ErrTooLarge
		}
		c.bad(field, "has %d bytes, the limit of this node is %d", n, limit)
	}
}

func (c *checker) contentType(field, s string) {
	if s == "" {
		return
	}
	if len(s) > shard.MaxContentTypeBytes {
		c.bad(field, "has %d bytes, the limit is %d", len(s), shard.MaxContentTypeBytes)
		return
	}
	if !printable(s) {
		c.bad(field, "must be printable ASCII")
		return
	}
	kind, _, parameters := strings.Cut(s, ";")
	major, minor, ok := strings.Cut(strings.TrimRight(kind, " "), "/")
	if !ok || !isToken(major) || !isToken(minor) {
		c.bad(field, "is not a media type such as application/json")
		return
	}
	if parameters {
		if _, _, err := mime.ParseMediaType(s); err != nil {
			c.bad(field, "has parameters that do not parse: %v", err)
		}
	}
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// reservedAttributes are names that the engine or its adapters use themselves. An attribute travels as sealane-attr-<name>, so none could
// overwrite a header; refusing them keeps receivers that strip the prefix from being fooled.
var reservedAttributes = map[string]bool{
	"idempotency-key": true, "traceparent": true, "tracestate": true, "host": true, "content-type": true, "content-length": true,
	"content-encoding": true, "transfer-encoding": true, "connection": true, "keep-alive": true, "te": true, "trailer": true, "upgrade": true,
	"expect": true, "user-agent": true, "authorization": true, "proxy-authorization": true, "proxy-connection": true, "cookie": true,
}

// attributes checks and sorts what the client attached.
func (c *checker) attributes(field string, m map[string]string) []shard.Attribute {
	if len(m) == 0 {
		return nil
	}
	if len(m) > shard.MaxAttributes {
		c.bad(field, "has %d entries, the limit is %d", len(m), shard.MaxAttributes)
		return nil
	}
	out := make([]shard.Attribute, 0, len(m))
	total := 0
	for _, name := range slices.Sorted(maps.Keys(m)) {
		value := m[name]
		total += len(name) + len(value)
		at := field + "." + clipped(name)
		switch {
		case !attributeName(name):
			c.bad(at, "must have a name of [a-z0-9][a-z0-9-]{0,62}")
		case reservedAttributes[name] || strings.HasPrefix(name, "sealane-") || strings.HasPrefix(name, "webhook-"):
			c.bad(at, "is a reserved name")
		case !printable(value):
			c.bad(at, "must have a value of printable ASCII")
		}
		out = append(out, shard.Attribute{Name: name, Value: value})
	}
	if total > shard.MaxAttributeBytes {
		c.bad(field, "has %d bytes of names and values together, the limit is %d", total, shard.MaxAttributeBytes)
	}
	return out
}

func attributeName(s string) bool {
	if s == "" || len(s) > maxAttributeName || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// traceparent checks the W3C form: version, 16 bytes of trace, 8 of parent, flags, in lower-case hexadecimal, none of them all zero.
func (c *checker) traceparent(field, s string) {
	if s != "" && !validTraceparent(s) {
		c.bad(field, "is not a W3C traceparent, 00-<32 hex>-<16 hex>-<2 hex>")
	}
}

func validTraceparent(s string) bool {
	const length = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(s) < length || len(s) > shard.MaxTraceParentBytes || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return false
	}
	version, trace, parent, flags := s[:2], s[3:35], s[36:52], s[53:55]
	if !lowerHex(version) || !lowerHex(trace) || !lowerHex(parent) || !lowerHex(flags) || version == "ff" {
		return false
	}
	if strings.Count(trace, "0") == len(trace) || strings.Count(parent, "0") == len(parent) {
		return false
	}
	if len(s) == length {
		return true
	}
	return version != "00" && s[length] == '-' && printable(s)
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// time reads a timestamp; absent is 0. needed refuses the epoch itself where 0 would be taken for "not set".
func (c *checker) time(field string, ts *timestamppb.Timestamp, needed bool) policy.Time {
	if ts == nil {
		return 0
	}
	if err := ts.CheckValid(); err != nil {
		c.bad(field, "is not a valid timestamp")
		return 0
	}
	if ts.Seconds < 0 || ts.Seconds >= maxTimestamp {
		c.bad(field, "must be from 1970-01-01T00:00:00Z to 2262-04-11T00:00:00Z")
		return 0
	}
	t := policy.Time(ts.Seconds*1_000_000_000 + int64(ts.Nanos))
	if t == 0 && needed {
		c.bad(field, "is 1970-01-01T00:00:00Z, which has passed; leave it out for no limit")
	}
	return t
}

func clipped(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// submit checks the shape of one message and makes the command of it, without id, slot and hash.
func (c *checker) submit(m *sealanev1.SubmitRequest, limit int) *shard.Submit {
	cmd := &shard.Submit{
		Destination: m.GetDestination(), OrderingKey: m.GetOrderingKey(), IdempotencyKey: m.GetIdempotencyKey(),
		ContentType: m.GetContentType(), TraceParent: m.GetTraceparent(), Payload: m.GetPayload(),
	}
	c.destination("destination", cmd.Destination)
	c.payload("payload", len(cmd.Payload), limit)
	c.contentType("content_type", cmd.ContentType)
	c.key("idempotency_key", cmd.IdempotencyKey)
	c.key("ordering_key", cmd.OrderingKey)
	cmd.DeliverAt = c.time("deliver_at", m.GetDeliverAt(), false)
	cmd.ExpireAt = c.time("expire_at", m.GetExpireAt(), true)
	cmd.SubmitBy = c.time("submit_by", m.GetSubmitBy(), true)
	cmd.Attributes = c.attributes("attributes", m.GetAttributes())
	c.traceparent("traceparent", cmd.TraceParent)
	return cmd
}

// messageID reads the id a request names.
func messageID(field, s string) (shard.MessageID, error) {
	if s == "" {
		return shard.MessageID{}, invalid(field, "is required")
	}
	id, err := shard.ParseID(s)
	return id, fieldError(field, err)
}

// text checks something that people wrote for the record. Longer texts are cut by the shard, as the contract says.
func (c *checker) text(field, s string) {
	if !utf8.ValidString(s) {
		c.bad(field, "is not UTF-8")
	}
}

func scheduleField(i int) string { return fmt.Sprintf("retry.schedule[%d]", i) }
