// Package server puts a node together and opens its doors.
//
// What it is. Node joins the rooms below it: storage, one replication group per shard and one for the control group, the shard machine, the
// host that delivers, and the adapters. Around it stand the doors: the gRPC services, the REST gateway, metrics and health. What the
// rooms declare as small interfaces is satisfied here, in adapters of a few lines.
//
// What it may not do. It decides nothing about a delivery. It validates the shape of what clients send and refuses it with the field and the
// limit; what depends on state is decided by a shard at apply. It never answers that something happened before its entry was applied.
//
// Invariants it keeps: an error that says NOT_ACCEPTED is certain (DESIGN 3); unknown and foreign look the same (R187).
//
// Where to start. node.go opens and closes a node; replica.go is one shard on it; delivery_service.go is the way in; errors.go is the one
// table from our errors to gRPC codes.
package server
