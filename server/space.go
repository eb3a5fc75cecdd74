package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrNoSpace: the data directory's disk has less free space than min-free-bytes. New messages are refused, certainly not accepted, so that the
// outcomes of what was admitted can still be written. Free some space; the node takes messages again by itself.
var ErrNoSpace = errors.New("server: disk is nearly full")

// spaceEvery is how often free space is looked at.
const spaceEvery = 250 * time.Millisecond

// Room that a store needs whatever is asked of it.
const (
	// MinFreeFloor is the lowest min-free-bytes: what has been accepted still has to be flushed, three memtables at worst.
	MinFreeFloor = 192 << 20
	// startFreeBytes is what a start needs: it replays the log and flushes.
	startFreeBytes = 64 << 20
)

// checkStartSpace refuses to start on a full disk, where opening the store would only fail again and again.
func checkStartSpace(cfg Config) error {
	if cfg.InMemory || cfg.MinFreeBytes == 0 {
		return nil
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return err
	}
	usage, err := vfs.Default.GetDiskUsage(dir)
	for err != nil && filepath.Dir(dir) != dir { // the directory is made by the first start
		dir = filepath.Dir(dir)
		usage, err = vfs.Default.GetDiskUsage(dir)
	}
	if err != nil {
		return fmt.Errorf("free space of %s: %w", cfg.DataDir, err)
	}
	if usage.AvailBytes < startFreeBytes {
		return fmt.Errorf("%w: data-dir %s has %d bytes free, a start needs %d", ErrNoSpace, cfg.DataDir, usage.AvailBytes, startFreeBytes)
	}
	return nil
}

// space watches the free space of the data directory.
type space struct {
	low  atomic.Bool
	free atomic.Uint64
}

// lookAtSpace compares what is free with the floor and logs when it crosses it.
func (n *Node) lookAtSpace() {
	free, err := n.store.FreeBytes()
	if err != nil {
		n.log.Warn("free disk space cannot be read", "error", err)
		return
	}
	n.space.free.Store(free)
	low := free < uint64(n.cfg.MinFreeBytes)
	if n.space.low.Swap(low) == low {
		return
	}
	if low {
		n.log.Error("disk is nearly full: new messages are refused", "free_bytes", free, "min_free_bytes", n.cfg.MinFreeBytes, "data_dir", n.cfg.DataDir)
		return
	}
	n.log.Info("disk has space again: new messages are taken", "free_bytes", free)
}

// watchSpace runs until the context ends.
func (n *Node) watchSpace(ctx context.Context) {
	if n.cfg.InMemory || n.cfg.MinFreeBytes == 0 {
		return
	}
	n.lookAtSpace()
	n.background.Go(func() {
		tick := time.NewTicker(spaceEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				n.lookAtSpace()
			case <-ctx.Done():
				return
			}
		}
	})
}
