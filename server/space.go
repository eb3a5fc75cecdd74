package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// ErrNoSpace: the data directory's disk has less free space than min-free-bytes. New messages are refused, certainly not accepted, so that the
// outcomes of what was admitted can still be written. Free some space; the node takes messages again by itself.
var ErrNoSpace = errors.New("server: disk is nearly full")

// spaceEvery is how often free space is looked at.
const spaceEvery = 2 * time.Second

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
