package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/sealane/sealane/replication"
	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// errorDomain is the domain of every google.rpc.ErrorInfo that Sealane makes.
const errorDomain = "sealane.io"

// rowOf finds an error's row.
func rowOf(err error) errorRow {
	for _, row := range errorTable {
		if !errors.Is(err, row.err) {
			continue
		}
		var rej *shard.Rejection
		if row.reason == "" && errors.As(err, &rej) {
			row.reason = string(rej.Reason)
		}
		return row
	}
	return errorRow{err: err, code: codes.Internal, reason: reasonInternal, inside: true}
}

// violation is one field of a request and the limit it breaks.
type violation struct{ field, reason string }

// invalidRequest is an ErrInvalidRequest (or an ErrTooLarge) with the fields that caused it.
type invalidRequest struct {
	kind       error
	violations []violation
}

func (e *invalidRequest) Error() string {
	s := ""
	for i, v := range e.violations {
		if i > 0 {
			s += "; "
		}
		s += v.field + " " + v.reason
	}
	return s
}

func (e *invalidRequest) Unwrap() error { return e.kind }

func invalid(field, format string, args ...any) error {
	return &invalidRequest{kind: ErrInvalidRequest, violations: []violation{{field, fmt.Sprintf(format, args...)}}}
}

// fieldError is an error about one field of a request that another package found.
func fieldError(field string, err error) error {
	if err == nil {
		return nil
	}
	return &invalidRequest{kind: err, violations: []violation{{field, "is refused: " + plain(err)}}}
}

// plain is an error's text as a client gets it: without the names of our packages, and a rejection as a sentence.
func plain(err error) string {
	var rej *shard.Rejection
	if errors.As(err, &rej) {
		s, ok := rejectionTexts[rej.Reason]
		if !ok {
			s = string(rej.Reason)
		}
		if detail := strings.TrimSpace(rej.Field + " " + rej.Detail); detail != "" {
			s += ": " + detail
		}
		return s
	}
	s := err.Error()
	for _, room := range []string{"server: ", "shard: ", "catalog: ", "replication: ", "storage: ", "delivery: ", "host: ", "lane: "} {
		s = strings.ReplaceAll(s, room, "")
	}
	return s
}

// rejectionTexts say in a few words what the shard refused; field and detail follow.
var rejectionTexts = map[shard.Reason]string{
	shard.ErrIdempotencyConflict.Reason: "the idempotency key was used for another message",
	shard.ErrMessageIDConflict.Reason:   "the message id exists already",
	shard.ErrSubmitByPassed.Reason:      "it is too late for this submit",
	shard.ErrDestinationUnknown.Reason:  "no such destination",
	shard.ErrDeliveryWindow.Reason:      "the times of the delivery are out of bounds",
	shard.ErrOrderingKey.Reason:         "this destination cannot keep an order",
	shard.ErrLaneClosed.Reason:          "the lane is closed for ever",
	shard.ErrBacklogFull.Reason:         "the backlog is full",
	shard.ErrMessageNotFound.Reason:     "no such message",
	shard.ErrLaneNotFound.Reason:        "no such lane",
	shard.ErrTooLate.Reason:             "too late",
	shard.ErrAlreadyTerminal.Reason:     "the generation has ended",
	shard.ErrVersionConflict.Reason:     "another generation is current",
	shard.ErrStale.Reason:               "overtaken by an earlier change",
	shard.ErrAttemptNotUncertain.Reason: "the attempt is not uncertain",
	shard.ErrBudgetUsed.Reason:          "the attempts that the policy allows are used up",
	shard.ErrOperationConflict.Reason:   "the operation id was used for another operation",
	shard.ErrAlreadyOpen.Reason:         "the lane is open already",
	shard.ErrAlreadyPaused.Reason:       "the lane is paused already",
	shard.ErrNotSupported.Reason:        "not in this version",
	shard.ErrOutcomeIllegal.Reason:      "an outcome that cannot be",
	shard.ErrInvalidArgument.Reason:     "a field is out of its limits",
}

// answer is an error on its way out: the status that the client gets, and the cause that only the node's log gets.
type answer struct {
	cause error
	st    *status.Status
}

func (a *answer) Error() string { return a.cause.Error() }

func (a *answer) Unwrap() error { return a.cause }

// GRPCStatus is what both doors send.
func (a *answer) GRPCStatus() *status.Status { return a.st }

// answered is what a service returns for an error.
func answered(err error) error { return &answer{err, statusOf(err)} }

// statusOf turns an error into what a client gets: code, text, ErrorInfo with the stable reason, and the fields concerned.
func statusOf(err error) *status.Status {
	if st, ok := status.FromError(err); ok {
		return st
	}
	return withDetails(err)
}

func withDetails(err error, more ...protoadapt.MessageV1) *status.Status {
	row := rowOf(err)
	code := row.code
	if row.reason == reasonMaybe {
		// The caller's own deadline keeps its code: that is what its library expects. The reason says what it means for the message.
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			code = codes.DeadlineExceeded
		case errors.Is(err, context.Canceled):
			code = codes.Canceled
		}
	}
	if errors.Is(row.err, replication.ErrContext) && errors.Is(err, context.Canceled) {
		code = codes.Canceled
	}
	text := plain(err)
	if row.inside {
		text = "the node cannot do this now (" + row.reason + "); its log says why"
	}
	info := &errdetails.ErrorInfo{Reason: row.reason, Domain: errorDomain}
	details := []protoadapt.MessageV1{info}
	violations := violationsOf(err)
	if len(violations) > 0 {
		info.Metadata = map[string]string{"field": violations[0].field}
		if code == codes.InvalidArgument {
			bad := &errdetails.BadRequest{}
			for _, v := range violations {
				bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
					Field: v.field, Description: v.reason, Reason: row.reason,
				})
			}
			details = append(details, bad)
		}
	}
	st, failed := status.New(code, text).WithDetails(append(details, more...)...)
	if failed != nil {
		return status.New(code, text) // only an error without a code can fail here, and no row has OK
	}
	return st
}

// violationsOf are the fields an error speaks of.
func violationsOf(err error) []violation {
	var bad *invalidRequest
	if errors.As(err, &bad) {
		return bad.violations
	}
	var rej *shard.Rejection
	if errors.As(err, &rej) && rej.Field != "" {
		return []violation{{rej.Field, rej.Detail}}
	}
	return nil
}

// submitStatus is statusOf with a SubmitErrorDetail. certain says that the caller knows the message was not proposed; beyond that a
// verdict of the shard and a refusal before the log are certain, and everything else is maybe (DESIGN 3).
func submitStatus(err error, certain bool) *status.Status {
	detail := &sealanev1.SubmitErrorDetail{Acceptance: sealanev1.Acceptance_MAYBE_ACCEPTED}
	if certain || notAccepted(err) {
		detail.Acceptance = sealanev1.Acceptance_NOT_ACCEPTED
	}
	if v := violationsOf(err); len(v) > 0 {
		detail.Field = v[0].field
	}
	return withDetails(err, detail)
}

// notAccepted tells whether an error proves that a proposed command did not and will not take effect.
func notAccepted(err error) bool {
	if errors.Is(err, replication.ErrMaybeAccepted) {
		return false
	}
	var rej *shard.Rejection
	return errors.As(err, &rej) || errors.Is(err, ErrNoSpace) || errors.Is(err, ErrLeaderUnreachable) || errors.Is(err, ErrDraining) ||
		replication.NotAccepted(err)
}
