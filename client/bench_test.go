package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// benchNode answers submits for the shard that it leads, and forwards the rest over a stream of its own to the node that leads it, as a node
// of a cluster does. Destination d<i> lives in shard i, which node i leads.
type benchNode struct {
	sealanev1.UnimplementedDeliveryServiceServer
	number int
	all    []*benchNode
	addr   string
	conn   *grpc.ClientConn
}

func (n *benchNode) SubmitStream(s sealanev1.DeliveryService_SubmitStreamServer) error {
	forward := make([]sealanev1.DeliveryService_SubmitStreamClient, len(n.all))
	for {
		req, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		byNode := make([][]*sealanev1.SubmitStreamItem, len(n.all))
		for _, it := range req.GetItems() {
			to := int(it.GetMessage().GetDestination()[1] - '0')
			byNode[to] = append(byNode[to], it)
		}
		out := &sealanev1.SubmitStreamResponse{}
		for to, items := range byNode {
			if len(items) == 0 {
				continue
			}
			if to != n.number {
				if forward[to] == nil {
					if forward[to], err = sealanev1.NewDeliveryServiceClient(n.all[to].conn).SubmitStream(s.Context()); err != nil {
						return err
					}
				}
				if err := forward[to].Send(&sealanev1.SubmitStreamRequest{Items: items}); err != nil {
					return err
				}
				resp, err := forward[to].Recv()
				if err != nil {
					return err
				}
				out.Results = append(out.Results, resp.GetResults()...)
				continue
			}
			for _, it := range items {
				ok := &sealanev1.SubmitResponse{MessageId: "m", Generation: 1, Position: fmt.Sprintf("%d:1", to)}
				out.Results = append(out.Results, &sealanev1.SubmitStreamResult{Sequence: it.GetSequence(), Result: &sealanev1.SubmitStreamResult_Submitted{Submitted: ok}})
			}
		}
		if err := s.Send(out); err != nil {
			return err
		}
	}
}

// BenchmarkStream compares a stream whose calls go to the leaders of three shards with one whose messages all enter at one node, which has to
// forward two thirds of them. Everything is in one process on loopback; nodes do nothing but answer and forward.
func BenchmarkStream(b *testing.B) {
	nodes := make([]*benchNode, 3)
	var addrs []string
	for i := range nodes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		n := &benchNode{number: i, all: nodes, addr: l.Addr().String()}
		if n.conn, err = grpc.NewClient("passthrough:///"+n.addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
			b.Fatal(err)
		}
		srv := grpc.NewServer()
		sealanev1.RegisterDeliveryServiceServer(srv, n)
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		b.Cleanup(func() {
			srv.Stop()
			if err := errors.Join(<-served, n.conn.Close()); err != nil {
				b.Error(err)
			}
		})
		nodes[i], addrs = n, append(addrs, n.addr)
	}
	for _, hinted := range []bool{true, false} {
		b.Run(fmt.Sprintf("hinted=%v", hinted), func(b *testing.B) {
			cl := newClient(Options{Static: true}.withDefaults(), addrs, func(addr string) (link, error) { return dialLink(addr, Options{}) })
			defer cl.Close()
			cl.view.due.Store(1 << 62)
			for i := range nodes {
				id := fmt.Sprint("n", i)
				cl.nodes.name(cl.nodes.all[i], id)
				if hinted {
					cl.view.adopt([]*sealanev1.Shard{{Number: uint32(i), Leader: id, Term: 1}})
				}
			}
			payload := make([]byte, 256)
			s := cl.Stream(context.Background())
			b.ResetTimer()
			for i := range b.N {
				m := Message{Destination: fmt.Sprint("d", i%3), Payload: payload, IdempotencyKey: fmt.Sprint(i)}
				if err := s.Submit(m, func(_ Accepted, err error) {
					if err != nil {
						b.Error(err)
					}
				}); err != nil {
					b.Fatal(err)
				}
			}
			s.Close()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}
