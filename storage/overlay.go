package storage

import (
	"bytes"
	"slices"
	"unsafe"

	"github.com/cockroachdb/pebble/v2"
)

// What is known about a key in the committed state.
type baseKnowledge uint8

const (
	baseUnknown baseKnowledge = iota
	baseAbsent
	basePresent
)

// overlayKeep is the largest map that a pooled batch keeps: clearing costs what the map once held.
const overlayKeep = 1 << 14

// entry is one key that the batch has read or written.
type entry struct {
	full    []byte // with group prefix, in the arena
	value   []byte // current value; meaningless if deleted or absent
	was     baseKnowledge
	dirty   bool // written by the batch
	deleted bool // dirty, and gone
}

func (e *entry) key() []byte { return e.full[prefixBytes:] }

func (e *entry) present() bool {
	if e.dirty {
		return !e.deleted
	}
	return e.was == basePresent
}

// overlay is the batch's view of what it touched. Point reads are a map lookup. Written keys are sorted only when a scan needs it: the
// first sorted keys of dirty are ordered in order, the rest are merged in then.
type overlay struct {
	memory  arena
	index   map[string]*entry // the key's bytes are those of entry.full, which do not change until reset
	entries entrySlab
	dirty   []*entry // in the order of their first write; this is the order in which they are committed
	order   []*entry // a prefix of dirty, sorted by key
	bytes   int
	writes  uint64 // rises with every write; tells a running scan to look again
}

func (o *overlay) init() { o.index = map[string]*entry{} }

func (o *overlay) find(key []byte) *entry { return o.index[string(key)] }

// add starts an entry for a key that is not in the overlay.
func (o *overlay) add(prefix, key []byte) *entry {
	full := o.memory.alloc(len(prefix) + len(key))
	copy(full[copy(full, prefix):], key)
	e := o.entries.next()
	e.full = full
	o.index[unsafe.String(&full[prefixBytes], len(key))] = e
	return e
}

// forget takes an entry back whose read failed.
func (o *overlay) forget(key []byte) { delete(o.index, string(key)) }

func (o *overlay) set(e *entry, value []byte, deleted bool) {
	o.writes++
	if e.dirty {
		o.bytes -= len(e.value)
	} else {
		e.dirty = true
		o.bytes += len(e.full) - prefixBytes
		o.dirty = append(o.dirty, e)
	}
	e.deleted = deleted
	e.value = nil
	if !deleted {
		e.value = o.memory.copy(value)
		o.bytes += len(value)
	}
}

// writeTo adds the writes to a Pebble batch. A key that was absent and is again needs none.
func (o *overlay) writeTo(b *pebble.Batch) error {
	for _, e := range o.dirty {
		var err error
		switch {
		case !e.deleted:
			err = b.Set(e.full, e.value, nil)
		case e.was != baseAbsent:
			err = b.Delete(e.full, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *overlay) reset() {
	if len(o.index) > overlayKeep {
		o.index = map[string]*entry{}
	} else {
		clear(o.index)
	}
	o.entries.reset()
	o.memory.reset()
	clear(o.dirty)
	clear(o.order)
	o.dirty, o.order = o.dirty[:0], o.order[:0]
	o.bytes, o.writes = 0, 0
}

func byKey(a, b *entry) int { return bytes.Compare(a.full, b.full) }

// sorted gives all written entries by key.
func (o *overlay) sorted() []*entry {
	fresh := o.dirty[len(o.order):]
	switch {
	case len(fresh) == 0:
	case len(fresh) <= 1+len(o.order)/64:
		// A few: insert each. Moving pointers is cheaper than comparing keys.
		for _, e := range fresh {
			at, _ := slices.BinarySearchFunc(o.order, e, byKey)
			o.order = slices.Insert(o.order, at, e)
		}
	default:
		o.order = append(o.order, fresh...)
		slices.SortFunc(o.order, byKey)
	}
	return o.order
}

// entrySlab allocates entries in blocks and reuses them.
type entrySlab struct {
	blocks [][]entry
	used   int // entries handed out
}

const slabBlock = 256

func (s *entrySlab) next() *entry {
	block, at := s.used/slabBlock, s.used%slabBlock
	if block == len(s.blocks) {
		s.blocks = append(s.blocks, make([]entry, slabBlock))
	}
	s.used++
	return &s.blocks[block][at]
}

func (s *entrySlab) reset() {
	for i := range min(len(s.blocks), (s.used+slabBlock-1)/slabBlock) {
		clear(s.blocks[i])
	}
	if len(s.blocks) > overlayKeep/slabBlock {
		s.blocks = s.blocks[:overlayKeep/slabBlock]
	}
	s.used = 0
}
