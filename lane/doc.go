// Package lane holds the states of a lane and their only legal transitions, and the scheduler that shares a shard between lanes.
//
// What it is. Three small state machines that never depend on each other: the gate (ordered by the log), readiness (runtime) and the circuit
// (persisted, one per target). And Fair, the order in which lanes that are due and able get their turn.
//
// What it may not do. It is pure: no clock, I/O, goroutine, randomness, float or map order. It imports only policy. It knows nothing of messages.
//
// Invariants it keeps (REQUIREMENTS.md D): 29, a closed gate never opens; 40, a lane that can be served is served within the published bound;
// DESIGN 7, a circuit leaves OPEN only through a readiness check, never by a timer alone.
//
// Where to start. gate.go for the shape, circuit.go for the rules, fair.go for the bound.
package lane
