package webhook

import (
	"net"
	"testing"

	"github.com/sealane/sealane/delivery/deliverytest"
)

// TestConformance over plain HTTP/1, HTTP/1 over TLS, and HTTP/2.
func TestConformance(t *testing.T) {
	steps := map[deliverytest.Behaviour]deliverytest.Step{
		deliverytest.Accepts: deliverytest.Answer("200 OK"), deliverytest.Refuses: deliverytest.Answer("422 No"),
		deliverytest.Silent: deliverytest.Hang, deliverytest.Drops: deliverytest.Drop(false),
	}
	frameSteps := map[deliverytest.Behaviour]deliverytest.FrameStep{
		deliverytest.Accepts: deliverytest.AnswerFrames(200), deliverytest.Refuses: deliverytest.AnswerFrames(422),
		deliverytest.Silent: deliverytest.IgnoreFrames, deliverytest.Drops: deliverytest.DropFrames,
	}
	over := func(t *testing.T, r *deliverytest.Receiver) deliverytest.Peer {
		return deliverytest.Peer{
			Target: openWith(t, Options{AllowLoopback: true, Roots: r.Roots()}, Spec{URL: r.URL()}),
			Seen:   func() int { return len(r.Requests()) },
		}
	}
	t.Run("http1", func(t *testing.T) {
		deliverytest.Run(t, func(t *testing.T, b deliverytest.Behaviour) deliverytest.Peer {
			if b == deliverytest.Absent {
				return absent(t, "http")
			}
			return over(t, deliverytest.NewReceiver(t, steps[b]))
		})
	})
	t.Run("http1 tls", func(t *testing.T) {
		deliverytest.Run(t, func(t *testing.T, b deliverytest.Behaviour) deliverytest.Peer {
			if b == deliverytest.Absent {
				return absent(t, "https")
			}
			return over(t, deliverytest.NewTLSReceiver(t, steps[b]))
		})
	})
	t.Run("http2", func(t *testing.T) {
		deliverytest.Run(t, func(t *testing.T, b deliverytest.Behaviour) deliverytest.Peer {
			if b == deliverytest.Absent {
				return absent(t, "https")
			}
			r := deliverytest.NewFrameReceiver(t, false, frameSteps[b])
			return deliverytest.Peer{
				Target: openWith(t, Options{AllowLoopback: true, Roots: r.Roots()}, Spec{URL: r.URL()}),
				Seen:   func() int { return int(r.Requests()) },
			}
		})
	})
}

// absent is a target at an address where nobody listens.
func absent(t *testing.T, scheme string) deliverytest.Peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return deliverytest.Peer{Target: open(t, Spec{URL: scheme + "://" + l.Addr().String()})}
}
