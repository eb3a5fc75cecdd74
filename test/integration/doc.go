// Package integration runs whole nodes in the test's process, with real Raft, real Pebble on disk and real connections.
//
// It proves what only the whole shows: that a failing destination stops its own lane and nothing else (P8), that a node comes back from its data
// directory with everything it acknowledged, and that what a client sent is what the receiver got. It touches only loopback. Start at node.go.
package integration
