// Package demo tells the story of one node in under a minute: deliveries, a retry, a dead letter, an uncertainty that an operator settles, a
// circuit that opens and recovers, a node that is killed under load, and an audit of all of it.
//
// What it is. A script. The node is a real child process of the same binary with a temporary data directory, so that it can be killed; the
// receiver is the scriptable sink in this process, whose record is an append-only file written before each answer. What the story says happened
// is read back from the ledger and from that record, never assumed.
//
// What it may not do. It reaches into nothing: it uses the public API as any client would. It waits for nothing without a bound, and pauses for
// nothing but what it waits for. It never passes when the audit does not.
//
// Invariants it checks, as the audit of DESIGN 1 P4 counts them: no acknowledged message is lost, every message is in exactly one state, every
// request the receiver saw has its own admission, and every repetition has its permission.
//
// Where to start. demo.go has the order of the scenes; audit.go has the judgement.
package demo
