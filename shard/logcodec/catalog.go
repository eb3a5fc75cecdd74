package logcodec

import (
	"errors"
	"fmt"

	logv1 "github.com/sealane/sealane/api/gen/sealane/log/v1"
	"github.com/sealane/sealane/catalog"
	"google.golang.org/protobuf/proto"
)

// AppendCatalog appends the bytes of a control group's command to dst.
func AppendCatalog(dst []byte, c catalog.Command) ([]byte, error) {
	m := &logv1.CatalogCommand{}
	switch c := c.(type) {
	case *catalog.FoundCluster:
		m.Kind = &logv1.CatalogCommand_FoundCluster{FoundCluster: foundToLog(c)}
	case *catalog.ApplyDestination:
		m.Kind = &logv1.CatalogCommand_ApplyDestination{ApplyDestination: &logv1.ApplyDestination{Namespace: c.Namespace, Spec: specToLog(&c.Spec)}}
	case *catalog.DeleteDestination:
		m.Kind = &logv1.CatalogCommand_DeleteDestination{DeleteDestination: &logv1.DeleteDestination{Namespace: c.Namespace, Name: c.Name}}
	default:
		if !clusterToLog(m, c) && !operationToLog(m, c) {
			return dst, fmt.Errorf("%w: %T", ErrUnknown, c)
		}
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// DecodeCatalog reads a control group's command.
func DecodeCatalog(b []byte) (catalog.Command, error) {
	var m logv1.CatalogCommand
	if err := proto.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		return nil, fmt.Errorf("%w: unknown kind", ErrUnknown)
	}
	switch k := m.Kind.(type) {
	case *logv1.CatalogCommand_FoundCluster:
		return foundFromLog(k.FoundCluster)
	case *logv1.CatalogCommand_ApplyDestination:
		v := k.ApplyDestination
		if err := known(v); err != nil {
			return nil, err
		}
		spec, err := specFromLog(v.Spec)
		return &catalog.ApplyDestination{Namespace: v.Namespace, Spec: spec}, err
	case *logv1.CatalogCommand_DeleteDestination:
		v := k.DeleteDestination
		return &catalog.DeleteDestination{Namespace: v.Namespace, Name: v.Name}, known(v)
	case *logv1.CatalogCommand_CreateNamespace:
		return &catalog.CreateNamespace{Name: k.CreateNamespace.Name}, known(k.CreateNamespace)
	case *logv1.CatalogCommand_RegisterNode:
		n, err := nodeFromLog(k.RegisterNode.Node)
		return &catalog.RegisterNode{Node: n}, errors.Join(known(k.RegisterNode), err)
	case *logv1.CatalogCommand_SetNodeState:
		v := k.SetNodeState
		return &catalog.SetNodeState{Node: v.Node, State: catalog.NodeState(v.State), Replica: v.Replica, Gone: v.Gone}, known(v, v.State)
	case *logv1.CatalogCommand_ChangePlacement:
		v := k.ChangePlacement
		return &catalog.ChangePlacement{
			Group: v.Group, ExpectVersion: v.ExpectVersion, Replica: v.Replica, State: catalog.ReplicaState(v.State),
		}, known(v, v.State)
	case *logv1.CatalogCommand_PreferLeader:
		v := k.PreferLeader
		return &catalog.PreferLeader{Group: v.Group, ExpectVersion: v.ExpectVersion, Node: v.Node}, known(v)
	case *logv1.CatalogCommand_RegisterOperation:
		return registerOperationFromLog(k.RegisterOperation)
	case *logv1.CatalogCommand_AdvanceOperation:
		return advanceOperationFromLog(k.AdvanceOperation)
	case *logv1.CatalogCommand_FinishOperation:
		v := k.FinishOperation
		return &catalog.FinishOperation{
			ID: v.Id, ExpectVersion: v.ExpectVersion, State: catalog.OperationState(v.State), Detail: v.Detail,
		}, known(v, v.State)
	}
	return nil, fmt.Errorf("%w: unknown kind", ErrUnknown)
}

func specToLog(s *catalog.Destination) *logv1.DestinationSpec {
	m := &logv1.DestinationSpec{
		Name: s.Name, Retry: retryToLog(s.Retry), Uncertainty: uncertaintyToLog(s.Uncertainty), Circuit: circuitToLog(s.Circuit),
		Lane: &logv1.DestinationLimits{
			MaxInFlight: s.Lane.MaxInFlight, RatePerSecond: s.Lane.RatePerSecond, Spread: s.Lane.Spread, MaxPending: s.Lane.MaxPending,
			MaxPendingBytes: s.Lane.MaxPendingBytes, MaxBytesInFlight: s.Lane.MaxBytesInFlight,
		},
		Retention: int64(s.Retention), IdempotencyWindow: int64(s.IdempotencyWindow), DeadLetterRetention: int64(s.DeadLetter.Retention),
		DeadLetterExport: s.DeadLetter.Export,
	}
	if h := s.HTTP; h != nil {
		m.Http = &logv1.HttpTarget{Url: h.URL, Timeout: int64(h.Timeout), StatusVerdicts: h.StatusVerdicts, TlsPin: h.TLSPin}
		for _, kv := range h.Headers {
			m.Http.Headers = append(m.Http.Headers, &logv1.Header{Name: kv.Name, Value: kv.Value})
		}
		for _, ref := range h.SigningSecrets {
			m.Http.SigningSecrets = append(m.Http.SigningSecrets, &logv1.SecretRef{Env: ref.Env, File: ref.File})
		}
	}
	if p := s.Probe; p != nil {
		m.Probe = &logv1.Probe{Url: p.URL, Found: p.Found, Absent: p.Absent, AbsentIsAuthoritative: p.AbsentIsAuthoritative}
	}
	return m
}

func specFromLog(m *logv1.DestinationSpec) (catalog.Destination, error) {
	l := m.GetLane()
	if err := errors.Join(known(m), known(l), known(m.GetProbe()), knownPolicies(m.GetRetry(), m.GetUncertainty(), m.GetCircuit())); err != nil {
		return catalog.Destination{}, err
	}
	http, err := targetFromLog(m.GetHttp())
	if err != nil {
		return catalog.Destination{}, err
	}
	s := catalog.Destination{
		Name: m.GetName(), HTTP: http, Retry: retryFromLog(m.GetRetry()), Uncertainty: uncertaintyFromLog(m.GetUncertainty()), Circuit: circuitFromLog(m.GetCircuit()),
		Lane: catalog.LaneLimits{
			MaxInFlight: l.GetMaxInFlight(), RatePerSecond: l.GetRatePerSecond(), Spread: l.GetSpread(), MaxPending: l.GetMaxPending(),
			MaxPendingBytes: l.GetMaxPendingBytes(), MaxBytesInFlight: l.GetMaxBytesInFlight(),
		},
		Retention: duration(m.GetRetention()), IdempotencyWindow: duration(m.GetIdempotencyWindow()),
		DeadLetter: catalog.DeadLetter{Retention: duration(m.GetDeadLetterRetention()), Export: m.GetDeadLetterExport()},
	}
	if p := m.GetProbe(); p != nil {
		s.Probe = &catalog.Probe{URL: p.Url, Found: p.Found, Absent: p.Absent, AbsentIsAuthoritative: p.AbsentIsAuthoritative}
	}
	return s, nil
}

func targetFromLog(m *logv1.HttpTarget) (*catalog.HTTPTarget, error) {
	if m == nil {
		return nil, nil
	}
	if err := known(m); err != nil {
		return nil, err
	}
	h := &catalog.HTTPTarget{URL: m.Url, Timeout: duration(m.Timeout), StatusVerdicts: m.StatusVerdicts, TLSPin: m.TlsPin}
	for _, kv := range m.Headers {
		if err := known(kv); err != nil {
			return nil, err
		}
		h.Headers = append(h.Headers, catalog.Header{Name: kv.Name, Value: kv.Value})
	}
	for _, ref := range m.SigningSecrets {
		if err := known(ref); err != nil {
			return nil, err
		}
		h.SigningSecrets = append(h.SigningSecrets, catalog.SecretRef{Env: ref.Env, File: ref.File})
	}
	return h, nil
}
