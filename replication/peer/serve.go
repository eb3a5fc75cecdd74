package peer

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// framesServiceName is the service of Raft's frames. Its messages are packets, so there is no proto file.
const framesServiceName = "sealane.raft.Frames"

var framesService = grpc.ServiceDesc{
	ServiceName: framesServiceName,
	HandlerType: (*framesServer)(nil),
	Streams: []grpc.StreamDesc{
		{StreamName: "Control", ClientStreams: true, ServerStreams: true, Handler: serveFrames},
		{StreamName: "Data", ClientStreams: true, ServerStreams: true, Handler: serveFrames},
		{StreamName: "Snapshot", ClientStreams: true, ServerStreams: true, Handler: serveSnapshot},
	},
}

type framesServer interface {
	serveFrames(grpc.ServerStream) error
	serveSnapshot(grpc.ServerStream) error
}

func serveFrames(server any, s grpc.ServerStream) error { return server.(framesServer).serveFrames(s) }
func serveSnapshot(server any, s grpc.ServerStream) error {
	return server.(framesServer).serveSnapshot(s)
}

// admit checks who calls.
func (n *Network) admit(ctx context.Context) (Peer, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	p, to, err := identityFrom(md)
	switch {
	case err != nil:
	case to != "" && to != n.opts.Node:
		err = fmt.Errorf("%w: this is node %s, not %s", ErrIdentity, n.opts.Node, to)
	default:
		err = n.check(p)
	}
	if err != nil {
		return p, status.Error(codes.FailedPrecondition, err.Error())
	}
	n.heard(p)
	return p, nil
}

func (n *Network) receiveUnary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	p, err := n.admit(ctx)
	if err != nil {
		return nil, err
	}
	key, value := n.metadataTo("")
	if err := grpc.SetHeader(ctx, metadata.Pairs(key, value)); err != nil {
		return nil, err
	}
	return handler(context.WithValue(ctx, peerKey{}, p), request)
}

func (n *Network) receiveStream(server any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	p, err := n.admit(s.Context())
	if err != nil {
		return err
	}
	key, value := n.metadataTo("")
	if err := s.SendHeader(metadata.Pairs(key, value)); err != nil { // at once: the caller waits to learn who answers
		return err
	}
	return handler(server, known{s, context.WithValue(s.Context(), peerKey{}, p)})
}

// known is an incoming stream whose context says who calls.
type known struct {
	grpc.ServerStream
	ctx context.Context
}

func (k known) Context() context.Context { return k.ctx }

// serveFrames takes the requests of a control or data stream. It hands them to their groups and never waits for one.
func (n *Network) serveFrames(s grpc.ServerStream) error {
	from, ok := From(s.Context())
	if !ok {
		return status.Error(codes.Internal, "peer: caller is not known")
	}
	stats := n.countersOf(from.Node)
	out := newOutbox(n.opts.Node, from.Node, n.opts.Intercept, stats)
	done, sent := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sent)
		if err := out.run(done, func(p *packet) error { return s.SendMsg(p) }); err != nil {
			n.opts.Logger.Debug("answering a node ended", "node", from.Node, "error", err)
		}
	}()
	in := incoming{n: n, from: from, out: out, stats: stats}
	err := in.receive(s)
	out.close()
	close(done)
	if errors.Is(err, ErrMalformed) {
		n.opts.Logger.Error("a node sent what this one does not understand", "node", from.Node, "error", err)
		err = status.Error(codes.InvalidArgument, err.Error())
	}
	<-sent // if flow control holds it up, the end of the stream's context lets it go
	return err
}

// incoming is one stream of requests.
type incoming struct {
	n     *Network
	from  Peer
	out   *outbox
	stats *counters
}

func (in *incoming) receive(s grpc.ServerStream) error {
	for {
		var p packet
		if err := s.RecvMsg(&p); err != nil {
			return err
		}
		frames := 0
		err := walkFrames(p.data.ReadOnlyData(), func(f frame) {
			frames++
			in.take(f)
		})
		in.stats.received(frames, p.data.Len())
		p.free()
		if err != nil {
			return err
		}
	}
}

// take hands one request to its group.
func (in *incoming) take(f frame) {
	if f.kind == kindPing {
		in.answer(f, nil, ClassPing)
		return
	}
	if f.target != targetOf(in.n.opts.Replica) {
		in.refuse(f, codeOtherReplica, in.n.opts.Replica)
		return
	}
	t := in.n.group(f.group)
	if t == nil {
		in.refuse(f, codeUnknownGroup, fmt.Sprintf("%d", f.group))
		return
	}
	f.body = append([]byte(nil), f.body...) // the message's buffer is used again
	command, header, err := decodeRequest(f.kind, f.body)
	if err == nil {
		err = in.sender(string(header.ID), string(header.Addr))
	}
	if err != nil {
		in.refuse(f, codeMalformed, err.Error())
		return
	}
	if !t.inbox.push(request{command: command, frame: f, in: in}) {
		in.stats.inboxFull.Add(1)
		in.refuse(f, codeBusy, "")
	}
}

// sender checks that a request names the process that sent it.
func (in *incoming) sender(id, address string) error {
	if id != in.from.Replica || address != in.from.Replica {
		return fmt.Errorf("%w: %s sends in the name of %q at %q", ErrIdentity, in.from.Replica, id, address)
	}
	return nil
}

func (in *incoming) refuse(f frame, c code, text string) {
	in.answer(f, appendFailure(nil, c, text), ClassAnswer)
}

// answer queues an answer. If the queue is full it is lost, which is counted, and the caller's time runs out.
func (in *incoming) answer(f frame, body []byte, class Class) {
	b := append(newFrame(len(body)), body...)
	seal(b, frame{kind: f.kind | kindAnswer, urgent: f.urgent, group: f.group, call: f.call})
	_ = in.out.push(b, class, f.urgent) // counted there
}
