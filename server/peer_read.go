package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/host"

	peerv1 "github.com/sealane/sealane/api/gen/sealane/peer/v1"
)

// Bounds of one answer of a view.
const (
	viewPairs = 512
	viewBytes = 1 << 20
	// viewIdle ends a view whose reader is silent: a view keeps old state from being dropped.
	viewIdle = time.Minute
)

// View serves reads of a shard to a node that has no replica of it.
func (s *peerService) View(stream peerv1.PeerService_ViewServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	open := first.GetOpen()
	if open == nil || open.GetGroup() == controlGroup {
		return status.Error(codes.InvalidArgument, "a view begins with the shard to open")
	}
	r, err := s.n.replicaOfGroup(open.GetGroup())
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	need := need{wait: open.GetWait().AsDuration(), linearizable: open.GetLinearizable(), index: open.GetIndex()}
	v, pending, err := s.n.localView(stream.Context(), r, need)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	defer v.close()
	err = stream.Send(&peerv1.ViewResponse{Opened: &peerv1.ViewOpened{
		Applied: v.applied, Pending: pending, Leader: v.leader, LeaderContactMillis: uint64(v.contact.Milliseconds()), Now: int64(v.now),
	}})
	if err != nil || pending {
		return err
	}
	return serveView(stream, v.state, s.n.running.Done())
}

// serveView answers steps until the reader ends the stream, is silent for too long, or the node stops.
func serveView(stream peerv1.PeerService_ViewServer, state shard.Reader, stopping <-chan struct{}) error {
	ctx := stream.Context()
	steps, ended := make(chan *peerv1.ViewRequest), make(chan error, 1)
	go func() {
		for {
			step, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case steps <- step:
			case <-ctx.Done():
				return
			}
		}
	}()
	idle := time.NewTimer(viewIdle)
	defer idle.Stop()
	for {
		select {
		case step := <-steps:
			out, err := readStep(state, step)
			if err != nil {
				return status.Error(codes.Internal, err.Error())
			}
			if err := stream.Send(out); err != nil {
				return err
			}
			idle.Reset(viewIdle)
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-idle.C:
			return status.Error(codes.Aborted, "the view was not read for too long")
		case <-stopping:
			return status.Error(codes.Unavailable, ErrDraining.Error())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func readStep(r shard.Reader, step *peerv1.ViewRequest) (*peerv1.ViewResponse, error) {
	out := &peerv1.ViewResponse{}
	switch s := step.GetStep().(type) {
	case *peerv1.ViewRequest_Get:
		value, ok, err := r.Get(s.Get.GetKey())
		if err != nil || !ok {
			return out, err
		}
		out.Pairs = []*peerv1.ViewPair{{Value: value}}
	case *peerv1.ViewRequest_Scan:
		limit, bytes := min(max(int(s.Scan.GetLimit()), 1), viewPairs), 0
		err := r.Scan(s.Scan.GetLower(), s.Scan.GetUpper(), s.Scan.GetReverse(), func(k, v []byte) (bool, error) {
			if len(out.Pairs) >= limit || bytes >= viewBytes {
				out.More = true
				return false, nil
			}
			bytes += len(k) + len(v)
			out.Pairs = append(out.Pairs, &peerv1.ViewPair{Key: k, Value: v})
			return true, nil
		})
		if err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("server: an unknown step of a view")
	}
	return out, nil
}

// Watch tells another node when a message changes here.
func (s *peerService) Watch(m *peerv1.WatchRequest, stream peerv1.PeerService_WatchServer) error {
	r, err := s.n.replicaOfGroup(m.GetGroup())
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	var id shard.MessageID
	if len(m.GetMessageId()) != len(id) {
		return status.Error(codes.InvalidArgument, "not a message id")
	}
	copy(id[:], m.GetMessageId())
	w, stop, err := r.watch.subscribe(id)
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	defer stop()
	for {
		w.seen()
		if err := stream.Send(&peerv1.WatchResponse{}); err != nil {
			return err
		}
		select {
		case <-w.changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.n.running.Done():
			return status.Error(codes.Unavailable, ErrDraining.Error())
		}
	}
}

// maxLaneStatuses bounds one question for the runtime of lanes.
const maxLaneStatuses = 1024

// LaneStatus gives the runtime of lanes where this node leads them.
func (s *peerService) LaneStatus(ctx context.Context, m *peerv1.LaneStatusRequest) (*peerv1.LaneStatusResponse, error) {
	r, err := s.n.replicaOfGroup(m.GetGroup())
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	if len(m.GetLanes()) > maxLaneStatuses {
		return nil, status.Errorf(codes.InvalidArgument, "asks for %d lanes, the limit is %d", len(m.GetLanes()), maxLaneStatuses)
	}
	out := &peerv1.LaneStatusResponse{}
	for _, id := range m.GetLanes() {
		st, err := r.host.LaneStatus(ctx, shard.LaneID(id))
		if errors.Is(err, host.ErrNotLeading) || errors.Is(err, host.ErrClosed) {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		if err != nil {
			st = host.LaneStatus{Why: host.WhyFailed}
		}
		b, err := json.Marshal(st)
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		out.Statuses = append(out.Statuses, b)
	}
	return out, nil
}

// remoteState reads a view on another node. It is for one reader at a time.
type remoteState struct {
	stream peerv1.PeerService_ViewClient
	cancel context.CancelFunc
}

// openRemote opens a view of a shard on the node at the other end of a link.
func openRemote(ctx context.Context, l *link, open *peerv1.OpenView) (*remoteState, *peerv1.ViewOpened, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := l.peer().View(ctx)
	if err == nil {
		err = stream.Send(&peerv1.ViewRequest{Step: &peerv1.ViewRequest_Open{Open: open}})
	}
	var answer *peerv1.ViewResponse
	if err == nil || errors.Is(err, io.EOF) {
		answer, err = stream.Recv()
	}
	if err != nil {
		cancel()
		return nil, nil, peerError(err)
	}
	return &remoteState{stream, cancel}, answer.GetOpened(), nil
}

func (s *remoteState) close() { s.cancel() }

func (s *remoteState) step(step *peerv1.ViewRequest) (*peerv1.ViewResponse, error) {
	err := s.stream.Send(step)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, peerError(err)
	}
	out, err := s.stream.Recv()
	if err != nil {
		return nil, peerError(err)
	}
	return out, nil
}

// Get reads one key.
func (s *remoteState) Get(key []byte) (value []byte, ok bool, err error) {
	out, err := s.step(&peerv1.ViewRequest{Step: &peerv1.ViewRequest_Get{Get: &peerv1.ViewGet{Key: key}}})
	if err != nil || len(out.GetPairs()) == 0 {
		return nil, false, err
	}
	return append([]byte{}, out.GetPairs()[0].GetValue()...), true, nil
}

// remoteFirstPage is how much the first page of a remote scan asks for; most scans stop early, so pages grow.
const remoteFirstPage = 8

// Scan reads a range page by page.
func (s *remoteState) Scan(lower, upper []byte, reverse bool, fn func(key, value []byte) (more bool, err error)) error {
	limit := uint32(remoteFirstPage)
	for {
		out, err := s.step(&peerv1.ViewRequest{Step: &peerv1.ViewRequest_Scan{Scan: &peerv1.ViewScan{
			Lower: lower, Upper: upper, Reverse: reverse, Limit: limit,
		}}})
		if err != nil {
			return err
		}
		for _, p := range out.GetPairs() {
			more, err := fn(p.GetKey(), p.GetValue())
			if err != nil || !more {
				return err
			}
		}
		if !out.GetMore() {
			return nil
		}
		last := out.GetPairs()[len(out.GetPairs())-1].GetKey()
		if reverse {
			upper = last
		} else {
			lower = append(append([]byte{}, last...), 0)
		}
		limit = min(limit*4, viewPairs)
	}
}

// A remote state is what a shard is read from, like a local one.
var _ shard.Reader = (*remoteState)(nil)
