// Package lane holds the states of a lane and their only legal transitions, and the scheduler that shares a shard between lanes.
//
// What it is. Three small state machines that never depend on each other: the gate (ordered by the log), readiness (runtime, one per target)
// and the circuit (persisted, one per target). A lane sends when all three let it. And Fair, the order in which lanes that are due and able
// get their turn: memory of the leader, never state.
//
// What it may not do. It is pure: no clock, I/O, goroutine, randomness, float or map order. It imports only policy. It knows nothing of
// messages: attempts reach the circuit as events, through Heeds.
//
// Invariants it keeps (REQUIREMENTS.md D): 29, a closed gate never opens; 40, a lane that can be served is served within the bound that Fair
// publishes; DESIGN 7, a circuit leaves OPEN only through a readiness check, never by a timer alone.
//
// Where to start. gate.go for the shape, circuit.go for the rules and for what late outcomes may do, fair.go for the bound. Every state
// against every event is in the tests' tables; testdata/circuit is the one to read.
package lane
