package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/sealane/sealane/delivery"
)

// Send makes the one request.
func (h *hand) Send(ctx context.Context, r *delivery.Request, gate delivery.Gate) delivery.Outcome {
	if h.spent || h.released {
		return h.result(classifyMisuse(), nil)
	}
	if err := ctx.Err(); err != nil {
		return h.result(classifyUnsent(err), nil)
	}
	req, body, err := h.t.request(ctx, r, h.wire.h2)
	if err != nil {
		return h.result(classifyUnbuildable(err), nil)
	}
	s := &sending{gate: gate, now: h.t.a.opt.Now, body: body, reused: h.reused}
	s.reset.Store(-1)
	h.spent = true
	h.wire.current.Store(s)
	resp, err := h.cc.RoundTrip(req)
	if err != nil {
		h.broken = true
		return h.result(h.failed(ctx, err, s), s)
	}
	out := h.answered(resp, s)
	if !h.broken {
		h.finishBody(resp)
	}
	if !s.whole.Load() {
		h.broken = true // the rest of the request may still be on its way
	}
	if !h.broken {
		h.wire.current.Store(nil)
	}
	return h.result(out, s)
}

// failed reads a request without a usable answer. After it, no further byte of the request is written.
func (h *hand) failed(ctx context.Context, err error, s *sending) delivery.Outcome {
	hadBegun, ended := s.bar(), h.wire.ended.Load()
	h.cc.Close()
	switch p := s.refused.Load(); {
	case p != nil:
		return classifyGate(*p)
	case !hadBegun || s.failed.Load():
		if cause := ctx.Err(); cause != nil {
			err = cause
		}
		return classifyUnsent(err)
	}
	stream := s.stream.Load()
	if h.wire.h2 && stream != 0 && stream > h.wire.lastStream.Load() {
		return classifyRefused(classGoAway)
	}
	if code := s.reset.Load(); h.wire.h2 && code >= 0 {
		if code == codeRefusedStream {
			return classifyRefused(classRefusedStream)
		}
		return classifyStreamLost(uint32(code))
	}
	out := classifyLost(ctx, err, s.informational())
	if h.wire.h2 && ended && out.Evidence.ErrorClass == classGarbled {
		out.Evidence.ErrorClass = classReset // the library has only a text for it
	}
	return out
}

// answered reads the head of an answer. The head decides.
func (h *hand) answered(resp *http.Response, s *sending) delivery.Outcome {
	status := resp.StatusCode
	if h.wire.unasked.Load() {
		h.broken = true // it may have begun before the request did: then it answers something else
		h.cc.Close()
		return classifyUnasked(status)
	}
	if status < 200 {
		h.broken = true // 101 is final in HTTP/1 and takes the connection away; it says nothing about the message
		h.cc.Close()
	}
	uncut := true
	if status == http.StatusRequestTimeout && s.cut() {
		uncut = false
		h.broken = true
		h.cc.Close()
	}
	out := classifyHead(status, resp.Header, h.t.spec.Strict, uncut, h.t.a.opt.Now())
	out.Evidence.Headers = picks(resp.Header)
	return out
}

// result completes the evidence.
func (h *hand) result(o delivery.Outcome, s *sending) delivery.Outcome {
	e := &o.Evidence
	e.RemoteAddr = h.remote
	e.At = h.t.a.opt.Now()
	if s == nil {
		return o
	}
	e.WroteRequest = s.whole.Load()
	if e.Statement != delivery.StatementBefore {
		e.BytesWritten = s.written.Load()
		if first := s.first.Load(); first != 0 {
			e.FirstByteAt = time.Unix(0, first)
		}
	}
	return o
}

// finishBody reads what is left of an answer so that the connection can be used again, within a size and a time bound. What it finds never
// changes what the head decided; a body that is too large, too slow or garbled only costs the connection.
func (h *hand) finishBody(resp *http.Response) {
	if resp.ContentLength == 0 {
		resp.Body.Close()
		return
	}
	timer := time.AfterFunc(ResponseBodyTime, func() { h.cc.Close() })
	n, err := io.Copy(io.Discard, io.LimitReader(resp.Body, MaxResponseBody+1))
	if !timer.Stop() || n > MaxResponseBody || err != nil && !errors.Is(err, io.EOF) {
		h.broken = true
		h.cc.Close()
	}
	resp.Body.Close()
}

// maxPick bounds one picked header in bytes.
const maxPick = 128

// pickedHeaders are canonical names, so that looking them up needs no conversion.
var pickedHeaders = [...]string{"Date", "X-Request-Id", "Request-Id", "X-Correlation-Id", "X-Amzn-Requestid", "Cf-Ray"}

// picks takes what helps to find the request in the receiver's logs.
func picks(h http.Header) []delivery.Attribute {
	var out []delivery.Attribute
	for _, name := range pickedHeaders {
		if v := h[name]; len(v) > 0 && v[0] != "" {
			out = append(out, delivery.Attribute{Name: name, Value: delivery.CleanTo(v[0], maxPick)})
		}
	}
	return out
}
