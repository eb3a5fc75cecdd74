package server

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// queryService reads. It never changes anything and works while every lane is blocked.
type queryService struct {
	sealanev1.UnimplementedQueryServiceServer
	n        *Node
	draining <-chan struct{}
}

// readOne reads from the shard that holds a message. read is called with a view, again with a fresh one where it did not find the message and the
// caller left it to us how fresh is fresh enough. What it is given last is closed by the time readOne returns.
func (s *queryService) readOne(ctx context.Context, field, text string, fresh func(*shardRef) (freshness, error),
	read func(v *view, id shard.MessageID) error) (*sealanev1.ReadMetadata, error) {
	id, err := messageID(field, text)
	if err != nil {
		return nil, err
	}
	r, err := s.n.shardFor(id)
	if err != nil {
		return nil, fieldError(field, err)
	}
	f, err := fresh(r)
	if err != nil {
		return nil, err
	}
	return s.n.look(ctx, r, f, func(v *view) error { return read(v, id) })
}

// lookTries bounds how often a read begins again because the node that it reads from went away.
const lookTries = 3

// look reads one shard as readOne says.
func (n *Node) look(ctx context.Context, sh *shardRef, f freshness, read func(*view) error) (*sealanev1.ReadMetadata, error) {
	for try := 1; ; try++ {
		v, pending, err := n.view(ctx, sh, f)
		if err != nil {
			return nil, err
		}
		if !pending {
			err = read(v)
		}
		v.close()
		if errors.Is(err, ErrPeer) && try < lookTries {
			continue
		}
		if !f.confirm || !errors.Is(err, shard.ErrMessageNotFound) || v.leader {
			return v.read, err
		}
		f.confirm, f.consistency = false, sealanev1.Consistency_linearizable
	}
}

// GetMessage reads one message with all that is known of it.
func (s *queryService) GetMessage(ctx context.Context, m *sealanev1.GetMessageRequest) (*sealanev1.GetMessageResponse, error) {
	out := &sealanev1.GetMessageResponse{}
	var err error
	out.Read, err = s.readOne(ctx, "id", m.GetId(), func(r *shardRef) (freshness, error) {
		return s.n.single(r, m.GetConsistency(), m.GetPosition(), m.GetWait())
	}, func(v *view, id shard.MessageID) (err error) {
		out.Message, err = readMessage(v, namespaceOf(ctx), id, m.GetIncludePayload())
		return err
	})
	if err != nil {
		return nil, answered(err)
	}
	return out, nil
}

// readMessage reads a message of a namespace, or what is left of it. An unknown one and another tenant's look the same (R187).
func readMessage(v *view, namespace string, id shard.MessageID, withPayload bool) (*sealanev1.Message, error) {
	mv, err := shard.GetMessage(v.state, id, withPayload)
	if err != nil {
		return nil, err
	}
	if mv != nil {
		if mv.Message.Namespace != namespace {
			return nil, messageNotFound(id)
		}
		return messageOf(mv, v.sh.shard, withPayload), nil
	}
	t, err := shard.GetTombstone(v.state, id)
	if err != nil {
		return nil, err
	}
	if t == nil || namespace != defaultNamespace { // a tombstone names no tenant
		return nil, messageNotFound(id)
	}
	return tombstoneMessage(t), nil
}

// GetDeadLetter reads one dead letter with its attempts.
func (s *queryService) GetDeadLetter(ctx context.Context, m *sealanev1.GetDeadLetterRequest) (*sealanev1.GetDeadLetterResponse, error) {
	out := &sealanev1.GetDeadLetterResponse{}
	var err error
	out.Read, err = s.readOne(ctx, "message_id", m.GetMessageId(), func(r *shardRef) (freshness, error) {
		return s.n.single(r, m.GetConsistency(), m.GetPosition(), m.GetWait())
	}, func(v *view, id shard.MessageID) (err error) {
		out.DeadLetter, err = readDeadLetter(v, namespaceOf(ctx), id, m.GetGeneration())
		return err
	})
	if err != nil {
		return nil, answered(err)
	}
	return out, nil
}

func readDeadLetter(v *view, namespace string, id shard.MessageID, generation uint32) (*sealanev1.DeadLetter, error) {
	mv, err := shard.GetMessage(v.state, id, false)
	if err != nil {
		return nil, err
	}
	if mv == nil || mv.Message.Namespace != namespace {
		return nil, messageNotFound(id)
	}
	for i := len(mv.Generations) - 1; i >= 0; i-- {
		g := &mv.Generations[i]
		if g.DeadLetter != nil && (generation == 0 || g.Generation.Number == generation) {
			return deadLetterOf(mv.Message, g, g.DeadLetter, v.sh.shard, true), nil
		}
	}
	return nil, fmt.Errorf("%w: message %s, generation %d", ErrDeadLetterNotFound, id, generation)
}

// GetLane reads one lane.
func (s *queryService) GetLane(ctx context.Context, m *sealanev1.GetLaneRequest) (*sealanev1.GetLaneResponse, error) {
	var c checker
	c.destination("destination", m.GetDestination())
	if m.GetSlot() >= MaxShards {
		c.bad("slot", "is %d, want 0 to %d", m.GetSlot(), MaxShards-1)
	}
	if err := c.err(); err != nil {
		return nil, answered(err)
	}
	namespace := namespaceOf(ctx)
	r := s.n.shardOfSlot(namespace, m.GetDestination(), m.GetSlot())
	f, err := s.n.single(r, m.GetConsistency(), m.GetPosition(), m.GetWait())
	if err != nil {
		return nil, answered(err)
	}
	v, pending, err := s.n.view(ctx, r, f)
	if err != nil {
		return nil, answered(err)
	}
	defer v.close()
	out := &sealanev1.GetLaneResponse{Read: v.read}
	if pending {
		return out, nil
	}
	rec, ok, err := shard.LaneByName(v.state, namespace, m.GetDestination(), m.GetSlot())
	if err == nil && !ok {
		err = &shard.Rejection{
			Reason: shard.ErrLaneNotFound.Reason, Field: "destination",
			Detail: fmt.Sprintf("%q has no lane in slot %d; a lane exists once a message has arrived", m.GetDestination(), m.GetSlot()),
		}
	}
	if err == nil {
		out.Lane, err = laneOf(ctx, v, &rec)
	}
	if err != nil {
		return nil, answered(err)
	}
	return out, nil
}

// WaitPosition waits until a position is applied here.
func (s *queryService) WaitPosition(ctx context.Context, m *sealanev1.WaitPositionRequest) (*sealanev1.WaitPositionResponse, error) {
	f, err := s.n.freshnessOf(sealanev1.Consistency_position, "position", []string{m.GetPosition()}, m.GetWait())
	if err != nil {
		return nil, answered(err)
	}
	for number := range f.positions {
		r, err := s.n.shardAt(number)
		if err != nil {
			return nil, answered(fieldError("position", err))
		}
		v, _, err := s.n.view(ctx, r, f)
		if err != nil {
			return nil, answered(err)
		}
		v.close()
		return &sealanev1.WaitPositionResponse{Read: v.read}, nil
	}
	return nil, answered(invalid("position", "is required"))
}

// WatchMessage sends a message now and after each change, until its current generation is terminal.
func (s *queryService) WatchMessage(m *sealanev1.WatchMessageRequest, stream sealanev1.QueryService_WatchMessageServer) error {
	if err := s.watch(stream.Context(), m, stream.Send); err != nil {
		return answered(err)
	}
	return nil
}

func (s *queryService) watch(ctx context.Context, m *sealanev1.WatchMessageRequest, send func(*sealanev1.WatchMessageResponse) error) error {
	id, err := messageID("id", m.GetId())
	if err != nil {
		return err
	}
	r, err := s.n.shardFor(id)
	if err != nil {
		return fieldError("id", err)
	}
	f, err := s.n.single(r, sealanev1.Consistency_CONSISTENCY_UNSPECIFIED, m.GetPosition(), nil)
	if err != nil {
		return err
	}
	w, stop, err := s.n.subscribe(ctx, r, id)
	if err != nil {
		return err
	}
	defer stop()
	var last *sealanev1.Message
	since := f.positions[r.shard]
	payload := m.GetIncludePayload()
	for {
		if !w.seen() {
			return ErrWatcherSlow
		}
		now, err := s.watched(ctx, r, f, id, payload)
		if err != nil {
			return err
		}
		changed := now.msg != nil && now.changedAt > since && !sameMessage(now.msg, last)
		if changed {
			if err := send(&sealanev1.WatchMessageResponse{Message: now.msg, Read: now.read}); err != nil {
				return err
			}
			last, since, payload = now.msg, 0, false
		}
		if now.done {
			return nil
		}
		if now.msg == nil && !isClosed(s.draining) {
			continue // the position is not applied yet; looking again waits for it
		}
		select {
		case <-w.changed:
		case <-s.draining:
			return ErrDraining
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sameMessage compares without the payload, which only the first answer of a watch holds.
func sameMessage(now, last *sealanev1.Message) bool {
	if last == nil {
		return false
	}
	payload := last.Payload
	last.Payload = now.Payload
	same := proto.Equal(now, last)
	last.Payload = payload
	return same
}

// watchedState is what one look of a watch found.
type watchedState struct {
	msg       *sealanev1.Message // nil while the watch's position is not reached
	read      *sealanev1.ReadMetadata
	changedAt uint64 // index of the last change
	done      bool   // its current generation is terminal, or it was removed
}

func (s *queryService) watched(ctx context.Context, r *shardRef, f freshness, id shard.MessageID, withPayload bool) (st watchedState, err error) {
	st.read, err = s.n.look(ctx, r, f, func(v *view) error {
		mv, err := shard.GetMessage(v.state, id, withPayload)
		if err != nil {
			return err
		}
		if mv == nil || mv.Message.Namespace != namespaceOf(ctx) {
			st.changedAt, st.done = ^uint64(0), true
			st.msg, err = readMessage(v, namespaceOf(ctx), id, false)
			return err
		}
		st.msg, st.changedAt = messageOf(mv, r.shard, withPayload), lastChange(mv)
		for i := range mv.Generations {
			g := mv.Generations[i].Generation
			if g.Number == mv.Message.Current {
				st.done = g.State.Terminal()
			}
		}
		return nil
	})
	return st, err
}

// lastChange is the index of the newest decision about a message.
func lastChange(v *shard.MessageView) uint64 {
	at := v.Message.AcceptedIndex
	for i := range v.Generations {
		g := v.Generations[i].Generation
		at = max(at, g.CreatedIndex, g.TerminalIndex)
		for _, a := range v.Generations[i].Attempts {
			at = max(at, a.AdmittedIndex, a.OutcomeIndex)
			for j := range a.Resolutions {
				at = max(at, a.Resolutions[j].Index)
			}
		}
	}
	return at
}
