package logcodec

import (
	"errors"

	logv1 "github.com/sealane/sealane/api/gen/sealane/log/v1"
	"github.com/sealane/sealane/catalog"
)

// clusterToLog sets the kind for a command about nodes, placement or namespaces; false for any other.
func clusterToLog(m *logv1.CatalogCommand, c catalog.Command) bool {
	switch c := c.(type) {
	case *catalog.CreateNamespace:
		m.Kind = &logv1.CatalogCommand_CreateNamespace{CreateNamespace: &logv1.CreateNamespace{Name: c.Name}}
	case *catalog.RegisterNode:
		m.Kind = &logv1.CatalogCommand_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: nodeToLog(&c.Node)}}
	case *catalog.SetNodeState:
		m.Kind = &logv1.CatalogCommand_SetNodeState{SetNodeState: &logv1.SetNodeState{
			Node: c.Node, State: logv1.NodeState(c.State), Replica: c.Replica, Gone: c.Gone,
		}}
	case *catalog.ChangePlacement:
		m.Kind = &logv1.CatalogCommand_ChangePlacement{ChangePlacement: &logv1.ChangePlacement{
			Group: c.Group, ExpectVersion: c.ExpectVersion, Replica: c.Replica, State: logv1.ReplicaState(c.State),
		}}
	case *catalog.PreferLeader:
		m.Kind = &logv1.CatalogCommand_PreferLeader{PreferLeader: &logv1.PreferLeader{
			Group: c.Group, ExpectVersion: c.ExpectVersion, Node: c.Node,
		}}
	default:
		return false
	}
	return true
}

func foundToLog(c *catalog.FoundCluster) *logv1.FoundCluster {
	m := &logv1.FoundCluster{Incarnation: c.Incarnation, Shards: c.Shards, ReplicationFactor: c.ReplicationFactor}
	for i := range c.Founders {
		m.Founders = append(m.Founders, nodeToLog(&c.Founders[i]))
	}
	return m
}

func foundFromLog(m *logv1.FoundCluster) (*catalog.FoundCluster, error) {
	c := &catalog.FoundCluster{Incarnation: m.Incarnation, Shards: m.Shards, ReplicationFactor: m.ReplicationFactor}
	err := known(m)
	for _, f := range m.Founders {
		n, bad := nodeFromLog(f)
		err = errors.Join(err, bad)
		c.Founders = append(c.Founders, n)
	}
	return c, err
}

// nodeToLog takes what a node says of itself: its state and times are the control group's own and are not in a command.
func nodeToLog(n *catalog.Node) *logv1.ClusterNode {
	return &logv1.ClusterNode{
		Id: n.ID, Replica: n.Replica, PeerAddress: n.PeerAddress, GrpcAddress: n.GRPCAddress, HttpAddress: n.HTTPAddress, Version: n.Version,
		Boot: n.Boot, LogVersion: n.LogVersion,
	}
}

func nodeFromLog(m *logv1.ClusterNode) (catalog.Node, error) {
	return catalog.Node{
		ID: m.GetId(), Replica: m.GetReplica(), PeerAddress: m.GetPeerAddress(), GRPCAddress: m.GetGrpcAddress(), HTTPAddress: m.GetHttpAddress(),
		Version: m.GetVersion(), Boot: m.GetBoot(), LogVersion: m.GetLogVersion(),
	}, known(m)
}
