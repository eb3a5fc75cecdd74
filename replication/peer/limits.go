package peer

import "time"

// ProtocolVersion is the version of the peer protocol: identities, frames and messages. A node refuses every other version.
const ProtocolVersion = 1

// Limits of sizes and queues. Their relations are checked by TestLimits.
const (
	maxNodeBytes    = 238
	maxReplicaBytes = 255
	// maxAppendBytes is where one append is cut: the rest of its entries goes with the next one. One larger entry goes alone. Raft itself
	// counts entries and knows no bytes.
	maxAppendBytes = 4 << 20
	// maxFrameBytes bounds a frame: the largest entry of storage (24 MiB), or maxAppendBytes, and what surrounds it.
	maxFrameBytes = 25 << 20
	// maxPackedBytes is where the packing of frames into one message ends, so a message has at most that and one frame.
	maxPackedBytes  = 1 << 20
	maxMessageBytes = maxPackedBytes + maxFrameBytes
	maxEntries      = 1024 // Raft's own upper bound of MaxAppendEntries
	maxErrorBytes   = 256

	// Bounds of what waits to be sent on one stream. One frame always fits an empty queue.
	maxQueueFrames = 4096
	maxQueueBytes  = 64 << 20
	// Bounds of what waits for the Raft of one group. One request always fits an empty queue.
	maxInboxFrames = 128
	maxInboxBytes  = 32 << 20
	// maxPeers bounds the nodes that Status tells of.
	maxPeers = 256

	snapshotChunk = 256 << 10
	// maxSnapshots bounds snapshots under way to one node, so that stalled ones cannot use up the connection's flow control window.
	maxSnapshots = 2

	streamWindow     = 4 << 20
	connectionWindow = 32 << 20
)

// Times. Elections begin a second after the last heartbeat at the earliest, and a leader without its followers' answers steps down after
// half a second.
const (
	// linger is how long frames that nobody waits for (heartbeats and their answers) wait for company.
	linger = 10 * time.Millisecond

	// controlTimeout bounds heartbeats, votes and transfers. It stays well below the election timeout, so that one lost message never
	// costs an election, and above the usual worst fsync, for which a follower's main loop stands still.
	controlTimeout = 600 * time.Millisecond
	// appendTimeout bounds an append, plus appendPerMiB for what is queued in front of it and its own size. A second try of entries that
	// the follower has already is cheap, so it is short; what it must not do is fail for ever where the line is slow.
	appendTimeout = 750 * time.Millisecond
	appendPerMiB  = time.Second
	// reachMin and reachMax bound how long an append waits for a node that cannot be reached; between them it waits as long again as the
	// node has been away. Raft doubles its pause with each failed append, up to ten seconds, and would sleep on when the node is back;
	// waiting here instead ends at the moment of the reconnect and keeps that count low.
	reachMin = time.Second
	reachMax = 20 * time.Second
	// interruptHold is how long after Interrupt no append waits for a node.
	interruptHold = time.Second
	// answerPatience is when a group stops waiting for Raft's answer to a request and turns to the next one. The caller gave up long before.
	answerPatience = 10 * time.Second

	// snapshotStall ends a snapshot that makes no progress: no chunk accepted, or none received, for so long.
	snapshotStall = 10 * time.Second
	// snapshotInstall bounds the installation after the last byte.
	snapshotInstall = 10 * time.Minute
	snapshotBeat    = time.Second

	// pingAfter of silence, a connection is asked for a sign of life; silentAfter ends it, busySilentAfter when much is under way on it
	// and the answer may stand behind it in the line.
	pingAfter       = 750 * time.Millisecond
	silentAfter     = 2 * time.Second
	busySilentAfter = 10 * time.Second
	watchEvery      = 250 * time.Millisecond
	busyBytes       = 1 << 20

	// Connecting: each try asks for the address again. A node that is back is reached within one try and one pause.
	dialTimeout    = 800 * time.Millisecond
	reconnectFirst = 25 * time.Millisecond
	reconnectLast  = 400 * time.Millisecond
	// openTimeout bounds the opening of a stream on a connection that is up.
	openTimeout = 2 * time.Second
	// refusedPause is the pause after the other side refused this one.
	refusedPause = 500 * time.Millisecond
	brokenPause  = 10 * time.Millisecond

	// Keep-alive of gRPC itself: the server's notices dead clients; the client's lowest value is ten seconds, so it only backs up ours.
	serverPingAfter    = 3 * time.Second
	serverPingPatience = 3 * time.Second
	clientPingAfter    = 10 * time.Second
)
