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
	draining chan struct{}
	grpc     *grpc.Server
	health   *health.Server
	http     *http.Server
	serving  sync.WaitGroup
}

// listeners are the ports of the doors. They are bound before the node begins, so that a port that is taken is an error at once, and serve
// once the node knows its cluster.
type listeners struct{ grpc, http net.Listener }

func (n *Node) bindDoors() (*listeners, error) {
	l := &listeners{}
	var err error
	if l.grpc, err = n.listen(n.cfg.GRPCAddr); err != nil {
		return nil, fmt.Errorf("grpc-addr: %w", err)
	}
	if l.http, err = n.listen(n.cfg.HTTPAddr); err != nil {
		return nil, errors.Join(fmt.Errorf("http-addr: %w", err), l.grpc.Close())
	}
	return l, nil
}

func (l *listeners) close() error { return errors.Join(l.grpc.Close(), l.http.Close()) }

// Limits of the HTTP door.
const (
	maxHeaderBytes    = 64 << 10
	readHeaderTimeout = 10 * time.Second
	// readTimeout bounds reading one request, body included: 16 MiB at a slow 256 KiB/s.
	readTimeout = 90 * time.Second
	idleTimeout = 2 * time.Minute
)

// openDoors begins to serve.
func openDoors(n *Node) (*doors, error) {
	d := &doors{draining: make(chan struct{})}
	s := newServices(n, d.draining)
	d.grpc, d.health = newGRPC(n, s)
	handler, err := newGateway(n, s, d)
	if err != nil {
		return nil, err
	}
	d.http = &http.Server{
		Handler: handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug), // what it reports is about clients
	}
	d.serving.Go(func() {
		if err := d.grpc.Serve(n.bound.grpc); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			n.fail(fmt.Errorf("grpc door: %w", err))
		}
	})
	d.serving.Go(func() {
		if err := d.http.Serve(n.bound.http); err != nil && !errors.Is(err, http.ErrServerClosed) {
			n.fail(fmt.Errorf("http door: %w", err))
		}
	})
	return d, nil
}

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
