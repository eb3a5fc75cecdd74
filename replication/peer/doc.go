// Package peer carries Raft's messages between the nodes of a cluster: one gRPC server on the peer port, one gRPC connection to each
// other node, and on it the frames of every group. Other services are registered on the same server and called over the same connection.
//
// What it may not do: decide anything. It knows no terms, no leaders and no state; it delivers a request at most once per frame, in order
// per stream, or fails the call. It never answers in Raft's place: an append that succeeded was answered by the Raft of the replica it was
// meant for, after the call was made.
//
// Invariants:
//
//   - A frame for replica n2@x is never handed to the Raft of a process whose replica id is n2@y: the sender compares the id the other side
//     showed when the stream was opened, and the receiver compares the target in each frame.
//   - Heartbeats take Raft's main loop like any other append (hashicorp/raft issue 695).
//   - A group that does not take its messages holds up neither the receiving goroutine nor any other group; what overflows is answered with
//     an error and counted.
//   - Every call returns: on an answer, when the connection breaks, when its time is over, and on Close. A late answer changes nothing.
//   - No error text that reaches Raft contains the words that it takes for a granted pre-vote.
//   - Queues, frames and messages are bounded in bytes and number; see limits.go.
//
// Goroutines: for each link (outgoing connection) one watcher, and for each of its two streams a sender and a receiver; for each incoming
// stream a receiver (gRPC's own) and a sender; for each attached group one that hands requests to Raft. Network.Close ends them all and waits for them, Transport.Close those of one group.
//
// Start reading at Network (network.go), then Transport (transport.go) for the way out and serve.go for the way in. The bytes are in
// frame.go, message.go and identity.go.
package peer
