package catalog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sealane/sealane/policy"
)

// State is the flat, ordered map of bytes the machine works on; a batch of storage satisfies it.
type State interface {
	Reader
	Set(key, value []byte) error
	Delete(key []byte) error
}

// Reader is the read side of State.
type Reader interface {
	Get(key []byte) (value []byte, ok bool, err error)
	Scan(lower, upper []byte, reverse bool, fn func(key, value []byte) (more bool, err error)) error
}

// Errors of the control group's commands, decided at apply.
var (
	// ErrNotFound: no such destination in this namespace.
	ErrNotFound = errors.New("catalog: destination not found")
	// ErrSpreadFixed: spread is fixed when a destination is first applied, since it decides where its messages live.
	ErrSpreadFixed = errors.New("catalog: spread cannot change after the first apply")
	// ErrFull: the control group holds MaxDestinations destinations.
	ErrFull = errors.New("catalog: too many destinations")
	// ErrUnknownCommand stops the control group at an entry this build does not know.
	ErrUnknownCommand = errors.New("catalog: unknown command")
	// ErrCorrupt marks state that the machine cannot have written.
	ErrCorrupt = errors.New("catalog: corrupt state")
	// ErrForeignState: the state belongs to another cluster incarnation or was made with another number of shards.
	ErrForeignState = errors.New("catalog: state belongs to another cluster")
	// ErrInvalid: a command names something that cannot be: an id, a state, a number out of its bounds. The text names the field and the
	// limit. The same command is refused again.
	ErrInvalid = errors.New("catalog: invalid command")
	// ErrStale: the command expects a version that is no longer, or not yet, the recorded one. Read again and decide anew.
	ErrStale = errors.New("catalog: the state has moved on")
)

// MaxDestinations bounds the destinations of a cluster, deleted ones included.
const MaxDestinations = 200_000

// Entry is one entry of the control group's log.
type Entry struct {
	Index    uint64
	Stamp    policy.Time
	Commands []Command
}

// Command is one item of an entry's vector; the set is closed.
type Command interface{ command() }

// ApplyDestination makes the next version of a destination, unless the newest one has the same definition. Spec has its defaults filled in
// and was validated by the door.
type ApplyDestination struct {
	Namespace string
	Spec      Destination
}

// DeleteDestination makes a version that takes no new messages and hides the destination from listings.
type DeleteDestination struct {
	Namespace string
	Name      string
}

func (*ApplyDestination) command()  {}
func (*DeleteDestination) command() {}

// Result is the verdict of one command. Of the records it holds the one that the command is about, as it is after the command.
type Result struct {
	Err       error
	Version   Version
	Node      *Node
	Placement *Placement
	Operation *Operation
	Changed   bool // the command changed the state
	Index     uint64
}

type meta struct {
	Clock        policy.Time `json:"clock"`
	Destinations uint32      `json:"destinations"`
	Namespaces   uint32      `json:"namespaces,omitempty"`
	Operations   uint32      `json:"operations,omitempty"`
	// LastOperation numbers the operations in the order of their registration.
	LastOperation uint64 `json:"last_operation,omitempty"`
	// index is that of the entry being applied; not stored.
	index uint64
}

// Key kinds; numbers are part of the format and are never reused.
const (
	keyMeta    byte = 0x01
	keyCluster byte = 0x02
	keyVersion byte = 0x03 // namespace, name, version -> Version
	keyNewest  byte = 0x04 // namespace, name -> version

	keyNode           byte = 0x05 // id -> Node
	keyPlacement      byte = 0x06 // group -> Placement
	keyNamespace      byte = 0x07 // name -> Namespace
	keyOperation      byte = 0x08 // id -> Operation
	keyOperationOrder byte = 0x09 // sequence -> id
	keyOperationOpen  byte = 0x0a // sequence -> id, of those that are not terminal
)

// Apply runs an entry's commands in order. An error means that the control group must stop at this index.
func Apply(st State, e *Entry) ([]Result, error) {
	m, err := readMeta(st)
	if err != nil {
		return nil, err
	}
	m.Clock, m.index = max(m.Clock, e.Stamp), e.Index
	results := make([]Result, len(e.Commands))
	for i, c := range e.Commands {
		r, err := apply(st, &m, c)
		if err != nil {
			return nil, fmt.Errorf("index %d, command %d: %w", e.Index, i, err)
		}
		r.Index = e.Index
		results[i] = r
	}
	return results, put(st, []byte{keyMeta}, m)
}

func apply(st State, m *meta, c Command) (Result, error) {
	switch c := c.(type) {
	case *FoundCluster:
		return found(st, m, c)
	case *ApplyDestination:
		return applyDestination(st, m, c)
	case *DeleteDestination:
		return deleteDestination(st, m, c)
	case *CreateNamespace:
		return createNamespace(st, m, c)
	case *RegisterNode:
		return registerNode(st, m, c)
	case *SetNodeState:
		return setNodeState(st, m, c)
	case *ChangePlacement:
		return changePlacement(st, m, c)
	case *PreferLeader:
		return preferLeader(st, m, c)
	case *RegisterOperation:
		return registerOperation(st, m, c)
	case *AdvanceOperation:
		return advanceOperation(st, m, c)
	case *FinishOperation:
		return finishOperation(st, m, c)
	}
	return Result{}, fmt.Errorf("%w: %T", ErrUnknownCommand, c)
}

func applyDestination(st State, m *meta, c *ApplyDestination) (Result, error) {
	last, ok, err := Newest(st, c.Namespace, c.Spec.Name)
	if err != nil {
		return Result{}, err
	}
	if ok && !last.Deleted {
		same, err := equal(last.Spec, c.Spec)
		if err != nil || same {
			return Result{Version: last}, err
		}
	}
	if ok && last.Spec.Lane.Spread != c.Spec.Lane.Spread {
		return Result{Err: fmt.Errorf("%w: it is %d", ErrSpreadFixed, last.Spec.Lane.Spread)}, nil
	}
	if !ok {
		if m.Destinations >= MaxDestinations {
			return Result{Err: fmt.Errorf("%w: the limit is %d", ErrFull, MaxDestinations)}, nil
		}
		m.Destinations++
	}
	next := Version{Namespace: c.Namespace, Version: last.Version + 1, CreatedAt: m.Clock, Spec: c.Spec}
	return Result{Version: next, Changed: true}, save(st, next)
}

func deleteDestination(st State, m *meta, c *DeleteDestination) (Result, error) {
	last, ok, err := Newest(st, c.Namespace, c.Name)
	if err != nil {
		return Result{}, err
	}
	if !ok || last.Deleted {
		return Result{Err: fmt.Errorf("%w: %q", ErrNotFound, c.Name)}, nil
	}
	next := Version{Namespace: c.Namespace, Version: last.Version + 1, CreatedAt: m.Clock, Spec: last.Spec, Deleted: true}
	return Result{Version: next, Changed: true}, save(st, next)
}

func equal(a, b Destination) (bool, error) {
	x, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	y, err := json.Marshal(b)
	return bytes.Equal(x, y), err
}

func save(st State, v Version) error {
	if err := put(st, versionKey(v.Namespace, v.Spec.Name, v.Version), v); err != nil {
		return err
	}
	return st.Set(nameKey(keyNewest, v.Namespace, v.Spec.Name), binary.BigEndian.AppendUint64(nil, v.Version))
}

func put(st State, key []byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return st.Set(key, b)
}

func nameKey(kind byte, namespace, name string) []byte {
	k := binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(namespace)))
	k = append(k, namespace...)
	return append(k, name...)
}

// versionKey ends the name with a zero byte, which no name holds, so that versions of one destination are neighbours.
func versionKey(namespace, name string, version uint64) []byte {
	return binary.BigEndian.AppendUint64(append(nameKey(keyVersion, namespace, name), 0), version)
}
