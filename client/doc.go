// Package client is the Go client of Sealane.
//
// What it is. Client speaks to a cluster through whichever nodes can be reached, beginning with the addresses given to Dial and learning the
// others. Submit gives a message to Sealane and has exactly three answers: an Accepted, a *NotAcceptedError or a *MaybeAcceptedError. Stream
// does the same for many messages at once. Get, WaitPosition, Watch and WatchOperation read; Messages, DeadLetters, UncertainAttempts and
// Lanes walk over pages. Everything else is reached through the generated clients (Query, Destinations, Control and so on), which find a
// node in the same way.
//
// What it may not do. It never turns "nobody knows" into "not accepted": once a try ended without a verdict, only an answer that a shard
// decided about that very key clears it (DESIGN 3). It repeats only what a repetition cannot do twice: submits with their key, reads, calls
// with an id of the caller's, and what a node refused in a way that says that nothing happened. It relies on no hint: what it believes about
// shards and leaders only chooses where to ask first, and every node forwards what belongs elsewhere. It keeps nothing on disk: a caller that
// may itself crash between submitting and learning the answer chooses its own idempotency keys.
//
// Invariants it keeps. All tries of one Submit carry the same idempotency key, the same content and the same submit_by, so a late try cannot
// make a second message. A call is given only to a connected node, so where none can be reached nothing is in doubt. Every message given to a
// Stream gets its answer exactly once, also when calls break. What it remembers is bounded: 64 nodes, 4 096 hints, the window of a stream.
//
// Goroutines. Each stream has two for each node that it has a call to; a refresh of the view and a race of connections have some while they
// last. Close of the Stream and of the Client ends them.
//
// Where to start. submit.go is the loop around the three answers; stream.go, stream_route.go and stream_call.go are the same for throughput.
// pool.go chooses a node, view.go keeps the hints, router.go does both for the generated clients. errors.go says what an error holds.
package client
