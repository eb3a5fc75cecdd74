package robustness

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Seen is one request the receiver saw, recorded before it was answered.
type Seen struct {
	WebhookID string
	Attempt   int
	Body      [32]byte
	At        time.Time
	Answer    int // status it was going to answer, 0: connection dropped, -1: never answered
}

// Receiver is a webhook endpoint whose answers are drawn from a seed. It belongs to the test process and survives every kill of the node.
type Receiver struct {
	mu     sync.Mutex
	random *rand.Rand
	seen   []Seen
	calm   bool // from now on everything is accepted
	server *http.Server
	url    string
}

// StartReceiver listens on loopback.
func StartReceiver(seed uint64) (*Receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Receiver{random: rand.New(rand.NewPCG(seed, 2)), url: "http://" + l.Addr().String()}
	r.server = &http.Server{Handler: r}
	go r.server.Serve(l)
	return r, nil
}

// Close stops the receiver.
func (r *Receiver) Close() { r.server.Close() }

// URL is where it listens.
func (r *Receiver) URL() string { return r.url }

// Calm makes it accept everything from now on, so that the run can come to rest.
func (r *Receiver) Calm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calm = true
}

// Requests returns what was seen so far.
func (r *Receiver) Requests() []Seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Seen(nil), r.seen...)
}

// FirstAfter is when the first request after a time came, zero if none did yet.
func (r *Receiver) FirstAfter(t time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.seen) - 1; i >= 0; i-- {
		if r.seen[i].At.Before(t) {
			if i+1 < len(r.seen) {
				return r.seen[i+1].At
			}
			return time.Time{}
		}
	}
	if len(r.seen) > 0 {
		return r.seen[0].At
	}
	return time.Time{}
}

func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // the node died while it wrote; a request that never arrived whole is not one the receiver acts on
	}
	answer := r.record(q, body)
	switch {
	case answer == 0:
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			c.Close()
		}
	case answer == 503:
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(answer)
	default:
		w.WriteHeader(answer)
	}
}

// record draws the answer and writes the request down, before anything is sent back.
func (r *Receiver) record(q *http.Request, body []byte) int {
	attempt, _ := strconv.Atoi(q.Header.Get("Sealane-Attempt"))
	r.mu.Lock()
	defer r.mu.Unlock()
	answer := http.StatusOK
	if !r.calm {
		switch n := r.random.IntN(100); {
		case n < 3:
			answer = 0
		case n < 8:
			answer = http.StatusInternalServerError
		case n < 9:
			answer = http.StatusUnprocessableEntity
		case n < 10:
			answer = http.StatusBadGateway
		}
	}
	r.seen = append(r.seen, Seen{WebhookID: q.Header.Get("Webhook-Id"), Attempt: attempt, Body: sha256.Sum256(body), At: time.Now(), Answer: answer})
	return answer
}
