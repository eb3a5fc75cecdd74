// Package api is where the contract lives: the protos of the public API and of the log, and what is generated from them.
//
// What it is. Directories: proto (the source, whose comments are the reference documentation), gen (generated, committed, never edited),
// third_party (protos that the annotations need). README.md has the rules. This package itself has no code, only tests of the contract.
//
// What it may not do. Nothing here knows any other package of Sealane: conversions to and from our own types belong to those who use them.
//
// Invariants it keeps. Public API and log never embed each other; HTTP paths are exactly the published table; JSON shows the short names of
// enum values; numbers of log commands never change (I10).
//
// Where to start. proto/sealane/v1/delivery_service.proto for clients, proto/sealane/log/v1/entry.proto for the log.
package api
