// Package sink is the scriptable receiver behind `sealane sink`: a webhook endpoint that does on purpose what receivers do by accident.
//
// What it is. An http.Handler whose paths choose the answer, and a record of every request, written before the answer is sent, so that a ledger
// can be audited against it. Demos, tests and benchmarks use it as a library.
//
// What it may not do. It imports nothing of ours and knows nothing of Sealane but the header names of a webhook. Its record is bounded; when it
// drops, it says so. It verifies no signature.
//
// Where to start. New, then the table of paths in answers.go.
package sink

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultRecords bounds the record in memory where Options say nothing.
const DefaultRecords = 1_000_000

// MaxBody bounds what is read of a request.
const MaxBody = 32 << 20

// Options configure a Sink.
type Options struct {
	// Records bounds the record in memory. 0 is DefaultRecords; negative keeps none and only counts, which costs least.
	Records int
	// RecordFile appends one JSON line per request before it is answered; empty keeps none. It survives the sink.
	RecordFile string
}

// Record is one request as it was seen. Answered is the status the sink was about to send; 0 when it dropped the connection or was never going
// to answer.
type Record struct {
	Sequence  uint64    `json:"sequence"`
	WebhookID string    `json:"webhook_id"`
	Attempt   int       `json:"attempt"`
	Path      string    `json:"path"`
	Answered  int       `json:"answered"`
	Size      int       `json:"size"`
	SHA256    string    `json:"sha256"`
	At        time.Time `json:"at"`
}

// Sink is the receiver. Make one with New.
type Sink struct {
	opt   Options
	count atomic.Uint64

	mu      sync.Mutex
	records []Record
	dropped uint64
	file    *os.File
	out     *bufio.Writer
	tries   map[string]int    // requests seen by path and webhook id, for answers that change
	modes   map[string]string // path to another path that answers in its place
	closed  chan struct{}
	once    sync.Once
}

// New returns a sink. Close it to flush its file and to let go of requests that it was never going to answer.
func New(o Options) (*Sink, error) {
	s := &Sink{opt: o, tries: map[string]int{}, modes: map[string]string{}, closed: make(chan struct{})}
	if s.opt.Records == 0 {
		s.opt.Records = DefaultRecords
	}
	if o.RecordFile != "" {
		f, err := os.OpenFile(o.RecordFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("sink: record file: %w", err)
		}
		s.file, s.out = f, bufio.NewWriter(f)
	}
	return s, nil
}

// Close ends requests that hang and closes the record file.
func (s *Sink) Close() error {
	s.once.Do(func() { close(s.closed) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	err := s.out.Flush()
	if e := s.file.Close(); err == nil {
		err = e
	}
	s.file = nil
	return err
}

// Count is the number of requests seen.
func (s *Sink) Count() uint64 { return s.count.Load() }

// Records returns the record from a sequence number on, and how many older ones were dropped.
func (s *Sink) Records(from uint64) (list []Record, dropped uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.records {
		if s.records[i].Sequence >= from {
			return append(list, s.records[i:]...), s.dropped
		}
	}
	return nil, s.dropped
}

// SetMode lets requests to one path be answered as another path would; "" ends that. A running receiver changes its behaviour this way.
func (s *Sink) SetMode(path, as string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if as == "" {
		delete(s.modes, path)
		return
	}
	s.modes[path] = as
}

// ServeHTTP answers.
func (s *Sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/_") {
		s.admin(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		http.Error(w, "sink: body: "+err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	s.count.Add(1)
	id := r.Header.Get("Webhook-Id")
	a := s.choose(r.URL.Path, id)
	if err := s.record(r, id, body, a.status); err != nil {
		http.Error(w, err.Error(), http.StatusInsufficientStorage)
		return
	}
	a.send(s, w, r)
}

// record writes the request down. Nothing is answered before.
func (s *Sink) record(r *http.Request, id string, body []byte, status int) error {
	if s.opt.Records < 0 && s.out == nil {
		return nil
	}
	attempt, _ := strconv.Atoi(r.Header.Get("Sealane-Attempt")) // 0 when the sender has no such header
	sum := sha256.Sum256(body)
	rec := Record{
		WebhookID: id, Attempt: attempt, Path: r.URL.Path, Answered: status, Size: len(body), SHA256: hex.EncodeToString(sum[:]), At: time.Now().UTC(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec.Sequence = s.dropped + uint64(len(s.records)) + 1
	if s.out != nil {
		if err := json.NewEncoder(s.out).Encode(rec); err != nil {
			return fmt.Errorf("sink: record file: %w", err)
		}
		if err := s.out.Flush(); err != nil {
			return fmt.Errorf("sink: record file: %w", err)
		}
	}
	if s.opt.Records < 0 {
		return nil
	}
	if len(s.records) >= s.opt.Records {
		half := len(s.records) / 2
		s.dropped += uint64(len(s.records) - half)
		s.records = append(s.records[:0], s.records[len(s.records)-half:]...)
	}
	s.records = append(s.records, rec)
	return nil
}

// admin serves the record and the switch. GET /_received?since=N, DELETE /_received, PUT /_mode/path?as=/other/path.
func (s *Sink) admin(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/_received" && r.Method == http.MethodGet:
		since, err := strconv.ParseUint(cmp(r.URL.Query().Get("since"), "0"), 10, 64)
		if err != nil {
			http.Error(w, "sink: since must be a number", http.StatusBadRequest)
			return
		}
		list, dropped := s.Records(since)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(struct { // the client went away: nobody to tell
			Count   uint64   `json:"count"`
			Dropped uint64   `json:"dropped"`
			Records []Record `json:"records"`
		}{s.Count(), dropped, list})
	case r.URL.Path == "/_received" && r.Method == http.MethodDelete:
		s.mu.Lock()
		s.dropped += uint64(len(s.records))
		s.records = nil
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(r.URL.Path, "/_mode/") && r.Method == http.MethodPut:
		s.SetMode(strings.TrimPrefix(r.URL.Path, "/_mode"), r.URL.Query().Get("as"))
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}

func cmp(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
