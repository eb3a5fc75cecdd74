// Package deliverytest has what tests of adapters need: a receiver that speaks bytes from a script over real connections, and records every request
// it physically saw.
//
// It may be imported by tests only. It knows no outcome and no rule: it does what the script says and remembers. Start at Receiver.
package deliverytest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Request is one request as it came over the wire.
type Request struct {
	Method, Path string
	Header       http.Header
	Body         []byte
	Conn         int // which connection it came on, from 1
}

// Step is what the receiver does with a request it has read. It returns false to close the connection.
type Step func(c net.Conn) (keep bool)

// Receiver is a raw TCP server. Each request is answered by the next step of the script; the last one repeats.
type Receiver struct {
	listener net.Listener
	mu       sync.Mutex
	script   []Step
	requests []Request
	conns    int
	open     map[net.Conn]bool
	wg       sync.WaitGroup
}

// NewReceiver listens on loopback and is closed with the test.
func NewReceiver(t testing.TB, script ...Step) *Receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Receiver{listener: l, script: script, open: map[net.Conn]bool{}}
	r.wg.Go(r.accept)
	t.Cleanup(r.Close)
	return r
}

// URL is where it listens.
func (r *Receiver) URL() string { return "http://" + r.listener.Addr().String() + "/hook" }

// Requests returns what was seen.
func (r *Receiver) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Request(nil), r.requests...)
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

func (r *Receiver) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.conns++
		n := r.conns
		r.open[c] = true
		r.mu.Unlock()
		r.wg.Go(func() { r.serve(c, n) })
	}
}

func (r *Receiver) serve(c net.Conn, n int) {
	defer func() {
		r.mu.Lock()
		delete(r.open, c)
		r.mu.Unlock()
		c.Close()
	}()
	in := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		if !r.next(Request{Method: q.Method, Path: q.URL.Path, Header: q.Header, Body: body, Conn: n})(c) {
			return
		}
	}
}

func (r *Receiver) next(q Request) Step {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, q)
	i := min(len(r.requests), len(r.script)) - 1
	return r.script[i]
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
		if t, ok := c.(*net.TCPConn); ok && reset {
			_ = t.SetLinger(0)
		}
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
			if _, err := c.Write([]byte{text[i]}); err != nil {
				return false
			}
			time.Sleep(pause)
		}
		return true
	}
}
