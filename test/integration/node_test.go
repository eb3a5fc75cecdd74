package integration

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
)

// node is a running node and clients of it.
type node struct {
	*server.Node
	delivery     sealanev1.DeliveryServiceClient
	query        sealanev1.QueryServiceClient
	destinations sealanev1.DestinationServiceClient
	control      sealanev1.ControlServiceClient
	conn         *grpc.ClientConn
}

func open(t testing.TB, dir string) *node {
	t.Helper()
	cfg := server.DefaultConfig()
	cfg.DataDir, cfg.Shards, cfg.AllowLoopbackDestinations = dir, 4, true
	cfg.GRPCAddr, cfg.HTTPAddr, cfg.PeerAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.MinFreeBytes = 0
	n, err := server.Open(t.Context(), cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	out := &node{
		Node: n, conn: conn, delivery: sealanev1.NewDeliveryServiceClient(conn), query: sealanev1.NewQueryServiceClient(conn),
		destinations: sealanev1.NewDestinationServiceClient(conn), control: sealanev1.NewControlServiceClient(conn),
	}
	t.Cleanup(func() { out.close(t) })
	return out
}

// close may be called before the test ends, to open the directory again.
func (n *node) close(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	n.conn.Close()
}

func (n *node) apply(t testing.TB, d *sealanev1.Destination) {
	t.Helper()
	if _, err := n.destinations.ApplyDestination(t.Context(), &sealanev1.ApplyDestinationRequest{Name: d.Name, Destination: d}); err != nil {
		t.Fatal(err)
	}
}

func webhook(name, url string) *sealanev1.Destination {
	return &sealanev1.Destination{Name: name, Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: url, Timeout: durationpb.New(10 * time.Second)}}}
}

func (n *node) submit(t testing.TB, destination string, payload []byte) *sealanev1.SubmitResponse {
	t.Helper()
	r, err := n.delivery.Submit(t.Context(), &sealanev1.SubmitRequest{Destination: destination, Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lane reads a destination's only lane.
func (n *node) lane(t testing.TB, destination string) *sealanev1.Lane {
	t.Helper()
	l, err := n.query.GetLane(t.Context(), &sealanev1.GetLaneRequest{Destination: destination})
	if err != nil {
		t.Fatal(err)
	}
	return l.Lane
}

// eventually polls until the condition holds, at most a minute.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
		wait := time.NewTimer(5 * time.Millisecond)
		<-wait.C
	}
}

func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}
