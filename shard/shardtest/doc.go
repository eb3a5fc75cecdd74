// Package shardtest has what tests of the shard need: a state in memory, a language for short stories, random traffic, and a model that judges
// what a shard did.
//
// What it is. Mem is a shard.State; Shard runs entries over it and recounts after each. Script reads the lines of testdata scripts. Traffic
// draws the next entry, sensible or garbage, from any source of numbers. Model knows the rules of DESIGN 3, 4 and 5 independently of the
// machine, and says which of them a step broke.
//
// What it may not do. Nothing but tests may import it. The model never calls the machine: it sees commands, verdicts and what queries return.
//
// Invariant it keeps: the order of Mem's Scan is byte order, and equal numbers make equal traffic.
//
// Where to start. mem.go and shard.go; then traffic.go and model.go.
package shardtest
