// Package robustness runs real processes, breaks them, and audits the ledger against what the receiver saw.
//
// What it is. A scripted receiver that records every request before it answers; a load that submits and keeps every answer; a process that
// is killed with SIGKILL and started again; and an audit that counts lost messages, unexplained duplicates and sends without admission. All
// three must be zero (P1, P2, P4).
//
// What it may not do. It touches only loopback and processes it started itself. Its loops are bounded in count and time.
//
// Where to start. kill_test.go for the run, audit.go for what is proved.
package robustness
