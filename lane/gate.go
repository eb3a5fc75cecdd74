package lane

import "errors"

// Gate is the lane's management axis, ordered by the shard's log (B.4). The zero value is open.
type Gate uint8

// Gates. Numbers are part of the state format.
const (
	GateOpen   Gate = 0
	GatePaused Gate = 1
	GateClosed Gate = 2
)

var gateNames = [...]string{"OPEN", "PAUSED", "CLOSED"}

func (g Gate) String() string {
	if int(g) < len(gateNames) {
		return gateNames[g]
	}
	return "GATE_UNSPECIFIED"
}

// GateEvent is what an operator asks of a gate.
type GateEvent uint8

// Gate events.
const (
	GateEventPause  GateEvent = 1
	GateEventResume GateEvent = 2
	GateEventClose  GateEvent = 3
)

// Why a gate does not move.
var (
	// ErrAlreadyOpen: resume of an open lane.
	ErrAlreadyOpen = errors.New("lane: gate is already open")
	// ErrAlreadyPaused: pause of a paused lane.
	ErrAlreadyPaused = errors.New("lane: gate is already paused")
	// ErrClosed: a closed lane never opens again; register another destination.
	ErrClosed = errors.New("lane: gate is closed for ever")
	// ErrUnknownEvent is a programmer's error that must not move a gate.
	ErrUnknownEvent = errors.New("lane: unknown gate event")
)

// On returns the gate after an event, or why it stays.
func (g Gate) On(ev GateEvent) (Gate, error) {
	if g == GateClosed {
		return g, ErrClosed
	}
	switch ev {
	case GateEventPause:
		if g == GatePaused {
			return g, ErrAlreadyPaused
		}
		return GatePaused, nil
	case GateEventResume:
		if g == GateOpen {
			return g, ErrAlreadyOpen
		}
		return GateOpen, nil
	case GateEventClose:
		return GateClosed, nil
	}
	return g, ErrUnknownEvent
}
