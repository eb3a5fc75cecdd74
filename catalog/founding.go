package catalog

import "slices"

// Voters says how many of n nodes vote in a group that wants factor voters: the largest odd number of both. An even number of voters
// tolerates no more failures than the odd number below it and needs one more node for every write; in particular two voters stop when
// either node does. The other nodes' copies learn.
func Voters(n, factor int) int {
	v := max(min(n, factor), 1)
	if v%2 == 0 {
		v--
	}
	return v
}

// FoundingVoters says which of the founders' replica ids vote in the control group when it begins: up to three, by id, an odd number. A
// founding node bootstraps the control group with exactly these, so that Raft and the record agree.
func FoundingVoters(replicas []string) []string {
	sorted := slices.Sorted(slices.Values(replicas))
	return sorted[:Voters(len(sorted), ControlVoters)]
}

// FoundingPlacements says where the first replicas of every group are, the control group's placement first. The replicas of the shards are
// dealt round robin in the order of the founders' ids, and so are the preferred leaders, so that no node has more than one more than another
// of either.
func FoundingPlacements(replicas []string, shards, factor uint32) []Placement {
	sorted := slices.Sorted(slices.Values(replicas))
	n := len(sorted)
	voters := FoundingVoters(sorted)
	control := Placement{Group: ControlGroup, Version: 1, Founding: slices.Clone(voters)}
	for i, id := range sorted {
		state := ReplicaLearner
		if i < len(voters) {
			state = ReplicaVoter
		}
		control.Replicas = append(control.Replicas, PlacedReplica{ID: id, State: state})
	}
	out := []Placement{control}
	for shard := range int(shards) {
		out = append(out, foundingPlacement(sorted, shard, min(n, int(factor)), Voters(n, int(factor))))
	}
	return out
}

// foundingPlacement deals one shard's replicas: those after the replicas of the shard before. The hands repeat after n/d shards, d being the
// greatest common divisor of n and the size of a hand; each repetition takes the next one of the hand as leader, so that in n shards each
// node leads once. Where not all vote, the leader and those after it do.
func foundingPlacement(sorted []string, shard, copies, votes int) Placement {
	n := len(sorted)
	d := n
	for a := copies; a != 0; {
		d, a = a, d%a
	}
	first := shard * copies % n
	turn := shard / (n / d) % d
	p := Placement{Group: uint32(shard) + 1, Version: 1}
	for k := range copies {
		id := sorted[(first+(turn+k)%copies)%n]
		if k == 0 {
			p.Leader = NodeOf(id)
		}
		state := ReplicaLearner
		if k < votes {
			state = ReplicaVoter
			p.Founding = append(p.Founding, id)
		}
		p.Replicas = append(p.Replicas, PlacedReplica{ID: id, State: state})
	}
	p.sort()
	slices.Sort(p.Founding)
	return p
}
