// Package plan says what must be done next so that the cluster is as the control group wants it: where replicas go, who leads, and how far
// the cluster operations are.
//
// What it is. One pure function, Next: from the recorded nodes, placements and operations and from what was observed of the nodes, to the next
// steps, at most one for each group. Each step is safe by itself, and Next is asked again after it; nothing is remembered between two calls
// but what the View holds. So whoever executes the steps may die at any point, and the next one goes on.
//
// What it may not do. It is pure, like package catalog: no clock, I/O, goroutine, randomness, float or map order. It executes nothing.
//
// Invariants it keeps, for every step alone:
//   - after it, a majority of the group's voters is alive, if one was before;
//   - a voter leaves only when enough others vote, so that the group is as strong after as the cluster's size allows;
//   - a replica is destroyed only by a recorded tombstone, and a tombstone is forgotten only when its node is known to have obeyed it;
//   - a node that is merely unreachable loses nothing: only an operator's word removes it;
//   - no step undoes what another one just did: moving a replica or a leadership needs a difference of at least two.
//
// Where to start. view.go has what goes in, step.go what comes out, next.go the order of the rules, and voters.go the rules for voters with
// their reasons.
package plan
