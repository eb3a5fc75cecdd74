package storage

import (
	"bytes"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// merge walks committed state and overlay together. Where both have a key, the overlay decides.
type merge struct {
	over         *overlay
	base         *pebble.Iterator // bounded by lower and upper
	lower, upper []byte           // without prefix; empty is open
	reverse      bool

	order  []*entry
	at     int // next candidate in order; outside when there is none
	writes uint64
}

// walk calls fn for each present key until it returns false or an error.
func (m *merge) walk(fn func(k, v []byte) (bool, error)) error {
	// The overlay is positioned first: fn may have kept lower and upper, and moving the base does not touch them.
	m.seek(nil)
	baseOK, stepBase := m.startBase(), false
	for {
		if stepBase { // only now: most scans end early, and a step costs
			baseOK, stepBase = m.stepBase(), false
		}
		e := m.candidate()
		var key, value []byte
		present := true
		switch side := m.side(baseOK, e); side {
		case takeNone:
			return nil
		case takeBase:
			v, err := m.base.ValueAndErr()
			if err != nil {
				return damaged(err)
			}
			key, value = m.over.memory.copy(m.base.Key()[prefixBytes:]), m.over.memory.copy(v)
			stepBase = true
		default:
			key, value, present = e.key(), e.value, !e.deleted
			m.step()
			stepBase = side == takeBoth
		}
		if !present {
			continue
		}
		more, err := fn(key, value)
		if !more || err != nil {
			return err
		}
		if m.over.writes != m.writes {
			m.seek(key) // fn has written: find the place again
		}
	}
}

type take uint8

const (
	takeNone take = iota
	takeBase
	takeOverlay
	takeBoth
)

// side tells whose key comes next.
func (m *merge) side(baseOK bool, e *entry) take {
	switch {
	case e == nil && !baseOK:
		return takeNone
	case e == nil:
		return takeBase
	case !baseOK:
		return takeOverlay
	}
	c := bytes.Compare(e.full, m.base.Key())
	if m.reverse {
		c = -c
	}
	switch {
	case c == 0:
		return takeBoth
	case c < 0:
		return takeOverlay
	}
	return takeBase
}

func (m *merge) startBase() bool {
	if m.reverse {
		return m.base.Last()
	}
	return m.base.First()
}

func (m *merge) stepBase() bool {
	if m.reverse {
		return m.base.Prev()
	}
	return m.base.Next()
}

func (m *merge) step() {
	if m.reverse {
		m.at--
	} else {
		m.at++
	}
}

// seek puts at behind the key that was handed out last, or at the start of the range.
func (m *merge) seek(last []byte) {
	m.order, m.writes = m.over.sorted(), m.over.writes
	from := func(key []byte) int { // first entry at or above key
		at, _ := slices.BinarySearchFunc(m.order, key, func(e *entry, k []byte) int { return bytes.Compare(e.key(), k) })
		return at
	}
	switch {
	case m.reverse && last != nil:
		m.at = from(last) - 1
	case m.reverse && len(m.upper) > 0:
		m.at = from(m.upper) - 1
	case m.reverse:
		m.at = len(m.order) - 1
	case last != nil:
		m.at = from(last)
		if m.at < len(m.order) && bytes.Equal(m.order[m.at].key(), last) {
			m.at++
		}
	default:
		m.at = from(m.lower)
	}
}

// candidate gives the overlay's next entry inside the range, or nil.
func (m *merge) candidate() *entry {
	if m.at < 0 || m.at >= len(m.order) {
		return nil
	}
	e := m.order[m.at]
	if m.reverse && bytes.Compare(e.key(), m.lower) < 0 {
		return nil
	}
	if !m.reverse && len(m.upper) > 0 && bytes.Compare(e.key(), m.upper) >= 0 {
		return nil
	}
	return e
}
