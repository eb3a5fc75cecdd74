// Package whole simulates complete nodes: Raft, Pebble, the peer transport, the doors and the client, on fake time, in one process, with scripted
// destinations. One seed decides load, faults and their times; the goroutines' schedule is the runtime's, so runs are judged by invariants and
// a seed is run again several times.
//
// What it may not do. It never looks inside a node to decide what is right: it compares what callers were told, what destinations saw, and what the
// ledger says.
//
// Where to start. whole_test.go has the kinds of runs, run.go one run, nemesis.go the faults, audit.go what must hold at the end.
package whole
