// Package client is the Go client of Sealane.
//
// What it is. Client wraps one gRPC connection. Submit gives a message to Sealane and has exactly three answers: an Accepted, a
// *NotAcceptedError or a *MaybeAcceptedError. Stream does the same for many messages at once. Messages, DeadLetters, UncertainAttempts and
// Lanes walk over pages. Everything else is reached through the generated clients (Query, Destinations, Control and so on).
//
// What it may not do. It never turns "nobody knows" into "not accepted": once a try ended without a verdict, only an answer that a shard
// decided about that very key clears it (DESIGN 3). It retries nothing but submits, because only those carry a key that makes a repetition
// harmless. It keeps nothing on disk: a caller that may itself crash between submitting and learning the answer chooses its own idempotency
// keys.
//
// Invariants it keeps. All tries of one Submit carry the same idempotency key, the same content and the same submit_by, so a late try cannot
// make a second message. Every message given to a Stream gets its answer exactly once, also when the stream breaks.
//
// Where to start. submit.go is the loop around the three answers; stream.go is the same for throughput; errors.go says what an error holds.
package client
