package storage

import "sync"

// Limits of what a group keeps of its recent writes.
const (
	// recentBytes bounds one half of it: keys and values. Two halves are kept, so that a group holds at most twice this.
	recentBytes = 4 << 20
	// recentValue is the largest value kept.
	recentValue = 4 << 10
	// recentOverhead is what an entry is counted for beside its bytes.
	recentOverhead = 64
)

// recent keeps the newest values of keys that are read again soon after they were written: most deliveries follow their submit at once,
// and a read from here costs a map lookup where the tables cost several searches. It is filled by commits only, never by reads, so that a
// slow reader cannot put an old value back. When the young half is full it becomes the old one and what was old is forgotten.
type recent struct {
	mu    sync.RWMutex
	kinds [256]bool
	used  bool
	young map[string][]byte
	old   map[string][]byte
	bytes int
}

// KeepRecent says which keys, by their first byte, are read again soon after they are written. Call it before the first batch. It changes the
// speed of reads and nothing else.
func (s *State) KeepRecent(kinds ...byte) {
	s.recent.mu.Lock()
	defer s.recent.mu.Unlock()
	for _, k := range kinds {
		s.recent.kinds[k] = true
		s.recent.used = true
	}
	s.recent.young, s.recent.old = map[string][]byte{}, map[string][]byte{}
}

// clear forgets everything: the state is another one.
func (r *recent) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.young)
	clear(r.old)
	r.bytes = 0
}

// get returns a value that must not be changed.
func (r *recent) get(key []byte) ([]byte, bool) {
	if !r.used || len(key) == 0 || !r.kinds[key[0]] {
		return nil, false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if v, ok := r.young[string(key)]; ok {
		return v, true
	}
	v, ok := r.old[string(key)]
	return v, ok
}

// commit takes over what a batch wrote, after it is visible in the tables and before anybody is told.
func (r *recent) commit(written []*entry) {
	if !r.used {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range written {
		key := e.key()
		if !r.kinds[key[0]] {
			continue
		}
		if e.deleted || len(e.value) > recentValue {
			delete(r.young, string(key))
			delete(r.old, string(key))
			continue
		}
		r.young[string(key)] = append([]byte(nil), e.value...)
		r.bytes += len(key) + len(e.value) + recentOverhead
	}
	if r.bytes > recentBytes {
		r.old, r.young, r.bytes = r.young, make(map[string][]byte, len(r.young)), 0
	}
}
