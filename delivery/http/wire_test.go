package webhook

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// stub is a connection whose writes take what the test says.
type stub struct {
	net.Conn // nil: only Write is used
	takes    int
	err      error
	got      bytes.Buffer
}

func (s *stub) Write(p []byte) (int, error) {
	if s.err != nil {
		s.got.Write(p[:s.takes])
		return s.takes, s.err
	}
	return s.got.Write(p)
}

func (s *stub) Read(p []byte) (int, error) { return copy(p, "HTTP/1.1 200 OK\r\n\r\n"), nil }

// TestSpokenBeforeAsked: bytes that were read before a request began spoil the connection for it, and bytes after that do not.
func TestSpokenBeforeAsked(t *testing.T) {
	p := make([]byte, 64)
	for name, before := range map[string]bool{"before": true, "after": false} {
		under := &stub{}
		w := newWire(under, under, false)
		armed(w, openGate)
		if before {
			if _, err := w.Read(p); err != nil {
				t.Fatal(err)
			}
		}
		_, err := w.Write([]byte("request"))
		if before != errors.Is(err, errSpoiled) || before != (under.got.Len() == 0) {
			t.Errorf("%s: %v, wrote %q", name, err, under.got.String())
		}
		if _, err := w.Read(p); err != nil || w.unasked.Load() != before {
			t.Errorf("%s: %v, unasked %v", name, err, w.unasked.Load())
		}
	}
}

func armed(w *wire, gate func() error) *sending {
	s := &sending{gate: gate, now: time.Now, body: bytes.NewReader(nil)}
	w.current.Store(s)
	return s
}

// TestFirstWriteFails: "nothing was written" is said only where the kernel took nothing of a connection in clear. Under TLS a part of a record may
// have left.
func TestFirstWriteFails(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name    string
		takes   int
		secured bool
		failed  bool
	}{{"nothing", 0, false, true}, {"one byte", 1, false, false}, {"under TLS", 0, true, false}} {
		t.Run(c.name, func(t *testing.T) {
			under := &stub{takes: c.takes, err: broken}
			w := newWire(under, under, false)
			if c.secured {
				w = newWire(&stub{}, under, false)
			}
			s := armed(w, openGate)
			if n, err := w.Write([]byte("request")); n != c.takes || !errors.Is(err, broken) {
				t.Errorf("%d, %v", n, err)
			}
			if s.failed.Load() != c.failed || s.phase.Load() != begun || s.whole.Load() || s.written.Load() != int64(c.takes) {
				t.Errorf("failed %v, whole %v, %d written", s.failed.Load(), s.whole.Load(), s.written.Load())
			}
		})
	}
}

// TestBarredWritesNothing: after a refusal or a bar, no byte passes, however often the library tries.
func TestBarredWritesNothing(t *testing.T) {
	for name, stop := range map[string]func(*wire, *sending){
		"refused": func(w *wire, _ *sending) { _, _ = w.Write([]byte("first")) },
		"barred": func(_ *wire, s *sending) {
			if s.bar() {
				t.Error("it had not begun")
			}
		},
	} {
		under := &stub{}
		w := newWire(under, under, false)
		asked := 0
		s := armed(w, func() error { asked++; return errors.New("no") })
		stop(w, s)
		for range 3 {
			if _, err := w.Write([]byte("request")); err == nil {
				t.Errorf("%s: a write passed", name)
			}
		}
		if under.got.Len() != 0 || asked > 1 || s.bar() {
			t.Errorf("%s: %q, asked %d times", name, under.got.String(), asked)
		}
	}
}

// TestBeginOrBar: whatever the order, a request that was said not to have begun has written nothing, and the other way round.
func TestBeginOrBar(t *testing.T) {
	for range 2000 {
		under := &stub{}
		w := newWire(under, under, false)
		s := armed(w, openGate)
		var hadBegun bool
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = w.Write([]byte("x")) })
		wg.Go(func() { hadBegun = s.bar() })
		wg.Wait()
		if hadBegun != (under.got.Len() == 1) {
			t.Fatalf("begun %v, %d bytes", hadBegun, under.got.Len())
		}
	}
}

// TestEndOrCut is the same for the last byte.
func TestEndOrCut(t *testing.T) {
	for range 2000 {
		under := &stub{}
		w := newWire(under, under, false)
		s := armed(w, openGate)
		s.body.Reset([]byte("last"))
		if _, err := w.Write([]byte("head")); err != nil {
			t.Fatal(err)
		}
		s.body.Reset(nil)
		var cut bool
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = w.Write([]byte("last")) })
		wg.Go(func() { cut = s.cut() })
		wg.Wait()
		if cut != (under.got.String() == "head") {
			t.Fatalf("cut %v, wrote %q", cut, under.got.String())
		}
	}
}
