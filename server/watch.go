package server

import (
	"sync"
	"sync/atomic"

	"github.com/sealane/sealane/shard"
)

// Limits of watches.
const (
	// maxWatchers bounds the watches of one shard, maxMessageWatchers those of one message.
	maxWatchers        = 4096
	maxMessageWatchers = 64
	// maxUnread is how many changes a watcher may leave unread before it is cut. They are coalesced, so they hold no memory: a client that
	// is that far behind does not read at all.
	maxUnread = 1024
)

// watchers tell who waits for changes of a message. Changes are not queued: a watcher is poked and reads the state itself, so a slow one
// costs nothing but its place.
type watchers struct {
	count atomic.Int64 // so that notifying without watchers takes no lock

	mu sync.Mutex
	m  map[shard.MessageID][]*watcher
}

// watcher is one subscription. Register, then read, then wait for changed: a change between the two is not lost (R186).
type watcher struct {
	changed chan struct{} // holds one
	unread  atomic.Int32
}

func newWatchers() *watchers { return &watchers{m: make(map[shard.MessageID][]*watcher)} }

// subscribe registers for one message. The caller calls stop when it is done.
func (w *watchers) subscribe(id shard.MessageID) (s *watcher, stop func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count.Load() >= maxWatchers || len(w.m[id]) >= maxMessageWatchers {
		return nil, nil, ErrTooManyWatchers
	}
	s = &watcher{changed: make(chan struct{}, 1)}
	w.m[id] = append(w.m[id], s)
	w.count.Add(1)
	return s, func() { w.unsubscribe(id, s) }, nil
}

func (w *watchers) unsubscribe(id shard.MessageID, s *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.m[id]
	for i := range list {
		if list[i] == s {
			list = append(list[:i:i], list[i+1:]...)
			w.count.Add(-1)
			break
		}
	}
	if len(list) == 0 {
		delete(w.m, id)
		return
	}
	w.m[id] = list
}

// notify is called on the apply goroutine after the effects are visible in the state. It never blocks.
func (w *watchers) notify(effects []shard.Effect) {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range effects {
		id := effects[i].Ref.ID
		if id.IsZero() {
			continue
		}
		for _, s := range w.m[id] {
			s.poke()
		}
	}
}

func (s *watcher) poke() {
	s.unread.Add(1)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// seen marks everything up to now as read; false means that the watcher had fallen too far behind.
func (s *watcher) seen() bool { return s.unread.Swap(0) <= maxUnread }
