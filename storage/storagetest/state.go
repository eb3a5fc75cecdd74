package storagetest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Reader is the read side of a group's state.
type Reader interface {
	Get(key []byte) (value []byte, ok bool, err error)
	Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (more bool, err error)) error
}

// State is an ordered map of bytes that shows its own writes: storage.Batch, and whatever stands in for it.
type State interface {
	Reader
	Set(key, value []byte) error
	Delete(key []byte) error
}

// Stepper is a State under test. Step, if not nil, is called at random between operations and may commit, flush or do nothing; what the
// state shows must stay the same. It returns the state to go on with.
type Stepper struct {
	State State
	Step  func(t *rapid.T) State
}

// RunState compares a state with a sorted map under random operations: reads, writes, scans in both directions with every kind of bound,
// scans that stop early, and writes in the middle of a scan. newState gives an empty one.
func RunState(t *testing.T, newState func(t *rapid.T) Stepper) {
	rapid.Check(t, func(t *rapid.T) {
		m := &modelRun{model: map[string]string{}, under: newState(t)}
		t.Repeat(map[string]func(*rapid.T){
			"get":    m.get,
			"set":    m.set,
			"delete": m.delete,
			"scan":   m.scan,
			"step":   m.step,
			"":       func(*rapid.T) {},
		})
		m.compare(t, nil, nil, false)
		m.compare(t, nil, nil, true)
	})
}

type modelRun struct {
	model map[string]string
	under Stepper
}

// Few and short keys with zero bytes and 0xff, so that they meet, prefix each other and lie at the edges.
var keys = rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 'b', 0xfe, 0xff}), 1, 3)

var values = rapid.Custom(func(t *rapid.T) []byte {
	n := rapid.SampledFrom([]int{0, 1, 8, 2000, 20000}).Draw(t, "size")
	return bytes.Repeat([]byte{rapid.Byte().Draw(t, "fill")}, n)
})

func (m *modelRun) get(t *rapid.T) {
	key := keys.Draw(t, "key")
	v, ok, err := m.under.State.Get(key)
	want, wantOK := m.model[string(key)]
	if err != nil || ok != wantOK || string(v) != want {
		t.Fatalf("get %x: %.40q %t (%v), want %.40q %t", key, v, ok, err, want, wantOK)
	}
}

func (m *modelRun) set(t *rapid.T) { m.write(t, false) }

func (m *modelRun) delete(t *rapid.T) { m.write(t, true) }

// write reuses its slices afterwards, as callers do.
func (m *modelRun) write(t *rapid.T, remove bool) {
	key := keys.Draw(t, "key")
	var value []byte
	var err error
	if remove {
		delete(m.model, string(key))
		err = m.under.State.Delete(key)
	} else {
		value = values.Draw(t, "value")
		m.model[string(key)] = string(value)
		err = m.under.State.Set(key, value)
	}
	if err != nil {
		t.Fatalf("write %x: %v", key, err)
	}
	for i := range key {
		key[i] = 'X'
	}
	for i := range value {
		value[i] = 'X'
	}
}

func (m *modelRun) step(t *rapid.T) {
	if m.under.Step != nil {
		m.under.State = m.under.Step(t)
	}
}

func (m *modelRun) scan(t *rapid.T) {
	bound := rapid.OneOf(rapid.Just[[]byte](nil), keys)
	lower, upper := bound.Draw(t, "lower"), bound.Draw(t, "upper")
	reverse := rapid.Bool().Draw(t, "reverse")
	if rapid.Bool().Draw(t, "write inside") {
		m.scanWriting(t, lower, upper, reverse)
	}
	m.compare(t, lower, upper, reverse)
}

// next gives the model's first key behind last in the direction of the walk.
func (m *modelRun) next(lower, upper []byte, reverse bool, last *string) (string, bool) {
	var in []string
	for k := range m.model {
		if k < string(lower) || len(upper) > 0 && k >= string(upper) {
			continue
		}
		if last != nil && (!reverse && k <= *last || reverse && k >= *last) {
			continue
		}
		in = append(in, k)
	}
	if len(in) == 0 {
		return "", false
	}
	if reverse {
		return slices.Max(in), true
	}
	return slices.Min(in), true
}

// scanWriting writes, reads and scans from inside a scan; every step must be the model's next key at that moment.
func (m *modelRun) scanWriting(t *rapid.T, lower, upper []byte, reverse bool) {
	var last *string
	steps := 0
	err := m.under.State.Scan(lower, upper, reverse, func(k, v []byte) (bool, error) {
		want, ok := m.next(lower, upper, reverse, last)
		if !ok || want != string(k) || m.model[want] != string(v) {
			t.Fatalf("scan gave %x = %.40q, want %x = %.40q %t", k, v, want, m.model[want], ok)
		}
		at := string(k)
		last = &at
		steps++
		switch rapid.IntRange(0, 4).Draw(t, "inside") {
		case 0, 1:
			m.write(t, false)
		case 2:
			m.write(t, true)
		case 3:
			m.get(t)
		case 4:
			m.compare(t, nil, nil, !reverse)
		}
		if string(k) != at || steps < 50 && len(m.model) > 0 && len(v) > 0 && v[0] != v[len(v)-1] {
			t.Fatalf("scan changed what it had given for %x", at)
		}
		return steps < 50, nil
	})
	if err != nil {
		t.Fatalf("scan: %v", err)
	}
	if want, ok := m.next(lower, upper, reverse, last); ok && steps < 50 {
		t.Fatalf("scan ended before %x", want)
	}
}

// compare scans a range and compares all of it, checking that what was given stays as it was.
func (m *modelRun) compare(t *rapid.T, lower, upper []byte, reverse bool) {
	var want []string
	for k := range m.model {
		if k >= string(lower) && (len(upper) == 0 || k < string(upper)) {
			want = append(want, k)
		}
	}
	slices.Sort(want)
	if reverse {
		slices.Reverse(want)
	}
	var gotKeys, gotValues [][]byte
	err := m.under.State.Scan(lower, upper, reverse, func(k, v []byte) (bool, error) {
		gotKeys, gotValues = append(gotKeys, k), append(gotValues, v)
		return true, nil
	})
	if err != nil {
		t.Fatalf("scan: %v", err)
	}
	var got []string
	for i, k := range gotKeys {
		got = append(got, string(k))
		if m.model[string(k)] != string(gotValues[i]) {
			t.Fatalf("scan gave %x = %.40q, want %.40q", k, gotValues[i], m.model[string(k)])
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("scan [%x, %x) reverse %t gave %s, want %s", lower, upper, reverse, hexes(got), hexes(want))
	}
}

func hexes(keys []string) string { return fmt.Sprintf("%x", keys) }
