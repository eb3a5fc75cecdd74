package fault

import "time"

// Variable names the environment variable with the control endpoint's address, a loopback host:port.
const Variable = "SEALANE_TEST_FAULTS_ADDR"

// SnapshotVariable names the environment variable with the number of log entries after which a group takes a snapshot, from 1.
const SnapshotVariable = "SEALANE_TEST_SNAPSHOT_ENTRIES"

// TrailingVariable names the environment variable with the number of log entries that a group keeps behind its snapshot, from 1.
const TrailingVariable = "SEALANE_TEST_TRAILING_ENTRIES"

// The points at which a node can be stalled (F35). Other names may be used; these are the ones that a node passes.
const (
	PointPropose = "propose" // a command is about to be handed to its group
	PointApply   = "apply"   // a committed entry is about to be applied
	PointEffects = "effects" // an applied entry is durable in order, its effects are about to be handed on
	PointReply   = "reply"   // a verdict is about to be given to its caller
	PointGate    = "gate"    // the send gate is about to be asked
	PointSend    = "send"    // the send gate has said yes, the first byte has not been written
)

// Spec is everything that is wrong at one time. Setting a Spec replaces the one before; the zero Spec clears all. Durations are nanoseconds
// in JSON.
type Spec struct {
	Disk   Disk             `json:"disk"`
	Clock  Wall             `json:"clock"`
	Stalls map[string]Pause `json:"stalls,omitempty"` // by point
	Links  map[string]Link  `json:"links,omitempty"`  // by remote host or host:port; "*" is every other
}

// Disk is what is wrong with the disk. It touches files whose path contains Path.
type Disk struct {
	// Path limits the fault to names that contain it, for example "/log/". Empty: every file.
	Path string `json:"path,omitempty"`
	// SyncDelay is what each fsync takes longer.
	SyncDelay time.Duration `json:"sync_delay,omitempty"`
	// Hang makes writes and fsyncs wait until it is cleared.
	Hang bool `json:"hang,omitempty"`
	// FailSyncs and FailWrites make the next so many fail with EIO.
	FailSyncs  int64 `json:"fail_syncs,omitempty"`
	FailWrites int64 `json:"fail_writes,omitempty"`
	// Full makes everything that needs room fail with ENOSPC, and reports no free space.
	Full bool `json:"full,omitempty"`
	// FreeBytes is reported as the free space; 0 reports the truth.
	FreeBytes uint64 `json:"free_bytes,omitempty"`
}

// Wall is what is wrong with the wall clock. The monotonic clock is always right.
type Wall struct {
	// Step is added to the wall clock.
	Step time.Duration `json:"step,omitempty"`
	// DriftPPM is how many microseconds the wall clock gains in each second since the Spec was set; negative where it loses.
	DriftPPM int64 `json:"drift_ppm,omitempty"`
}

// Pause stalls whoever passes a point.
type Pause struct {
	// For is how long; negative means until another Spec is set.
	For time.Duration `json:"for"`
	// Times is how many of those who pass are stalled; 0 means every one.
	Times int64 `json:"times,omitempty"`
}

// Link is what is wrong with the connections that this node dials to one remote. Bytes are never reordered or lost: a lost segment shows
// itself to a program as a long delay, and so it does here.
type Link struct {
	// Delay and Jitter hold each piece of data, in both directions, for Delay and up to Jitter more.
	Delay  time.Duration `json:"delay,omitempty"`
	Jitter time.Duration `json:"jitter,omitempty"`
	// LossPercent of the pieces are held for another retransmission time-out.
	LossPercent int `json:"loss_percent,omitempty"`
	// HoldWrites and HoldReads stop one direction until cleared: nothing is refused, nothing arrives.
	HoldWrites bool `json:"hold_writes,omitempty"`
	HoldReads  bool `json:"hold_reads,omitempty"`
	// Cut closes the connections that exist and refuses new ones.
	Cut bool `json:"cut,omitempty"`
}

// Report answers a look at the endpoint.
type Report struct {
	// Spec is what is in force.
	Spec Spec `json:"spec"`
	// Counts tells how often each fault acted since the process started.
	Counts map[string]uint64 `json:"counts"`
}
