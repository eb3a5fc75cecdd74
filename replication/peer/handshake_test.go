package peer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestOptions(t *testing.T) {
	r := newRig(t)
	good := r.options("n1")
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"node":          {func(o *Options) { o.Node = "" }, "node id"},
		"node join":     {func(o *Options) { o.Node, o.Replica = AnyNode, AnyNode+"@1" }, "stands for a node"},
		"replica":       {func(o *Options) { o.Replica = "n2@1" }, "replica id"},
		"boot":          {func(o *Options) { o.Boot = 0 }, "boot id"},
		"listener":      {func(o *Options) { o.Listener = nil }, "Listener"},
		"resolve":       {func(o *Options) { o.Resolve = nil }, "Resolve"},
		"several words": {func(o *Options) { o.Resolve, o.Listener = nil, nil }, "Resolve"},
	} {
		o := good
		c.change(&o)
		_, err := New(o)
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := good.Listener.Close(); err != nil {
		t.Fatal(err)
	}
}

// Who must not talk does not: neither frames nor calls get through, in either direction, and the reason is told.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		first, second func(*Options)
		want          string
	}{
		"another cluster": {
			func(o *Options) { o.Incarnation = func() uint64 { return 7 } }, func(o *Options) { o.Incarnation = func() uint64 { return 8 } }, "another cluster"},
		"another node at the address": {
			func(o *Options) { o.Resolve = func(string) (string, bool) { return at("n2"), true } }, func(o *Options) { o.Node, o.Replica = "n3", rid("n3") }, "n3"},
		"this node's id": {
			func(o *Options) { o.Resolve = func(string) (string, bool) { return at("n2"), true } }, func(o *Options) { o.Node, o.Replica = "n1", "n1@other" }, "n1"},
		"refused by the other": {
			nil, func(o *Options) { o.Admit = func(Peer) error { return errors.New("was removed") } }, "was removed"},
		"refused by this one": {
			func(o *Options) { o.Admit = func(Peer) error { return errors.New("was removed") } }, nil, "was removed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				defer r.close()
				n1, n2 := r.start("n1", c.first), r.start("n2", c.second)
				there := answer(n2.Transport(1), nil)
				_, err := send(n1.Transport(1), "n2", heartbeat("n1", 1))
				wantErr(t, err, ErrUnreachable, "a message")
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("the error does not say why: %v", err)
				}
				if err := check(n1, "n2"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), c.want) {
					t.Errorf("a call: %v", err)
				}
				if len(there.seen()) != 0 {
					t.Error("a message got through")
				}
				if statusOf(t, n1, "n2").Reachable {
					t.Error("it counts as reachable")
				}
			})
		})
	}
}

// The incarnation may become known later, without a new connection, and then counts for every call.
func TestIncarnationLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		var own uint64
		n1 := r.start("n1", func(o *Options) { o.Incarnation = func() uint64 { return own } })
		r.start("n2", func(o *Options) { o.Incarnation = func() uint64 { return 5 } })
		if err := check(n1, "n2"); err != nil {
			t.Fatal(err)
		}
		if got := statusOf(t, n1, "n2").Peer.Incarnation; got != 5 {
			t.Fatalf("incarnation %d", got)
		}
		synctest.Wait()
		own = 6
		if err := check(n1, "n2"); status.Code(err) != codes.FailedPrecondition {
			t.Fatalf("got %v", err)
		}
	})
}

// Somebody with another version, or who is no node, is told so.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "n1")
		defer r.close()
		cc, err := grpc.NewClient("passthrough:///"+at("n1"), grpc.WithContextDialer(r.net.Dialer("stranger")), grpc.WithTransportCredentials(insecureForTest()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := cc.Close(); err != nil {
				t.Error(err)
			}
		}()
		other := Peer{Version: ProtocolVersion + 1}
		for name, c := range map[string]struct {
			md   metadata.MD
			want string
		}{
			"no identity":     {nil, "not a node"},
			"another version": {metadata.Pairs(identityKey, string(appendIdentity(nil, other, ""))), "want 1"},
			"garbage":         {metadata.Pairs(identityKey, "\x01\xff"), "malformed"},
		} {
			ctx := metadata.NewOutgoingContext(t.Context(), c.md)
			_, err := healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{})
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A registered service knows who calls, and AnyNode reaches a member whose id is not known.
func TestFromAndAnyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		spy := &spyHealth{}
		n1 := r.start("n1", func(o *Options) {
			o.Resolve = func(node string) (string, bool) { return at("n2"), node == AnyNode || node == "n2" }
		})
		r.start("n2", func(o *Options) {
			o.Register = func(s grpc.ServiceRegistrar) { healthpb.RegisterHealthServer(s, spy) }
		})
		for _, name := range []string{"n2", AnyNode} {
			if err := check(n1, name); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if spy.from != (Peer{Node: "n1", Replica: rid("n1"), Boot: 1, Version: 1}) {
				t.Fatalf("%s: from %+v", name, spy.from)
			}
		}
		conn, err := n1.Conn("n2")
		if err != nil {
			t.Fatal(err)
		}
		stream, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || m.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Fatalf("stream: %v, %v", m, err)
		}
		if _, err := n1.Conn("n1"); !errors.Is(err, ErrIdentity) {
			t.Fatalf("a connection to itself: %v", err)
		}
		if _, err := n1.Conn(""); !errors.Is(err, ErrIdentity) {
			t.Fatalf("a connection to nobody: %v", err)
		}
		if err := n1.Forget("n2"); err != nil {
			t.Fatal(err)
		}
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err == nil {
			t.Fatal("a forgotten connection works")
		}
		if err := check(n1, "n2"); err != nil {
			t.Fatalf("after Forget: %v", err)
		}
	})
}

type spyHealth struct {
	healthpb.UnimplementedHealthServer
	from Peer
}

func (s *spyHealth) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	s.from, _ = From(ctx)
	return &healthpb.HealthCheckResponse{}, nil
}

func (s *spyHealth) Watch(_ *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	if _, ok := From(stream.Context()); !ok {
		return status.Error(codes.Internal, "caller unknown")
	}
	return stream.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING})
}

// An address that is not known, and one that changes, are asked for again at every try.
func TestAddressChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		type entry struct {
			address string
			ok      bool
		}
		book := make(chan entry, 1)
		book <- entry{}
		n1 := r.start("n1", func(o *Options) {
			o.Resolve = func(string) (string, bool) {
				e := <-book
				book <- e
				return e.address, e.ok
			}
		})
		r.start("n2", nil)
		set := func(e entry) { <-book; book <- e }
		t1 := n1.Transport(1)
		answer(r.nodes["n2"].Transport(1), nil)
		for _, e := range []entry{{}, {"nowhere", true}} {
			set(e)
			_, err := send(t1, "n2", heartbeat("n1", 1))
			wantErr(t, err, ErrUnreachable, e.address)
		}
		set(entry{at("n2"), true})
		began := time.Now()
		mustSend(t, t1, "n2", heartbeat("n1", 1))
		if took := time.Since(began); took > time.Second {
			t.Fatalf("reached after %v", took)
		}
	})
}
