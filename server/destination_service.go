package server

import (
	"context"
	"fmt"

	"github.com/sealane/sealane/catalog"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// destinationService registers where messages go.
type destinationService struct {
	sealanev1.UnimplementedDestinationServiceServer
	n *Node
}

// ApplyDestination registers a destination or its next version. When it answers, every shard that can hold its lanes knows the version.
func (s *destinationService) ApplyDestination(ctx context.Context, m *sealanev1.ApplyDestinationRequest) (*sealanev1.ApplyDestinationResponse, error) {
	spec, err := s.spec(m)
	if err != nil {
		return nil, answered(err)
	}
	v, changed, err := s.n.applyDestination(ctx, namespaceOf(ctx), spec)
	if err != nil {
		return nil, answered(err)
	}
	return &sealanev1.ApplyDestinationResponse{
		Name: v.Spec.Name, Version: uint32(v.Version), Unchanged: !changed, CreatedAt: timestamp(v.CreatedAt),
	}, nil
}

// spec reads and checks a definition; every problem is reported, by field.
func (s *destinationService) spec(m *sealanev1.ApplyDestinationRequest) (catalog.Destination, error) {
	d := m.GetDestination()
	if d == nil {
		return catalog.Destination{}, invalid("destination", "is required")
	}
	spec, err := destinationSpec(d)
	if err != nil {
		return spec, err
	}
	switch {
	case spec.Name == "":
		spec.Name = m.GetName()
	case m.GetName() != "" && m.GetName() != spec.Name:
		return spec, invalid("name", "is %q in the path and %q in the definition", clipped(m.GetName()), clipped(spec.Name))
	}
	spec = spec.WithDefaults()
	var c checker
	for _, p := range spec.Validate(s.n.cluster.Shards) {
		c.bad(p.Field, "%s", p.Reason)
	}
	// What nothing would act on is refused, not recorded: an operator who asks for an export must not believe that there is one.
	if share := spec.Lane.MaxBytesInFlight / uint64(max(spec.Lane.Spread, 1)); share < uint64(s.n.cfg.MaxPayloadBytes) {
		c.bad("lane.max_bytes_in_flight", "gives each slot %d bytes, must be at least the payload limit of %d", share, s.n.cfg.MaxPayloadBytes)
	}
	if spec.Probe != nil {
		c.bad("uncertainty.probe", "is not available in this version: nothing would act on it")
	}
	if spec.DeadLetter.Export != "" {
		c.bad("dead_letter.export", "is not available in this version: nothing would act on it")
	}
	return spec, c.err()
}

// GetDestination reads one version, the newest unless a number is given.
func (s *destinationService) GetDestination(ctx context.Context, m *sealanev1.GetDestinationRequest) (*sealanev1.GetDestinationResponse, error) {
	var c checker
	c.destination("name", m.GetName())
	if err := c.err(); err != nil {
		return nil, answered(err)
	}
	v, err := s.read(ctx, namespaceOf(ctx), m.GetName(), uint64(m.GetVersion()))
	if err != nil {
		return nil, answered(err)
	}
	return &sealanev1.GetDestinationResponse{Destination: destinationOf(&v)}, nil
}

func (s *destinationService) read(ctx context.Context, namespace, name string, version uint64) (catalog.Version, error) {
	s.n.control.catchUp(ctx)
	if version == 0 {
		return s.n.destination(ctx, namespace, name)
	}
	v, ok, err := catalog.GetVersion(s.n.control.state, namespace, name, version)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %q version %d", ErrDestinationNotFound, name, version)
	}
	return v, err
}

// ListDestinations lists the newest versions by name.
func (s *destinationService) ListDestinations(ctx context.Context, m *sealanev1.ListDestinationsRequest) (*sealanev1.ListDestinationsResponse, error) {
	limit, err := pageSize(m.GetPageSize())
	if err != nil {
		return nil, answered(err)
	}
	after, err := parsePageToken(listDestinations, filtersOf(m), m.GetPageToken())
	if err != nil {
		return nil, answered(err)
	}
	s.n.control.catchUp(ctx)
	page, err := catalog.List(s.n.control.state, namespaceOf(ctx), string(after), limit+1)
	if err != nil {
		return nil, answered(err)
	}
	out := &sealanev1.ListDestinationsResponse{}
	if len(page) > limit {
		page = page[:limit]
		out.NextPageToken = pageToken(listDestinations, filtersOf(m), []byte(page[limit-1].Spec.Name))
	}
	for i := range page {
		out.Destinations = append(out.Destinations, destinationOf(&page[i]))
	}
	return out, nil
}

// DeleteDestination closes a destination to new messages; refused while anything of it is pending.
func (s *destinationService) DeleteDestination(ctx context.Context, m *sealanev1.DeleteDestinationRequest) (*sealanev1.DeleteDestinationResponse, error) {
	var c checker
	c.destination("name", m.GetName())
	err := c.err()
	if err == nil {
		err = s.n.deleteDestination(ctx, namespaceOf(ctx), m.GetName())
	}
	if err != nil {
		return nil, answered(err)
	}
	return &sealanev1.DeleteDestinationResponse{}, nil
}
