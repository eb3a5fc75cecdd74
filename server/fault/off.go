//go:build !faults

package fault

import (
	"context"
	"log/slog"
	"net"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sealane/sealane/shard/host"
)

// Enabled tells whether this build can be made to suffer.
const Enabled = false

// Start opens the control endpoint. Without the build tag there is none.
func Start(*slog.Logger) error { return nil }

// FS wraps the file system of the store; nil stands for the disk. Without the build tag it is what was given.
func FS(inner vfs.FS) vfs.FS { return inner }

// Clock wraps the node's clock. Without the build tag it is what was given.
func Clock(inner host.Clock) host.Clock { return inner }

// Stall waits if the point is stalled. Without the build tag it compiles to nothing.
func Stall(string) {}

// Dial wraps how peers are dialled; nil stands for the transport's own way. Without the build tag it is what was given.
func Dial(inner func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return inner
}

// SnapshotEntries is after how many log entries a group takes a snapshot, 0 for the node's own rule. Without the build tag it is 0.
func SnapshotEntries() uint64 { return 0 }

// TrailingEntries is how many entries a group keeps behind its snapshot, 0 for the node's own rule. Without the build tag it is 0.
func TrailingEntries() uint64 { return 0 }
