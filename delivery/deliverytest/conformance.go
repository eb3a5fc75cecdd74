package deliverytest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sealane/sealane/delivery"
	"github.com/sealane/sealane/policy"
)

// Behaviour is what the peer of a conformance test does with what it is sent.
type Behaviour int

// Behaviours. An adapter's harness makes each from its own protocol.
const (
	// Accepts takes everything and says so.
	Accepts Behaviour = iota
	// Refuses says that it does not take the message.
	Refuses
	// Silent takes the request and never answers.
	Silent
	// Drops takes the request and breaks the connection without an answer.
	Drops
	// Absent cannot be connected to.
	Absent
)

// Peer is one target and what its other end saw.
type Peer struct {
	Target delivery.Target
	// Seen is the number of requests that physically came. For Absent it may be nil.
	Seen func() int
}

// Factory makes a peer with a behaviour. What it starts ends with the test.
type Factory func(t *testing.T, b Behaviour) Peer

// settle bounds how long a call may take after its context ended, generously: it is a bound against hanging, not a measurement.
const settle = 20 * time.Second

// Run is the suite that every adapter passes.
func Run(t *testing.T, factory Factory) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Factory)
	}{
		{"accepted", testAccepted}, {"refused", testRefused}, {"silent", testSilent}, {"dropped", testDropped}, {"absent", testAbsent},
		{"gate", testGate}, {"gate is asked before anything is seen", testGateFirst}, {"cancelled before", testCancelledBefore},
		{"claim given back", testClaimGivenBack}, {"second send", testSecondSend}, {"release twice", testReleaseTwice},
		{"one request each", testOneRequestEach}, {"close", testClose}, {"request hash", testRequestHash},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, factory) })
	}
}

func testAccepted(t *testing.T, factory Factory) {
	p := factory(t, Accepts)
	for i := range 3 {
		if o := sendOnce(t, t.Context(), p.Target, passes); o.SideEffect != policy.Published || !o.Evidence.WroteRequest {
			t.Fatalf("%d: %+v", i, o)
		}
	}
	wantSeen(t, p, 3)
}

func testRefused(t *testing.T, factory Factory) {
	p := factory(t, Refuses)
	o := sendOnce(t, t.Context(), p.Target, passes)
	if o.SideEffect != policy.NotPublished || o.Evidence.Statement != delivery.StatementReceiver {
		t.Errorf("%+v", o)
	}
	wantSeen(t, p, 1)
}

func testSilent(t *testing.T, factory Factory) {
	p := factory(t, Silent)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	done := make(chan delivery.Outcome, 1)
	go func() { done <- sendOnce(t, ctx, p.Target, passes) }()
	select {
	case o := <-done:
		if o.SideEffect != policy.Unknown {
			t.Errorf("%+v", o)
		}
	case <-time.After(settle):
		t.Fatal("Send did not return after its context ended")
	}
	wantSeen(t, p, 1)
}

func testDropped(t *testing.T, factory Factory) {
	p := factory(t, Drops)
	if o := sendOnce(t, t.Context(), p.Target, passes); o.SideEffect != policy.Unknown || o.Evidence.BytesWritten == 0 {
		t.Errorf("%+v", o)
	}
	wantSeen(t, p, 1)
}

func testAbsent(t *testing.T, factory Factory) {
	p := factory(t, Absent)
	c, err := p.Target.Connect(t.Context())
	if err == nil {
		c.Release()
		t.Fatal("connected")
	}
	var failed *delivery.ConnectError
	if !errors.As(err, &failed) || failed.Class == "" || failed.Blocked || len(failed.Detail) > delivery.MaxDetailBytes {
		t.Errorf("%#v", err)
	}
	if _, ok := p.Target.TryConn(); ok || p.Target.Stats().Open != 0 {
		t.Errorf("a connection after a failure: %+v", p.Target.Stats())
	}
}

func testGate(t *testing.T, factory Factory) {
	p := factory(t, Accepts)
	asked := 0
	o := sendOnce(t, t.Context(), p.Target, func() error { asked++; return errors.New("no longer") })
	if o.SideEffect != policy.NotPublished || o.Disposition != policy.Fenced || o.Evidence.Statement != delivery.StatementBefore {
		t.Errorf("%+v", o)
	}
	if asked != 1 {
		t.Errorf("the gate was asked %d times", asked)
	}
	// The next one passes: only the connection was spent.
	if o := sendOnce(t, t.Context(), p.Target, passes); o.SideEffect != policy.Published {
		t.Errorf("%+v", o)
	}
	wantSeen(t, p, 1)
}

func testGateFirst(t *testing.T, factory Factory) {
	p := factory(t, Accepts)
	for range 3 { // the first on a new connection, then on one that was used
		before, asked := p.Seen(), 0
		sendOnce(t, t.Context(), p.Target, func() error {
			asked++
			if p.Seen() != before {
				t.Error("the peer saw the request before the gate was asked")
			}
			return nil
		})
		if asked != 1 {
			t.Errorf("the gate was asked %d times", asked)
		}
	}
	wantSeen(t, p, 3)
}

func testCancelledBefore(t *testing.T, factory Factory) {
	p := factory(t, Accepts)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := sendOnce(t, ctx, p.Target, passes)
	if o.SideEffect != policy.NotPublished || o.Evidence.Statement != delivery.StatementBefore {
		t.Errorf("%+v", o)
	}
	wantSeen(t, p, 0)
}

func testClaimGivenBack(t *testing.T, factory Factory) {
	p := factory(t, Accepts)
	Claim(t, p.Target).Release()
	c, ok := p.Target.TryConn()
	if !ok {
		t.Fatal("a connection that was not used is not kept")
	}
	c.Release()
	if s := p.Target.Stats(); s.Open != 1 || s.Idle != 1 {
		t.Errorf("%+v", s)
	}
	if o := sendOnce(t, t.Context(), p.Target, passes); o.SideEffect != policy.Published {
		t.Errorf("%+v", o)
	}
	wantSeen(t, p, 1)
}

func testSecondSend(t *testing.T, factory Factory) {
	p := factory(t, Accepts)
	c := Claim(t, p.Target)
	CheckOutcome(t, c.Send(t.Context(), Message(), passes))
	o := c.Send(t.Context(), Message(), passes)
	CheckOutcome(t, o)
	c.Release()
	if o.SideEffect != policy.NotPublished || o.Disposition != policy.AdapterBug {
		t.Errorf("%+v", o)
	}
	wantSeen(t, p, 1)
}

func testReleaseTwice(t *testing.T, factory Factory) {
	p := factory(t, Accepts)
	c := Claim(t, p.Target)
	c.Release()
	c.Release()
	if s := p.Target.Stats(); s.Open != 1 || s.Idle != 1 {
		t.Errorf("%+v", s)
	}
	if o := c.Send(t.Context(), Message(), passes); o.Disposition != policy.AdapterBug {
		t.Errorf("%+v", o)
	}
	wantSeen(t, p, 0)
}

func testOneRequestEach(t *testing.T, factory Factory) {
	p := factory(t, Accepts)
	const workers, each = 8, 25
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				c, ok := p.Target.TryConn()
				if !ok {
					var err error
					if c, err = p.Target.Connect(t.Context()); err != nil {
						t.Errorf("connect: %v", err)
						return
					}
				}
				o := c.Send(t.Context(), Message(), passes)
				c.Release()
				if o.SideEffect != policy.Published {
					t.Errorf("%+v", o)
				}
			}
		})
	}
	wg.Wait()
	wantSeen(t, p, workers*each)
	if s := p.Target.Stats(); s.Open > workers || s.Open != s.Idle {
		t.Errorf("%+v after %d workers", s, workers)
	}
}

func testClose(t *testing.T, factory Factory) {
	p := factory(t, Accepts)
	idle, inHand := Claim(t, p.Target), Claim(t, p.Target)
	idle.Release()
	p.Target.Close()
	p.Target.Close()
	if s := p.Target.Stats(); s.Open != 1 || s.Idle != 0 {
		t.Errorf("after Close: %+v", s)
	}
	o := inHand.Send(t.Context(), Message(), passes)
	CheckOutcome(t, o)
	if o.SideEffect != policy.Published {
		t.Errorf("a connection in hand is not usable after Close: %+v", o)
	}
	inHand.Release()
	if s := p.Target.Stats(); s.Open != 0 {
		t.Errorf("after Release: %+v", s)
	}
	if c, err := p.Target.Connect(t.Context()); err == nil {
		c.Release()
		t.Error("a closed target connects")
	}
}

func testRequestHash(t *testing.T, factory Factory) {
	target := factory(t, Accepts).Target
	base := target.RequestHash(Message())
	for name, change := range map[string]func(*delivery.Request){
		"the message": func(r *delivery.Request) { r.MessageID += "x" }, "the generation": func(r *delivery.Request) { r.Generation++ },
		"the payload": func(r *delivery.Request) { r.Payload = []byte("payloae") }, "an attribute": func(r *delivery.Request) { r.Attributes[1].Value = "3" },
		"the order": func(r *delivery.Request) {
			r.Attributes[0], r.Attributes[1] = r.Attributes[1], r.Attributes[0]
		},
		"a boundary": func(r *delivery.Request) {
			r.Attributes = []delivery.Attribute{{Name: "a1", Value: ""}, {Name: "b", Value: "2"}}
		},
	} {
		r := Message()
		change(r)
		if target.RequestHash(r) == base {
			t.Errorf("%s does not change the hash", name)
		}
	}
	again := Message()
	again.Attempt = 9
	if target.RequestHash(again) != base {
		t.Error("the attempt changes the hash")
	}
}
