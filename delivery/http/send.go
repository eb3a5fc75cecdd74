package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sealane/sealane/delivery"
)

// conn is one connection in hand.
type conn struct {
	t      *Target
	cc     *http.ClientConn
	gate   *gateConn
	remote string
	h1     bool // one request at a time: the gate can be asked on the write itself
	used   time.Time
	spent  bool // RoundTrip consumed the reservation
	broken bool
}

// body is neither nil nor http.NoBody and has no GetBody: nothing in net/http can send it twice.
type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

// Send makes the one request.
func (c *conn) Send(ctx context.Context, r *delivery.Request, gate delivery.Gate) delivery.Outcome {
	req, err := c.t.request(ctx, r)
	if err != nil {
		return c.result(classifyUnbuildable(err))
	}
	s := &sending{gate: gate}
	if c.h1 {
		c.gate.armed.Store(s)
		defer c.gate.armed.Store(nil)
	} else if err := s.start(); err != nil {
		return c.result(classifyGate(err))
	}
	c.spent = true
	resp, err := c.cc.RoundTrip(req)
	if err != nil {
		c.broken = true
		hadBegun := s.bar()
		if p := s.refused.Load(); p != nil {
			return c.result(classifyGate(*p))
		}
		return c.written(classifyError(ctx, err, hadBegun && !s.failed.Load(), c.h1), s)
	}
	out := classifyHead(resp.StatusCode, resp.Header, c.t.spec.Strict)
	c.finishBody(resp)
	return c.written(out, s)
}

func (c *conn) written(o delivery.Outcome, s *sending) delivery.Outcome {
	o.Evidence.BytesWritten = s.written.Load()
	return c.result(o)
}

func (c *conn) result(o delivery.Outcome) delivery.Outcome {
	o.Evidence.RemoteAddr = c.remote
	o.Evidence.At = c.t.opt.Now()
	return o
}

// finishBody reads what is left of an answer so that the connection can be used again, within a size and a time bound. What it finds never
// changes what the head decided; a body that is too large, too slow or garbled only costs the connection.
func (c *conn) finishBody(resp *http.Response) {
	if resp.ContentLength == 0 {
		resp.Body.Close()
		return
	}
	timer := time.AfterFunc(ResponseBodyTime, func() { resp.Body.Close() })
	n, err := io.CopyN(io.Discard, resp.Body, MaxResponseBody+1)
	if !timer.Stop() || n > MaxResponseBody || err != nil && !errors.Is(err, io.EOF) {
		c.broken = true
	}
	resp.Body.Close()
}

// Release gives the connection back.
func (c *conn) Release() {
	if !c.spent {
		c.cc.Release()
	}
	c.spent = false
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.broken || t.closed || c.cc.Err() != nil {
		t.dropLocked(c)
		return
	}
	c.used = t.opt.Now()
	t.idle = append(t.idle, c)
}

// webhookID is stable over the attempts of a generation (DESIGN 12).
func webhookID(r *delivery.Request) string {
	return r.MessageID + "-" + strconv.FormatUint(uint64(r.Generation), 10)
}

// request renders the one request of an attempt.
func (t *Target) request(ctx context.Context, r *delivery.Request) (*http.Request, error) {
	id := webhookID(r)
	now := t.opt.Now()
	h := make(http.Header, 10+len(t.fixed)+len(r.Attributes))
	for k, v := range t.fixed {
		h[k] = v
	}
	values := make([]string, 0, 8+len(r.Attributes))
	set := func(k, v string) {
		values = append(values, v)
		h[k] = values[len(values)-1 : len(values) : len(values)]
	}
	set("Webhook-Id", id)
	set("Idempotency-Key", id)
	set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	set("Sealane-Attempt", strconv.FormatUint(uint64(r.Attempt), 10))
	set("User-Agent", "sealane")
	if r.ContentType != "" {
		set("Content-Type", r.ContentType)
	}
	if r.TraceParent != "" {
		set("Traceparent", r.TraceParent)
	}
	for _, a := range r.Attributes {
		set(http.CanonicalHeaderKey("Sealane-Attr-"+a.Name), a.Value)
	}
	signature, err := t.signature(id, now, r.Payload)
	if err != nil {
		return nil, err
	}
	if signature != "" {
		set("Webhook-Signature", signature)
	}
	b := &body{}
	b.Reset(r.Payload)
	req := &http.Request{
		Method: http.MethodPost, URL: t.url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, Body: b,
		ContentLength: int64(len(r.Payload)), Host: t.url.Host,
	}
	return req.WithContext(ctx), nil
}

func (t *Target) signature(id string, now time.Time, payload []byte) (string, error) {
	signers, err := t.signers()
	if err != nil || len(signers) == 0 {
		return "", err
	}
	parts := make([]string, len(signers))
	for i, s := range signers {
		if parts[i], err = s.Sign(id, now, payload); err != nil {
			return "", errors.New("signing failed")
		}
	}
	return strings.Join(parts, " "), nil
}

// RequestHash covers what is the same in every attempt of a generation: method, URL, fixed headers, identity, content type, attributes, body.
func (t *Target) RequestHash(r *delivery.Request) [32]byte {
	b := make([]byte, 0, 512)
	text := func(s string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	text(http.MethodPost)
	text(t.spec.URL)
	for _, kv := range t.spec.Headers {
		text(kv.Name)
		text(kv.Value)
	}
	text(webhookID(r))
	text(r.ContentType)
	text(r.TraceParent)
	for _, a := range r.Attributes {
		text(a.Name)
		text(a.Value)
	}
	payload := sha256.Sum256(r.Payload)
	b = append(b, payload[:]...)
	return sha256.Sum256(b)
}
