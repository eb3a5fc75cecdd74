package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"syscall"

	"github.com/sealane/sealane/delivery"
	"github.com/sealane/sealane/policy"
	"golang.org/x/net/http2"
)

// Error classes of requests that were sent or not sent.
const (
	classGate       = "SEND_GATE"
	classBuild      = "REQUEST_INVALID"
	classReset      = "CONNECTION_LOST"
	classTimeout    = "TIMEOUT"
	classGarbled    = "RESPONSE_GARBLED"
	classIdleClosed = "CONNECTION_CLOSED_BEFORE_SEND"
)

// rule is one row of table C.1.
type rule struct {
	id          string
	side        policy.SideEffect
	disposition policy.Disposition
}

// Rows that need no status.
var (
	ruleNotSent    = rule{"HTTP_H1", policy.NotPublished, policy.MessageRetriable}
	ruleUnbuilt    = rule{"HTTP_H2", policy.NotPublished, policy.MessagePermanent}
	ruleLost       = rule{"HTTP_H3", policy.Unknown, policy.MessageRetriable}
	ruleRefused    = rule{"HTTP_H17", policy.NotPublished, policy.MessageRetriable}
	ruleStreamLost = rule{"HTTP_H18", policy.Unknown, policy.MessageRetriable}
	ruleGate       = rule{"HTTP_GATE", policy.NotPublished, policy.Fenced}
)

// statusRule finds the row of a complete final head. A status the table does not name is read by its class, cautiously: other 2xx are
// success, other 3xx a moved target, other 4xx a permanent refusal of this message, and every 5xx that no receiver speaks of itself UNKNOWN.
func statusRule(status int, retryAfter, strict bool) rule {
	switch status {
	case 408:
		// The server gave up waiting for a request it says it did not get whole. Ours was written whole, so its word is not proof.
		return rule{"HTTP_H11", policy.Unknown, policy.MessageRetriable}
	case 401, 403, 407:
		return rule{"HTTP_H9", policy.NotPublished, policy.LaneUnavailable}
	case 404, 410:
		return rule{"HTTP_H10", policy.NotPublished, policy.LaneUnavailable}
	case 409:
		return rule{"HTTP_H12", policy.NotPublished, policy.MessageRetriable}
	case 421, 425:
		return rule{"HTTP_H13", policy.NotPublished, policy.MessageRetriable}
	case 429:
		return rule{"HTTP_H15", policy.NotPublished, policy.LaneThrottled}
	}
	switch {
	case status >= 200 && status <= 299:
		return rule{"HTTP_H4", policy.Published, policy.OK}
	case status >= 300 && status <= 399:
		return rule{"HTTP_H7", policy.NotPublished, policy.LaneUnavailable}
	case status >= 400 && status <= 499:
		return rule{"HTTP_H8", policy.NotPublished, policy.MessagePermanent}
	case status >= 500 && status <= 599 && !strict:
		return serverRule(status, retryAfter)
	}
	return rule{"HTTP_H16", policy.Unknown, policy.MessageRetriable}
}

// serverRule is DESIGN 6's change to H16: a complete 500, 501, 503, 505, 507 or 508 is the receiver's own statement that it did not accept.
// 502, 504 and 52x are a gateway's, which cannot know.
func serverRule(status int, retryAfter bool) rule {
	switch status {
	case 503:
		if retryAfter {
			return rule{"HTTP_H15", policy.NotPublished, policy.LaneThrottled}
		}
		return rule{"HTTP_H16", policy.NotPublished, policy.MessageRetriable}
	case 500, 507, 508:
		return rule{"HTTP_H16", policy.NotPublished, policy.MessageRetriable}
	case 501, 505:
		return rule{"HTTP_H16", policy.NotPublished, policy.MessagePermanent}
	}
	return rule{"HTTP_H16", policy.Unknown, policy.MessageRetriable}
}

func classifyHead(status int, h http.Header, strict bool) delivery.Outcome {
	after, has := parseRetryAfter(h)
	r := statusRule(status, has, strict)
	o := outcome(r)
	o.Evidence.Status = status
	switch {
	case r.side == policy.Published:
		o.Evidence.Statement = delivery.StatementAccepted
	case r.side == policy.NotPublished:
		o.Evidence.Statement = delivery.StatementReceiver
		o.RetryAfter, o.HasRetryAfter = after, has
	}
	if r.side != policy.Published {
		o.Evidence.ErrorClass = "HTTP_" + strconv.Itoa(status)
	}
	return o
}

func outcome(r rule) delivery.Outcome {
	return delivery.Outcome{
		SideEffect: r.side, Disposition: r.disposition,
		Evidence: delivery.Evidence{Rule: r.id, Statement: delivery.StatementNone},
	}
}

func classifyGate(err error) delivery.Outcome {
	o := outcome(ruleGate)
	o.Evidence.Statement, o.Evidence.ErrorClass, o.Evidence.Detail = delivery.StatementBefore, classGate, delivery.Clean(err.Error())
	return o
}

func classifyUnbuildable(err error) delivery.Outcome {
	o := outcome(ruleUnbuilt)
	o.Evidence.Statement, o.Evidence.ErrorClass, o.Evidence.Detail = delivery.StatementBefore, classBuild, delivery.Clean(err.Error())
	var missing *delivery.ConnectError
	if errors.As(err, &missing) {
		o.Disposition, o.Evidence.ErrorClass = policy.LaneUnavailable, missing.Class
	}
	return o
}

// classifyError reads a request without an answer. began says whether its first byte may have left.
func classifyError(ctx context.Context, err error, began, h1 bool) delivery.Outcome {
	if !began {
		o := outcome(ruleNotSent)
		o.Evidence.Statement, o.Evidence.ErrorClass, o.Evidence.Detail = delivery.StatementBefore, classIdleClosed, delivery.Clean(err.Error())
		if ctx.Err() != nil {
			o.Evidence.ErrorClass = ClassCancelled
		}
		return o
	}
	var stream http2.StreamError
	if !h1 && errors.As(err, &stream) {
		if stream.Code == http2.ErrCodeRefusedStream {
			o := outcome(ruleRefused)
			o.Evidence.Statement, o.Evidence.ErrorClass = delivery.StatementReceiver, "HTTP2_REFUSED_STREAM"
			return o
		}
		o := outcome(ruleStreamLost)
		o.Evidence.ErrorClass, o.Evidence.Detail = "HTTP2_STREAM_RESET", delivery.Clean(err.Error())
		return o
	}
	o := outcome(ruleLost)
	o.Evidence.ErrorClass, o.Evidence.Detail = lostClass(ctx, err), delivery.Clean(err.Error())
	return o
}

func lostClass(ctx context.Context, err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return classTimeout
	case errors.Is(err, context.Canceled):
		return ClassCancelled
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return classReset
	}
	return classGarbled
}
