// Package policy is the arithmetic of delivery: when a retry is due, when a generation's time is up, what an uncertainty permits, how long
// a circuit stays open, and what one outcome costs.
//
// What it is. Values in, decision out. Every function depends on its arguments only, so that each replica decides the same.
//
// What it may not do. No clock, randomness, float, I/O or state. Jitter is a hash of (message, generation, attempt). It imports nothing
// of ours, and nothing above may decide such things elsewhere (R001).
//
// Invariants it keeps (REQUIREMENTS.md D): 31, a retry time is the same on every replica and its delay stays under the cap for every count up
// to the integer maximum; 32, retries stay within the budget. Golden vectors in testdata pin the arithmetic.
//
// Where to start. outcome.go has the vocabulary and table C.7, retry.go the arithmetic of waits, uncertainty.go the rules about UNKNOWN.
package policy
