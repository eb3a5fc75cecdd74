package shard

import (
	"fmt"

	"github.com/sealane/sealane/policy"
)

// MessageView is everything a shard knows of one message. Times are on the shard clock.
type MessageView struct {
	Message     *Message
	Generations []GenerationView // oldest first
	Payload     []byte           // only when asked for
}

// GenerationView is one generation with its ledger.
type GenerationView struct {
	Generation *Generation
	Attempts   []*Attempt  // by number
	DeadLetter *DeadLetter // for DEAD_LETTERED and EXPIRED
}

// GetMessage reads a message with all generations and attempts that are kept. A nil view without an error means that there is none.
func GetMessage(r Reader, id MessageID, withPayload bool) (*MessageView, error) {
	m, err := loadMessage(r, id)
	if err != nil || m == nil {
		return nil, err
	}
	v := &MessageView{Message: m}
	prefix := generationPrefix(id.Local()) // a scan: of many generations few may be kept
	err = r.Scan(prefix, after(prefix), false, func(_, b []byte) (bool, error) {
		g, err := decodeGeneration(b)
		if err != nil {
			return false, err
		}
		gv, err := generationView(r, id, g)
		v.Generations = append(v.Generations, gv)
		return true, err
	})
	if err != nil {
		return nil, err
	}
	if withPayload {
		if v.Payload, err = Payload(r, id); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func generationView(r Reader, id MessageID, g *Generation) (GenerationView, error) {
	v := GenerationView{Generation: g}
	prefix := attemptPrefix(id.Local(), g.Number)
	err := r.Scan(prefix, after(prefix), false, func(_, b []byte) (bool, error) {
		a, err := decodeAttempt(b)
		v.Attempts = append(v.Attempts, a)
		return true, err
	})
	if err != nil {
		return v, err
	}
	if g.State == StateDeadLettered || g.State == StateExpired {
		v.DeadLetter, err = GetDeadLetter(r, Ref{id, g.Number})
	}
	return v, err
}

// GetGeneration reads one generation, nil if there is none.
func GetGeneration(r Reader, ref Ref) (*Generation, error) {
	return loadGeneration(r, ref.ID.Local(), ref.Generation)
}

// GetDeadLetter reads the record of a dead letter or an expired generation, nil if there is none.
func GetDeadLetter(r Reader, ref Ref) (*DeadLetter, error) {
	b, ok, err := r.Get(deadLetterKey(ref.ID.Local(), ref.Generation))
	if err != nil || !ok {
		return nil, err
	}
	return decodeDeadLetter(b)
}

// GetTombstone reads what stayed of a removed message, nil if nothing did.
func GetTombstone(r Reader, id MessageID) (*Tombstone, error) {
	b, ok, err := r.Get(tombstoneKey(id.Local()))
	if err != nil || !ok {
		return nil, err
	}
	s, err := decodeTombstone(b)
	if err != nil || s.ID != id {
		return nil, err
	}
	return s, nil
}

// ReadMeta reads the shard's own record; an empty shard has a zero clock.
func ReadMeta(r Reader) (ShardMeta, error) {
	b, ok, err := r.Get(metaKey())
	if err != nil || !ok {
		return ShardMeta{NextLane: 1}, err
	}
	return decodeMeta(b)
}

// GetLane reads one lane.
func GetLane(r Reader, id LaneID) (LaneRecord, bool, error) {
	b, ok, err := r.Get(laneKey(id))
	if err != nil || !ok {
		return LaneRecord{}, false, err
	}
	l, err := decodeLane(b)
	if err != nil {
		return LaneRecord{}, false, err
	}
	return *l, true, nil
}

// LaneByName finds a lane by what it is called outside.
func LaneByName(r Reader, namespace, destination string, slot uint32) (LaneRecord, bool, error) {
	b, ok, err := r.Get(laneNameKey(namespace, destination, slot))
	if err != nil || !ok {
		return LaneRecord{}, false, err
	}
	d := openRecord("lane name", b)
	id := LaneID(d.u32())
	if err := d.finish(); err != nil {
		return LaneRecord{}, false, err
	}
	return GetLane(r, id)
}

// ScanLanes returns up to limit lanes with a number greater than from.
func ScanLanes(r Reader, from LaneID, limit int) ([]LaneRecord, error) {
	var lanes []LaneRecord
	if from == 1<<32-1 {
		return nil, nil
	}
	err := r.Scan(laneKey(from+1), newKey(keyLane+1), false, func(_, v []byte) (bool, error) {
		l, err := decodeLane(v)
		if err != nil {
			return false, err
		}
		lanes = append(lanes, *l)
		return len(lanes) < limit, nil
	})
	return lanes, err
}

// ScanLaneNames returns up to limit lanes of a namespace in the order of their destinations (shorter names first, then by bytes) and slots,
// after the lane named; destination "" starts.
// It serves listings that must page by name.
func ScanLaneNames(r Reader, namespace, destination string, slot uint32, limit int) ([]LaneRecord, error) {
	prefix := newKey(keyLaneByName).text(namespace)
	lower := []byte(prefix)
	if destination != "" {
		lower = append(laneNameKey(namespace, destination, slot), 0)
	}
	var ids []LaneID
	err := r.Scan(lower, after(prefix), false, func(_, v []byte) (bool, error) {
		d := openRecord("lane name", v)
		ids = append(ids, LaneID(d.u32()))
		return len(ids) < limit, d.finish()
	})
	if err != nil {
		return nil, err
	}
	lanes := make([]LaneRecord, 0, len(ids))
	for _, id := range ids {
		l, ok, err := GetLane(r, id)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("%w: lane %d has a name but no record", ErrCorrupt, id)
		}
		lanes = append(lanes, l)
	}
	return lanes, nil
}

// GetDestination reads an installed version.
func GetDestination(r Reader, namespace, name string, version uint64) (Destination, bool, error) {
	d, ok, err := loadDestination(r, namespace, name, version)
	if err != nil || !ok {
		return Destination{}, false, err
	}
	return *d, true, nil
}

// NewestDestination reads the newest installed version.
func NewestDestination(r Reader, namespace, name string) (Destination, bool, error) {
	v, ok, err := newestVersion(r, namespace, name)
	if err != nil || !ok {
		return Destination{}, false, err
	}
	return GetDestination(r, namespace, name, v)
}

// UncertainItem is one attempt that waits for evidence or a decision.
type UncertainItem struct {
	Ref     Ref
	Attempt uint32
	Since   policy.Time
	Lane    LaneID
	Cursor  []byte
}

// ScanUncertain returns up to limit open UNKNOWN attempts after the cursor, oldest first: the inbox.
func ScanUncertain(r Reader, cursor []byte, limit int) ([]UncertainItem, error) {
	var items []UncertainItem
	err := r.Scan(from(newKey(keyUncertain), cursor), newKey(keyUncertain+1), false, func(k, v []byte) (bool, error) {
		if len(k) != 1+8+16+4+4 {
			return false, fmt.Errorf("%w: uncertain key of %d bytes", ErrCorrupt, len(k))
		}
		id, err := idFromTail(k[9:25], v)
		if err != nil {
			return false, err
		}
		d := decoder{b: v[11:], what: "uncertain"}
		items = append(items, UncertainItem{
			Ref: Ref{id, be32(k[25:])}, Attempt: be32(k[29:]), Since: timeFromOrdered(be64(k[1:])), Lane: LaneID(d.u32()),
			Cursor: append([]byte(nil), k...),
		})
		return len(items) < limit, d.finish()
	})
	return items, err
}
