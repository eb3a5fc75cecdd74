// Package shardtest has what tests of the shard need: a state in memory and helpers to write entries.
//
// It may not be imported by anything but tests. Mem keeps the invariant that Scan order is byte order. Start at Mem.
package shardtest

import (
	"bytes"
	"sort"
)

// Mem is a shard.State in memory: a sorted list of keys beside a map. The zero value is not ready; use NewMem.
type Mem struct {
	keys   []string
	values map[string][]byte
}

// NewMem returns an empty state.
func NewMem() *Mem { return &Mem{values: map[string][]byte{}} }

// Get returns the value of a key.
func (m *Mem) Get(key []byte) ([]byte, bool, error) {
	v, ok := m.values[string(key)]
	return v, ok, nil
}

// Set stores a copy of the value.
func (m *Mem) Set(key, value []byte) error {
	k := string(key)
	if _, ok := m.values[k]; !ok {
		i := sort.SearchStrings(m.keys, k)
		m.keys = append(m.keys, "")
		copy(m.keys[i+1:], m.keys[i:])
		m.keys[i] = k
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
	i := sort.SearchStrings(m.keys, k)
	m.keys = append(m.keys[:i], m.keys[i+1:]...)
	return nil
}

// Scan walks [lower, upper) of the keys as they are when it begins. A nil bound is open.
func (m *Mem) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	from := sort.SearchStrings(m.keys, string(lower))
	to := len(m.keys)
	if upper != nil {
		to = max(from, sort.SearchStrings(m.keys, string(upper)))
	}
	span := append([]string(nil), m.keys[from:to]...)
	for i := range span {
		k := span[i]
		if reverse {
			k = span[len(span)-1-i]
		}
		more, err := fn([]byte(k), m.values[k])
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// Clone copies the state.
func (m *Mem) Clone() *Mem {
	c := &Mem{keys: append([]string(nil), m.keys...), values: make(map[string][]byte, len(m.values))}
	for k, v := range m.values {
		c.values[k] = v
	}
	return c
}

// Equal tells whether two states hold the same.
func (m *Mem) Equal(o *Mem) bool {
	if len(m.keys) != len(o.keys) {
		return false
	}
	for i, k := range m.keys {
		if o.keys[i] != k || !bytes.Equal(m.values[k], o.values[k]) {
			return false
		}
	}
	return true
}

// Len is the number of keys.
func (m *Mem) Len() int { return len(m.keys) }
