package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sealane/sealane/client"
	"github.com/sealane/sealane/server"
	"github.com/sealane/sealane/sink"
)

// asBinary lets the test binary stand for the real one, so that tests can start, signal and kill real processes of this very code.
const asBinary = "TEST_RUN_AS_SEALANE=1"

func TestMain(m *testing.M) {
	if os.Getenv("TEST_RUN_AS_SEALANE") == "1" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// startNode opens a node in memory for a test.
func startNode(t *testing.T) *server.Node {
	t.Helper()
	cfg := server.DefaultConfig()
	cfg.NodeID, cfg.InMemory, cfg.Shards, cfg.AllowLoopbackDestinations = "dev", true, 1, true
	cfg.GRPCAddr, cfg.HTTPAddr, cfg.PeerAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.DrainTimeout = time.Second
	n, err := server.Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Errorf("close the node: %v", err)
		}
	})
	return n
}

// startSink serves a sink for a test.
func startSink(t *testing.T) (*sink.Sink, string) {
	t.Helper()
	s, err := sink.New(sink.Options{})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the sink: %v", err)
		}
		srv.CloseClientConnections()
		srv.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s, srv.Listener.Addr().String()
}

// dialTest connects to a node for what a test asks beside the command line.
func dialTest(t *testing.T, addr string) *client.Client {
	t.Helper()
	c, err := client.Dial(addr, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}
