package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Headers of the raw submit.
const (
	headerIdempotencyKey = "Idempotency-Key"
	headerOrderingKey    = "Sealane-Ordering-Key"
	headerDeliverAt      = "Sealane-Deliver-At"
	headerExpireAt       = "Sealane-Expire-At"
	headerSubmitBy       = "Sealane-Submit-By"
	headerAttribute      = "Sealane-Attr-"
)

// submitRaw takes the request's body as the payload, byte for byte: nothing parses it, and nothing looks at its encoding.
func (g *gateway) submitRaw(w http.ResponseWriter, r *http.Request) {
	m, err := g.rawRequest(r)
	if err != nil {
		g.n.metrics.submits[resultInvalid].Inc()
		g.answerError(w, r, &answer{err, submitStatus(err, true)})
		return
	}
	ctx := r.Context()
	if v := r.Header.Values("Traceparent"); len(v) == 1 {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("traceparent", v[0]))
	}
	out, err := g.services.delivery.Submit(ctx, m)
	if err != nil {
		g.fail(w, r, err)
		return
	}
	body, err := marshalJSON.Marshal(out)
	if err != nil {
		g.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the client may be gone; it submits again with its key
}

// rawRequest reads headers and body of a raw submit.
func (g *gateway) rawRequest(r *http.Request) (*sealanev1.SubmitRequest, error) {
	c := &checker{}
	m := &sealanev1.SubmitRequest{
		Destination: r.PathValue("name"), ContentType: one(c, r.Header, "Content-Type"), IdempotencyKey: one(c, r.Header, headerIdempotencyKey),
		OrderingKey: one(c, r.Header, headerOrderingKey), DeliverAt: headerTime(c, r.Header, headerDeliverAt),
		ExpireAt: headerTime(c, r.Header, headerExpireAt), SubmitBy: headerTime(c, r.Header, headerSubmitBy),
	}
	if e := one(c, r.Header, "Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		c.bad("Content-Encoding", "is %q: an encoding is not passed on, so the receiver could not read the payload", clipped(e))
	}
	for name, values := range r.Header {
		if !strings.HasPrefix(name, "Sealane-") {
			continue
		}
		attribute, isAttribute := strings.CutPrefix(name, headerAttribute)
		switch {
		case isAttribute && len(values) == 1:
			if m.Attributes == nil {
				m.Attributes = make(map[string]string)
			}
			m.Attributes[strings.ToLower(attribute)] = values[0]
		case isAttribute:
			c.bad(clipped(name), "appears %d times, want once", len(values))
		case name != headerOrderingKey && name != headerDeliverAt && name != headerExpireAt && name != headerSubmitBy:
			c.bad(clipped(name), "is not a header of this call")
		}
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	var err error
	m.Payload, err = g.rawPayload(r)
	return m, err
}

// rawPayload reads the whole body, up to the node's limit.
func (g *gateway) rawPayload(r *http.Request) ([]byte, error) {
	tooLarge := &checker{}
	limit := g.n.cfg.MaxPayloadBytes
	if r.ContentLength > int64(limit) {
		tooLarge.payload("payload", int(r.ContentLength), limit)
		return nil, tooLarge.err()
	}
	var b []byte
	var err error
	if r.ContentLength > 0 {
		b = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, b)
	} else {
		b, err = io.ReadAll(r.Body)
	}
	var invalidBody *invalidRequest
	switch {
	case errors.As(err, &invalidBody):
		return nil, &invalidRequest{kind: ErrTooLarge, violations: []violation{
			{"payload", fmt.Sprintf("has more than %d bytes, the limit of this node", limit)},
		}}
	case err != nil:
		return nil, invalid("payload", "was not received whole: %v", err)
	}
	return b, nil
}

// one reads a header that may appear once.
func one(c *checker, h http.Header, name string) string {
	v := h.Values(name)
	switch len(v) {
	case 0:
		return ""
	case 1:
		return v[0]
	}
	c.bad(name, "appears %d times, want once", len(v))
	return ""
}

func headerTime(c *checker, h http.Header, name string) *timestamppb.Timestamp {
	s := one(c, h, name)
	if s == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		c.bad(name, "is %q, want RFC 3339 such as 2030-01-02T15:04:05Z", clipped(s))
		return nil
	}
	return timestamppb.New(t)
}

// rawSubmitOperation describes the call for the OpenAPI document.
func rawSubmitOperation() map[string]any {
	header := func(name, text string) map[string]any {
		return map[string]any{"name": name, "in": "header", "required": false, "type": "string", "description": text}
	}
	answer := func(text, schema string) map[string]any {
		return map[string]any{"description": text, "schema": map[string]any{"$ref": "#/definitions/" + schema}}
	}
	return map[string]any{
		"summary":     "Submits the body of the request as the payload, byte for byte.",
		"description": "Attributes are given as headers Sealane-Attr-<name>. An error whose details hold a SubmitErrorDetail with NOT_ACCEPTED means that the message was certainly not accepted; after any other error submit again with the same Idempotency-Key.",
		"operationId": "DeliveryService_SubmitRaw",
		"tags":        []string{"DeliveryService"},
		"consumes":    []string{"*/*"},
		"parameters": []map[string]any{
			{"name": "name", "in": "path", "required": true, "type": "string", "description": "Name of the destination."},
			{"name": "body", "in": "body", "required": false, "schema": map[string]any{"type": "string", "format": "binary"}, "description": "The payload. May be empty."},
			header("Content-Type", "Media type that is passed on."),
			header(headerIdempotencyKey, "A repeated submit with the same key gives the first answer."),
			header(headerOrderingKey, "Messages with the same key are delivered in order."),
			header(headerDeliverAt, "Earliest delivery, RFC 3339."),
			header(headerExpireAt, "Last instant at which an attempt may be admitted, RFC 3339."),
			header(headerSubmitBy, "A submit that is stamped later than this is refused, RFC 3339."),
			header("traceparent", "W3C trace context that is passed on with every attempt."),
		},
		"responses": map[string]any{
			"200":     answer("Durable, and Sealane is responsible for it.", "SubmitResponse"),
			"default": answer("An error.", "Status"),
		},
	}
}
