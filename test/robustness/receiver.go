package robustness

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What the receiver does with a request, beside answering with a status.
const (
	Dropped   = 0  // the connection ends without an answer
	Hung      = -1 // never answered
	Late      = -2 // answered 200 when the sender has given up
	Truncated = -3 // 200, whose body ends too early
	Doubled   = -4 // 200, twice
	Dripping  = -5 // 200, byte by byte
)

// Seen is one request the receiver saw, recorded before it was answered.
type Seen struct {
	WebhookID string
	Path      string
	Attempt   int
	Body      [32]byte
	At        time.Time
	Answer    int // a status, or one of the constants above
}

// Took tells whether the receiver acted on the request as if all was well, whatever the sender learned.
func (s Seen) Took() bool {
	return s.Answer >= 200 && s.Answer <= 299 || s.Answer <= Late
}

// share is how often of a hundred something is answered.
type share struct{ percent, answer int }

// Receiver is a webhook endpoint whose answers are drawn from a seed. It belongs to the test process and survives every kill of a node. The
// last part of the path chooses how it behaves.
type Receiver struct {
	mu     sync.Mutex
	random *rand.Rand
	seen   []Seen
	calm   chan struct{} // closed: from now on everything is accepted
	server *http.Server
	url    string
}

// behaviours are the answers by the beginning of the last part of the path; the rest is 200.
var behaviours = map[string][]share{
	"":      {{3, Dropped}, {5, 500}, {1, 422}, {1, 502}, {1, Truncated}, {1, Doubled}, {1, Dripping}},
	"probe": {},
	"late":  {{40, Late}, {10, Hung}, {10, Dropped}},
	"flaky": {{30, 503}, {10, 500}, {5, Dropped}},
}

// StartReceiver listens on loopback.
func StartReceiver(seed uint64) (*Receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return StartReceiverAt(l, seed), nil
}

// StartReceiverAt listens where a test chose.
func StartReceiverAt(l net.Listener, seed uint64) *Receiver {
	r := &Receiver{random: rand.New(rand.NewPCG(seed, 2)), url: "http://" + l.Addr().String(), calm: make(chan struct{})}
	r.server = &http.Server{Handler: r}
	go r.server.Serve(l)
	return r
}

// Close stops the receiver.
func (r *Receiver) Close() { r.server.Close() }

// URL is where it listens.
func (r *Receiver) URL() string { return r.url }

// Calm makes it accept everything from now on, so that the run can come to rest.
func (r *Receiver) Calm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !isClosed(r.calm) {
		close(r.calm)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Requests returns what was seen so far.
func (r *Receiver) Requests() []Seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Seen(nil), r.seen...)
}

// Since returns what was seen at or after a time, and whose path ends with a suffix.
func (r *Receiver) Since(t time.Time, suffix string) []Seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := len(r.seen)
	for i > 0 && !r.seen[i-1].At.Before(t) {
		i--
	}
	var out []Seen
	for _, s := range r.seen[i:] {
		if strings.HasSuffix(s.Path, suffix) {
			out = append(out, s)
		}
	}
	return out
}

// FirstAfter is when the first request after a time came, zero if none did yet.
func (r *Receiver) FirstAfter(t time.Time) time.Time {
	if s := r.Since(t, ""); len(s) > 0 {
		return s[0].At
	}
	return time.Time{}
}

func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // the node died while it wrote; a request that never arrived whole is not one the receiver acts on
	}
	switch answer := r.record(q, body); answer {
	case Dropped, Truncated, Doubled, Dripping:
		raw(w, answer)
	case Hung:
		<-q.Context().Done()
	case Late:
		select { // the sender gives up first and closes its side; what is answered then finds nobody
		case <-q.Context().Done():
		case <-r.calm:
		}
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(answer)
	default:
		w.WriteHeader(answer)
	}
}

// raw answers past the HTTP library. Errors do not matter: the sender may have gone.
func raw(w http.ResponseWriter, answer int) {
	h, ok := w.(http.Hijacker)
	if !ok {
		return
	}
	c, buf, err := h.Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	switch answer {
	case Truncated:
		fmt.Fprint(buf, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
	case Doubled:
		fmt.Fprint(buf, strings.Repeat("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 2))
	case Dripping:
		drip(buf, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow")
	}
	_ = buf.Flush()
}

// drip writes a few bytes at a time.
func drip(buf *bufio.ReadWriter, text string) {
	for len(text) > 0 {
		n := min(8, len(text))
		if _, err := buf.WriteString(text[:n]); err != nil || buf.Flush() != nil {
			return
		}
		text = text[n:]
		time.Sleep(5 * time.Millisecond)
	}
}

// record draws the answer and writes the request down, before anything is sent back.
func (r *Receiver) record(q *http.Request, body []byte) int {
	attempt, _ := strconv.Atoi(q.Header.Get("Sealane-Attempt"))
	r.mu.Lock()
	defer r.mu.Unlock()
	answer := http.StatusOK
	if !isClosed(r.calm) {
		answer = r.draw(q.URL.Path)
	}
	r.seen = append(r.seen, Seen{
		WebhookID: q.Header.Get("Webhook-Id"), Path: q.URL.Path, Attempt: attempt, Body: sha256.Sum256(body), At: time.Now(), Answer: answer,
	})
	return answer
}

// draw chooses an answer; the lock is held.
func (r *Receiver) draw(path string) int {
	name := path[strings.LastIndexByte(path, '/')+1:]
	shares := behaviours[""]
	for prefix, s := range behaviours {
		if prefix != "" && strings.HasPrefix(name, prefix) {
			shares = s
		}
	}
	n := r.random.IntN(100)
	for _, s := range shares {
		if n < s.percent {
			return s.answer
		}
		n -= s.percent
	}
	return http.StatusOK
}
