// Package sim runs several machines of one shard on one agreed log, each over its own store on a disk that loses power.
//
// What it is. A Cluster draws a log from a seed, entry by entry, and lets its members apply it at their own pace: in storage batches of
// different sizes, with flushes, clean restarts, crashes that lose some or all of what was not synced, caches forgotten, wiped disks, and
// snapshots that are taken at one time and installed at another. After every step the digest of each member must be the one that the
// reference had at that index, the books must balance, and the model must agree with the reference.
//
// What it may not do. There is no Raft, network or clock here: the log is agreed by construction. What the members do with it is the code
// under test: shard, shard/logcodec and storage.
//
// Invariants it checks (docs/invariants.md): 1 to 5 across crashes and installs, I1, I2, I8, I9, and those of the model.
//
// Where to start. cluster.go. A failing seed prints the one command that runs it again. Which unsynced bytes a crash keeps also depends on when
// Pebble flushed in the background; everything else follows from the seed.
package sim
