package catalog

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"unicode/utf8"
)

// RegisterOperation enters a cluster operation into the register and freezes its targets. The same id with the same hash gives the first
// receipt, whatever became of it.
type RegisterOperation struct {
	ID     string
	Hash   [32]byte // canonical, from OperationHash
	Kind   OperationKind
	Params OperationParams
	Actor  string
	Reason string
}

func (*RegisterOperation) command() {}

// OperationHash is the canonical hash of an operation: of kind, parameters and reason, each with its length and in a fixed order. Equal for
// equal operations, whatever made them.
func OperationHash(kind OperationKind, p OperationParams, reason string) [32]byte {
	b := []byte("sealane cluster operation 1")
	text := func(s string) {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	flag := func(v bool) {
		if v {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	b = append(b, byte(kind))
	text(p.Node)
	text(p.PeerAddress)
	flag(p.Gone)
	b = binary.BigEndian.AppendUint32(b, p.Group)
	flag(p.AllShards)
	text(p.From)
	text(p.To)
	text(reason)
	return sha256.Sum256(b)
}

func registerOperation(st State, m *meta, c *RegisterOperation) (Result, error) {
	have, ok, err := GetOperation(st, c.ID)
	if err != nil {
		return Result{}, err
	}
	hash := hex.EncodeToString(c.Hash[:])
	if ok {
		if have.Hash != hash {
			return Result{Operation: &have, Err: fmt.Errorf("%w: %q is a %s", ErrOperationConflict, c.ID, have.Kind)}, nil
		}
		return Result{Operation: &have}, nil
	}
	if err := c.check(); err != nil {
		return Result{Err: err}, nil
	}
	targets, verdict, err := targetsOf(st, c.Kind, &c.Params)
	if err != nil || verdict != nil {
		return Result{Err: verdict}, err
	}
	if full, err := forgetOperation(st, m); err != nil || full {
		return Result{Err: fmt.Errorf("%w: the limit is %d", ErrTooManyOperations, MaxOpenOperations)}, err
	}
	m.LastOperation++
	m.Operations++
	next := Operation{
		ID: c.ID, Hash: hash, Kind: c.Kind, Params: c.Params, Actor: c.Actor, Reason: c.Reason, State: OperationRegistered,
		Sequence: m.LastOperation, RegisteredIndex: m.index, RegisteredAt: m.Clock, Targets: targets,
	}
	if err := st.Set(sequenceKey(keyOperationOrder, next.Sequence), []byte(c.ID)); err != nil {
		return Result{}, err
	}
	return saveOperation(st, m, &next)
}

func (c *RegisterOperation) check() error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("%w: operation %s %s", ErrInvalid, field, fmt.Sprintf(format, args...))
	}
	switch {
	case c.ID == "" || len(c.ID) > MaxOperationIDBytes || !utf8.ValidString(c.ID):
		return bad("id", "must be 1 to %d bytes of UTF-8", MaxOperationIDBytes)
	case len(c.Reason) > MaxReasonBytes || !utf8.ValidString(c.Reason):
		return bad("reason", "must be at most %d bytes of UTF-8", MaxReasonBytes)
	case len(c.Actor) > MaxActorBytes || !utf8.ValidString(c.Actor):
		return bad("actor", "must be at most %d bytes of UTF-8", MaxActorBytes)
	case !c.Kind.known():
		return bad("kind", "is %d, must be from %d to %d", c.Kind, AddNode, ActivateNode)
	case len(c.Params.PeerAddress) > MaxAddressBytes || !utf8.ValidString(c.Params.PeerAddress):
		return bad("peer_address", "must be at most %d bytes of UTF-8", MaxAddressBytes)
	}
	return nil
}

// targetsOf checks an operation against the state and finds the groups that it works on.
func targetsOf(r Reader, kind OperationKind, p *OperationParams) (targets []OperationTarget, verdict, err error) {
	switch kind {
	case AddNode:
		if !ValidNodeID(p.Node) {
			return nil, fmt.Errorf("%w: node id must be 1 to %d bytes of printable ASCII without space, '@', '=' and ','", ErrInvalid, MaxNodeIDBytes), nil
		}
		return []OperationTarget{{Group: ControlGroup, State: TargetPending}}, nil, nil
	case RemoveNode, DrainNode, ActivateNode:
		return nodeTargets(r, kind, p.Node)
	case Snapshot, VerifyDigests:
		if p.AllShards {
			return allShards(r)
		}
	}
	placement, ok, err := GetPlacement(r, p.Group)
	if err != nil {
		return nil, nil, err
	}
	if !ok || p.Group == ControlGroup {
		return nil, fmt.Errorf("%w: %d", ErrNoSuchGroup, p.Group), nil
	}
	switch kind {
	case MoveReplica:
		verdict, err = checkMove(r, &placement, p)
	case TransferLeadership:
		if p.To == "" {
			break
		}
		var state ReplicaState
		if state, err = stateOn(r, &placement, p.To); state != ReplicaVoter {
			verdict = fmt.Errorf("%w: node %.80q holds no voter of group %d", ErrIllegalStep, p.To, p.Group)
		}
	}
	return []OperationTarget{{Group: p.Group, State: TargetPending}}, verdict, err
}

func checkMove(r Reader, placement *Placement, p *OperationParams) (verdict, err error) {
	held, err := stateOn(r, placement, p.From)
	if err != nil {
		return nil, err
	}
	if !held.Live() {
		return fmt.Errorf("%w: node %.80q holds no replica of group %d", ErrIllegalStep, p.From, p.Group), nil
	}
	n, ok, err := GetNode(r, p.To)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return fmt.Errorf("%w: %.80q", ErrNodeNotFound, p.To), nil
	}
	if placement.State(n.Replica) != ReplicaNone {
		return fmt.Errorf("%w: node %s already has a replica of group %d, %s", ErrIllegalStep, p.To, p.Group, placement.State(n.Replica)), nil
	}
	refusal, err := mayTake(r, placement, n.Replica)
	if refusal != "" {
		verdict = fmt.Errorf("%w: group %d: %s", ErrIllegalStep, p.Group, refusal)
	}
	return verdict, err
}

// nodeTargets are the groups that an operation on a node works on: those whose replica it removes, and the control group, which is where the
// node itself is recorded.
func nodeTargets(r Reader, kind OperationKind, node string) (targets []OperationTarget, verdict, err error) {
	n, ok, err := GetNode(r, node)
	switch {
	case err != nil:
		return nil, nil, err
	case !ok:
		return nil, fmt.Errorf("%w: %.80q", ErrNodeNotFound, node), nil
	case n.State == NodeRemoved:
		return nil, fmt.Errorf("%w: %s", ErrNodeRemoved, n.Replica), nil
	}
	if kind != ActivateNode {
		if last, err := lastActive(r, node); err != nil || last {
			return nil, fmt.Errorf("%w: %s", ErrLastNode, node), err
		}
	}
	targets = []OperationTarget{{Group: ControlGroup, State: TargetPending, Node: n.Replica}}
	if kind != RemoveNode {
		return targets, nil, nil
	}
	placements, err := Placements(r)
	for i := range placements {
		if p := &placements[i]; p.Group != ControlGroup && p.State(n.Replica).Open() {
			targets = append(targets, OperationTarget{Group: p.Group, State: TargetPending, Node: n.Replica})
		}
	}
	return targets, nil, err
}

func allShards(r Reader) (targets []OperationTarget, verdict, err error) {
	placements, err := Placements(r)
	for _, p := range placements {
		if p.Group != ControlGroup {
			targets = append(targets, OperationTarget{Group: p.Group, State: TargetPending})
		}
	}
	if err == nil && len(targets) == 0 {
		verdict = fmt.Errorf("%w: the cluster has no shards", ErrNoSuchGroup)
	}
	return targets, verdict, err
}

// forgetOperation makes room in the register for one more. full is set where too many are open.
func forgetOperation(st State, m *meta) (full bool, err error) {
	open := 0
	err = st.Scan([]byte{keyOperationOpen}, []byte{keyOperationOpen + 1}, false, func(_, _ []byte) (bool, error) {
		open++
		return true, nil
	})
	if err != nil || open >= MaxOpenOperations {
		return true, err
	}
	if m.Operations < MaxOperations {
		return false, nil
	}
	var oldest Operation
	err = st.Scan([]byte{keyOperationOrder}, []byte{keyOperationOrder + 1}, false, func(_, id []byte) (bool, error) {
		o, ok, err := GetOperation(st, string(id))
		if err == nil && !ok {
			err = fmt.Errorf("%w: operation %q is listed and not there", ErrCorrupt, id)
		}
		oldest = o
		return !o.State.Done(), err
	})
	if err != nil {
		return false, err
	}
	m.Operations--
	if err := st.Delete(sequenceKey(keyOperationOrder, oldest.Sequence)); err != nil {
		return false, err
	}
	return false, st.Delete(operationKey(oldest.ID))
}
