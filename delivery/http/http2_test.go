package webhook

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/sealane/sealane/delivery"
	"github.com/sealane/sealane/delivery/deliverytest"
	"github.com/sealane/sealane/policy"
	"golang.org/x/net/http2"
)

// TestFrameRows are the rows that only HTTP/2 has (H17, H18), and the common ones over it, each as the first and as the second request of a
// connection, because the library treats the first one's stream apart.
func TestFrameRows(t *testing.T) {
	informational := func(s *deliverytest.Stream) (bool, error) {
		if err := s.Head(103, false); err != nil {
			return false, err
		}
		return true, s.Framer.WriteRSTStream(s.ID, http2.ErrCodeInternal)
	}
	answerThenReset := func(s *deliverytest.Stream) (bool, error) {
		if err := s.Head(202, false); err != nil {
			return false, err
		}
		return true, s.Framer.WriteRSTStream(s.ID, http2.ErrCodeInternal)
	}
	garbage := func(s *deliverytest.Stream) (bool, error) {
		_, err := s.Conn.Write(bytes.Repeat([]byte{0xff}, 64))
		return true, err
	}
	no, lost := policy.NotPublished, policy.Unknown
	for _, c := range []struct {
		name  string
		step  deliverytest.FrameStep
		rule  string
		side  policy.SideEffect
		d     policy.Disposition
		class string
	}{
		{"200", deliverytest.AnswerFrames(200), "HTTP_H4", policy.Published, policy.OK, ""},
		{"2xx, then reset", answerThenReset, "HTTP_H4", policy.Published, policy.OK, ""},
		{"422", deliverytest.AnswerFrames(422), "HTTP_H8", no, policy.MessagePermanent, "HTTP_422"},
		{"REFUSED_STREAM", deliverytest.ResetStream(http2.ErrCodeRefusedStream), "HTTP_H17", no, policy.MessageRetriable, classRefusedStream},
		{"GOAWAY below ours", deliverytest.GoAway(-1, http2.ErrCodeNo), "HTTP_H17", no, policy.MessageRetriable, classGoAway},
		{"GOAWAY below ours, with an error", deliverytest.GoAway(-1, http2.ErrCodeEnhanceYourCalm), "HTTP_H17", no, policy.MessageRetriable, classGoAway},
		{"GOAWAY at ours", deliverytest.GoAway(0, http2.ErrCodeNo), "HTTP_H3", lost, policy.MessageRetriable, classReset},
		{"GOAWAY above ours", deliverytest.GoAway(1<<20, http2.ErrCodeNo), "HTTP_H3", lost, policy.MessageRetriable, classReset},
		{"reset: internal error", deliverytest.ResetStream(http2.ErrCodeInternal), "HTTP_H18", lost, policy.MessageRetriable, classStreamReset},
		{"reset: cancel", deliverytest.ResetStream(http2.ErrCodeCancel), "HTTP_H18", lost, policy.MessageRetriable, classStreamReset},
		{"reset: protocol error", deliverytest.ResetStream(http2.ErrCodeProtocol), "HTTP_H18", lost, policy.MessageRetriable, classStreamReset},
		{"1xx, then reset", informational, "HTTP_H18", lost, policy.MessageRetriable, classStreamReset},
		{"dropped", deliverytest.DropFrames, "HTTP_H3", lost, policy.MessageRetriable, classReset},
		{"no answer", deliverytest.IgnoreFrames, "HTTP_H3", lost, policy.MessageRetriable, classTimeout},
		{"not frames", garbage, "HTTP_H3", lost, policy.MessageRetriable, classGarbled},
	} {
		for _, second := range []bool{false, true} {
			name, script := c.name, []deliverytest.FrameStep{c.step}
			if second {
				name, script = c.name+", second request", []deliverytest.FrameStep{deliverytest.AnswerFrames(200), c.step}
			}
			for _, payload := range []string{"", "body"} {
				t.Run(name+" "+payload, func(t *testing.T) {
					r := deliverytest.NewFrameReceiver(t, false, script...)
					target := openWith(t, Options{AllowLoopback: true, Roots: r.Roots()}, Spec{URL: r.URL()})
					m := message()
					m.Payload = []byte(payload)
					if second {
						send(t, target, m, 5*time.Second)
					}
					o := send(t, target, m, 300*time.Millisecond)
					deliverytest.CheckOutcome(t, o)
					if !is(o, c.rule, c.side, c.d, c.class) || !o.Evidence.WroteRequest {
						t.Errorf("%+v", o)
					}
					if n := r.Requests(); n != int64(len(script)) {
						t.Errorf("the receiver saw %d requests, want %d", n, len(script))
					}
				})
			}
		}
	}
}

// TestFrameEarlyTimeout is H11 over HTTP/2: the flow-control window is smaller than the payload, so the end was never sent.
func TestFrameEarlyTimeout(t *testing.T) {
	r := deliverytest.NewFrameReceiver(t, true, deliverytest.AnswerFrames(408))
	target := openWith(t, Options{AllowLoopback: true, Roots: r.Roots()}, Spec{URL: r.URL()})
	m := message()
	m.Payload = make([]byte, 1<<20)
	o := send(t, target, m, 5*time.Second)
	if !is(o, "HTTP_H11", policy.NotPublished, policy.MessageRetriable, "HTTP_408") || o.Evidence.WroteRequest || o.Evidence.Statement != delivery.StatementReceiver {
		t.Errorf("%+v", o)
	}
	early := deliverytest.NewFrameReceiver(t, true, deliverytest.AnswerFrames(413))
	target = openWith(t, Options{AllowLoopback: true, Roots: early.Roots()}, Spec{URL: early.URL()})
	if o := send(t, target, m, 5*time.Second); !is(o, "HTTP_H8", policy.NotPublished, policy.MessagePermanent, "HTTP_413") || target.Stats().Open != 0 {
		t.Errorf("a connection with half a request on it was kept: %+v, %+v", o, target.Stats())
	}
	m.Payload = []byte("small")
	whole := deliverytest.NewFrameReceiver(t, false, deliverytest.AnswerFrames(408))
	target = openWith(t, Options{AllowLoopback: true, Roots: whole.Roots()}, Spec{URL: whole.URL()})
	if o := send(t, target, m, 5*time.Second); !is(o, "HTTP_H11", policy.Unknown, policy.MessageRetriable, "HTTP_408") {
		t.Errorf("%+v", o)
	}
}

// TestFrameIdleGoAway: a peer that says goodbye while the connection is idle is believed before anything is admitted.
func TestFrameIdleGoAway(t *testing.T) {
	step := func(s *deliverytest.Stream) (bool, error) {
		if err := s.Head(200, true); err != nil {
			return false, err
		}
		return true, s.Framer.WriteGoAway(s.ID, http2.ErrCodeNo, nil)
	}
	r := deliverytest.NewFrameReceiver(t, false, step)
	target := openWith(t, Options{AllowLoopback: true, Roots: r.Roots()}, Spec{URL: r.URL()})
	if o := send(t, target, message(), 5*time.Second); o.SideEffect != policy.Published {
		t.Fatalf("%+v", o)
	}
	eventually(t, "the connection is still handed out", func() bool {
		conn, ok := target.TryConn()
		if ok {
			conn.Release()
		}
		return !ok
	})
	if o := send(t, target, message(), 5*time.Second); o.SideEffect != policy.Published {
		t.Errorf("a new connection: %+v", o)
	}
}

// TestFrameNoSlot: a connection on which the server permits no further stream is not handed out.
func TestFrameNoSlot(t *testing.T) {
	step := func(s *deliverytest.Stream) (bool, error) {
		if err := s.Framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}); err != nil {
			return false, err
		}
		return true, s.Head(200, true)
	}
	r := deliverytest.NewFrameReceiver(t, false, step)
	target := openWith(t, Options{AllowLoopback: true, Roots: r.Roots()}, Spec{URL: r.URL()})
	if o := send(t, target, message(), 5*time.Second); o.SideEffect != policy.Published {
		t.Fatalf("%+v", o)
	}
	if _, ok := target.TryConn(); ok || target.Stats().Open != 0 {
		t.Errorf("a connection without a slot is handed out or kept: %+v", target.Stats())
	}
	if n := r.Requests(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestFramesAnyCut: however a direction is cut into pieces, the same is seen.
func TestFramesAnyCut(t *testing.T) {
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	for _, err := range []error{
		f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 7, BlockFragment: make([]byte, 300), EndHeaders: true}),
		f.WriteData(7, true, make([]byte, 20)), f.WriteRSTStream(7, http2.ErrCodeRefusedStream), f.WriteGoAway(5, http2.ErrCodeNo, []byte("debug")),
		f.WritePing(false, [8]byte{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := seen{headers: true, stream: 7, ended: true, reset: true, resetOn: 7, resetCode: codeRefusedStream, goAway: true, lastID: 5}
	for size := 1; size <= b.Len(); size++ {
		if got := inPieces(b.Bytes(), size); got != want {
			t.Fatalf("in pieces of %d: %+v", size, got)
		}
	}
}

// inPieces scans and joins what the pieces contained.
func inPieces(p []byte, size int) (all seen) {
	var f frames
	for len(p) > 0 {
		n := min(size, len(p))
		one := f.scan(p[:n])
		p = p[n:]
		if one.headers {
			all.headers, all.stream = true, one.stream
		}
		all.ended = all.ended || one.ended
		if one.reset {
			all.reset, all.resetOn, all.resetCode = true, one.resetOn, one.resetCode
		}
		if one.goAway {
			all.goAway, all.lastID = true, one.lastID
		}
	}
	return all
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 0, 4, frameReset, 0, 0, 0, 0, 1, 0, 0, 0, 7}, 3)
	f.Add([]byte{0, 0, 8, frameGoAway, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}, 1)
	f.Add([]byte{0, 0, 0, frameGoAway, 0, 0, 0, 0, 0, 0, 0, 3, frameHeaders, 5, 0, 0, 0, 1, 1, 2, 3}, 5)
	f.Add(binary.BigEndian.AppendUint64(nil, ^uint64(0)), 2)
	f.Fuzz(func(t *testing.T, p []byte, size int) {
		if size < 1 || size > len(p) {
			return
		}
		if whole, pieces := inPieces(p, len(p)), inPieces(p, size); whole != pieces {
			t.Errorf("whole %+v, in pieces of %d %+v", whole, size, pieces)
		}
	})
}
