package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/storage"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// A panic is an answer and a line in the log, not the end of the process; what is the node's fault is logged with its cause, what is the
// client's is not.
func TestGuard(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler func() error
		code    codes.Code
		logged  string // at level error; empty: nothing
	}{
		{"fine", func() error { return nil }, codes.OK, ""},
		{"panic", func() error { panic("boom") }, codes.Internal, "boom"},
		{"corruption", func() error { return answered(fmt.Errorf("%w: table 7", storage.ErrCorrupt)) }, codes.DataLoss, "table 7"},
		{"refused", func() error { return answered(shard.ErrTooLate) }, codes.FailedPrecondition, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			m := &metrics{}
			m.register(newTestRegistry())
			g := &guard{log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})), metrics: m}
			info := &grpc.UnaryServerInfo{FullMethod: "/x/Y"}
			_, err := g.unary(t.Context(), nil, info, func(context.Context, any) (any, error) { return nil, c.handler() })
			if status.Code(err) != c.code {
				t.Fatal(err)
			}
			if st := status.Convert(err); c.logged != "" && strings.Contains(st.Message(), c.logged) {
				t.Errorf("the client gets %q", st.Message())
			}
			if got := log.String(); (got != "") != (c.logged != "") || !strings.Contains(got, c.logged) {
				t.Errorf("logged %q", got)
			}
			if counterValue(t, m.calls.WithLabelValues("grpc", "/x/Y", c.code.String())) != 1 {
				t.Error("not counted")
			}
		})
	}
}

// The trace of a call goes with the message unless the message has its own; an invalid one is as good as none.
func TestTraceOfTheCall(t *testing.T) {
	b := startNode(t)
	b.apply(t, "out", "http://127.0.0.1:1/never")
	own := "00-11111111111111111111111111111111-2222222222222222-00"
	for _, c := range []struct{ path, body, header, want string }{
		{"/v1/messages", `{"destination":"out"}`, goodTrace, goodTrace},
		{"/v1/messages", `{"destination":"out","traceparent":"` + own + `"}`, goodTrace, own},
		{"/v1/messages", `{"destination":"out"}`, "nonsense", ""},
		{"/v1/destinations/out/messages", "x", goodTrace, goodTrace},
		{"/v1/destinations/out/messages", "x", "nonsense", ""},
	} {
		code, out := b.call(t, http.MethodPost, c.path, c.body, "traceparent", c.header)
		if code != http.StatusOK {
			t.Fatal(out)
		}
		if got := b.get(t, out["message_id"].(string)).GetTraceparent(); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.path, c.body, got, c.want)
		}
	}
}

// A message that a full disk would endanger is refused with certainty, over every way in, and taken again when there is room.
func TestDiskLow(t *testing.T) {
	b := startNode(t)
	b.apply(t, "out", "http://127.0.0.1:1/never")
	b.n.space.low.Store(true)
	want := problem{reason: "DISK_LOW", acceptance: "NOT_ACCEPTED"}
	_, err := b.delivery.Submit(t.Context(), &sealanev1.SubmitRequest{Destination: "out"})
	if got := problemOf(t, err); got != want {
		t.Errorf("%+v", got)
	}
	code, out := b.call(t, http.MethodPost, "/v1/destinations/out/messages", "x")
	if got := problemIn(out); code != http.StatusTooManyRequests || got != want {
		t.Errorf("%d %+v", code, got)
	}
	if code, out = b.call(t, http.MethodGet, "/readyz", ""); code != http.StatusServiceUnavailable || len(out["reasons"].([]any)) != 1 {
		t.Errorf("%d %v", code, out)
	}
	if code, _ = b.call(t, http.MethodGet, "/healthz", ""); code != http.StatusOK {
		t.Errorf("%d", code)
	}
	b.n.space.low.Store(false)
	b.submit(t, &sealanev1.SubmitRequest{Destination: "out"})
}

// An error keeps its cause on its way out, for the log.
func TestAnsweredKeepsTheCause(t *testing.T) {
	err := answered(answered(storage.ErrCorrupt))
	if !errors.Is(err, storage.ErrCorrupt) || status.Code(err) != codes.DataLoss || reasonOf(status.Convert(err)) != "STATE_CORRUPT" {
		t.Fatal(err)
	}
}
