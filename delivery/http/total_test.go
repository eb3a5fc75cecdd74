package webhook

import (
	"errors"
	"testing"
	"time"

	"github.com/sealane/sealane/delivery"
	"github.com/sealane/sealane/delivery/deliverytest"
)

// TestTotalConnections: the targets of one node share a bound, so that many destinations cannot take the files that the node needs; and from half
// of it on nothing is kept idle.
func TestTotalConnections(t *testing.T) {
	r := deliverytest.NewReceiver(t, deliverytest.Answer("200 OK"))
	a := New(Options{AllowLoopback: true, MaxConns: 4})
	var hands []delivery.Conn
	for i := range 5 {
		target, err := a.Open(Spec{URL: r.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(target.Close)
		c, err := target.Connect(t.Context())
		if i < 4 {
			if err != nil {
				t.Fatal(err)
			}
			hands = append(hands, c)
			continue
		}
		var full *delivery.ConnectError
		if !errors.As(err, &full) || full.Class != ClassFull || full.Blocked {
			t.Errorf("the fifth connection: %v", err)
		}
	}
	for _, h := range hands {
		h.Release()
	}
	if n := a.open.Load(); n != 2 {
		t.Errorf("%d connections are kept, want half of 4", n)
	}
	if o := send(t, open(t, Spec{URL: r.URL()}), message(), 5*time.Second); o.Evidence.Status != 200 {
		t.Errorf("%+v", o)
	}
}
