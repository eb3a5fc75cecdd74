// Package storage keeps a node's bytes: the Raft log and stable state of every group, and the state of every group. It is the only
// home of Pebble.
//
// What it is. A Store is one directory with two Pebble instances. "log" holds the Raft logs, votes, terms and snapshot markers; it has a
// write-ahead log and syncs before it answers, so that all groups share one fsync. "state" holds what the groups applied; it has no
// write-ahead log, because the Raft log is one. Each batch of state carries the index it applied.
//
// What it may not do. It does not know what a key, a value or an entry means, imports nothing of ours, never deletes because something
// is missing, and never answers success for a write that is not durable (a batch of state excepted: see DurableApplied).
//
// Invariants it keeps:
//   - A log write that returned nil survives the loss of power (unless Options.NoSync).
//   - State and applied index move together: after a crash the state of a group is exactly the effect of its entries up to Applied.
//   - The log starts at or below the durable applied index plus one (I16). Checked at every open, enforced by every truncation.
//   - Term and candidate of a vote change together.
//   - The term at the edge of the log stays known after the entry is gone, so that Raft can match it (the sentinel).
//   - A snapshot marker never moves backwards, and a received state never replaces a newer one.
//   - A state from another store is checked whole before anything changes, and replaces the group's state, log and marker so that a crash
//     at any moment leaves all as before or all as sent (export.go, receive.go, install.go).
//   - A damaged log entry is an error that names group and index, never an entry.
//   - After the first failed or late log write the store fails for good and says so once (Options.OnFatal).
//
// Start reading at store.go, then raftlog.go (and truncate.go for the snapshot boundary), then batch.go. Bytes on disk: keys.go,
// entry.go, identity.go.
package storage
