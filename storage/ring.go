package storage

import "github.com/hashicorp/raft"

// ring keeps the newest entries of one group in memory, contiguous and ending at the log's end, bounded by count and bytes. Replication
// and apply read them from here. The entries share their bytes with whoever stored them. Guarded by the RaftLog's mutex.
type ring struct {
	slots    []raft.Log // the entry at index i is in slot i % len
	lo, hi   uint64     // held are lo..hi; hi < lo means empty
	bytes    int
	maxBytes int
}

func newRing(entries, maxBytes int) *ring {
	return &ring{slots: make([]raft.Log, entries), lo: 1, maxBytes: maxBytes}
}

func (r *ring) slot(index uint64) *raft.Log { return &r.slots[index%uint64(len(r.slots))] }

func logBytes(l *raft.Log) int { return len(l.Data) + len(l.Extensions) }

// get gives false for an entry that is not held.
func (r *ring) get(index uint64, l *raft.Log) bool {
	if index < r.lo || index > r.hi {
		return false
	}
	*l = *r.slot(index)
	return true
}

// put appends the entry that follows the newest one; any other restarts the ring with it.
func (r *ring) put(l *raft.Log) {
	if r.hi < r.lo || l.Index != r.hi+1 {
		r.clear()
		r.lo, r.hi = l.Index, l.Index-1
	}
	for r.hi >= r.lo && (r.hi-r.lo+1 >= uint64(len(r.slots)) || r.bytes+logBytes(l) > r.maxBytes) {
		r.drop(r.lo)
		r.lo++
	}
	*r.slot(l.Index) = *l
	r.hi = l.Index
	r.bytes += logBytes(l)
}

// drop forgets the bytes of one held entry; the caller moves lo or hi.
func (r *ring) drop(index uint64) {
	s := r.slot(index)
	r.bytes -= logBytes(s)
	*s = raft.Log{}
}

// removeTo drops everything up to index.
func (r *ring) removeTo(index uint64) {
	for r.hi >= r.lo && r.lo <= index {
		r.drop(r.lo)
		r.lo++
	}
}

// removeFrom drops everything from index on.
func (r *ring) removeFrom(index uint64) {
	for r.hi >= r.lo && r.hi >= index {
		r.drop(r.hi)
		r.hi--
	}
}

func (r *ring) clear() { r.removeFrom(0); r.lo, r.hi = 1, 0 }
