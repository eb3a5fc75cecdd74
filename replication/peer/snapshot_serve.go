package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// serveSnapshot hands one snapshot to the Raft of its group, and tells the sender how far it is.
func (n *Network) serveSnapshot(s grpc.ServerStream) error {
	from, ok := From(s.Context())
	if !ok {
		return status.Error(codes.Internal, "peer: caller is not known")
	}
	var first packet
	if err := s.RecvMsg(&first); err != nil {
		return err
	}
	var requests []frame
	err := walkFrames(append([]byte(nil), first.data.ReadOnlyData()...), func(f frame) { requests = append(requests, f) })
	first.free()
	if err != nil || len(requests) != 1 || requests[0].kind != kindSnapshot {
		return status.Error(codes.InvalidArgument, fmt.Sprintf("%v: first message of a snapshot: %v", ErrMalformed, err))
	}
	f := requests[0]
	t, command, refusal := n.snapshotRequest(from, f)
	if refusal != nil {
		return sendSnapshotFrame(s, kindSnapshot|kindAnswer, f, refusal)
	}
	r := newChunkReader(command.Size)
	go r.pump(s, n.countersOf(from.Node))
	body := t.install(s, f, command, r)
	r.abandon()
	return sendSnapshotFrame(s, kindSnapshot|kindAnswer, f, body) // the stream ends, and with it the pump
}

// snapshotRequest checks a request; refusal is the body of the answer if it is refused.
func (n *Network) snapshotRequest(from Peer, f frame) (t *Transport, command *raft.InstallSnapshotRequest, refusal []byte) {
	if f.target != targetOf(n.opts.Replica) {
		return nil, nil, appendFailure(nil, codeOtherReplica, n.opts.Replica)
	}
	if t = n.group(f.group); t == nil {
		return nil, nil, appendFailure(nil, codeUnknownGroup, fmt.Sprintf("%d", f.group))
	}
	command, err := decodeSnapshot(f.body)
	if err == nil {
		err = (&incoming{from: from}).sender(string(command.ID), string(command.Addr))
	}
	if err != nil {
		return nil, nil, appendFailure(nil, codeMalformed, err.Error())
	}
	return t, command, nil
}

func sendSnapshotFrame(s grpc.ServerStream, k kind, f frame, body []byte) error {
	b := append(newFrame(len(body)), body...)
	seal(b, frame{kind: k, group: f.group, call: f.call})
	return s.SendMsg(&packet{parts: mem.BufferSlice{mem.SliceBuffer(b)}})
}

// install gives the snapshot to Raft and gives the body of the answer. It beats meanwhile.
func (t *Transport) install(s grpc.ServerStream, f frame, command *raft.InstallSnapshotRequest, r *chunkReader) []byte {
	answers := make(chan raft.RPCResponse, 1)
	rpc := raft.RPC{Command: command, Reader: r, RespChan: answers}
	beat := time.NewTicker(snapshotBeat)
	defer beat.Stop()
	patience := time.NewTimer(snapshotStall) // until Raft takes it
	defer patience.Stop()
	consumer := t.consumer
	for {
		select {
		case consumer <- rpc:
			consumer = nil
			patience.Stop()
		case answer := <-answers:
			return appendAnswer(nil, answer)
		case <-patience.C:
			return appendFailure(nil, codeBusy, "")
		case <-t.closing:
			return appendFailure(nil, codeClosed, "")
		case <-s.Context().Done():
			return appendFailure(nil, codeClosed, "")
		case <-beat.C:
			consumed := binary.AppendUvarint(nil, uint64(r.consumed.Load()))
			if err := sendSnapshotFrame(s, kindSnapshotBeat, f, consumed); err != nil {
				return appendFailure(nil, codeClosed, "")
			}
		}
	}
}

// chunkReader is what Raft reads a snapshot from: exactly size bytes and then io.EOF, or an error. It never waits longer than snapshotStall,
// since Raft's main loop waits with it.
type chunkReader struct {
	size     int64
	consumed atomic.Int64
	chunks   chan mem.Buffer
	gone     chan struct{} // closed when nobody reads any more
	end      chan struct{} // closed when no more chunks come, for the reason err
	err      error

	chunk mem.Buffer // being read
	at    int
	got   int64 // bytes taken from the stream, by pump
}

func newChunkReader(size int64) *chunkReader {
	return &chunkReader{size: size, chunks: make(chan mem.Buffer, 1), gone: make(chan struct{}), end: make(chan struct{})}
}

// pump takes chunks from the stream until it ends.
func (r *chunkReader) pump(s grpc.ServerStream, stats *counters) {
	defer close(r.end)
	for {
		var p packet
		if err := s.RecvMsg(&p); err != nil {
			switch {
			case !errors.Is(err, io.EOF):
				r.err = fmt.Errorf("%w: snapshot broke off after %d of %d bytes: %w", ErrUnreachable, r.got, r.size, err)
			case r.got < r.size:
				r.err = fmt.Errorf("%w: snapshot ended after %d of %d bytes", io.ErrUnexpectedEOF, r.got, r.size)
			default:
				r.err = io.EOF
			}
			return
		}
		r.got += int64(p.data.Len())
		stats.received(1, p.data.Len())
		if r.got > r.size {
			p.free()
			r.err = fmt.Errorf("%w: snapshot has more than its %d bytes", ErrMalformed, r.size)
			return
		}
		select {
		case r.chunks <- p.data:
		case <-r.gone:
			p.free()
			r.err = ErrClosed
			return
		}
	}
}

// Read reads a part of the snapshot.
func (r *chunkReader) Read(b []byte) (int, error) {
	if r.chunk == nil || r.at == r.chunk.Len() {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.chunk.ReadOnlyData()[r.at:])
	r.at += n
	r.consumed.Add(int64(n))
	return n, nil
}

func (r *chunkReader) next() error {
	if r.chunk != nil {
		r.chunk.Free()
		r.chunk = nil
	}
	stall := time.NewTimer(snapshotStall)
	defer stall.Stop()
	for r.chunk == nil || r.at == r.chunk.Len() {
		select {
		case r.chunk = <-r.chunks:
			r.at = 0
			continue
		default:
		}
		select {
		case r.chunk = <-r.chunks:
			r.at = 0
		case <-r.end:
			select {
			case r.chunk = <-r.chunks: // it came before the end
				r.at = 0
			default:
				return r.err
			}
		case <-r.gone:
			return ErrClosed
		case <-stall.C:
			return fmt.Errorf("%w within %v", ErrStalled, snapshotStall)
		}
	}
	return nil
}

// abandon makes the pump stop waiting for a reader.
func (r *chunkReader) abandon() { close(r.gone) }
