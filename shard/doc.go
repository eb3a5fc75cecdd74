// Package shard is the meaning of a shard: what each command in the log does to a message, its generations and their attempts.
//
// What it is. A Machine takes one log entry, the state as it was before, and returns results and effects. It is the only thing in
// Sealane that counts attempts, chooses a retry time, or declares a dead letter (P5). It also owns the key schema and the encoding of
// every record, the reads over them (query.go), and the recount that proves the counters right (check.go).
//
// What it may not do. It reads no clock, touches no file or network, starts no goroutine, takes no lock, draws no random number, uses no
// float and never ranges over a map. Time, identifiers and owner epochs arrive inside the entry. Effects are data: whoever leads
// carries them out, everybody else drops them. The package imports only lane and policy; storage satisfies State without knowing it.
//
// Invariants it keeps (REQUIREMENTS.md D): 1 to 6, 9 to 11, 15 to 25, 31, 32, 38 and 42; docs/invariants.md names the test of each.
//
// Where to start. command.go lists every command; machine.go runs an entry; generation.go holds the moves all commands share;
// apply_submit.go, apply_admit.go and apply_outcome.go are the life of a message in order.
package shard
