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

func (p CircuitPhase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "CIRCUIT_UNSPECIFIED"
}

// CircuitState is one target's circuit as it is persisted. The zero value is closed.
type CircuitState struct {
	Phase               CircuitPhase
	ConsecutiveFailures uint32
	Openings            uint32 // in a row, without having closed between
	TrialSuccesses      uint32
	OpenUntil           policy.Time
	TrialInFlight       bool
	TrialDeadline       policy.Time
	RampLimit           uint32 // in flight allowed while the rate ramps up again; 0: no ramp
	RampSuccesses       uint32
	Reason              string // why it opened: FAILURES, THROTTLED, TRIAL_FAILED
}

// CircuitEvent is what happened to a target.
type CircuitEvent uint8

// Circuit events.
const (
	EventSuccess        CircuitEvent = 1 // the target accepted
	EventAnswered       CircuitEvent = 2 // the target spoke about the message: it is alive
	EventFailure        CircuitEvent = 3 // lane-level failure or UNKNOWN
	EventThrottle       CircuitEvent = 4 // the target asked for a pause
	EventReadyToTry     CircuitEvent = 5 // the open time passed and the readiness check succeeded
	EventTrialStarted   CircuitEvent = 6
	EventTrialAbandoned CircuitEvent = 7 // the trial ended without saying anything about the target
)

// Why a circuit opened.
const (
	ReasonFailures    = "FAILURES"
	ReasonThrottled   = "THROTTLED"
	ReasonTrialFailed = "TRIAL_FAILED"
)

// rampStart is what may be in flight right after a circuit closed, and rampEnd where the ramp stops being kept.
const (
	rampStart = 2
	rampEnd   = 1 << 16
)

// On returns the circuit after an event, and whether its phase changed. It is total: an event that means nothing in a phase leaves the state as
// it is. The caller passes outcomes of attempts admitted before the circuit opened only if they throttle; everything else they say is old.
func (s CircuitState) On(ev CircuitEvent, cfg policy.Circuit, now, throttleUntil policy.Time) (CircuitState, bool) {
	before := s.Phase
	switch s.Phase {
	case CircuitClosed:
		s = s.onClosed(ev, cfg, now, throttleUntil)
	case CircuitOpen:
		s = s.onOpen(ev, cfg, now, throttleUntil)
	case CircuitHalfOpen:
		s = s.onHalfOpen(ev, cfg, now, throttleUntil)
	}
	return s, s.Phase != before
}

func (s CircuitState) onClosed(ev CircuitEvent, cfg policy.Circuit, now, until policy.Time) CircuitState {
	switch ev {
	case EventSuccess:
		s.ConsecutiveFailures = 0
		return s.climb()
	case EventAnswered:
		s.ConsecutiveFailures = 0
	case EventFailure:
		if s.ConsecutiveFailures++; s.ConsecutiveFailures >= cfg.FailureThreshold {
			return s.open(cfg, now, ReasonFailures)
		}
	case EventThrottle:
		return s.throttle(cfg, now, until)
	}
	return s
}

// onOpen ignores everything but a further throttle and the readiness check; the latter only after the open time.
func (s CircuitState) onOpen(ev CircuitEvent, cfg policy.Circuit, now, until policy.Time) CircuitState {
	switch ev {
	case EventThrottle:
		if t := s.throttle(cfg, now, until); t.OpenUntil > s.OpenUntil {
			s.OpenUntil = t.OpenUntil
		}
	case EventReadyToTry:
		if now >= s.OpenUntil {
			return CircuitState{Phase: CircuitHalfOpen, Openings: s.Openings, Reason: s.Reason}
		}
	}
	return s
}

func (s CircuitState) onHalfOpen(ev CircuitEvent, cfg policy.Circuit, now, until policy.Time) CircuitState {
	switch ev {
	case EventTrialStarted:
		s.TrialInFlight, s.TrialDeadline = true, now.Add(cfg.TrialTimeout)
	case EventTrialAbandoned:
		s.TrialInFlight, s.TrialDeadline = false, 0
	case EventSuccess, EventAnswered:
		s.TrialInFlight, s.TrialDeadline = false, 0
		if s.TrialSuccesses++; s.TrialSuccesses >= cfg.HalfOpenSuccesses {
			return CircuitState{Phase: CircuitClosed, RampLimit: rampStart}
		}
	case EventFailure:
		return s.open(cfg, now, ReasonTrialFailed)
	case EventThrottle:
		return s.throttle(cfg, now, until)
	}
	return s
}

// open starts an open time, longer each time in a row.
func (s CircuitState) open(cfg policy.Circuit, now policy.Time, why string) CircuitState {
	n := s.Openings + 1
	if n == 0 {
		n = s.Openings
	}
	return CircuitState{
		Phase: CircuitOpen, Openings: n, OpenUntil: now.Add(policy.OpenDuration(cfg, n)), Reason: why, ConsecutiveFailures: s.ConsecutiveFailures,
	}
}

// throttle opens until the time the target named, at least for the first open time where it named none, at most for the longest.
func (s CircuitState) throttle(cfg policy.Circuit, now, until policy.Time) CircuitState {
	if until <= now {
		until = now.Add(policy.OpenDuration(cfg, 1))
	}
	until = min(until, now.Add(max(cfg.MaxOpenFor, 0)))
	return CircuitState{Phase: CircuitOpen, Openings: s.Openings, OpenUntil: until, Reason: ReasonThrottled, ConsecutiveFailures: s.ConsecutiveFailures}
}

// climb lets more in flight after as many successes as were allowed at once.
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

// Allows tells whether one more admission may start: yes when closed, one trial at a time when half-open, never when open.
func (s CircuitState) Allows(now policy.Time) bool {
	switch s.Phase {
	case CircuitClosed:
		return true
	case CircuitHalfOpen:
		return !s.TrialInFlight
	}
	return false
}

// InFlightLimit is how many requests may be in flight, given the lane's own limit.
func (s CircuitState) InFlightLimit(limit uint32) uint32 {
	switch {
	case s.Phase == CircuitOpen:
		return 0
	case s.Phase == CircuitHalfOpen:
		return min(limit, 1)
	case s.RampLimit != 0:
		return min(limit, s.RampLimit)
	}
	return limit
}
