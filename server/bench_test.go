package server

import (
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// BenchmarkSubmitStream is the way of a submit through the door over loopback, with the store in memory: what the log costs is measured
// elsewhere. The destination refuses connections, so nothing is delivered.
func BenchmarkSubmitStream(b *testing.B) {
	cfg := DefaultConfig()
	cfg.InMemory, cfg.AllowLoopbackDestinations, cfg.Shards, cfg.DrainTimeout = true, true, 4, time.Second
	cfg.GRPCAddr, cfg.HTTPAddr, cfg.PeerAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	n, err := Open(b.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := n.Close(b.Context()); err != nil {
			b.Error(err)
		}
	}()
	conn, err := grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	d := &sealanev1.Destination{Name: "out", Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: "http://127.0.0.1:1/never"}},
		Lane: &sealanev1.LaneLimits{Spread: 4, MaxPending: 1 << 29}}
	if _, err := sealanev1.NewDestinationServiceClient(conn).ApplyDestination(b.Context(), &sealanev1.ApplyDestinationRequest{Destination: d}); err != nil {
		b.Fatal(err)
	}
	stream, err := sealanev1.NewDeliveryServiceClient(conn).SubmitStream(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	const perRequest = 64
	req := &sealanev1.SubmitStreamRequest{}
	for range perRequest {
		req.Items = append(req.Items, &sealanev1.SubmitStreamItem{Message: &sealanev1.SubmitRequest{Destination: "out", Payload: make([]byte, 256)}})
	}
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		for at := 0; at < b.N; at += perRequest {
			if err := stream.Send(req); err != nil {
				return // the receiving side sees why
			}
		}
		_ = stream.CloseSend()
	}()
	got := 0
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range resp.GetResults() {
			if r.GetError() != nil {
				b.Fatal(r.GetError())
			}
		}
		got += len(resp.GetResults())
	}
	b.StopTimer()
	if got < b.N {
		b.Fatalf("%d of %d", got, b.N)
	}
	b.ReportMetric(float64(got)/b.Elapsed().Seconds(), "submits/s")
}
