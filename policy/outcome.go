package policy

// SideEffect is the first dimension of an outcome: what the attempt did at its destination.
type SideEffect uint8

// Side effects. Numbers are part of the state and log formats.
const (
	SideEffectUnspecified SideEffect = 0
	// Published: the destination has it, with evidence.
	Published SideEffect = 1
	// NotPublished: the destination certainly does not have it, with evidence.
	NotPublished SideEffect = 2
	// Unknown: it may have it. Only evidence or an operator moves an attempt from here (P3).
	Unknown SideEffect = 3
)

var sideEffectNames = [...]string{"SIDE_EFFECT_UNSPECIFIED", "PUBLISHED", "NOT_PUBLISHED", "UNKNOWN"}

// String gives the name that records, protos and metrics use.
func (s SideEffect) String() string {
	if int(s) < len(sideEffectNames) {
		return sideEffectNames[s]
	}
	return sideEffectNames[0]
}

// ParseSideEffect reads the name String gives; ok is false for anything else.
func ParseSideEffect(name string) (s SideEffect, ok bool) {
	for i := 1; i < len(sideEffectNames); i++ {
		if sideEffectNames[i] == name {
			return SideEffect(i), true
		}
	}
	return SideEffectUnspecified, false
}

// Disposition is the second dimension of an outcome: whose trouble it was.
type Disposition uint8

// Dispositions. Numbers are part of the state and log formats.
const (
	DispositionUnspecified Disposition = 0
	OK                     Disposition = 1
	// MessageRetriable: this message was refused for now.
	MessageRetriable Disposition = 2
	// MessagePermanent: this message is refused for good.
	MessagePermanent Disposition = 3
	// LaneUnavailable: the destination takes nothing: credentials, address, capability.
	LaneUnavailable Disposition = 4
	// LaneThrottled: the destination asked for a pause.
	LaneThrottled Disposition = 5
	// Fenced: this process may not send any more.
	Fenced Disposition = 6
	// AdapterBug: the adapter contradicted itself.
	AdapterBug Disposition = 7
)

var dispositionNames = [...]string{
	"DISPOSITION_UNSPECIFIED", "OK", "MESSAGE_RETRIABLE", "MESSAGE_PERMANENT", "LANE_UNAVAILABLE", "LANE_THROTTLED", "FENCED", "ADAPTER_BUG",
}

// String gives the name that records, protos and metrics use.
func (d Disposition) String() string {
	if int(d) < len(dispositionNames) {
		return dispositionNames[d]
	}
	return dispositionNames[0]
}

// LegalOutcome tells whether the two dimensions go together (R175): PUBLISHED with OK and nothing else, OK with PUBLISHED and nothing else.
func LegalOutcome(s SideEffect, d Disposition) bool {
	if d == DispositionUnspecified || d > AdapterBug {
		return false
	}
	switch s {
	case Published:
		return d == OK
	case NotPublished, Unknown:
		return d != OK
	}
	return false
}

// Budget is what an outcome does to the message's attempt budget.
type Budget uint8

// Budget effects.
const (
	BudgetNone     Budget = 0 // keeps its attempt number for the audit, does not count
	BudgetCounts   Budget = 1 // one settlement towards MaxAttempts
	BudgetTerminal Budget = 2 // no further attempt, whatever is left
)

// CircuitEffect is what an outcome says about the lane's target.
type CircuitEffect uint8

// Circuit effects.
const (
	CircuitSuccess  CircuitEffect = 0
	CircuitAnswered CircuitEffect = 1 // the target spoke about the message: it is alive, which ends a row of failures
	CircuitFailure  CircuitEffect = 2
	CircuitThrottle CircuitEffect = 3 // open at once
	CircuitNone     CircuitEffect = 4 // says nothing about the target
)

// EffectOf is table C.7: what one settled outcome does to the message budget and to the circuit.
//
// Lane-level settlements (LANE_UNAVAILABLE, LANE_THROTTLED, FENCED) never count towards exhaustion, so that an outage does not use up the
// budgets of the messages it meets (R178). An UNKNOWN leaves the budget alone while it is open, and is a failure to the circuit whatever
// its disposition, except FENCED: the sender was gone (BEFORE_OWNERSHIP, RECOVERY), which says nothing about the target. A pair that
// LegalOutcome refuses has no effect; the caller turns it into UNKNOWN and ADAPTER_BUG before it asks (R175).
func EffectOf(s SideEffect, d Disposition) (Budget, CircuitEffect) {
	switch {
	case !LegalOutcome(s, d), d == Fenced:
		return BudgetNone, CircuitNone
	case s == Published:
		return BudgetNone, CircuitSuccess
	case s == Unknown:
		return BudgetNone, CircuitFailure
	}
	switch d {
	case MessageRetriable:
		return BudgetCounts, CircuitAnswered
	case MessagePermanent:
		return BudgetTerminal, CircuitAnswered
	case LaneUnavailable:
		return BudgetNone, CircuitFailure
	case LaneThrottled:
		return BudgetNone, CircuitThrottle
	}
	// ADAPTER_BUG with evidence that nothing was published: it counts, or a message that trips the adapter would be tried until its lifetime ends.
	return BudgetCounts, CircuitNone
}

// Problem is one thing wrong with a policy: the field, as a destination's file names it ("retry.max_attempts"), and the limit it breaks.
type Problem struct{ Field, Reason string }
