package lane

// Readiness is a target's runtime axis (B.4): never in the log, and back to Recovering whenever the leader changes.
type Readiness uint8

// Readiness values.
const (
	Recovering Readiness = 0 // not verified yet, by this leader
	Ready      Readiness = 1 // connected, and what the destination pins and declares was verified
	Blocked    Readiness = 2 // verified to be wrong; no waiting helps
)

var readinessNames = [...]string{"RECOVERING", "READY", "BLOCKED"}

// String gives the name that protos and metrics use.
func (r Readiness) String() string {
	if int(r) < len(readinessNames) {
		return readinessNames[r]
	}
	return "READINESS_UNSPECIFIED"
}

// May tells whether readiness may go from r to another value. A blocked target is verified again before it is ready, and staying is no move.
func (r Readiness) May(to Readiness) bool {
	switch r {
	case Recovering:
		return to == Ready || to == Blocked
	case Ready:
		return to == Blocked || to == Recovering
	case Blocked:
		return to == Recovering
	}
	return false
}
