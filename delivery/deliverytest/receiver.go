package deliverytest

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Request is one request as it came over the wire.
type Request struct {
	Method, Path     string
	Header           http.Header
	ContentLength    int64 // -1 when the head gave none
	TransferEncoding []string
	Body             []byte
	Conn             int // which connection it came on, from 1
	At               time.Time
}

// Step is what the receiver does with a request it has read. It returns false to close the connection.
type Step func(c net.Conn) (keep bool)

// Receiver is a raw TCP server. Each request is answered by the next step of the script; the last one repeats.
type Receiver struct {
	listener net.Listener
	scheme   string
	tls      *tls.Config
	roots    *x509.CertPool
	bytes    atomic.Int64
	mu       sync.Mutex
	script   []Step
	early    Step
	requests []Request
	conns    int
	open     map[net.Conn]bool
	wg       sync.WaitGroup
}

// NewReceiver listens on loopback and is closed with the test.
func NewReceiver(t testing.TB, script ...Step) *Receiver {
	t.Helper()
	return start(t, &Receiver{scheme: "http", script: script})
}

// NewTLSReceiver is NewReceiver with a certificate that Roots signs. It offers HTTP/1.1 only.
func NewTLSReceiver(t testing.TB, script ...Step) *Receiver {
	t.Helper()
	certificate, roots := newCertificate(t)
	return start(t, &Receiver{
		scheme: "https", script: script, roots: roots,
		tls: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}},
	})
}

func start(t testing.TB, r *Receiver) *Receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.listener, r.open = l, map[net.Conn]bool{}
	r.wg.Go(r.accept)
	t.Cleanup(r.Close)
	return r
}

// Early sets what happens after a request's head, before its body is read. The request is recorded without a body and the connection is closed
// after the step, whatever it returns.
func (r *Receiver) Early(step Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.early = step
}

// URL is where it listens.
func (r *Receiver) URL() string { return r.scheme + "://" + r.listener.Addr().String() + "/hook" }

// Roots are the authorities of a TLS receiver's certificate.
func (r *Receiver) Roots() *x509.CertPool { return r.roots }

// Requests returns what was seen.
func (r *Receiver) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Request(nil), r.requests...)
}

// Bytes is the number of bytes that came over all connections, above TLS.
func (r *Receiver) Bytes() int64 { return r.bytes.Load() }

// Conns is the number of connections accepted so far.
func (r *Receiver) Conns() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conns
}

// Close stops listening and closes every connection.
func (r *Receiver) Close() {
	r.listener.Close()
	r.CloseConns()
	r.wg.Wait()
}

// CloseConns closes the connections that are open now, as a server does with idle ones.
func (r *Receiver) CloseConns() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		c.Close()
	}
}

// WriteAll writes bytes to every open connection, unasked.
func (r *Receiver) WriteAll(text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for c := range r.open {
		_, err := io.WriteString(c, text)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (r *Receiver) accept() {
	for {
		raw, err := r.listener.Accept()
		if err != nil {
			return
		}
		c := raw
		if r.tls != nil {
			c = tls.Server(raw, r.tls)
		}
		r.mu.Lock()
		r.conns++
		n := r.conns
		r.open[c] = true
		r.mu.Unlock()
		r.wg.Go(func() { r.serve(c, n) })
	}
}

// counted counts what is read.
type counted struct {
	net.Conn
	bytes *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

func (r *Receiver) serve(c net.Conn, n int) {
	defer func() {
		r.mu.Lock()
		delete(r.open, c)
		r.mu.Unlock()
		c.Close()
	}()
	in := bufio.NewReader(counted{c, &r.bytes})
	for {
		q, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		seen := Request{
			Method: q.Method, Path: q.URL.Path, Header: q.Header, ContentLength: q.ContentLength, TransferEncoding: q.TransferEncoding, Conn: n, At: time.Now(),
		}
		if early := r.earlyStep(); early != nil {
			r.next(seen)
			early(c)
			return
		}
		if seen.Body, err = io.ReadAll(q.Body); err != nil {
			return
		}
		if !r.next(seen)(c) {
			return
		}
	}
}

func (r *Receiver) earlyStep() Step {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.early
}

func (r *Receiver) next(q Request) Step {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, q)
	if len(r.script) == 0 {
		return Drop(false)
	}
	return r.script[min(len(r.requests), len(r.script))-1]
}

// Say writes bytes and keeps the connection.
func Say(text string) Step {
	return func(c net.Conn) bool {
		_, err := io.WriteString(c, text)
		return err == nil
	}
}

// SayAndClose writes bytes and closes the connection in order.
func SayAndClose(text string) Step {
	return func(c net.Conn) bool {
		_, _ = io.WriteString(c, text) // the client may be gone; closing is the point
		return false
	}
}

// Answer writes a complete answer without a body.
func Answer(status string, headers ...string) Step {
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 " + status + "\r\nContent-Length: 0\r\n")
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n")
	return Say(b.String())
}

// Drop closes the connection without an answer; reset makes it a TCP reset.
func Drop(reset bool) Step {
	return func(c net.Conn) bool {
		if secured, ok := c.(*tls.Conn); ok {
			c = secured.NetConn()
		}
		if t, ok := c.(*net.TCPConn); ok && reset {
			_ = t.SetLinger(0) // on failure the close is an orderly one, and the test that wanted a reset sees another class
		}
		c.Close()
		return false
	}
}

// Hang answers nothing until the other side goes away.
func Hang(c net.Conn) bool {
	_, _ = io.Copy(io.Discard, c) // ends when the client closes
	return false
}

// Drip writes bytes one at a time, with a pause after each, until the client goes away.
func Drip(text string, pause time.Duration) Step {
	return func(c net.Conn) bool {
		for i := range len(text) {
			if _, err := c.Write([]byte{text[i]}); err != nil || !pauseOn(c, pause) {
				return false
			}
		}
		return true
	}
}

// pauseOn waits, and returns false as soon as the client goes away or says something.
func pauseOn(c net.Conn, pause time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(pause)) // on a closed connection the read below fails
	_, err := c.Read(make([]byte, 1))
	_ = c.SetReadDeadline(time.Time{})
	return errors.Is(err, os.ErrDeadlineExceeded)
}
