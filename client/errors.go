package client

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Violation is one field of a request that was refused.
type Violation struct {
	// Field is its path in the request, for example `idempotency_key`.
	Field string
	// Description says what is wrong with it, with the limit.
	Description string
}

// Error is what a node answered when it refused a call, taken apart.
type Error struct {
	// Code is the gRPC code.
	Code codes.Code
	// Reason is the stable reason, for example DESTINATION_NOT_FOUND; empty where the error was made on the way (no connection, a deadline).
	Reason string
	// Message is for people.
	Message string
	// Field is the field of the request that caused it; empty where no field did.
	Field string
	// Violations are all refused fields.
	Violations []Violation
	// Metadata is what the reason carries, for example the limit.
	Metadata map[string]string
	// Acceptance is stated for submits only.
	Acceptance sealanev1.Acceptance_Value

	cause error
}

func (e *Error) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("%s: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Reason, e.Message)
}

// Unwrap is the error as gRPC gave it.
func (e *Error) Unwrap() error { return e.cause }

// NotAcceptedError: the message was certainly not accepted by this Submit, and Sealane stored nothing. Correct what Refusal names, or submit
// again later; a new key is as good as the old one, unless an earlier Submit with the old one had ended as maybe accepted.
type NotAcceptedError struct {
	// Refusal says why.
	Refusal *Error
}

func (e *NotAcceptedError) Error() string { return "not accepted: " + e.Refusal.Error() }

// Unwrap is the refusal.
func (e *NotAcceptedError) Unwrap() error { return e.Refusal }

// MaybeAcceptedError: no try gave a verdict, so the message may have been accepted. Submit the same content again with Message.IdempotencyKey
// set to IdempotencyKey and Message.SubmitBy to SubmitBy; that is safe however often it is done. After SubmitBy such a submit is refused
// unless the message had been accepted, so a refusal with SUBMIT_BY_PASSED proves that it had not.
type MaybeAcceptedError struct {
	// IdempotencyKey is the key of all tries.
	IdempotencyKey string
	// SubmitBy is the last time at which a try can still be accepted.
	SubmitBy time.Time
	// Tries is how often it was tried.
	Tries int
	// Last is the error of the last try.
	Last error
}

func (e *MaybeAcceptedError) Error() string {
	return fmt.Sprintf("maybe accepted (%d tries, idempotency key %s): %v", e.Tries, e.IdempotencyKey, e.Last)
}

// Unwrap is the error of the last try.
func (e *MaybeAcceptedError) Unwrap() error { return e.Last }

// AsError takes a call's error apart; ok is false where err is nil or did not come from a call.
func AsError(err error) (e *Error, ok bool) {
	if err == nil {
		return nil, false
	}
	if errors.As(err, &e) {
		return e, true
	}
	// The status itself, not status.FromError: that would mix the texts of whatever wraps it into the message.
	var call interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &call) {
		return nil, false
	}
	return fromStatus(call.GRPCStatus(), err), true
}

func fromStatus(st *status.Status, cause error) *Error {
	e := &Error{Code: st.Code(), Message: st.Message(), cause: cause}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			e.Reason, e.Metadata = d.GetReason(), d.GetMetadata()
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Violations = append(e.Violations, Violation{v.GetField(), v.GetDescription()})
			}
		case *sealanev1.SubmitErrorDetail:
			e.Acceptance, e.Field = d.GetAcceptance(), d.GetField()
		}
	}
	if e.Field == "" && len(e.Violations) > 0 {
		e.Field = e.Violations[0].Field
	}
	if e.Field == "" {
		e.Field = e.Metadata["field"]
	}
	return e
}

// decidedAtApply are the refusals that a shard decides from its state, after it has looked for the key: such an answer also settles earlier
// tries of the same key (DESIGN 3). Every other refusal is about its own try only.
var decidedAtApply = map[string]bool{
	"IDEMPOTENCY_CONFLICT":       true,
	"SUBMIT_BY_PASSED":           true,
	"INVALID_DELIVERY_WINDOW":    true,
	"ORDERING_KEY_NOT_SUPPORTED": true,
	"LANE_CLOSED":                true,
	"LANE_BACKLOG_FULL":          true,
}

// worthAnotherTry are certain refusals that may pass by themselves soon: the shard has no leader yet, or is busy, or the time of the try was
// over before anything was proposed.
func (e *Error) worthAnotherTry() bool {
	return e.Code == codes.Unavailable || e.Code == codes.Aborted || e.Code == codes.DeadlineExceeded
}

// hopeless are errors of a call that no repetition changes.
func (e *Error) hopeless() bool {
	return e.Code == codes.Unimplemented || e.Code == codes.Unauthenticated || e.Code == codes.PermissionDenied
}

// NeverSent tells whether a call failed because no node could be connected to: nothing has left, so nothing can have happened.
func NeverSent(err error) bool {
	var nobody *unreachableError
	return errors.As(err, &nobody)
}

// Reasons that the client acts on (docs/errors.md).
const (
	reasonNoLeader = "NO_LEADER"
	reasonTransfer = "LEADERSHIP_TRANSFER"
	reasonFull     = "QUEUE_FULL"
	reasonStopping = "NODE_STOPPING"
	reasonMaybe    = "MAYBE_ACCEPTED"
	reasonSlow     = "WATCHER_TOO_SLOW"
	reasonLeader   = "LEADER_UNREACHABLE"
)

// changedNothing are the refusals after which any call may be repeated.
var changedNothing = map[string]bool{reasonNoLeader: true, reasonTransfer: true, reasonFull: true, reasonStopping: true, reasonLeader: true}

// passing are errors after which a call that is harmless to repeat is worth repeating: on another node, or here in a moment.
func (e *Error) passing() bool {
	return e.Code == codes.Unavailable || e.Code == codes.DeadlineExceeded || e.Code == codes.Canceled
}

// aboutTheNode tells whether an error speaks about the node and not about the call: there is no connection, it was lost, no answer came in
// time, or the node is stopping.
func aboutTheNode(err error) bool {
	e, ok := AsError(err)
	if !ok {
		return false
	}
	return e.Reason == reasonStopping || e.Reason == "" && (e.Code == codes.Unavailable || e.Code == codes.DeadlineExceeded)
}

// leaderMoved are the signs that what is known about leaders is old.
func leaderMoved(err error) bool {
	e, ok := AsError(err)
	return ok && (e.Reason == reasonNoLeader || e.Reason == reasonLeader || e.Reason == reasonTransfer || e.Reason == reasonMaybe || aboutTheNode(err))
}
