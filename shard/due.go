package shard

import (
	"encoding/binary"
	"fmt"

	"github.com/sealane/sealane/policy"
)

// Reads for the leader's runtime: what is due, what expires, what is open. Each is found by an index, so that its cost does not grow with
// the backlog.

// DueCursor is a place in the due index of one target. The zero value is its start.
type DueCursor []byte

// OpenCursor is a place in the index of open attempts.
type OpenCursor []byte

// DueItem is one generation with work, in the order in which it falls due.
type DueItem struct {
	Ref    Ref
	Due    policy.Time
	Work   Work
	Cursor DueCursor
}

// DeadlineItem is one generation and the time at which its admission window closes.
type DeadlineItem struct {
	Ref Ref
	At  policy.Time
}

func be32(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

func be64(b []byte) uint64 { return binary.BigEndian.Uint64(b) }

// refFromIndex reads the local id and generation that end most index keys, with the id's tail from the value.
func refFromIndex(k, v []byte) (Ref, error) {
	if len(k) != 16+4 {
		return Ref{}, fmt.Errorf("%w: index key ends in %d bytes, want 20", ErrCorrupt, len(k))
	}
	id, err := idFromTail(k[:16], v)
	return Ref{id, be32(k[16:])}, err
}

// ScanDue returns up to limit items of one target after the cursor, earliest first, whether due yet or not.
func ScanDue(r Reader, l LaneID, target TargetID, cursor DueCursor, limit int) ([]DueItem, error) {
	prefix := duePrefix(l, target)
	var items []DueItem
	err := r.Scan(from(prefix, cursor), after(prefix), false, func(k, v []byte) (bool, error) {
		const lead = 8 + 8 + 4 // due, index, ordinal
		rest := k[len(prefix):]
		if len(rest) != lead+20 || len(v) != 12 {
			return false, fmt.Errorf("%w: due entry of %d and %d bytes", ErrCorrupt, len(rest), len(v))
		}
		ref, err := refFromIndex(rest[lead:], v)
		items = append(items, DueItem{
			Ref: ref, Due: timeFromOrdered(be64(rest)), Work: Work(v[11]), Cursor: DueCursor(append([]byte(nil), k...)),
		})
		return len(items) < limit, err
	})
	return items, err
}

// ScanDeadlines returns up to limit generations whose deadline is at or before upTo, earliest first.
func ScanDeadlines(r Reader, upTo policy.Time, limit int) ([]DeadlineItem, error) {
	var items []DeadlineItem
	err := r.Scan(newKey(keyDeadline), newKey(keyDeadline).time(upTo.Add(1)), false, func(k, v []byte) (bool, error) {
		if len(k) < 9 {
			return false, fmt.Errorf("%w: deadline key of %d bytes", ErrCorrupt, len(k))
		}
		ref, err := refFromIndex(k[9:], v)
		items = append(items, DeadlineItem{Ref: ref, At: timeFromOrdered(be64(k[1:]))})
		return len(items) < limit, err
	})
	return items, err
}

// NextDeadline is the earliest deadline there is.
func NextDeadline(r Reader) (at policy.Time, any bool, err error) {
	items, err := ScanDeadlines(r, policy.MaxTime, 1)
	if err != nil || len(items) == 0 {
		return 0, false, err
	}
	return items[0].At, true, nil
}

// ScanOpenAttempts returns up to limit admitted attempts without an outcome, after the cursor.
func ScanOpenAttempts(r Reader, cursor OpenCursor, limit int) ([]OpenAttempt, error) {
	var items []OpenAttempt
	err := r.Scan(from(newKey(keyOpenAttempt), cursor), newKey(keyOpenAttempt+1), false, func(k, v []byte) (bool, error) {
		o, err := decodeOpenAttempt(k, v)
		items = append(items, o)
		return len(items) < limit, err
	})
	return items, err
}

// OldestTerminal is when the longest-ended generation of a lane and state ended.
func OldestTerminal(r Reader, l LaneID, s GenerationState) (at policy.Time, any bool, err error) {
	prefix := terminalPrefix(l, s)
	err = r.Scan(prefix, after(prefix), false, func(k, _ []byte) (bool, error) {
		if len(k) < len(prefix)+8 {
			return false, fmt.Errorf("%w: terminal key of %d bytes", ErrCorrupt, len(k))
		}
		at, any = timeFromOrdered(be64(k[len(prefix):])), true
		return false, nil
	})
	return at, any, err
}

// Delivery is what a send needs of a message.
type Delivery struct {
	Message    *Message
	Generation *Generation
	Payload    []byte
}

// LoadDelivery reads a generation with its message and payload. ok is false when it is gone.
func LoadDelivery(r Reader, ref Ref) (d Delivery, ok bool, err error) {
	if d.Message, err = loadMessage(r, ref.ID); err != nil || d.Message == nil {
		return Delivery{}, false, err
	}
	if d.Generation, err = loadGeneration(r, ref.ID.Local(), ref.Generation); err != nil || d.Generation == nil {
		return Delivery{}, false, err
	}
	p, err := Payload(r, ref.ID)
	if err != nil {
		return Delivery{}, false, err
	}
	d.Payload = p
	return d, true, nil
}

// Payload reads a message's payload, a copy.
func Payload(r Reader, id MessageID) ([]byte, error) {
	p, ok, err := r.Get(payloadKey(id.Local()))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%w: payload of %s is missing", ErrCorrupt, id)
	}
	return append([]byte{}, p...), nil
}
