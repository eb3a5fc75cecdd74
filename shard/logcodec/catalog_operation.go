package logcodec

import (
	"errors"

	logv1 "github.com/sealane/sealane/api/gen/sealane/log/v1"
	"github.com/sealane/sealane/catalog"
)

// operationToLog sets the kind for a command about cluster operations; false for any other.
func operationToLog(m *logv1.CatalogCommand, c catalog.Command) bool {
	switch c := c.(type) {
	case *catalog.RegisterOperation:
		p := &c.Params
		m.Kind = &logv1.CatalogCommand_RegisterOperation{RegisterOperation: &logv1.RegisterOperation{
			Id: c.ID, Hash: c.Hash[:], Kind: logv1.OperationKind(c.Kind), Actor: c.Actor, Reason: c.Reason,
			Params: &logv1.OperationParams{
				Node: p.Node, PeerAddress: p.PeerAddress, Gone: p.Gone, Group: p.Group, AllShards: p.AllShards, From: p.From, To: p.To,
			},
		}}
	case *catalog.AdvanceOperation:
		m.Kind = &logv1.CatalogCommand_AdvanceOperation{AdvanceOperation: &logv1.AdvanceOperation{
			Id: c.ID, ExpectVersion: c.ExpectVersion, Target: targetToLog(c.Target),
		}}
	case *catalog.FinishOperation:
		m.Kind = &logv1.CatalogCommand_FinishOperation{FinishOperation: &logv1.FinishOperation{
			Id: c.ID, ExpectVersion: c.ExpectVersion, State: logv1.OperationEnd(c.State), Detail: c.Detail,
		}}
	default:
		return false
	}
	return true
}

func registerOperationFromLog(m *logv1.RegisterOperation) (*catalog.RegisterOperation, error) {
	p := m.GetParams()
	if err := errors.Join(known(m, m.Kind), known(p)); err != nil {
		return nil, err
	}
	hash, err := hashOf(m.Hash)
	return &catalog.RegisterOperation{
		ID: m.Id, Hash: hash, Kind: catalog.OperationKind(m.Kind), Actor: m.Actor, Reason: m.Reason,
		Params: catalog.OperationParams{
			Node: p.GetNode(), PeerAddress: p.GetPeerAddress(), Gone: p.GetGone(), Group: p.GetGroup(), AllShards: p.GetAllShards(),
			From: p.GetFrom(), To: p.GetTo(),
		},
	}, err
}

func advanceOperationFromLog(m *logv1.AdvanceOperation) (*catalog.AdvanceOperation, error) {
	if err := known(m); err != nil {
		return nil, err
	}
	target, err := targetFromOperationLog(m.Target)
	return &catalog.AdvanceOperation{ID: m.Id, ExpectVersion: m.ExpectVersion, Target: target}, err
}

func targetToLog(t *catalog.OperationTarget) *logv1.OperationTarget {
	if t == nil {
		return nil
	}
	m := &logv1.OperationTarget{
		Group: t.Group, State: logv1.OperationTargetState(t.State), FirstIndex: t.FirstIndex, LastIndex: t.LastIndex, Matched: t.Matched,
		Applied: t.Applied, Skipped: t.Skipped, Failed: t.Failed, Node: t.Node, Detail: t.Detail,
	}
	for _, r := range t.Replicas {
		m.Replicas = append(m.Replicas, &logv1.ReplicaResult{Replica: r.Replica, Result: r.Result, Digest: r.Digest})
	}
	return m
}

func targetFromOperationLog(m *logv1.OperationTarget) (*catalog.OperationTarget, error) {
	if m == nil {
		return nil, nil
	}
	if err := known(m, m.State); err != nil {
		return nil, err
	}
	t := &catalog.OperationTarget{
		Group: m.Group, State: catalog.TargetState(m.State), FirstIndex: m.FirstIndex, LastIndex: m.LastIndex, Matched: m.Matched,
		Applied: m.Applied, Skipped: m.Skipped, Failed: m.Failed, Node: m.Node, Detail: m.Detail,
	}
	for _, r := range m.Replicas {
		if err := known(r); err != nil {
			return nil, err
		}
		t.Replicas = append(t.Replicas, catalog.ReplicaResult{Replica: r.Replica, Result: r.Result, Digest: r.Digest})
	}
	return t, nil
}
