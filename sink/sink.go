package sink

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Limits.
const (
	// DefaultRecords bounds the record in memory where Options say nothing. The memory of /flaky and /retry-after, one entry per path and webhook
	// id, has the same bound; when it is full it starts afresh.
	DefaultRecords = 1_000_000
	// MaxBody bounds what is read of a request, in bytes. A larger one is answered 413 and recorded as incomplete.
	MaxBody = 32 << 20
	// MaxPage bounds one answer of GET /_received, in records.
	MaxPage = 100_000
)

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
	// Incomplete marks a request whose body was not received whole: the client went away, or it is larger than MaxBody. Size and SHA256 are
	// those of what came.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Sink is the receiver. Make one with New.
type Sink struct {
	opt   Options
	count atomic.Uint64

	mu      sync.Mutex
	records []Record // contiguous by Sequence
	dropped uint64   // records before the first one here
	file    *os.File
	ended   bool                              // the file is closed
	tries   map[try]int                       // requests seen, for answers that change
	modes   atomic.Pointer[map[string]string] // path to another path that answers in its place; never changed, only replaced
	closed  chan struct{}
	once    sync.Once
}

type try struct{ path, id string }

// New returns a sink. Close it to flush its file and to let go of requests that it was never going to answer.
func New(o Options) (*Sink, error) {
	s := &Sink{opt: o, tries: map[try]int{}, closed: make(chan struct{})}
	s.modes.Store(&map[string]string{})
	if s.opt.Records == 0 {
		s.opt.Records = DefaultRecords
	}
	if o.RecordFile != "" {
		f, err := os.OpenFile(o.RecordFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("sink: record file: %w", err)
		}
		s.file = f
	}
	return s, nil
}

// Close ends requests that hang and closes the record file. Requests that come later are answered 507 if there was one.
func (s *Sink) Close() error {
	s.once.Do(func() { close(s.closed) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil || s.ended {
		return nil
	}
	s.ended = true
	if err := s.file.Close(); err != nil {
		return fmt.Errorf("sink: record file: %w", err)
	}
	return nil
}

// Count is the number of requests seen, recorded or not.
func (s *Sink) Count() uint64 { return s.count.Load() }

// Records returns the record from a sequence number on, and how many older ones than those kept were dropped.
func (s *Sink) Records(from uint64) (list []Record, dropped uint64) {
	list, dropped, _ = s.page(from, 0)
	return list, dropped
}

// page is Records with a bound, 0 for none. next is the sequence number at which the next page begins, 0 after the last.
func (s *Sink) page(from uint64, limit int) (list []Record, dropped, next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.dropped + 1 // the sequence number of records[0]
	skip := uint64(0)
	if from > first {
		skip = min(from-first, uint64(len(s.records)))
	}
	list = s.records[skip:]
	if limit > 0 && len(list) > limit {
		list = list[:limit]
		next = list[limit-1].Sequence + 1
	}
	return slices.Clone(list), s.dropped, next
}

// SetMode lets requests to one path be answered as another path would; "" ends that. A running receiver changes its behaviour this way.
func (s *Sink) SetMode(path, as string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := maps.Clone(*s.modes.Load())
	if as == "" {
		delete(m, path)
	} else {
		m[path] = as
	}
	s.modes.Store(&m)
}

// receipt is a body as it came.
type receipt struct {
	size     int
	sum      [sha256.Size]byte
	tooLarge bool
	err      error
}

// scratch is what receiving a body needs.
type scratch struct {
	buf [32 << 10]byte
	sum hash.Hash
}

var scratches = sync.Pool{New: func() any { return &scratch{sum: sha256.New()} }}

// receive reads a body; it hashes it only where somebody will look.
func receive(w http.ResponseWriter, r *http.Request, hashed bool) (got receipt) {
	c := scratches.Get().(*scratch)
	defer scratches.Put(c)
	c.sum.Reset()
	body := http.MaxBytesReader(w, r.Body, MaxBody)
	for {
		n, err := body.Read(c.buf[:])
		got.size += n
		if hashed {
			c.sum.Write(c.buf[:n])
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			var large *http.MaxBytesError
			got.tooLarge, got.err = errors.As(err, &large), err
			break
		}
	}
	if hashed {
		c.sum.Sum(got.sum[:0])
	}
	return got
}

// ServeHTTP answers.
func (s *Sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/_") {
		s.admin(w, r)
		return
	}
	keeps := s.opt.Records > 0 || s.file != nil
	got := receive(w, r, keeps)
	s.count.Add(1)
	id := r.Header.Get("Webhook-Id")
	var a answer
	switch {
	case got.tooLarge:
		a = answer{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("sink: the body is larger than %d bytes\n", MaxBody)}
	case got.err != nil:
		a = answer{status: http.StatusBadRequest, text: "sink: the body did not come whole\n"}
	default:
		a = s.choose(r.URL.Path, id)
	}
	if keeps {
		if err := s.record(r, id, got, a.status); err != nil {
			http.Error(w, err.Error(), http.StatusInsufficientStorage)
			return
		}
	}
	a.send(s, w, r)
}

// record writes the request down. Nothing is answered before.
func (s *Sink) record(r *http.Request, id string, got receipt, status int) error {
	attempt, err := strconv.Atoi(r.Header.Get("Sealane-Attempt"))
	if err != nil {
		attempt = 0 // another sender
	}
	rec := Record{
		WebhookID: id, Attempt: attempt, Path: r.URL.Path, Answered: status, Size: got.size, SHA256: hex.EncodeToString(got.sum[:]),
		At: time.Now().UTC(), Incomplete: got.err != nil,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec.Sequence = s.dropped + uint64(len(s.records)) + 1
	if s.file != nil {
		line, err := json.Marshal(rec)
		if err != nil {
			return fmt.Errorf("sink: record: %w", err)
		}
		if _, err := s.file.Write(append(line, '\n')); err != nil { // one write: a killed sink leaves whole lines
			return fmt.Errorf("sink: record file: %w", err)
		}
	}
	if s.opt.Records < 0 {
		s.dropped++
		return nil
	}
	if len(s.records) >= s.opt.Records {
		keep := len(s.records) / 2 // by halves, so that moving them costs little per request
		s.dropped += uint64(len(s.records) - keep)
		s.records = append(s.records[:0], s.records[len(s.records)-keep:]...)
	}
	s.records = append(s.records, rec)
	return nil
}
