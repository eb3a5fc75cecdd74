// Package logcodec turns the commands of the shards and of the control group into the bytes that the Raft log holds, and back.
//
// What it is. The only place that knows both the commands (shard, catalog) and the log's protobuf schema (api/proto/sealane/log/v1). The
// schema is what must stay readable for ever; the commands may be renamed freely.
//
// What it may not do. It validates nothing but that the bytes are a command this build knows: every field, every kind. What it does
// not know it refuses with ErrUnknown, and the shard stops there rather than skip (DESIGN 3).
//
// Invariant it keeps: Decode(Append(c)) equals c, for every command (codec_test.go).
//
// Where to start. codec.go.
package logcodec
