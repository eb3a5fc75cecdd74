// Package sink is the scriptable receiver behind `sealane sink`: a webhook endpoint that does on purpose what receivers do by accident.
//
// What it is. An http.Handler whose paths choose the answer, and a record of every request, written before the answer is sent, so that a ledger
// can be audited against it. Demos, tests and benchmarks use it as a library.
//
// What it may not do. It imports nothing of ours and knows nothing of Sealane but the header names of a webhook. Its record is bounded; when it
// drops, it says so. It verifies no signature.
//
// Where to start. New, then the table of paths in answers.go; admin.go for reading the record.
package sink
