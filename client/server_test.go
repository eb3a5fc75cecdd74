package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// hammer makes calls without pause, each of which must succeed.
type hammer struct {
	t    *testing.T
	stop chan struct{}
	done atomic.Int64
	wg   sync.WaitGroup
}

func (h *hammer) loop(name string, f func(i int) error) {
	h.wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-h.stop:
				return
			default:
			}
			if err := f(i); err != nil {
				h.t.Errorf("%s %d: %v", name, i, err)
				return
			}
			h.done.Add(1)
		}
	})
}

// All nodes are restarted one after the other under load, by a client that was told of one of them: no call fails, and nothing is doubled.
func TestRollingRestart(t *testing.T) {
	c := newFakeCluster(t, 3)
	cl := c.dial(c.nodes[0].addr, Options{})
	if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); err != nil {
		t.Fatal(err)
	}
	until(t, "the other nodes are known", func() bool { return cl.nodes.size() == 3 })

	h := &hammer{t: t, stop: make(chan struct{})}
	for w := range 3 {
		h.loop("submit", func(i int) error {
			_, err := cl.Submit(t.Context(), Message{Destination: "d", IdempotencyKey: fmt.Sprintf("u%d-%d", w, i)})
			return err
		})
	}
	h.loop("read", func(int) error {
		_, _, err := cl.Get(t.Context(), "m", ReadOptions{})
		return err
	})
	s := cl.Stream(t.Context())
	var streamed atomic.Int64
	h.loop("stream", func(i int) error {
		return s.Submit(Message{Destination: "d", IdempotencyKey: fmt.Sprint("s", i)}, func(_ Accepted, err error) {
			if err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
			streamed.Add(1)
		})
	})
	progress := func() {
		t.Helper()
		before, sent := h.done.Load(), streamed.Load()
		until(t, "calls go on", func() bool { return h.done.Load() > before+50 && streamed.Load() > sent+50 || t.Failed() })
	}
	for round := range 2 {
		for i, n := range c.nodes {
			progress()
			c.leader.Store(int32((i + 1) % 3))
			if round == 0 {
				n.stop()
			} else {
				n.kill()
			}
			progress()
			n.start()
		}
	}
	progress()
	close(h.stop)
	h.wg.Wait()
	s.Close()
	if n := len(c.log); n != len(c.kept) {
		t.Errorf("%d accepted, %d kept", n, len(c.kept))
	}
}

// A listener that accepts connections and never says a word holds nobody up for long.
func TestNodeThatHangsAfterAccept(t *testing.T) {
	c := newFakeCluster(t, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hung := l.Addr().String()
	cl := c.dial(hung+","+c.nodes[0].addr, Options{})
	cl.nodes.start = 0
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := cl.Submit(ctx, Message{Destination: "d"}); err != nil {
		t.Error(err)
	}
	s := cl.Stream(ctx)
	if a := submitAll(t, s, 100); true {
		s.Close()
		if len(a.got) != 100 || a.got["k0000"][0] != "accepted" {
			t.Errorf("answers %v", a.got)
		}
	}
}

// Once the leader is known submits go straight to it, streams too.
func TestHintsSaveHops(t *testing.T) {
	c := newFakeCluster(t, 3)
	c.leader.Store(2)
	cl := c.dial(c.nodes[0].addr, Options{})
	direct := func() bool {
		before := c.nodes[2].direct.Load()
		if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); err != nil {
			t.Fatal(err)
		}
		return c.nodes[2].direct.Load() > before
	}
	until(t, "submits go to the leader", direct)
	hops := c.nodes[0].hops.Load() + c.nodes[1].hops.Load()
	s := cl.Stream(t.Context())
	a := submitAll(t, s, 500)
	s.Close()
	if after := c.nodes[0].hops.Load() + c.nodes[1].hops.Load(); after != hops || len(a.got) != 500 {
		t.Errorf("%d hops, %d answers", after-hops, len(a.got))
	}
	c.leader.Store(1)
	until(t, "they follow it", func() bool {
		cl.view.due.Store(0)
		before := c.nodes[1].direct.Load()
		if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); err != nil {
			t.Fatal(err)
		}
		return c.nodes[1].direct.Load() > before
	})
}

func TestGetAndWaitPosition(t *testing.T) {
	c := newFakeCluster(t, 2)
	cl := c.dial(c.addrs(), Options{})
	m, read, err := cl.Get(t.Context(), "m", ReadOptions{Position: "0:3", Linearizable: true, IncludePayload: true, Wait: time.Second})
	if err != nil || m.GetId() != "m" || read.GetAppliedPosition() != "0:5" {
		t.Errorf("%v, %v, %v", m, read, err)
	}
	var pending *PendingError
	if _, _, err := cl.Get(t.Context(), "m", ReadOptions{Position: "0:9"}); !errors.As(err, &pending) || pending.Applied != "0:5" || pending.Position != "0:9" {
		t.Errorf("got %v", err)
	}
	if err := cl.WaitPosition(t.Context(), "0:3"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	if err := cl.WaitPosition(ctx, "0:9"); !errors.As(err, &pending) {
		t.Errorf("got %v", err)
	}
}

// A watch goes on where it was broken off: every change once.
func TestWatchResumes(t *testing.T) {
	c := newFakeCluster(t, 3)
	cl := c.dial(c.addrs(), Options{})
	next := uint32(1)
	for r, err := range cl.Watch(t.Context(), &sealanev1.WatchMessageRequest{Id: "m"}) {
		if err != nil || r.GetMessage().GetGeneration() != next {
			t.Fatalf("got %v, %v; want %d", r, err, next)
		}
		next++
	}
	if next != 6 {
		t.Errorf("ended before change %d", next)
	}
	for _, err := range cl.Watch(t.Context(), &sealanev1.WatchMessageRequest{Id: "m", Position: "x"}) {
		if e, ok := AsError(err); !ok || e.Code != codes.InvalidArgument {
			t.Errorf("got %v", err)
		}
	}
	var seen []string
	for op, err := range cl.WatchOperation(t.Context(), "op") {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, fmt.Sprintf("%s %d", op.GetState(), op.GetProgress().GetApplied()))
	}
	if got := strings.Join(seen, ", "); got != "APPLYING 0, APPLYING 1, APPLYING 2, COMPLETED 3" {
		t.Errorf("saw %s", got)
	}
}

// DialOptions reach every connection, learned ones too, with the address as it was named.
func TestDialOptions(t *testing.T) {
	c := newFakeCluster(t, 2)
	names := map[string]string{"one:1": c.nodes[0].addr, "two:1": c.nodes[1].addr}
	var mu sync.Mutex
	dialled := map[string]int{}
	cl := c.dial("one:1,two:1", Options{Static: true, DialOptions: []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			mu.Lock()
			dialled[addr]++
			mu.Unlock()
			return new(net.Dialer).DialContext(ctx, "tcp", names[addr])
		}),
	}})
	if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); err != nil {
		t.Fatal(err)
	}
	until(t, "both nodes are known by name", func() bool {
		return !strings.Contains(cl.nodes.lockedText(), "= ") && cl.nodes.lockedText() != "one:1= two:1="
	})
	mu.Lock()
	defer mu.Unlock()
	for addr := range dialled {
		if names[addr] == "" {
			t.Errorf("dialled %s", addr)
		}
	}
}

func (p *pool) lockedText() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text()
}

func TestDialOptionsThatGRPCRefuses(t *testing.T) {
	_, err := Dial("127.0.0.1:1", Options{DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(nil)}})
	if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "DialOptions") {
		t.Errorf("got %v", err)
	}
}

func TestAddresses(t *testing.T) {
	many := strings.Repeat("h:1,", MaxAddresses) // each once only
	for _, c := range []struct{ in, want, err string }{
		{"a:1", "a:1", ""},
		{" a:1 ,b:2,a:1", "a:1 b:2", ""},
		{"", "", `""`},
		{"a:1,", "", `""`},
		{"a:1,b", "", `"b"`},
		{many + "x:1", "h:1 x:1", ""},
	} {
		got, err := addresses(c.in)
		if strings.Join(got, " ") != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %v, %v", c.in, got, err)
		}
	}
	var list []string
	for i := range MaxAddresses + 1 {
		list = append(list, fmt.Sprint("h:", i))
	}
	if _, err := addresses(strings.Join(list, ",")); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "at most 64") {
		t.Errorf("got %v", err)
	}
}
