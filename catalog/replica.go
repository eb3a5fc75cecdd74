package catalog

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors of the commands about placement.
var (
	// ErrNoSuchGroup: the cluster has no group of that number.
	ErrNoSuchGroup = errors.New("catalog: no such group")
	// ErrIllegalStep: a replica cannot go from its state to the one asked for, or its node may not take it. The text says which.
	ErrIllegalStep = errors.New("catalog: illegal step of a replica")
	// ErrLastVoter: the step would leave the group without a voter. Another replica must vote first.
	ErrLastVoter = errors.New("catalog: the last voter must stay")
)

// ReplicaState is what the control group wants of one replica. It is an intent: Raft's own configuration of the group follows it, step by
// step, except that VOTER is recorded after the fact.
type ReplicaState uint8

// The states of a replica. Numbers are part of the format.
const (
	// ReplicaNone: the group's placement does not name the replica. Nothing may be deleted because of that.
	ReplicaNone ReplicaState = 0
	// ReplicaAdding: the node opens an empty replica; it is filled as a non-voter and becomes a voter once it has caught up.
	ReplicaAdding ReplicaState = 1
	// ReplicaVoter: it votes.
	ReplicaVoter ReplicaState = 2
	// ReplicaLearner: it is filled and kept up to date, and shall not vote.
	ReplicaLearner ReplicaState = 3
	// ReplicaRemoving: it leaves Raft's configuration.
	ReplicaRemoving ReplicaState = 4
	// ReplicaTombstone: it has left Raft's configuration; its node destroys it. The only state that deletes anything.
	ReplicaTombstone ReplicaState = 5
)

var replicaStateNames = [...]string{"NONE", "ADDING", "VOTER", "LEARNER", "REMOVING", "TOMBSTONE"}

func (s ReplicaState) String() string {
	if int(s) < len(replicaStateNames) {
		return replicaStateNames[s]
	}
	return fmt.Sprintf("ReplicaState(%d)", uint8(s))
}

// Live says whether the group counts on the replica: ADDING, VOTER and LEARNER.
func (s ReplicaState) Live() bool {
	return s == ReplicaAdding || s == ReplicaVoter || s == ReplicaLearner
}

// Open says whether the replica's node keeps it open: every state but NONE and TOMBSTONE.
func (s ReplicaState) Open() bool { return s.Live() || s == ReplicaRemoving }

// steps holds the only legal changes, by the state before.
//
// ADDING may become LEARNER where the vote is no longer wanted, and LEARNER becomes VOTER through ADDING only, so that a recorded LEARNER
// always means "shall not vote". What is REMOVING never comes back: a removed member is known to Raft as gone.
var steps = [...][]ReplicaState{
	ReplicaNone:      {ReplicaAdding, ReplicaLearner},
	ReplicaAdding:    {ReplicaVoter, ReplicaLearner, ReplicaRemoving},
	ReplicaVoter:     {ReplicaLearner, ReplicaRemoving},
	ReplicaLearner:   {ReplicaAdding, ReplicaRemoving},
	ReplicaRemoving:  {ReplicaTombstone},
	ReplicaTombstone: {ReplicaNone},
}

// Placement says where the replicas of one group are.
type Placement struct {
	Group    uint32          `json:"group"`
	Replicas []PlacedReplica `json:"replicas"` // sorted by id
	// Leader is the node that shall lead while it can; empty: any.
	Leader string `json:"leader,omitempty"`
	// Version counts the changes, from 1. Changes are compare-and-set on it.
	Version uint64 `json:"version"`
	// Changed is the control group's index of the last change: a node that has applied it knows this placement.
	Changed uint64 `json:"changed"`
	// Founding are the replica ids that bootstrap the group's Raft configuration, as voters. It never changes.
	Founding []string `json:"founding,omitempty"`
}

// PlacedReplica is one replica of a group.
type PlacedReplica struct {
	ID    string       `json:"id"` // replica id
	State ReplicaState `json:"state"`
	// Since is the control group's index at which it came into its state; 0: founding.
	Since uint64 `json:"since,omitempty"`
}

// State gives a replica's state; ReplicaNone where the placement does not name it.
func (p *Placement) State(replica string) ReplicaState {
	for i := range p.Replicas {
		if p.Replicas[i].ID == replica {
			return p.Replicas[i].State
		}
	}
	return ReplicaNone
}

// Count counts the replicas in a state.
func (p *Placement) Count(state ReplicaState) (n int) {
	for i := range p.Replicas {
		if p.Replicas[i].State == state {
			n++
		}
	}
	return n
}

func (p *Placement) sort() {
	slices.SortFunc(p.Replicas, func(a, b PlacedReplica) int { return strings.Compare(a.ID, b.ID) })
}

// ChangePlacement takes one replica of a group one step further.
type ChangePlacement struct {
	Group uint32
	// ExpectVersion must be the recorded version.
	ExpectVersion uint64
	// Replica is a replica id.
	Replica string
	// State is the replica's next state; ReplicaNone clears a tombstone.
	State ReplicaState
}

// PreferLeader says which node shall lead a group.
type PreferLeader struct {
	Group uint32
	// ExpectVersion must be the placement's recorded version; 0: any.
	ExpectVersion uint64
	// Node must hold a voter; empty: any may lead.
	Node string
}

func (*ChangePlacement) command() {}
func (*PreferLeader) command()    {}

// GetPlacement reads where a group's replicas are.
func GetPlacement(r Reader, group uint32) (Placement, bool, error) {
	return get[Placement](r, placementKey(group))
}

// Placements reads the placements of all groups, by number; the control group's is first.
func Placements(r Reader) ([]Placement, error) {
	var out []Placement
	err := r.Scan([]byte{keyPlacement}, []byte{keyPlacement + 1}, false, func(_, b []byte) (bool, error) {
		var p Placement
		if err := json.Unmarshal(b, &p); err != nil {
			return false, fmt.Errorf("%w: placement: %w", ErrCorrupt, err)
		}
		out = append(out, p)
		return true, nil
	})
	return out, err
}

func placementKey(group uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{keyPlacement}, group)
}

func savePlacement(st State, p Placement) error { return put(st, placementKey(p.Group), p) }

func changePlacement(st State, m *meta, c *ChangePlacement) (Result, error) {
	p, ok, err := GetPlacement(st, c.Group)
	if err != nil {
		return Result{}, err
	}
	if !ok {
		return Result{Err: fmt.Errorf("%w: %d", ErrNoSuchGroup, c.Group)}, nil
	}
	from := p.State(c.Replica)
	if p.Version != c.ExpectVersion {
		return Result{Placement: &p, Err: fmt.Errorf("%w: placement of group %d has version %d", ErrStale, c.Group, p.Version)}, nil
	}
	if int(from) >= len(steps) || !slices.Contains(steps[from], c.State) {
		return Result{Placement: &p, Err: fmt.Errorf("%w: %.80s of group %d is %s and cannot become %s", ErrIllegalStep, c.Replica, c.Group, from, c.State)}, nil
	}
	if from == ReplicaVoter && p.Count(ReplicaVoter) == 1 {
		return Result{Placement: &p, Err: fmt.Errorf("%w: %s of group %d", ErrLastVoter, c.Replica, c.Group)}, nil
	}
	if c.State == ReplicaAdding || from == ReplicaNone {
		if refusal, err := mayTake(st, &p, c.Replica); err != nil || refusal != "" {
			return Result{Placement: &p, Err: fmt.Errorf("%w: group %d: %s", ErrIllegalStep, c.Group, refusal)}, err
		}
	}
	p.move(c.Replica, c.State, m.index)
	return Result{Placement: &p, Changed: true}, savePlacement(st, p)
}

// move carries out a step that was found legal.
func (p *Placement) move(replica string, state ReplicaState, index uint64) {
	at := slices.IndexFunc(p.Replicas, func(r PlacedReplica) bool { return r.ID == replica })
	switch {
	case at < 0:
		p.Replicas = append(p.Replicas, PlacedReplica{ID: replica, State: state, Since: index})
		p.sort()
	case state == ReplicaNone:
		p.Replicas = slices.Delete(p.Replicas, at, at+1)
	default:
		p.Replicas[at].State, p.Replicas[at].Since = state, index
	}
	if state != ReplicaVoter && p.Leader == NodeOf(replica) {
		p.Leader = ""
	}
	p.Version++
	p.Changed = index
}

// mayTake says why a node may not take a replica or a vote; empty: it may. A DRAINING node takes no replica of a shard, and may vote with what
// it has.
func mayTake(r Reader, p *Placement, replica string) (string, error) {
	node, _, ok := splitReplica(replica)
	if !ok {
		return fmt.Sprintf("%.80q is not a replica id", replica), nil
	}
	n, ok, err := GetNode(r, node)
	switch {
	case err != nil:
		return "", err
	case !ok || n.Replica != replica:
		return fmt.Sprintf("%s is not a registered node's replica id", replica), nil
	case n.State == NodeRemoved, n.State == NodeDraining && p.Group != ControlGroup && p.State(replica) == ReplicaNone:
		return fmt.Sprintf("node %s is %s", node, n.State), nil
	}
	return "", nil
}

// stateOn gives the state of the replica that a node holds by its current registration. Replicas of an earlier directory of a node of the
// same id may still be named beside it.
func stateOn(r Reader, p *Placement, node string) (ReplicaState, error) {
	n, ok, err := GetNode(r, node)
	if err != nil || !ok {
		return ReplicaNone, err
	}
	return p.State(n.Replica), nil
}

func preferLeader(st State, m *meta, c *PreferLeader) (Result, error) {
	p, ok, err := GetPlacement(st, c.Group)
	if err != nil {
		return Result{}, err
	}
	if !ok {
		return Result{Err: fmt.Errorf("%w: %d", ErrNoSuchGroup, c.Group)}, nil
	}
	if c.ExpectVersion != 0 && p.Version != c.ExpectVersion {
		return Result{Placement: &p, Err: fmt.Errorf("%w: placement of group %d has version %d", ErrStale, c.Group, p.Version)}, nil
	}
	if p.Leader == c.Node {
		return Result{Placement: &p}, nil
	}
	if c.Node != "" {
		state, err := stateOn(st, &p, c.Node)
		if err != nil || state != ReplicaVoter {
			return Result{Placement: &p, Err: fmt.Errorf("%w: node %.80s holds no voter of group %d", ErrIllegalStep, c.Node, c.Group)}, err
		}
	}
	p.Leader = c.Node
	p.Version++
	p.Changed = m.index
	return Result{Placement: &p, Changed: true}, savePlacement(st, p)
}
