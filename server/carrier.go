package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/delivery"
	webhook "github.com/sealane/sealane/delivery/http"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/server/fault"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/host"
)

// carrier joins the host's idea of a target to the adapters.
type carrier struct{ http *webhook.Adapter }

func newCarrier(cfg Config) *carrier {
	return &carrier{http: webhook.New(webhook.Options{
		AllowPrivate: cfg.AllowPrivateDestinations, AllowLoopback: cfg.AllowLoopbackDestinations, Secret: resolveSecret,
		MaxConns: connectionRoom(),
	})}
}

// errSecret hides why a secret could not be had: the text of the cause may hold a path or a value.
var errSecret = errors.New("server: secret is not available")

// resolveSecret reads a secret where its reference points on this node. It is read again whenever a target is opened.
func resolveSecret(ref webhook.SecretRef) (string, error) {
	if ref.Env != "" {
		if v := os.Getenv(ref.Env); v != "" {
			return v, nil
		}
		return "", errSecret
	}
	b, err := os.ReadFile(ref.File)
	if err != nil {
		return "", errSecret
	}
	return strings.TrimSpace(string(b)), nil
}

// Target opens the target of a destination version.
func (c *carrier) Target(d *shard.Destination) (host.Target, error) {
	if d.Adapter != adapterHTTP {
		return nil, fmt.Errorf("%w: %q", delivery.ErrUnknownAdapter, d.Adapter)
	}
	var h catalog.HTTPTarget
	if err := json.Unmarshal(d.Target, &h); err != nil {
		return nil, fmt.Errorf("%w: %w", delivery.ErrSpec, err)
	}
	spec := webhook.Spec{URL: h.URL, Strict: h.StatusVerdicts == catalog.VerdictsStrict, TLSPin: h.TLSPin}
	for _, kv := range h.Headers {
		spec.Headers = append(spec.Headers, webhook.Header{Name: kv.Name, Value: kv.Value})
	}
	for _, ref := range h.SigningSecrets {
		spec.Secrets = append(spec.Secrets, webhook.SecretRef{Env: ref.Env, File: ref.File})
	}
	t, err := c.http.Open(spec)
	if err != nil {
		return nil, err
	}
	return carried{t}, nil
}

// carried is a delivery target as the host sees it.
type carried struct{ target delivery.Target }

func (c carried) TryConn() (host.Conn, bool) {
	conn, ok := c.target.TryConn()
	if !ok {
		return nil, false
	}
	return carriedConn{conn}, true
}

func (c carried) Connect(ctx context.Context) (host.Conn, error) {
	conn, err := c.target.Connect(ctx)
	if err == nil {
		return carriedConn{conn}, nil
	}
	var failed *delivery.ConnectError
	if errors.As(err, &failed) {
		return nil, &host.ConnectFailure{Class: failed.Class, Detail: failed.Detail, Blocked: failed.Blocked}
	}
	return nil, &host.ConnectFailure{Class: "CONNECT_FAILED", Detail: delivery.Clean(err.Error())}
}

func (c carried) RequestHash(d *host.Delivery) [32]byte {
	r := request(d)
	return c.target.RequestHash(&r)
}

func (c carried) Close() { c.target.Close() }

type carriedConn struct{ conn delivery.Conn }

func (c carriedConn) Send(ctx context.Context, d *host.Delivery, gate func() error) shard.Outcome {
	r := request(d)
	if fault.Enabled {
		asked := gate
		gate = func() error {
			err := asked()
			if err == nil {
				fault.Stall(fault.PointSend)
			}
			return err
		}
	}
	o := c.conn.Send(ctx, &r, gate)
	return shard.Outcome{
		SideEffect: o.SideEffect, Disposition: o.Disposition, RetryAfter: o.RetryAfter, HasRetryAfter: o.HasRetryAfter,
		Evidence: shard.Evidence{
			Rule: o.Evidence.Rule, Statement: o.Evidence.Statement, ErrorClass: o.Evidence.ErrorClass, Detail: delivery.Clean(o.Evidence.Detail),
			Status: uint32(o.Evidence.Status), RemoteAddr: o.Evidence.RemoteAddr, BytesWritten: uint64(o.Evidence.BytesWritten),
			At: policy.Time(o.Evidence.At.UnixNano()),
		},
	}
}

func (c carriedConn) Release() { c.conn.Release() }

func request(d *host.Delivery) delivery.Request {
	r := delivery.Request{
		MessageID: d.MessageID, Generation: d.Generation, Attempt: d.Attempt, Payload: d.Payload, ContentType: d.ContentType,
		TraceParent: d.TraceParent, OrderingKey: d.OrderingKey,
	}
	if len(d.Attributes) > 0 {
		r.Attributes = make([]delivery.Attribute, len(d.Attributes))
		for i, a := range d.Attributes {
			r.Attributes[i] = delivery.Attribute{Name: a.Name, Value: a.Value}
		}
	}
	return r
}

// Files a node keeps for itself: the store's tables and logs, doors and their clients.
const (
	filesForNode  = 4096
	leastForSends = 256
)

// connectionRoom is how many connections to destinations fit the process's limit of open files. Without a bound, thousands of destinations could
// take the files that the store needs, and a lane's trouble would stop the node.
func connectionRoom() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return webhook.DefaultTotalConns
	}
	limit := int(min(l.Cur, 1<<20))
	return max(min(limit-filesForNode, limit/2), leastForSends)
}
