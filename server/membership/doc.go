// Package membership makes the cluster what the control group says it is: it moves replicas, votes and leaderships, and carries cluster
// operations out.
//
// What it is. A Driver runs on the node that leads the control group, for as long as it does. Each round it reads the recorded state, asks
// every node for a report, lets catalog/plan say the next steps, and executes them through ports that package server implements.
//
// What it may not do. It decides nothing that is not in the plan, keeps nothing that the next leader would need, and deletes nothing: a
// replica is destroyed by its own node when it sees a recorded tombstone.
//
// Invariants it keeps. One step at a time for each group. A step is planned from state that was read after the last step's answer, and every
// recording is compare-and-set on the version it was planned from, so that two drivers of two leaders do no harm. When leadership ends,
// nothing more is started, and Run returns when what was started has returned.
//
// Where to start. ports.go has what the driver needs, driver.go the round, execute.go the steps.
package membership
