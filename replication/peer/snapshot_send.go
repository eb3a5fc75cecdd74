package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// A snapshot has a stream of its own: one message with a frame of kindSnapshot, then the bytes in chunks, then the end. The receiver sends
// frames of kindSnapshotBeat, with the bytes that its Raft has consumed, while it works, and then the answer.

// snapshotSend is one snapshot on its way to a replica.
type snapshotSend struct {
	t        *Transport
	l        *link
	stream   opened
	progress *time.Timer
	answered chan error // holds one
}

// InstallSnapshot sends exactly args.Size bytes of data and waits for the answer. It has no limit in time as long as there is progress.
func (t *Transport) InstallSnapshot(_ raft.ServerID, to raft.ServerAddress, args *raft.InstallSnapshotRequest, answer *raft.InstallSnapshotResponse, data io.Reader) error {
	l, err := t.linkTo(to)
	if err != nil {
		return err
	}
	if _, err := t.reach(l, ClassAppend); err != nil {
		return err
	}
	place := time.NewTimer(snapshotStall)
	defer place.Stop()
	select {
	case l.snapshots <- struct{}{}:
		defer func() { <-l.snapshots }()
	case <-place.C:
		return fmt.Errorf("%w: %d others are under way to %s", ErrStalled, maxSnapshots, l.node)
	case <-t.closing:
		return ErrClosed
	}
	ctx, cancel := context.WithCancelCause(l.ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-t.closing:
			cancel(ErrClosed)
		case <-ctx.Done():
		}
	}()
	err = t.sendSnapshot(ctx, cancel, l, string(to), args, answer, data)
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		return nil
	case l.ctx.Err() != nil:
		return ErrClosed
	case cause != nil && !errors.Is(cause, context.Canceled):
		return cause
	}
	if _, ok := status.FromError(err); ok {
		return fmt.Errorf("%w: %s: %w", ErrUnreachable, l.node, err)
	}
	return err
}

func (t *Transport) sendSnapshot(ctx context.Context, cancel context.CancelCauseFunc, l *link, to string, args *raft.InstallSnapshotRequest, answer *raft.InstallSnapshotResponse, data io.Reader) error {
	desc := &grpc.StreamDesc{StreamName: "Snapshot", ClientStreams: true, ServerStreams: true}
	cs, p, err := l.open(ctx, func() { cancel(ErrUnreachable) }, desc)
	if err != nil {
		return err
	}
	if p.Replica != to {
		return fmt.Errorf("%w: %s, asked for %s", ErrOtherReplica, p.Replica, to)
	}
	s := &snapshotSend{t: t, l: l, stream: cs, answered: make(chan error, 1)}
	s.progress = time.AfterFunc(snapshotStall, func() { cancel(fmt.Errorf("%w within %v", ErrStalled, snapshotStall)) })
	defer s.progress.Stop()
	received := make(chan struct{})
	go func() {
		defer close(received)
		s.answered <- s.receive(args.Size, answer)
	}()
	defer func() {
		cancel(nil)
		<-received
	}()
	if err := s.send(ctx, to, args, data); err != nil && !errors.Is(err, io.EOF) { // at io.EOF the answer has the reason
		return err
	}
	installed := time.AfterFunc(snapshotInstall, func() { cancel(fmt.Errorf("%w: not installed within %v", ErrStalled, snapshotInstall)) })
	defer installed.Stop()
	return <-s.answered
}

// send sends everything.
func (s *snapshotSend) send(ctx context.Context, to string, args *raft.InstallSnapshotRequest, data io.Reader) error {
	b := appendSnapshot(newFrame(256), args)
	seal(b, frame{kind: kindSnapshot, group: s.t.group, target: targetOf(to)})
	if len(b) > maxPackedBytes {
		return fmt.Errorf("%w: snapshot request of %d bytes, limit %d", ErrTooLarge, len(b), maxPackedBytes)
	}
	if err := s.stream.send(&packet{parts: mem.BufferSlice{mem.SliceBuffer(b)}}); err != nil {
		return err
	}
	pool := mem.DefaultBufferPool()
	for left := args.Size; left > 0; {
		if err := s.t.n.opts.Intercept.hold(ctx, s.t.n.opts.Node, s.l.node, ClassSnapshot); err != nil {
			return err
		}
		chunk := pool.Get(int(min(left, snapshotChunk)))
		if _, err := io.ReadFull(data, *chunk); err != nil {
			pool.Put(chunk)
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("peer: read snapshot, %d of %d bytes left: %w", left, args.Size, err)
		}
		left -= int64(len(*chunk))
		buffer := mem.NewBuffer(chunk, pool)
		n := buffer.Len()
		if err := s.stream.send(&packet{parts: mem.BufferSlice{buffer}}); err != nil {
			return err
		}
		s.l.stats.sent(1, n)
		s.progress.Reset(snapshotStall)
	}
	return s.stream.CloseSend()
}

// receive takes beats until the answer. A beat is progress only if Raft has consumed more, or everything: a receiver that is stuck in the
// middle beats in vain.
func (s *snapshotSend) receive(size int64, answer *raft.InstallSnapshotResponse) error {
	consumed := int64(-1)
	for {
		var p packet
		if err := s.stream.RecvMsg(&p); err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w: stream ended without an answer", ErrUnreachable)
			}
			return err
		}
		done := false
		var result error
		err := walkFrames(p.data.ReadOnlyData(), func(f frame) {
			switch f.kind {
			case kindSnapshotBeat:
				c := cursor{b: f.body}
				now := int64(c.uvarint())
				if now > consumed || now >= size {
					consumed = max(consumed, now)
					s.progress.Reset(snapshotStall)
				}
			case kindSnapshot | kindAnswer:
				done, result = true, decodeAnswer(f.body, answer)
			}
		})
		p.free()
		if err != nil {
			return err
		}
		if done {
			return result
		}
	}
}
