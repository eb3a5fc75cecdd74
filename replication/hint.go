package replication

// LeaderNode is the node that leads as this replica knows it, itself included; empty while it knows none. It is a hint and cheap: callers ask
// it for each proposal.
func (g *Group) LeaderNode() string {
	_, id := g.current().LeaderWithID()
	node, _, _ := SplitReplicaID(string(id))
	return node
}
