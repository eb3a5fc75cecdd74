package lane

import (
	"errors"
	"testing"
)

// TestGateTable is every gate against every event: a closed gate never opens (invariant 29).
func TestGateTable(t *testing.T) {
	const beyond = GateClosed + 1
	rows := map[Gate]map[GateEvent]struct {
		to  Gate
		err error
	}{
		GateOpen: {
			0: {GateOpen, ErrUnknownEvent}, GateEventPause: {GatePaused, nil}, GateEventResume: {GateOpen, ErrAlreadyOpen}, GateEventClose: {GateClosed, nil},
			GateEventClose + 1: {GateOpen, ErrUnknownEvent},
		},
		GatePaused: {
			0: {GatePaused, ErrUnknownEvent}, GateEventPause: {GatePaused, ErrAlreadyPaused}, GateEventResume: {GateOpen, nil}, GateEventClose: {GateClosed, nil},
			GateEventClose + 1: {GatePaused, ErrUnknownEvent},
		},
		GateClosed: {
			0: {GateClosed, ErrUnknownEvent}, GateEventPause: {GateClosed, ErrClosed}, GateEventResume: {GateClosed, ErrClosed}, GateEventClose: {GateClosed, ErrClosed},
			GateEventClose + 1: {GateClosed, ErrUnknownEvent},
		},
		beyond: {
			0: {beyond, ErrUnknownEvent}, GateEventPause: {beyond, ErrUnknownEvent}, GateEventResume: {beyond, ErrUnknownEvent}, GateEventClose: {beyond, ErrUnknownEvent},
			GateEventClose + 1: {beyond, ErrUnknownEvent},
		},
	}
	for g := GateOpen; g <= beyond; g++ {
		for ev := GateEvent(0); ev <= GateEventClose+1; ev++ {
			want, ok := rows[g][ev]
			if !ok {
				t.Fatalf("no row for %s on %s", g, ev)
			}
			if got, err := g.On(ev); got != want.to || !errors.Is(err, want.err) {
				t.Errorf("%s on %s = %s, %v; want %s, %v", g, ev, got, err, want.to, want.err)
			}
		}
	}
}

// TestReadinessTable is every pair of values (B.4).
func TestReadinessTable(t *testing.T) {
	legal := map[[2]Readiness]bool{
		{Recovering, Ready}: true, {Recovering, Blocked}: true, {Ready, Blocked}: true, {Ready, Recovering}: true, {Blocked, Recovering}: true,
	}
	for from := Recovering; from <= Blocked+1; from++ {
		for to := Recovering; to <= Blocked+1; to++ {
			if from.May(to) != legal[[2]Readiness{from, to}] {
				t.Errorf("%s to %s: %v", from, to, from.May(to))
			}
		}
	}
}

// TestNames: one name for each value, the glossary's, and none for what is beyond.
func TestNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{GateOpen.String(), "OPEN"}, {GatePaused.String(), "PAUSED"}, {GateClosed.String(), "CLOSED"}, {Gate(9).String(), "GATE_UNSPECIFIED"},
		{GateEventPause.String(), "PAUSE"}, {GateEventResume.String(), "RESUME"}, {GateEventClose.String(), "CLOSE"}, {GateEvent(9).String(), "NONE"},
		{Recovering.String(), "RECOVERING"}, {Ready.String(), "READY"}, {Blocked.String(), "BLOCKED"}, {Readiness(9).String(), "READINESS_UNSPECIFIED"},
		{CircuitClosed.String(), "CLOSED"}, {CircuitOpen.String(), "OPEN"}, {CircuitHalfOpen.String(), "HALF_OPEN"}, {CircuitPhase(9).String(), "CIRCUIT_UNSPECIFIED"},
		{EventTrialAbandoned.String(), "TRIAL_ABANDONED"}, {CircuitEvent(9).String(), "NONE"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
