package lane

import "github.com/sealane/sealane/policy"

// CircuitPhase is where a circuit stands.
type CircuitPhase uint8

// Phases. Numbers are part of the state format.
const (
	CircuitClosed   CircuitPhase = 0
	CircuitOpen     CircuitPhase = 1
	CircuitHalfOpen CircuitPhase = 2
)

var phaseNames = [...]string{"CLOSED", "OPEN", "HALF_OPEN"}

// String gives the name that records, protos and metrics use.
func (p CircuitPhase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "CIRCUIT_UNSPECIFIED"
}

// CircuitState is one target's circuit as it is persisted. The zero value is closed. Values compare with ==.
type CircuitState struct {
	Phase               CircuitPhase
	ConsecutiveFailures uint32      // since the target last answered
	Openings            uint32      // by failure, in a row, without having closed between
	TrialSuccesses      uint32      // in this half-open time
	OpenUntil           policy.Time // OPEN: not tried before
	TrialInFlight       bool        // HALF_OPEN: the one admission it allows is out
	TrialDeadline       policy.Time // with TrialInFlight: overdue from here on; the caller then reports EventFailure
	RampLimit           uint32      // CLOSED: in flight allowed while the rate ramps up again; 0: no ramp
	RampSuccesses       uint32      // towards the next doubling of RampLimit
	Reason              string      // why it opened last: FAILURES, THROTTLED, TRIAL_FAILED
}

// CircuitEvent is what happened to a target.
type CircuitEvent uint8

// Circuit events. The first four are also what an attempt's outcome comes to (policy.EffectOf).
const (
	EventSuccess        CircuitEvent = 1 // the target accepted
	EventAnswered       CircuitEvent = 2 // the target spoke about the message: it is alive
	EventFailure        CircuitEvent = 3 // lane-level failure, UNKNOWN, a connection that failed, a trial past its deadline
	EventThrottle       CircuitEvent = 4 // the target asked for a pause
	EventReadyToTry     CircuitEvent = 5 // the open time passed and the readiness check succeeded
	EventTrialStarted   CircuitEvent = 6 // an admission in HALF_OPEN
	EventTrialAbandoned CircuitEvent = 7 // the trial ended without saying anything about the target
)

var circuitEventNames = [...]string{"NONE", "SUCCESS", "ANSWERED", "FAILURE", "THROTTLE", "READY_TO_TRY", "TRIAL_STARTED", "TRIAL_ABANDONED"}

// String names the event for logs and tests.
func (ev CircuitEvent) String() string {
	if int(ev) < len(circuitEventNames) {
		return circuitEventNames[ev]
	}
	return circuitEventNames[0]
}

// Why a circuit opened.
const (
	ReasonFailures    = "FAILURES"
	ReasonThrottled   = "THROTTLED"
	ReasonTrialFailed = "TRIAL_FAILED"
)

// rampStart is what may be in flight right after a circuit closed, and rampEnd where the ramp stops being kept: more than any lane's cap.
const (
	rampStart = 2
	rampEnd   = 1 << 16
)

// Takes tells whether an event means something to the circuit as it stands. One that does not leaves the state as it is.
//
// A success or an answer in HALF_OPEN counts only while the trial is out: nothing else was admitted since the circuit opened. A failure
// counts without one, since a connection can fail before there is an admission.
func (s CircuitState) Takes(ev CircuitEvent, now policy.Time) bool {
	switch s.Phase {
	case CircuitClosed:
		return ev == EventSuccess || ev == EventAnswered || ev == EventFailure || ev == EventThrottle
	case CircuitOpen:
		return ev == EventThrottle || ev == EventReadyToTry && now >= s.OpenUntil
	case CircuitHalfOpen:
		switch ev {
		case EventFailure, EventThrottle:
			return true
		case EventTrialStarted:
			return !s.TrialInFlight
		case EventSuccess, EventAnswered, EventTrialAbandoned:
			return s.TrialInFlight
		}
	}
	return false
}

// Heeds tells whether an attempt's outcome, as an event, is about the circuit as it is now. On does not know which attempt an event came
// from, so whoever feeds it outcomes asks here first. admittedAt is when the attempt was admitted, changedAt when the circuit last changed
// its phase (or was reset), both on the shard clock; trial, whether it was admitted as the half-open trial.
//
// A slow answer to a request from before says nothing about now. In OPEN and HALF_OPEN it must neither close the circuit nor lengthen its
// open time, so only the trial of this half-open time is heard. In CLOSED a handful of timeouts left over from the outage would open a
// target again that has just proved itself, so only attempts admitted since it closed are heard. An explicit throttle is heard always: it
// is the target's word about the present, whenever the request left.
func (s CircuitState) Heeds(ev CircuitEvent, trial bool, admittedAt, changedAt policy.Time) bool {
	switch {
	case ev == EventThrottle:
		return true
	case s.Phase == CircuitClosed:
		return admittedAt >= changedAt
	case s.Phase == CircuitHalfOpen:
		return trial && s.TrialInFlight && admittedAt >= changedAt
	}
	return false
}

// On returns the circuit after an event, and whether its phase changed. It is total: an event that the state does not take leaves it as it
// is. It leaves OPEN by EventReadyToTry only, so never by a timer alone (DESIGN 7).
//
// until belongs to two events and is ignored with the others: with EventThrottle it is when the target asked to be tried again, 0 where it
// named no time; with EventTrialStarted, when the attempt's own timeout ends, so that a slow target is not failed for being slow.
func (s CircuitState) On(ev CircuitEvent, cfg policy.Circuit, now, until policy.Time) (CircuitState, bool) {
	if !s.Takes(ev, now) {
		return s, false
	}
	next := s
	switch {
	case ev == EventThrottle:
		next = s.throttle(cfg, now, until)
	case s.Phase == CircuitClosed:
		next = s.onClosed(ev, cfg, now)
	case s.Phase == CircuitOpen: // ready to try
		next = CircuitState{Phase: CircuitHalfOpen, Openings: s.Openings, Reason: s.Reason}
	case s.Phase == CircuitHalfOpen:
		next = s.onHalfOpen(ev, cfg, now, until)
	}
	return next, next.Phase != s.Phase
}

func (s CircuitState) onClosed(ev CircuitEvent, cfg policy.Circuit, now policy.Time) CircuitState {
	if ev != EventFailure {
		s.ConsecutiveFailures = 0
		return s.climb()
	}
	if s.ConsecutiveFailures < 1<<32-1 {
		s.ConsecutiveFailures++
	}
	if s.ConsecutiveFailures >= cfg.FailureThreshold {
		return s.open(cfg, now, ReasonFailures)
	}
	return s
}

func (s CircuitState) onHalfOpen(ev CircuitEvent, cfg policy.Circuit, now, until policy.Time) CircuitState {
	switch ev {
	case EventTrialStarted:
		s.TrialInFlight, s.TrialDeadline = true, max(now.Add(max(cfg.TrialTimeout, 0)), until)
	case EventTrialAbandoned:
		s.TrialInFlight, s.TrialDeadline = false, 0
	case EventSuccess, EventAnswered:
		s.TrialInFlight, s.TrialDeadline = false, 0
		if s.TrialSuccesses++; s.TrialSuccesses >= cfg.HalfOpenSuccesses {
			return CircuitState{Phase: CircuitClosed, RampLimit: rampStart}
		}
	case EventFailure:
		return s.open(cfg, now, ReasonTrialFailed)
	}
	return s
}

// open starts an open time, longer each time in a row.
func (s CircuitState) open(cfg policy.Circuit, now policy.Time, why string) CircuitState {
	n := s.Openings
	if n < 1<<32-1 {
		n++
	}
	return CircuitState{
		Phase: CircuitOpen, Openings: n, OpenUntil: now.Add(policy.OpenDuration(cfg, n)), Reason: why, ConsecutiveFailures: s.ConsecutiveFailures,
	}
}

// throttle opens until the time the target named, for the first open time where it named none, at most for the longest. It is not a failure:
// it does not make the next open time longer. A circuit that is open already is only kept open longer, and keeps the reason it opened for.
func (s CircuitState) throttle(cfg policy.Circuit, now, until policy.Time) CircuitState {
	if until <= now {
		until = now.Add(policy.OpenDuration(cfg, 1))
	}
	until = min(until, now.Add(max(cfg.MaxOpenFor, 0)))
	if s.Phase == CircuitOpen {
		s.OpenUntil = max(s.OpenUntil, until)
		return s
	}
	return CircuitState{Phase: CircuitOpen, Openings: s.Openings, OpenUntil: until, Reason: ReasonThrottled, ConsecutiveFailures: s.ConsecutiveFailures}
}

// climb lets twice as many in flight after as many answers as were allowed at once. An answer about a message counts like a success: the
// ramp spares a target that comes back, and one that refuses every message is back all the same.
func (s CircuitState) climb() CircuitState {
	if s.RampLimit == 0 {
		return s
	}
	if s.RampSuccesses++; s.RampSuccesses >= s.RampLimit {
		s.RampLimit, s.RampSuccesses = s.RampLimit*2, 0
	}
	if s.RampLimit >= rampEnd {
		s.RampLimit, s.RampSuccesses = 0, 0
	}
	return s
}

// Allows tells whether one more admission may start: yes when closed, one trial at a time when half-open, never when open, whatever the time.
func (s CircuitState) Allows(policy.Time) bool {
	switch s.Phase {
	case CircuitClosed:
		return true
	case CircuitHalfOpen:
		return !s.TrialInFlight
	}
	return false
}

// InFlightLimit is how many requests may be in flight to the target, given the lane's own limit: none when open, one when half-open, the
// ramp's after closing.
func (s CircuitState) InFlightLimit(limit uint32) uint32 {
	switch {
	case s.Phase == CircuitClosed && s.RampLimit == 0:
		return limit
	case s.Phase == CircuitClosed:
		return min(limit, s.RampLimit)
	case s.Phase == CircuitHalfOpen:
		return min(limit, 1)
	}
	return 0
}
