package sink

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxSlow bounds /slow, so that a typing error does not hang a demo.
const MaxSlow = 10 * time.Minute

// answer is what a request gets.
type answer struct {
	status int // 0: none
	delay  time.Duration
	header [2]string
	drop   bool
	hang   bool
	text   string
}

// choose finds the answer of a path:
//
//	/ok                    200
//	/status/{code}         that status
//	/flaky/{n}             503 for the first n requests with a webhook id, then 200
//	/retry-after/{seconds} 503 with Retry-After for the first request with a webhook id, then 200
//	/slow/{duration}       200 after the duration
//	/hang                  no answer
//	/drop                  the whole body is read, then the connection is closed without an answer
//	anything else          200
func (s *Sink) choose(path, id string) answer {
	if as, changed := (*s.modes.Load())[path]; changed {
		path = as
	}
	head, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch head {
	case "status":
		code, err := strconv.Atoi(rest)
		if err != nil || code < 200 || code > 999 {
			return bad("/status/{code}: code must be from 200 to 999")
		}
		return answer{status: code}
	case "flaky":
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return bad("/flaky/{n}: n must be a number")
		}
		if s.seen(path, id) <= n {
			return answer{status: http.StatusServiceUnavailable}
		}
	case "retry-after":
		if n, err := strconv.Atoi(rest); err != nil || n < 0 {
			return bad("/retry-after/{seconds}: seconds must be a number")
		}
		if s.seen(path, id) == 1 {
			return answer{status: http.StatusServiceUnavailable, header: [2]string{"Retry-After", rest}}
		}
	case "slow":
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 || d > MaxSlow {
			return bad(fmt.Sprintf("/slow/{duration}: duration must be from 0s to %s", MaxSlow))
		}
		return answer{status: http.StatusOK, delay: d}
	case "hang":
		return answer{hang: true}
	case "drop":
		return answer{drop: true}
	}
	return answer{status: http.StatusOK}
}

func bad(text string) answer {
	return answer{status: http.StatusBadRequest, text: "sink: " + text + "\n"}
}

// seen counts the requests of one webhook id at a path, this one included.
func (s *Sink) seen(path, id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := try{path, id}
	if len(s.tries) >= DefaultRecords {
		clear(s.tries)
	}
	s.tries[k]++
	return s.tries[k]
}

func (a answer) send(s *Sink, w http.ResponseWriter, r *http.Request) {
	switch {
	case a.drop:
		dropConnection(w)
		return
	case a.hang:
		s.wait(r, -1)
		return
	case a.delay > 0:
		s.wait(r, a.delay)
	}
	if a.header[0] != "" {
		w.Header().Set(a.header[0], a.header[1])
	}
	w.WriteHeader(a.status)
	if a.text != "" {
		_, _ = w.Write([]byte(a.text)) // the client went away: nobody to tell
	}
}

// wait waits for a time, or without one until the client or the sink gives up.
func (s *Sink) wait(r *http.Request, d time.Duration) {
	var timer <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-timer:
	case <-r.Context().Done():
	case <-s.closed:
	}
}

// dropConnection closes the connection under the answer. Over HTTP/2 the stream is reset instead.
func dropConnection(w http.ResponseWriter) {
	h, ok := w.(http.Hijacker)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	c, _, err := h.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // a reset: the client must not mistake it for an orderly end
	}
	c.Close()
}
