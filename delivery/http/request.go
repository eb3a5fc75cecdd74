package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/sealane/sealane/delivery"
	"golang.org/x/net/http/httpguts"
)

// errUnbuildable: the message itself cannot be made into a request (H2).
var errUnbuildable = errors.New("the request cannot be built")

const attributePrefix = "Sealane-Attr-"

// webhookID is stable over the attempts of a generation (DESIGN 12).
func webhookID(r *delivery.Request) string {
	b := make([]byte, 0, len(r.MessageID)+11)
	b = append(append(b, r.MessageID...), '-')
	return string(strconv.AppendUint(b, uint64(r.Generation), 10))
}

// headers collects a request's headers with one backing array for the values.
type headers struct {
	h      http.Header
	values []string
}

func (hs *headers) set(name, value string) {
	n := len(hs.values)
	hs.values = append(hs.values, value)
	hs.h[name] = hs.values[n : n+1 : n+1]
}

// request renders the one request of an attempt. Its body is neither nil nor http.NoBody and has no GetBody, an empty one included: nothing in
// net/http could send it twice even where it would. The error is errUnbuildable, or a *delivery.ConnectError for a missing secret.
func (t *Target) request(ctx context.Context, r *delivery.Request, h2 bool) (*http.Request, *bytes.Reader, error) {
	id := webhookID(r)
	now := t.a.opt.Now()
	hs := headers{h: make(http.Header, 10+len(t.fixed)+len(r.Attributes)), values: make([]string, 0, 9+len(r.Attributes))}
	hs.set("User-Agent", "sealane")
	for k, v := range t.fixed {
		hs.h[k] = v
	}
	hs.set("Webhook-Id", id)
	hs.set("Idempotency-Key", id)
	hs.set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	hs.set("Sealane-Attempt", strconv.FormatUint(uint64(r.Attempt), 10))
	if r.ContentType != "" {
		hs.set("Content-Type", r.ContentType)
	}
	if r.TraceParent != "" {
		hs.set("Traceparent", r.TraceParent)
	}
	if err := t.attributes(&hs, r); err != nil {
		return nil, nil, err
	}
	signature, err := t.signature(id, now, r.Payload)
	if err != nil {
		return nil, nil, err
	}
	if signature != "" {
		hs.set("Webhook-Signature", signature)
	}
	body := bytes.NewReader(r.Payload)
	req := &http.Request{
		Method: http.MethodPost, URL: t.url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: hs.h, Body: io.NopCloser(body),
		ContentLength: int64(len(r.Payload)), Host: t.url.Host,
	}
	if len(r.Payload) == 0 && !h2 {
		// net/http takes a length of 0 with a body for "unknown" and would send it in chunks. Say 0 plainly instead; the name is not in
		// its canonical form because that one is dropped.
		req.TransferEncoding = []string{"identity"}
		hs.set("content-length", "0")
	}
	return req.WithContext(ctx), body, nil
}

// attributes adds what the client chose and checks it, because net/http would find it only later. Names that differ only in case become one
// header with several values, in the client's order.
func (t *Target) attributes(hs *headers, r *delivery.Request) error {
	if !httpguts.ValidHeaderFieldValue(r.ContentType) || !httpguts.ValidHeaderFieldValue(r.TraceParent) {
		return fmt.Errorf("%w: content type or traceparent has a character that headers may not have", errUnbuildable)
	}
	if !httpguts.ValidHeaderFieldValue(r.MessageID) {
		return fmt.Errorf("%w: the message id has a character that headers may not have", errUnbuildable)
	}
	for i := range r.Attributes {
		a := &r.Attributes[i]
		if !httpguts.ValidHeaderFieldName(a.Name) || !httpguts.ValidHeaderFieldValue(a.Value) {
			return fmt.Errorf("%w: attribute %d has a character that headers may not have", errUnbuildable, i)
		}
		name := http.CanonicalHeaderKey(attributePrefix + a.Name)
		if before, twice := hs.h[name]; twice {
			hs.h[name] = append(before, a.Value)
			continue
		}
		hs.set(name, a.Value)
	}
	return nil
}

// RequestHash covers what is the same in every attempt of a generation: method, URL, fixed headers, identity, content type, traceparent,
// attributes, body. Every part is preceded by its length.
func (t *Target) RequestHash(r *delivery.Request) [32]byte {
	b := make([]byte, 0, 512)
	text := func(s string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	count := func(n int) { b = binary.BigEndian.AppendUint32(b, uint32(n)) }
	text(http.MethodPost)
	text(t.spec.URL)
	count(len(t.spec.Headers))
	for _, kv := range t.spec.Headers {
		text(kv.Name)
		text(kv.Value)
	}
	text(webhookID(r))
	text(r.ContentType)
	text(r.TraceParent)
	count(len(r.Attributes))
	for _, a := range r.Attributes {
		text(a.Name)
		text(a.Value)
	}
	payload := sha256.Sum256(r.Payload)
	b = append(b, payload[:]...)
	return sha256.Sum256(b)
}
