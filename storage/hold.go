package storage

// Hold keeps the entry at index and everything behind it from being truncated until release is called; ok is false where that entry, which may
// be the sentinel, is gone already. A state that is being sent to a peer is followed by the entries behind it: were they truncated meanwhile, the peer
// would need another state, and a busy group with a large one would never fill a replica. Conflicts and installs are not held back.
// Calling release again does nothing.
func (l *RaftLog) Hold(index uint64) (release func(), ok bool) {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	l.mu.RLock()
	reachesBack := index >= l.sentinel.index && (l.first == 0 || index+1 >= l.first)
	l.mu.RUnlock()
	if !reachesBack {
		return func() {}, false
	}
	if l.held == nil {
		l.held = map[*uint64]struct{}{}
	}
	key := &index
	l.held[key] = struct{}{}
	return func() {
		l.writeMu.Lock()
		defer l.writeMu.Unlock()
		delete(l.held, key)
	}, true
}

// unheld cuts a truncation before what is held. The caller holds writeMu.
func (l *RaftLog) unheld(to uint64) uint64 {
	for index := range l.held {
		to = min(to, max(*index, 1)-1)
	}
	return to
}
