package replication

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
)

// appliedIndex publishes how far the state is, and wakes who waits for an index. Raft's own AppliedIndex means only "handed over".
type appliedIndex struct {
	index   atomic.Uint64
	waiting atomic.Int64 // so that publishing without waiters takes no lock

	mu      sync.Mutex
	waiters waiterHeap
	ended   error // why no index will ever be applied again
}

type waiter struct {
	index uint64
	at    int // position in the heap, -1 when out of it
	done  chan struct{}
	err   error // set before done is closed
}

// publish is called with a growing index, after its batch is committed.
func (a *appliedIndex) publish(index uint64) {
	a.index.Store(index)
	if a.waiting.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.waiters) > 0 && a.waiters[0].index <= index {
		w := heap.Pop(&a.waiters).(*waiter)
		close(w.done)
	}
}

// end fails everyone who waits and who will.
func (a *appliedIndex) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil {
		return
	}
	a.ended = err
	for len(a.waiters) > 0 {
		w := heap.Pop(&a.waiters).(*waiter)
		w.err = err
		close(w.done)
	}
}

// wait blocks until index is applied, the context ends or the group does.
func (a *appliedIndex) wait(ctx context.Context, index uint64) error {
	if a.index.Load() >= index {
		return nil
	}
	a.mu.Lock()
	a.waiting.Add(1)
	defer a.waiting.Add(-1)
	// Read again after announcing the wait: publish stores the index before it looks for waiters.
	if a.index.Load() >= index {
		a.mu.Unlock()
		return nil
	}
	if a.ended != nil {
		a.mu.Unlock()
		return a.ended
	}
	w := &waiter{index: index, done: make(chan struct{})}
	heap.Push(&a.waiters, w)
	a.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		a.mu.Lock()
		defer a.mu.Unlock()
		if w.at >= 0 {
			heap.Remove(&a.waiters, w.at)
		}
		return ctx.Err()
	}
}

// waiterHeap is a container/heap ordered by index.
type waiterHeap []*waiter

func (h waiterHeap) Len() int           { return len(h) }
func (h waiterHeap) Less(i, j int) bool { return h[i].index < h[j].index }
func (h waiterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push is part of heap.Interface.
func (h *waiterHeap) Push(x any) {
	w := x.(*waiter)
	w.at = len(*h)
	*h = append(*h, w)
}

// Pop is part of heap.Interface.
func (h *waiterHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.at = -1
	return w
}
