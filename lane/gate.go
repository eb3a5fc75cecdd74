package lane

import "errors"

// Gate is the lane's management axis, ordered by the shard's log (B.4). The zero value is open.
type Gate uint8

// Gates. Numbers are part of the state format.
const (
	GateOpen   Gate = 0 // claims and admissions may start
	GatePaused Gate = 1 // none may; what was admitted goes on and is reported
	GateClosed Gate = 2 // none ever will
)

var gateNames = [...]string{"OPEN", "PAUSED", "CLOSED"}

// String gives the name that records, protos and metrics use.
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

var gateEventNames = [...]string{"NONE", "PAUSE", "RESUME", "CLOSE"}

// String names the event for logs and tests.
func (ev GateEvent) String() string {
	if int(ev) < len(gateEventNames) {
		return gateEventNames[ev]
	}
	return gateEventNames[0]
}

// Why a gate does not move. The operation that asked is answered with it; nothing has changed.
var (
	// ErrAlreadyOpen: resume of an open lane. There is nothing to do.
	ErrAlreadyOpen = errors.New("lane: gate is already open")
	// ErrAlreadyPaused: pause of a paused lane. There is nothing to do.
	ErrAlreadyPaused = errors.New("lane: gate is already paused")
	// ErrClosed: a closed lane never opens again; register another destination.
	ErrClosed = errors.New("lane: gate is closed for ever")
	// ErrUnknownEvent: an event or a gate that this version does not have. A programmer's error, which must not move a gate.
	ErrUnknownEvent = errors.New("lane: unknown gate or gate event")
)

// On returns the gate after an event, or why it stays. It is total; in every error the gate returned is the one it had.
func (g Gate) On(ev GateEvent) (Gate, error) {
	if ev < GateEventPause || ev > GateEventClose || g > GateClosed {
		return g, ErrUnknownEvent
	}
	switch {
	case g == GateClosed:
		return g, ErrClosed
	case ev == GateEventClose:
		return GateClosed, nil
	case ev == GateEventPause && g == GatePaused:
		return g, ErrAlreadyPaused
	case ev == GateEventPause:
		return GatePaused, nil
	case g == GateOpen:
		return g, ErrAlreadyOpen
	}
	return GateOpen, nil
}
