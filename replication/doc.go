// Package replication orders commands: it runs one replica of a Raft group per Group and hands every committed entry to a StateMachine.
//
// What it is. A Group takes opaque commands from callers, packs everything that waits into one log entry, proposes it, and answers each
// caller with its own verdict once the entry is applied and committed to the state. It is the sole home of hashicorp/raft. The same
// type serves shards and the control group; a node runs several, all on one storage.Store.
//
// What it may not do. It never looks inside a command, decides nothing about deliveries, and never retries a proposal on behalf of a
// caller. Time enters only through Options.Stamp, at packing. It keeps no state of its own on disk besides what storage holds for
// the group: log, vote, snapshot marker and applied index.
//
// Invariants it keeps:
//   - State and applied index move in one batch; entries at or below the stored applied index change nothing (I2).
//   - StateMachine.Committed runs after the batch is committed and before any caller of that batch is answered.
//   - A callback handed to Propose runs exactly once, if and only if Propose returned nil.
//   - An error for which NotAccepted is true means that the command is not in the log and never will be. Every other error means
//     that it may be (DESIGN 3, submit's three answers).
//   - An entry that cannot be decoded, or that the state machine refuses, stops the group at that index. It is never skipped.
//   - A snapshot marker is written only for an index that the state has durably flushed.
//   - Led(term) comes after an entry of that term has been applied here; Deposed follows each Led before the next.
//   - A change of the configuration starts from the newest committed one (compare-and-set), and never takes the vote of the leader or the
//     last voter. An index from ReadIndex covers everything acknowledged anywhere before the call.
//   - A digest is of the state exactly at its mark, or there is none.
//
// Goroutines of a Group, all owned by it and stopped by Close: the proposer (packs and hands over), the answerer (waits for Raft's
// futures in order and runs callbacks), the supervisor (leadership, silent leaders, restart, failure), the snapshotter and the one that computes
// digests. Raft adds its own three, and one more while it leads.
//
// Where to start: group.go for the life of a group, queue.go and proposer.go for the path of a write, fsm.go for the path of an entry
// into the state, supervisor.go and leader.go for leadership, members.go and transfer.go for what moves replicas and leaders. The hazards of
// the library and the tests against them are listed in hazards_test.go.
package replication
