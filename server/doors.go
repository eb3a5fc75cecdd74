package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
)

// doors are the listeners of a node and what serves them.
type doors struct {
	draining     chan struct{}
	grpc         *grpc.Server
	health       *health.Server
	http         *http.Server
	grpcListener net.Listener
	httpListener net.Listener
	serving      sync.WaitGroup
}

// Limits of the HTTP door.
const (
	maxHeaderBytes    = 64 << 10
	readHeaderTimeout = 10 * time.Second
	// readTimeout bounds reading one request, body included: 16 MiB at a slow 256 KiB/s.
	readTimeout = 90 * time.Second
	idleTimeout = 2 * time.Minute
)

// openDoors binds both listeners, so that a port that is taken is an error of Open, and begins to serve.
func openDoors(n *Node) (*doors, error) {
	d := &doors{draining: make(chan struct{})}
	var err error
	if d.grpcListener, err = net.Listen("tcp", n.cfg.GRPCAddr); err != nil {
		return nil, fmt.Errorf("grpc-addr: %w", err)
	}
	if d.httpListener, err = net.Listen("tcp", n.cfg.HTTPAddr); err != nil {
		return nil, errors.Join(fmt.Errorf("http-addr: %w", err), d.grpcListener.Close())
	}
	s := newServices(n, d.draining)
	d.grpc, d.health = newGRPC(n, s)
	handler, err := newGateway(n, s, d)
	if err != nil {
		return nil, errors.Join(err, d.grpcListener.Close(), d.httpListener.Close())
	}
	d.http = &http.Server{
		Handler: handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug), // what it reports is about clients
	}
	d.serving.Go(func() {
		if err := d.grpc.Serve(d.grpcListener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			n.fail(fmt.Errorf("grpc door: %w", err))
		}
	})
	d.serving.Go(func() {
		if err := d.http.Serve(d.httpListener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			n.fail(fmt.Errorf("http door: %w", err))
		}
	})
	return d, nil
}

func (d *doors) grpcAddr() string { return d.grpcListener.Addr().String() }

func (d *doors) httpAddr() string { return d.httpListener.Addr().String() }

// close tells clients that the node is stopping, ends the streams, waits for calls under way until the context ends, and then cuts what is
// left. What is cut is maybe accepted for its callers.
func (d *doors) close(ctx context.Context) error {
	close(d.draining)
	d.health.Shutdown()
	stopped := make(chan struct{})
	go func() {
		d.grpc.GracefulStop()
		close(stopped)
	}()
	err := d.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("http door: %w", err), d.http.Close())
	}
	select {
	case <-stopped:
	case <-ctx.Done():
		d.grpc.Stop()
		<-stopped
		err = errors.Join(err, fmt.Errorf("grpc door: calls were cut: %w", ctx.Err()))
	}
	d.serving.Wait()
	return err
}
