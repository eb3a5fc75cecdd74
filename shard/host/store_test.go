package host

import (
	"bytes"
	"sort"
	"sync"

	"github.com/sealane/sealane/shard"
)

// memStore is an ordered state in memory that stays fast with a million keys: sorted pages of bounded size. Readers see whole entries only.
type memStore struct {
	mu    sync.RWMutex
	pages [][]pair
	fault error // returned by reads when set
}

type pair struct{ k, v []byte }

const pageMost = 512

// page finds the page that holds or would hold k.
func (m *memStore) page(k []byte) int {
	i := sort.Search(len(m.pages), func(i int) bool { return bytes.Compare(m.pages[i][0].k, k) > 0 })
	return max(i-1, 0)
}

func at(p []pair, k []byte) (int, bool) {
	i := sort.Search(len(p), func(i int) bool { return bytes.Compare(p[i].k, k) >= 0 })
	return i, i < len(p) && bytes.Equal(p[i].k, k)
}

// raw is the store without its lock, for the machine that holds it.
type raw struct{ m *memStore }

func (r raw) Get(k []byte) ([]byte, bool, error) {
	m := r.m
	if len(m.pages) == 0 {
		return nil, false, nil
	}
	p := m.pages[m.page(k)]
	if i, ok := at(p, k); ok {
		return p[i].v, true, nil
	}
	return nil, false, nil
}

func (r raw) Set(k, v []byte) error {
	m := r.m
	kv := pair{bytes.Clone(k), append([]byte{}, v...)}
	if len(m.pages) == 0 {
		m.pages = [][]pair{{kv}}
		return nil
	}
	n := m.page(k)
	p := m.pages[n]
	i, ok := at(p, k)
	if ok {
		p[i] = kv
		return nil
	}
	p = append(p, pair{})
	copy(p[i+1:], p[i:])
	p[i] = kv
	m.pages[n] = p
	if len(p) > pageMost {
		half := append([]pair(nil), p[len(p)/2:]...)
		m.pages[n] = p[:len(p)/2]
		m.pages = append(m.pages, nil)
		copy(m.pages[n+2:], m.pages[n+1:])
		m.pages[n+1] = half
	}
	return nil
}

func (r raw) Delete(k []byte) error {
	m := r.m
	if len(m.pages) == 0 {
		return nil
	}
	n := m.page(k)
	i, ok := at(m.pages[n], k)
	if !ok {
		return nil
	}
	m.pages[n] = append(m.pages[n][:i], m.pages[n][i+1:]...)
	if len(m.pages[n]) == 0 {
		m.pages = append(m.pages[:n], m.pages[n+1:]...)
	}
	return nil
}

func (r raw) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	var found []pair
	m := r.m
	if len(m.pages) == 0 {
		return nil
	}
	for n := m.page(lower); n < len(m.pages); n++ {
		for _, kv := range m.pages[n] {
			if upper != nil && bytes.Compare(kv.k, upper) >= 0 {
				return each(found, reverse, fn)
			}
			if bytes.Compare(kv.k, lower) < 0 {
				continue
			}
			if reverse {
				found = append(found, kv)
				continue
			}
			if more, err := fn(kv.k, kv.v); err != nil || !more {
				return err
			}
		}
	}
	return each(found, reverse, fn)
}

func each(found []pair, reverse bool, fn func(k, v []byte) (bool, error)) error {
	for i := len(found) - 1; reverse && i >= 0; i-- {
		if more, err := fn(found[i].k, found[i].v); err != nil || !more {
			return err
		}
	}
	return nil
}

// Reader implements Store.
func (m *memStore) Reader() shard.Reader { return m }

func (m *memStore) Get(k []byte) ([]byte, bool, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.fault != nil {
		return nil, false, m.fault
	}
	return raw{m}.Get(k)
}

func (m *memStore) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.fault != nil {
		return m.fault
	}
	return raw{m}.Scan(lower, upper, reverse, fn)
}
