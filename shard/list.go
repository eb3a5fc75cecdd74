package shard

import (
	"bytes"
	"fmt"

	"github.com/sealane/sealane/policy"
)

// ListItem is one row of a listing. Cursor continues after it.
type ListItem struct {
	Ref    Ref
	Lane   LaneID
	At     policy.Time // what the listing is ordered by
	State  GenerationState
	Reason TerminalReason
	Cursor []byte
}

// scanDown walks [prefix, cursor) downwards, newest first. A cursor from elsewhere (a page token comes from a client) never leads out of
// the prefix.
func scanDown(r Reader, prefix, cursor []byte, fn func(k, v []byte) (bool, error)) error {
	upper := after(prefix)
	if len(cursor) > 0 && bytes.Compare(cursor, upper) < 0 {
		upper = cursor
	}
	if bytes.Compare(upper, prefix) <= 0 {
		return nil
	}
	return r.Scan(prefix, upper, true, fn)
}

// from is where a walk of [prefix, …) upwards goes on after the cursor.
func from(prefix, cursor []byte) []byte {
	if bytes.Compare(cursor, prefix) < 0 {
		return prefix
	}
	return append(append([]byte(nil), cursor...), 0)
}

// ListDeadLetters returns up to limit dead letters and expired generations that ended before the cursor, newest first. keep decides from
// the index entry alone; at most MaxListScan entries are looked at, so that a page costs constant memory and bounded time. more is the
// cursor to go on from, nil at the end.
func ListDeadLetters(r Reader, cursor []byte, limit int, keep func(ListItem) bool) (items []ListItem, more []byte, err error) {
	prefix := []byte(newKey(keyDeadLetterByTime))
	scanned := 0
	err = scanDown(r, prefix, cursor, func(k, v []byte) (bool, error) {
		if len(k) != 1+8+20 || len(v) < 11 {
			return false, fmt.Errorf("%w: dead letter entry of %d and %d bytes", ErrCorrupt, len(k), len(v))
		}
		ref, err := refFromIndex(k[9:], v)
		if err != nil {
			return false, err
		}
		d := decoder{b: v[11:], what: "dead letter entry"}
		it := ListItem{Ref: ref, At: timeFromOrdered(be64(k[1:])), Lane: LaneID(d.u32()), State: GenerationState(d.byte()), Reason: TerminalReason(d.byte())}
		if err := d.finish(); err != nil {
			return false, err
		}
		it.Cursor = append([]byte(nil), k...)
		if keep == nil || keep(it) {
			items = append(items, it)
		}
		scanned++
		if len(items) >= limit || scanned >= MaxListScan {
			more = it.Cursor
			return false, nil
		}
		return true, nil
	})
	return items, more, err
}

// MaxListScan bounds the entries one page of a filtered listing looks at. A page may be short and still have a successor.
const MaxListScan = 10_000

// ListMessages returns up to limit messages of a lane, newest first, with the state of their current generation; only those in the state
// asked for, unless it is StateUnspecified. Terminal states are found by their own index.
func ListMessages(r Reader, l LaneID, state GenerationState, cursor []byte, limit int) (items []ListItem, more []byte, err error) {
	if state.Terminal() {
		return listTerminal(r, l, state, cursor, limit)
	}
	prefix := laneMessagePrefix(l)
	scanned := 0
	err = scanDown(r, prefix, cursor, func(k, v []byte) (bool, error) {
		id, err := idFromTail(k[len(prefix):], v)
		if err != nil {
			return false, err
		}
		it := ListItem{Ref: Ref{ID: id}, Lane: l, At: policy.Time(id.UnixMillis()) * 1_000_000, Cursor: append([]byte(nil), k...)}
		if err := currentState(r, &it); err != nil {
			return false, err
		}
		if state == StateUnspecified || it.State == state {
			items = append(items, it)
		}
		scanned++
		if len(items) >= limit || scanned >= MaxListScan {
			more = it.Cursor
			return false, nil
		}
		return true, nil
	})
	return items, more, err
}

func currentState(r Reader, it *ListItem) error {
	m, err := loadMessage(r, it.Ref.ID)
	if err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("%w: %s is listed but missing", ErrCorrupt, it.Ref.ID)
	}
	g, err := loadGeneration(r, m.ID.Local(), m.Current)
	if err != nil {
		return err
	}
	if g == nil {
		return fmt.Errorf("%w: generation %d of %s is missing", ErrCorrupt, m.Current, m.ID)
	}
	it.Ref.Generation, it.State, it.Reason = g.Number, g.State, g.TerminalReason
	return nil
}

func listTerminal(r Reader, l LaneID, state GenerationState, cursor []byte, limit int) (items []ListItem, more []byte, err error) {
	prefix := terminalPrefix(l, state)
	err = scanDown(r, prefix, cursor, func(k, v []byte) (bool, error) {
		if len(k) != len(prefix)+8+20 {
			return false, fmt.Errorf("%w: terminal key of %d bytes", ErrCorrupt, len(k))
		}
		ref, err := refFromIndex(k[len(prefix)+8:], v)
		if err != nil {
			return false, err
		}
		it := ListItem{Ref: ref, Lane: l, At: timeFromOrdered(be64(k[len(prefix):])), State: state, Cursor: append([]byte(nil), k...)}
		items = append(items, it)
		if len(items) >= limit {
			more = it.Cursor
			return false, nil
		}
		return true, nil
	})
	return items, more, err
}
