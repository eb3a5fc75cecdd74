package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Limits of the gRPC door.
const (
	// maxRequestBytes bounds one request: the largest batch, or one message of the largest payload, with everything around it.
	maxRequestBytes = maxBatchBytes + 4<<20
	// maxStreams bounds the calls of one connection that run at the same time.
	maxStreams = 1024
	// streamWindow and connWindow let a stream of submits run ahead of its acknowledgements.
	streamWindow = 1 << 20
	connWindow   = 8 << 20
)

// services are the implementations behind both doors.
type services struct {
	delivery    *deliveryService
	query       *queryService
	destination *destinationService
	control     *controlService
	cluster     *clusterService
}

func newServices(n *Node, draining <-chan struct{}) *services {
	return &services{
		delivery: &deliveryService{n: n, draining: draining}, query: &queryService{n: n, draining: draining},
		destination: &destinationService{n: n}, control: &controlService{n: n}, cluster: &clusterService{n: n},
	}
}

// newGRPC makes the public gRPC server with health and reflection.
func newGRPC(n *Node, s *services) (*grpc.Server, *health.Server) {
	guard := &guard{log: n.log, metrics: n.metrics}
	srv := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequestBytes), grpc.MaxConcurrentStreams(maxStreams), grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow), grpc.ConnectionTimeout(20*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(guard.unary), grpc.StreamInterceptor(guard.stream),
	)
	sealanev1.RegisterDeliveryServiceServer(srv, s.delivery)
	sealanev1.RegisterQueryServiceServer(srv, s.query)
	sealanev1.RegisterDestinationServiceServer(srv, s.destination)
	sealanev1.RegisterControlServiceServer(srv, s.control)
	sealanev1.RegisterClusterServiceServer(srv, s.cluster)
	reporter := health.NewServer()
	for name := range srv.GetServiceInfo() {
		reporter.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	healthpb.RegisterHealthServer(srv, reporter)
	reflection.Register(srv)
	return srv, reporter
}

// guard stands before every call of the gRPC door: it turns panics into INTERNAL, counts, and logs what an operator must see.
type guard struct {
	log     *slog.Logger
	metrics *metrics
}

func (g *guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer func() { err = g.done("grpc", info.FullMethod, recover(), err) }()
	return handler(ctx, req)
}

func (g *guard) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() { err = g.done("grpc", info.FullMethod, recover(), err) }()
	return handler(srv, stream)
}

// done counts a call and logs the ones that are the node's fault. Payloads and headers are never logged.
func (g *guard) done(door, method string, panicked any, err error) error {
	if panicked != nil {
		g.log.Error("a call panicked", "door", door, "method", method, "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
		err = answered(errors.New("a handler panicked"))
	}
	code := status.Code(err)
	g.metrics.calls.WithLabelValues(door, method, code.String()).Inc()
	switch code {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		if panicked == nil {
			g.log.Error("a call failed", "door", door, "method", method, "code", code.String(), "error", err)
		}
	case codes.OK:
	default:
		g.log.Debug("a call was refused", "door", door, "method", method, "code", code.String(), "error", err)
	}
	return err
}
