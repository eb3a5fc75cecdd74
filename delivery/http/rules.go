package webhook

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/sealane/sealane/delivery"
	"github.com/sealane/sealane/policy"
)

// Classes of requests that were sent or not sent. With those of dial.go and HTTP_<status> for every status that is no success, they are the
// closed set of this adapter's evidence.
const (
	classGate          = "SEND_GATE"
	classBuild         = "REQUEST_INVALID"
	classMisuse        = "CONNECTION_USED_TWICE"
	classIdleClosed    = "CONNECTION_CLOSED_BEFORE_SEND"
	classReset         = "CONNECTION_LOST"
	classTimeout       = "TIMEOUT"
	classGarbled       = "RESPONSE_GARBLED"
	classRefusedStream = "HTTP2_REFUSED_STREAM"
	classGoAway        = "HTTP2_GOAWAY"
	classStreamReset   = "HTTP2_STREAM_RESET"
)

// rule is one row of table C.1.
type rule struct {
	id          string
	side        policy.SideEffect
	disposition policy.Disposition
}

// Rows that need no status, and the two that are not in the table: the send gate, and a caller that breaks Conn's contract.
var (
	ruleCancelled     = rule{"HTTP_H1", policy.NotPublished, policy.MessageRetriable}
	ruleNotSent       = rule{"HTTP_H1", policy.NotPublished, policy.LaneUnavailable}
	ruleUnbuilt       = rule{"HTTP_H2", policy.NotPublished, policy.MessagePermanent}
	ruleLost          = rule{"HTTP_H3", policy.Unknown, policy.MessageRetriable}
	ruleInformational = rule{"HTTP_H6", policy.Unknown, policy.MessageRetriable}
	ruleUnwritten     = rule{"HTTP_H11", policy.NotPublished, policy.MessageRetriable}
	ruleRefused       = rule{"HTTP_H17", policy.NotPublished, policy.MessageRetriable}
	ruleStreamLost    = rule{"HTTP_H18", policy.Unknown, policy.MessageRetriable}
	ruleGate          = rule{"HTTP_GATE", policy.NotPublished, policy.Fenced}
	ruleMisuse        = rule{"HTTP_MISUSE", policy.NotPublished, policy.AdapterBug}
)

// statusRule finds the row of a complete final head.
//
// Statuses that the table does not name are read by their class. Another 3xx is a moved target (H7). Another 4xx means 400, as RFC 9110
// section 15 tells a client to take it: the message is refused (H8). From 500 on, and from 600 on, which is no HTTP status at all, nobody who
// could know has spoken: UNKNOWN (H16). A status below 200 is not final (H6).
func statusRule(status int, retryAfter, strict bool) rule {
	switch status {
	case 401, 403, 407:
		return rule{"HTTP_H9", policy.NotPublished, policy.LaneUnavailable}
	case 404, 410:
		return rule{"HTTP_H10", policy.NotPublished, policy.LaneUnavailable}
	case 408:
		// The server says that it gave up waiting for the request, but it was written whole, so its word is no proof.
		return rule{"HTTP_H11", policy.Unknown, policy.MessageRetriable}
	case 409:
		return rule{"HTTP_H12", policy.NotPublished, policy.MessageRetriable}
	case 421, 425:
		return rule{"HTTP_H13", policy.NotPublished, policy.MessageRetriable}
	case 429:
		return rule{"HTTP_H15", policy.NotPublished, policy.LaneThrottled}
	}
	switch {
	case status < 200:
		return ruleInformational
	case status <= 299:
		return rule{"HTTP_H4", policy.Published, policy.OK}
	case status <= 399:
		return rule{"HTTP_H7", policy.NotPublished, policy.LaneUnavailable}
	case status <= 499:
		return rule{"HTTP_H8", policy.NotPublished, policy.MessagePermanent}
	case !strict:
		return serverRule(status, retryAfter)
	}
	return rule{"HTTP_H16", policy.Unknown, policy.MessageRetriable}
}

// serverRule is DESIGN 6's change to H16: a complete 500, 501, 503, 505, 507 or 508 is the receiver's own statement that it did not accept.
// 502, 504, 52x and whatever else is from 500 on are a gateway's or nobody's, which cannot know.
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

// classifyHead reads a final head. whole is false when the last byte of the request was not written and never will be.
func classifyHead(status int, h http.Header, strict, whole bool, now time.Time) delivery.Outcome {
	after, has := parseRetryAfter(h, now)
	r := statusRule(status, has, strict)
	if status == http.StatusRequestTimeout && !whole {
		r = ruleUnwritten
	}
	o := outcome(r, "")
	o.Evidence.Status = status
	switch r.side {
	case policy.Published:
		o.Evidence.Statement = delivery.StatementAccepted
		return o
	case policy.NotPublished:
		o.Evidence.Statement = delivery.StatementReceiver
		o.RetryAfter, o.HasRetryAfter = after, has
	}
	o.Evidence.ErrorClass = "HTTP_" + strconv.Itoa(status)
	return o
}

func outcome(r rule, class string) delivery.Outcome {
	return delivery.Outcome{
		SideEffect: r.side, Disposition: r.disposition,
		Evidence: delivery.Evidence{Rule: r.id, Statement: delivery.StatementNone, ErrorClass: class},
	}
}

// before is an outcome of a request of which nothing was written.
func before(r rule, class, detail string) delivery.Outcome {
	o := outcome(r, class)
	o.Evidence.Statement, o.Evidence.Detail = delivery.StatementBefore, delivery.Clean(detail)
	return o
}

func classifyGate(err error) delivery.Outcome { return before(ruleGate, classGate, err.Error()) }

func classifyMisuse() delivery.Outcome {
	return before(ruleMisuse, classMisuse, "Send was called again on a connection in hand, or after Release")
}

func classifyUnbuildable(err error) delivery.Outcome {
	var missing *delivery.ConnectError
	if errors.As(err, &missing) {
		return before(ruleNotSent, missing.Class, missing.Detail)
	}
	return before(ruleUnbuilt, classBuild, err.Error())
}

// classifyUnsent is row H1: nothing was written. A connection that was found closed is the lane's trouble, like a refused dial, and costs the
// message nothing; a deadline or a cancel is not.
func classifyUnsent(err error) delivery.Outcome {
	switch {
	case errors.Is(err, context.Canceled):
		return before(ruleCancelled, ClassCancelled, err.Error())
	case isTimeout(err):
		return before(ruleCancelled, classTimeout, err.Error())
	}
	return before(ruleNotSent, classIdleClosed, err.Error())
}

func classifyRefused(class string) delivery.Outcome {
	o := outcome(ruleRefused, class)
	o.Evidence.Statement = delivery.StatementReceiver
	return o
}

func classifyStreamLost(code uint32) delivery.Outcome {
	o := outcome(ruleStreamLost, classStreamReset)
	o.Evidence.Detail = "RST_STREAM with code " + strconv.FormatUint(uint64(code), 10)
	return o
}

// classifyUnasked is for an answer that is not certain to be this request's.
func classifyUnasked(status int) delivery.Outcome {
	o := outcome(ruleLost, classGarbled)
	o.Evidence.Status = status
	o.Evidence.Detail = "the peer spoke before it was asked, so its answer proves nothing"
	return o
}

// classifyLost is for bytes that were written and an answer that did not come: UNKNOWN. The class is for people and statistics.
func classifyLost(ctx context.Context, err error, informational bool) delivery.Outcome {
	r := ruleLost
	if informational {
		r = ruleInformational
	}
	o := outcome(r, classGarbled)
	o.Evidence.Detail = delivery.Clean(err.Error())
	switch cause := ctx.Err(); {
	case errors.Is(cause, context.Canceled), errors.Is(err, context.Canceled):
		o.Evidence.ErrorClass = ClassCancelled
	case cause != nil, isTimeout(err):
		o.Evidence.ErrorClass = classTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, net.ErrClosed): // closed here, because its reader found it broken
		o.Evidence.ErrorClass = classReset
	}
	return o
}
