// Package robustness runs real processes, kills them, pauses them, cuts them off from each other, spoils their disks and clocks, and judges what
// is left.
//
// What it is. A receiver that belongs to the test writes down every request before it answers, and answers as a seed says: well, badly, late,
// twice, or not at all. A load keeps what was acknowledged and what was not. Probes write to every shard at short intervals, so that it is known
// when a shard takes no writes and sends nothing. Readers and registers read while all that goes on. Afterwards the audit compares the ledger with
// both sides: nothing acknowledged is lost, every request has its admission, one request for an attempt, and a second attempt only where the
// ledger permits one. What the registers read is judged by porcupine.
//
// Nodes live in network namespaces of their own where the machine permits that (Linux, root), else on loopback, where cuts are made inside the
// nodes of the fault build (server/fault). Which of the two is printed.
//
// What it may not do. It never looks inside a node: what it knows comes through the public doors, the receiver and the file system. The fault
// build is the same program with faults at its edges; TestReleaseHasNoFaults shows that a release has none.
//
// Invariants it checks: I1 to I3, I5 to I7, I12 to I15, I18 to I25 of the test plan; lost = 0 and unexplained = 0 (DESIGN 1, P1, P2, P4).
//
// Where to start. kill_test.go is one node that is killed; chaos_test.go is a cluster and every fault, with the schedule in nemesis.go; planned_test.go
// and unplanned_test.go are the scenarios whose figures are goals; audit.go is the judge.
package robustness
