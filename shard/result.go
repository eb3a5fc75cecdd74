package shard

import (
	"fmt"

	"github.com/sealane/sealane/policy"
)

// Reason is a stable code for why a command did not do what it asked. It is what clients and documents name.
type Reason string

// Rejection is the error of a command that was applied and refused: nothing was stored for it. Compare with errors.Is against the
// sentinels below; Field and Detail say what exactly.
type Rejection struct {
	Reason Reason
	Field  string
	Detail string
}

func (r *Rejection) Error() string {
	s := "shard: " + string(r.Reason)
	if r.Field != "" {
		s += " (" + r.Field + ")"
	}
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	return s
}

// Is matches any rejection with the same reason.
func (r *Rejection) Is(target error) bool {
	t, ok := target.(*Rejection)
	return ok && t.Reason == r.Reason
}

func (r *Rejection) with(field, format string, args ...any) *Rejection {
	return &Rejection{Reason: r.Reason, Field: field, Detail: fmt.Sprintf(format, args...)}
}

// Rejections. Each is decided at apply, from committed state, and stores nothing.
var (
	// ErrIdempotencyConflict: the idempotency key was used with other content; Field names the first that differs. Use a new key.
	ErrIdempotencyConflict = &Rejection{Reason: "IDEMPOTENCY_CONFLICT"}
	// ErrMessageIDConflict: the id exists already, or was made for another shard or incarnation. A fresh id never collides; the caller
	// reused one.
	ErrMessageIDConflict = &Rejection{Reason: "MESSAGE_ID_CONFLICT"}
	// ErrSubmitByPassed: the stamp is later than submit_by, so the retry came too late to be told apart from a new message.
	ErrSubmitByPassed = &Rejection{Reason: "SUBMIT_BY_PASSED"}
	// ErrDestinationUnknown: no version is installed in this shard. The door checks the control group before it answers so.
	ErrDestinationUnknown = &Rejection{Reason: "DESTINATION_NOT_FOUND"}
	// ErrDeliveryWindow: deliver_at or expire_at are out of bounds (R168).
	ErrDeliveryWindow = &Rejection{Reason: "INVALID_DELIVERY_WINDOW"}
	// ErrOrderingKey: this destination cannot keep an order (uncertain retries without receiver dedup).
	ErrOrderingKey = &Rejection{Reason: "ORDERING_KEY_NOT_SUPPORTED"}
	// ErrLaneClosed: the lane's gate is CLOSED for ever (R202).
	ErrLaneClosed = &Rejection{Reason: "LANE_CLOSED"}
	// ErrBacklogFull: the lane holds its maximum of messages or bytes. Retry later with the same key.
	ErrBacklogFull = &Rejection{Reason: "LANE_BACKLOG_FULL"}
	// ErrMessageNotFound: no such message here (or not in the caller's namespace; the two look the same).
	ErrMessageNotFound = &Rejection{Reason: "MESSAGE_NOT_FOUND"}
	// ErrLaneNotFound: no message was ever accepted for this lane in this shard.
	ErrLaneNotFound = &Rejection{Reason: "LANE_NOT_FOUND"}
	// ErrTooLate: an attempt was admitted before (cancel, reschedule), so the point of no return has passed.
	ErrTooLate = &Rejection{Reason: "TOO_LATE"}
	// ErrAlreadyTerminal: the generation ended before; Detail names its state.
	ErrAlreadyTerminal = &Rejection{Reason: "ALREADY_TERMINAL"}
	// ErrVersionConflict: the generation named is not the current one.
	ErrVersionConflict = &Rejection{Reason: "VERSION_CONFLICT"}
	// ErrStale: an engine command lost a race with an earlier one; Field names the check that failed. The leader drops its claim.
	ErrStale = &Rejection{Reason: "STALE"}
	// ErrAttemptNotUncertain: resolution names an attempt that is not UNKNOWN.
	ErrAttemptNotUncertain = &Rejection{Reason: "ATTEMPT_NOT_UNCERTAIN"}
	// ErrBudgetUsed: one more attempt would pass the total the pinned policy allows.
	ErrBudgetUsed = &Rejection{Reason: "ATTEMPT_BUDGET_USED"}
	// ErrOperationConflict: the operation id was used for another operation (R154).
	ErrOperationConflict = &Rejection{Reason: "OPERATION_CONFLICT"}
	// ErrAlreadyOpen and ErrAlreadyPaused: the gate is where the operation wants it.
	ErrAlreadyOpen   = &Rejection{Reason: "LANE_ALREADY_OPEN"}
	ErrAlreadyPaused = &Rejection{Reason: "LANE_ALREADY_PAUSED"}
	// ErrNotSupported: the command's kind is allotted but not in use in this version.
	ErrNotSupported = &Rejection{Reason: "NOT_SUPPORTED"}
	// ErrInvalidArgument: a field breaks a bound that needs no state to check; Field names it. The door says the same before it proposes.
	ErrInvalidArgument = &Rejection{Reason: "INVALID_ARGUMENT"}
	// ErrOutcomeIllegal: side effect and disposition do not go together (R175).
	ErrOutcomeIllegal = &Rejection{Reason: "OUTCOME_ILLEGAL"}
)

// Rejections lists every sentinel, for the error table's test.
func Rejections() []*Rejection {
	return []*Rejection{
		ErrIdempotencyConflict, ErrMessageIDConflict, ErrSubmitByPassed, ErrDestinationUnknown, ErrDeliveryWindow, ErrOrderingKey,
		ErrLaneClosed, ErrBacklogFull, ErrMessageNotFound, ErrLaneNotFound, ErrTooLate, ErrAlreadyTerminal, ErrVersionConflict, ErrStale,
		ErrAttemptNotUncertain, ErrBudgetUsed, ErrOperationConflict, ErrAlreadyOpen, ErrAlreadyPaused, ErrNotSupported, ErrInvalidArgument, ErrOutcomeIllegal,
	}
}

// Result is the verdict of one command. Rejected is nil when it took effect (or gave an earlier effect's answer again).
type Result struct {
	Rejected     *Rejection
	Ref          Ref
	Attempt      uint32
	Index        uint64 // the position the answer speaks of; for a deduplicated submit the first one's
	Deduplicated bool
	State        GenerationState
	Removed      uint32 // Trim: generations removed
	At           policy.Time
}

// Err is Rejected as an error, nil when there is none.
func (r Result) Err() error {
	if r.Rejected == nil {
		return nil
	}
	return r.Rejected
}
