package main

import sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"

// The words of the story. A test walks the contract's enums and checks that each has its words here.

func terminal(s sealanev1.GenerationState_Value) bool {
	return s >= sealanev1.GenerationState_DELIVERED
}

var stateMeans = map[sealanev1.GenerationState_Value]string{
	sealanev1.GenerationState_SCHEDULED:     "it waits for its first attempt",
	sealanev1.GenerationState_IN_FLIGHT:     "a request is under way, and its answer is not here yet",
	sealanev1.GenerationState_RETRY_WAIT:    "the receiver does not have it; it is tried again",
	sealanev1.GenerationState_UNCERTAIN:     "nobody can tell whether the receiver has it",
	sealanev1.GenerationState_DELIVERED:     "the receiver has it",
	sealanev1.GenerationState_DEAD_LETTERED: "it failed for good and is kept as a dead letter",
	sealanev1.GenerationState_CANCELLED:     "it was cancelled before it was sent",
	sealanev1.GenerationState_EXPIRED:       "its time ran out before it was delivered",
	sealanev1.GenerationState_SUPERSEDED:    "a later generation took its place",
}

var reasonMeans = map[sealanev1.TerminalReason_Value]string{
	sealanev1.TerminalReason_PUBLISHED:            "the receiver accepted an attempt",
	sealanev1.TerminalReason_EVIDENCE:             "later evidence showed that an unknown attempt had been accepted",
	sealanev1.TerminalReason_PERMANENT_FAILURE:    "the receiver refused the message for good",
	sealanev1.TerminalReason_EXHAUSTED:            "the attempts that the policy allows are used up",
	sealanev1.TerminalReason_UNCERTAINTY_GIVEN_UP: "the policy gave up on an unknown attempt",
	sealanev1.TerminalReason_OPERATOR_GAVE_UP:     "an operator gave up on an unknown attempt",
	sealanev1.TerminalReason_LANE_CLOSED:          "its lane was closed before it was sent",
	sealanev1.TerminalReason_EXPIRE_AT:            "expire_at passed",
	sealanev1.TerminalReason_LIFETIME:             "the lifetime of the retry policy passed",
	sealanev1.TerminalReason_CANCELLED:            "a client cancelled it",
	sealanev1.TerminalReason_RESCHEDULED:          "a client gave it another time",
	sealanev1.TerminalReason_REPLAYED:             "a replay made the next generation",
}

var dispositionMeans = map[sealanev1.Disposition_Value]string{
	sealanev1.Disposition_DISPOSITION_UNSPECIFIED: "with nothing to say about message or lane",
	sealanev1.Disposition_OK:                      "the receiver accepted it",
	sealanev1.Disposition_MESSAGE_RETRIABLE:       "a later attempt may succeed (MESSAGE_RETRIABLE)",
	sealanev1.Disposition_MESSAGE_PERMANENT:       "no later attempt will succeed (MESSAGE_PERMANENT)",
	sealanev1.Disposition_LANE_UNAVAILABLE:        "the target would have taken no message (LANE_UNAVAILABLE)",
	sealanev1.Disposition_LANE_THROTTLED:          "the target asked for a pause (LANE_THROTTLED)",
	sealanev1.Disposition_FENCED:                  "the sender had lost the right to send (FENCED)",
	sealanev1.Disposition_ADAPTER_BUG:             "the adapter reported something impossible (ADAPTER_BUG)",
}

var originMeans = map[sealanev1.GenerationOrigin_Value]string{
	sealanev1.GenerationOrigin_SUBMIT:     "made by its submit",
	sealanev1.GenerationOrigin_RESCHEDULE: "made by a reschedule",
	sealanev1.GenerationOrigin_REPLAY:     "made by a replay",
}

// workMeans is what permitted an attempt, where it was not simply the first or the next.
var workMeans = map[sealanev1.Work_Value]string{
	sealanev1.Work_WORK_UNSPECIFIED: "",
	sealanev1.Work_INITIAL:          "",
	sealanev1.Work_RETRY:            "",
	sealanev1.Work_UNCERTAIN_RETRY:  " as a repetition that the policy permits",
	sealanev1.Work_OPERATOR_RETRY:   " as a repetition that an operator ordered",
}

var workNext = map[sealanev1.Work_Value]string{
	sealanev1.Work_WORK_UNSPECIFIED: "an attempt",
	sealanev1.Work_INITIAL:          "the first attempt",
	sealanev1.Work_RETRY:            "another attempt",
	sealanev1.Work_UNCERTAIN_RETRY:  "a repetition of the unknown attempt",
	sealanev1.Work_OPERATOR_RETRY:   "the repetition that an operator ordered",
}

var nextMeans = map[sealanev1.NextAttemptReason_Value]string{
	sealanev1.NextAttemptReason_NEXT_ATTEMPT_REASON_UNSPECIFIED: "no stated reason",
	sealanev1.NextAttemptReason_DELIVER_AT:                      "its deliver_at",
	sealanev1.NextAttemptReason_BACKOFF:                         "the policy's backoff",
	sealanev1.NextAttemptReason_SCHEDULE:                        "the policy's schedule",
	sealanev1.NextAttemptReason_RETRY_AFTER:                     "the receiver's Retry-After",
	sealanev1.NextAttemptReason_RETRY_AFTER_CAPPED:              "the receiver's Retry-After, cut to max_backoff",
	sealanev1.NextAttemptReason_LANE:                            "the trouble of its lane",
	sealanev1.NextAttemptReason_UNCERTAIN_RETRY:                 "the uncertainty policy",
	sealanev1.NextAttemptReason_OPERATOR:                        "an operator's order",
}

var deadlineMeans = map[sealanev1.DeadlineReason_Value]string{
	sealanev1.DeadlineReason_DEADLINE_REASON_UNSPECIFIED: "its deadline",
	sealanev1.DeadlineReason_EXPIRE_AT:                   "the client's expire_at",
	sealanev1.DeadlineReason_LIFETIME:                    "the policy's lifetime",
}
