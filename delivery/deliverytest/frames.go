package deliverytest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Stream is one HTTP/2 request in the hands of a frame step.
type Stream struct {
	ID     uint32
	Framer *http2.Framer
	Conn   net.Conn
}

// Head writes an answer's head. A status from 200 on with end finishes the stream.
func (s *Stream) Head(status int, end bool) error {
	var b bytes.Buffer
	if err := hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: strconv.Itoa(status)}); err != nil {
		return err
	}
	return s.Framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.ID, BlockFragment: b.Bytes(), EndStream: end, EndHeaders: true})
}

// FrameStep is what a frame receiver does with a request. Returning false or an error closes the connection.
type FrameStep func(s *Stream) (keep bool, err error)

// FrameReceiver is an HTTP/2 server over TLS that answers in frames from a script; the last step repeats.
type FrameReceiver struct {
	listener net.Listener
	config   *tls.Config
	roots    *x509.CertPool
	early    bool
	headers  atomic.Int64
	mu       sync.Mutex
	script   []FrameStep
	open     map[net.Conn]bool
	wg       sync.WaitGroup
}

// NewFrameReceiver runs each step when a request has ended (END_STREAM), or with early when its HEADERS came.
func NewFrameReceiver(t testing.TB, early bool, script ...FrameStep) *FrameReceiver {
	t.Helper()
	certificate, roots := newCertificate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &FrameReceiver{
		listener: l, roots: roots, early: early, script: script, open: map[net.Conn]bool{},
		config: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}},
	}
	r.wg.Go(r.accept)
	t.Cleanup(r.Close)
	return r
}

// URL is where it listens.
func (r *FrameReceiver) URL() string { return "https://" + r.listener.Addr().String() + "/hook" }

// Roots are the authorities of its certificate.
func (r *FrameReceiver) Roots() *x509.CertPool { return r.roots }

// Requests is the number of HEADERS frames that physically came.
func (r *FrameReceiver) Requests() int64 { return r.headers.Load() }

// Close stops listening and closes every connection.
func (r *FrameReceiver) Close() {
	r.listener.Close()
	r.CloseConns()
	r.wg.Wait()
}

// CloseConns closes the connections that are open now.
func (r *FrameReceiver) CloseConns() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		c.Close()
	}
}

func (r *FrameReceiver) accept() {
	for {
		raw, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.open[raw] = true
		r.mu.Unlock()
		r.wg.Go(func() {
			_ = r.serve(tls.Server(raw, r.config)) // how a connection ended shows at the client
			raw.Close()
			r.mu.Lock()
			delete(r.open, raw)
			r.mu.Unlock()
		})
	}
}

var errPreface = errors.New("not the HTTP/2 client preface")

func (r *FrameReceiver) serve(c net.Conn) error {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return err
	}
	if string(preface) != http2.ClientPreface {
		return errPreface
	}
	f := http2.NewFramer(c, c)
	if err := f.WriteSettings(); err != nil {
		return err
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		ended := false
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				err = f.WritePing(true, frame.Data)
			}
		case *http2.HeadersFrame:
			r.headers.Add(1)
			ended = frame.StreamEnded() || r.early
		case *http2.DataFrame:
			ended = frame.StreamEnded() && !r.early
		}
		if err != nil {
			return err
		}
		if ended {
			keep, err := r.step()(&Stream{ID: frame.Header().StreamID, Framer: f, Conn: c})
			if err != nil || !keep {
				return err
			}
		}
	}
}

func (r *FrameReceiver) step() FrameStep {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.script[min(int(r.headers.Load()), len(r.script))-1]
}

// AnswerFrames is a complete answer without a body.
func AnswerFrames(status int) FrameStep {
	return func(s *Stream) (bool, error) { return true, s.Head(status, true) }
}

// ResetStream resets the request's stream and keeps the connection.
func ResetStream(code http2.ErrCode) FrameStep {
	return func(s *Stream) (bool, error) { return true, s.Framer.WriteRSTStream(s.ID, code) }
}

// GoAway says which stream was the last that is processed, counted from the request's own, and closes the connection.
func GoAway(fromOwn int, code http2.ErrCode) FrameStep {
	return func(s *Stream) (bool, error) {
		return false, s.Framer.WriteGoAway(uint32(int(s.ID)+fromOwn), code, nil)
	}
}

// DropFrames closes the connection without an answer.
func DropFrames(*Stream) (bool, error) { return false, nil }

// IgnoreFrames never answers and keeps the connection.
func IgnoreFrames(*Stream) (bool, error) { return true, nil }
