package server

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sealane/sealane/shard"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
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

// remoteWatch follows a message on a node that holds a replica of its shard. When the stream ends the watcher is poked and another is opened, so
// that nothing is missed; reading again decides what has changed.
func (n *Node) remoteWatch(ctx context.Context, sh *shardRef, id shard.MessageID) (*watcher, func()) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{changed: make(chan struct{}, 1)}
	go func() {
		for ctx.Err() == nil {
			n.followRemote(ctx, sh, id, w)
			w.poke()
			if pause(ctx, askPause) != nil {
				return
			}
		}
	}()
	return w, cancel
}

func (n *Node) followRemote(ctx context.Context, sh *shardRef, id shard.MessageID, w *watcher) {
	for _, node := range n.holders(sh.ref) {
		l, err := n.link(node)
		if err != nil {
			continue
		}
		stream, err := l.peer().Watch(ctx, &peerv1.WatchRequest{Group: sh.ref.number, MessageId: id[:]})
		if err != nil {
			continue
		}
		heard := false
		for {
			if _, err := stream.Recv(); err != nil {
				break
			}
			heard = true
			w.poke()
		}
		if heard {
			return
		}
	}
}

// subscribe registers for the changes of a message, here or on a node that has it.
func (n *Node) subscribe(ctx context.Context, sh *shardRef, id shard.MessageID) (*watcher, func(), error) {
	if r := sh.replica.Load(); r != nil {
		return r.watch.subscribe(id)
	}
	w, stop := n.remoteWatch(ctx, sh, id)
	return w, stop, nil
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

// all pokes every watcher: the whole state may have changed.
func (w *watchers) all() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, list := range w.m {
		for _, s := range list {
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
