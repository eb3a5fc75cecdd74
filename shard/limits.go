package shard

import "time"

// Limits of one shard. Those a client can meet are checked at the door and again at apply; limits_test.go asserts how they relate.
const (
	// MaxPayloadBytes is the hard upper bound of a payload; the node's own limit (1 MiB unless configured) is at most this.
	MaxPayloadBytes = 16 << 20
	// MaxKeyBytes bounds idempotency key, ordering key, request and operation ids.
	MaxKeyBytes = 255
	// MaxAttributes and MaxAttributeBytes bound what a client attaches to a message, names and values together.
	MaxAttributes     = 64
	MaxAttributeBytes = 8 << 10
	// MaxDestinationName bounds a destination's name (DESIGN 12).
	MaxDestinationName = 63
	// MaxContentTypeBytes and MaxTraceParentBytes bound the two headers that are carried along.
	MaxContentTypeBytes = 255
	MaxTraceParentBytes = 255
	// MaxHorizon is how far in the future deliver_at may lie, and MaxExpiry how far expire_at.
	MaxHorizon = 366 * 24 * time.Hour
	MaxExpiry  = 2 * MaxHorizon
	// MaxDetailBytes bounds evidence detail and reasons; longer texts are cut, never refused.
	MaxDetailBytes = 256
	// MaxResolutions bounds the evidence kept with one attempt. What comes later and decides nothing is not stored; what decides is
	// (evidence.go, keep): at most three records more.
	MaxResolutions = 16
	// RescheduleMemory is how many of a message's newest generations are searched for the request id of a repeated reschedule.
	RescheduleMemory = 64
	// MaxTrim bounds the generations one Trim removes, MaxTrimScan the index entries it looks at.
	MaxTrim     = 256
	MaxTrimScan = 4 * MaxTrim
	// MaxEntryCommands bounds the vector of one entry; the proposer packs at most this many.
	MaxEntryCommands = 4096
	// DefaultLaneMessages and DefaultLaneBytes are a lane's backlog limits where the destination names none.
	DefaultLaneMessages = 1_000_000
	DefaultLaneBytes    = 10 << 30
	// cachedDestinations and cachedLanes bound the machine's caches of immutable facts.
	cachedDestinations = 4096
	cachedLanes        = 1 << 17
)
