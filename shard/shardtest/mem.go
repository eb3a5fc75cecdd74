package shardtest

import (
	"bytes"
	"maps"
	"slices"
	"sort"
)

// Mem is a shard.State in memory: a map, and its keys in order. The order is brought up to date by the next Scan, so that loading much
// costs little. The zero value is not ready; use NewMem.
type Mem struct {
	values map[string][]byte
	sorted []string        // never changed in place: a Scan at work keeps its own
	added  []string        // not yet in sorted
	gone   map[string]bool // deleted, and still in sorted
}

// NewMem returns an empty state.
func NewMem() *Mem { return &Mem{values: map[string][]byte{}, gone: map[string]bool{}} }

// Get returns the value of a key.
func (m *Mem) Get(key []byte) ([]byte, bool, error) {
	v, ok := m.values[string(key)]
	return v, ok, nil
}

// Set stores a copy of the value.
func (m *Mem) Set(key, value []byte) error {
	k := string(key)
	if _, ok := m.values[k]; !ok {
		if m.gone[k] {
			delete(m.gone, k)
		} else {
			m.added = append(m.added, k)
		}
	}
	m.values[k] = append([]byte{}, value...)
	return nil
}

// Delete removes a key; a missing one is fine.
func (m *Mem) Delete(key []byte) error {
	k := string(key)
	if _, ok := m.values[k]; !ok {
		return nil
	}
	delete(m.values, k)
	m.gone[k] = true
	return nil
}

// order merges what was added and drops what is gone.
func (m *Mem) order() []string {
	if len(m.added) == 0 && len(m.gone) == 0 {
		return m.sorted
	}
	slices.Sort(m.added)
	out := make([]string, 0, len(m.values))
	for a, b := m.sorted, m.added; len(a) > 0 || len(b) > 0; {
		var k string
		if len(b) == 0 || len(a) > 0 && a[0] < b[0] {
			k, a = a[0], a[1:]
		} else {
			k, b = b[0], b[1:]
		}
		if !m.gone[k] {
			out = append(out, k)
		}
	}
	m.sorted, m.added = out, nil
	clear(m.gone)
	return out
}

// Scan walks [lower, upper) of the keys as they are when it begins. A nil bound is open.
func (m *Mem) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	keys := m.order()
	from := sort.SearchStrings(keys, string(lower))
	to := len(keys)
	if upper != nil {
		to = max(from, sort.SearchStrings(keys, string(upper)))
	}
	span := keys[from:to]
	for i := range span {
		k := span[i]
		if reverse {
			k = span[len(span)-1-i]
		}
		v, ok := m.values[k]
		if !ok {
			continue // fn deleted it
		}
		more, err := fn([]byte(k), v)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// Clone copies the state.
func (m *Mem) Clone() *Mem {
	m.order()
	return &Mem{values: maps.Clone(m.values), sorted: m.sorted, gone: map[string]bool{}}
}

// Equal tells whether two states hold the same.
func (m *Mem) Equal(o *Mem) bool {
	return maps.EqualFunc(m.values, o.values, bytes.Equal)
}

// Len is the number of keys.
func (m *Mem) Len() int { return len(m.values) }
