//go:build faults

package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Enabled tells whether this build can be made to suffer.
const Enabled = true

// ErrAddress: SEALANE_TEST_FAULTS_ADDR is not a loopback host:port. Correct it; the endpoint must never be reachable from outside.
var ErrAddress = errors.New("fault: " + Variable + " must be a loopback host:port")

// situation is one Spec in force.
type situation struct {
	spec    Spec
	since   time.Time
	changed chan struct{} // closed when another Spec takes its place
	syncs   atomic.Int64  // still to fail
	writes  atomic.Int64
	passed  map[string]*atomic.Int64 // still to stall, by point
}

// control is the one state of the process. The zero Spec is in force until the endpoint says otherwise.
type control struct {
	now atomic.Pointer[situation]

	mu     sync.Mutex
	counts map[string]uint64
	conns  map[*conn]struct{}
}

var process = newControl()

func newControl() *control {
	c := &control{counts: map[string]uint64{}, conns: map[*conn]struct{}{}}
	c.now.Store(newSituation(Spec{}))
	return c
}

func newSituation(spec Spec) *situation {
	s := &situation{spec: spec, since: time.Now(), changed: make(chan struct{}), passed: map[string]*atomic.Int64{}}
	s.syncs.Store(spec.Disk.FailSyncs)
	s.writes.Store(spec.Disk.FailWrites)
	for point, p := range spec.Stalls {
		left := &atomic.Int64{}
		left.Store(p.Times)
		s.passed[point] = left
	}
	return s
}

// set puts a Spec in force and wakes everything that waits.
func (c *control) set(spec Spec) {
	close(c.now.Swap(newSituation(spec)).changed)
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.conns {
		if link, ok := spec.link(k.address); ok && link.Cut {
			k.cut()
		}
	}
}

func (c *control) count(what string) {
	c.mu.Lock()
	c.counts[what]++
	c.mu.Unlock()
}

// take uses up one of a number of failures.
func take(left *atomic.Int64) bool {
	for {
		n := left.Load()
		if n <= 0 {
			return false
		}
		if left.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// Start opens the control endpoint at the address in SEALANE_TEST_FAULTS_ADDR, if it is set. It stays open until the process ends.
func Start(log *slog.Logger) error {
	address := os.Getenv(Variable)
	if address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%w: it is %q", ErrAddress, address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("fault: %w", err)
	}
	log.Warn("this build injects faults on demand; it is for tests only", "endpoint", l.Addr().String())
	go func() {
		server := &http.Server{Handler: process, ReadHeaderTimeout: 5 * time.Second}
		log.Error("the fault endpoint has ended", "error", server.Serve(l))
	}()
	return nil
}

// SnapshotEntries is after how many log entries a group takes a snapshot: what SEALANE_TEST_SNAPSHOT_ENTRIES says, 0 for the node's own rule.
func SnapshotEntries() uint64 { return number(SnapshotVariable) }

// TrailingEntries is how many entries a group keeps behind its snapshot: what SEALANE_TEST_TRAILING_ENTRIES says, 0 for the node's own rule.
func TrailingEntries() uint64 { return number(TrailingVariable) }

func number(variable string) uint64 {
	n, err := strconv.ParseUint(os.Getenv(variable), 10, 32)
	if err != nil {
		return 0
	}
	return n
}

// ServeHTTP: GET looks, PUT sets a Spec, DELETE clears.
func (c *control) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	switch q.Method {
	case http.MethodGet:
	case http.MethodDelete:
		c.set(Spec{})
	case http.MethodPut:
		var spec Spec
		d := json.NewDecoder(http.MaxBytesReader(w, q.Body, 1<<20))
		d.DisallowUnknownFields()
		if err := d.Decode(&spec); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.set(spec)
	default:
		http.Error(w, "GET, PUT or DELETE", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(c.report()); err != nil {
		return // the caller has gone; what it asked for is in force
	}
}

func (c *control) report() Report {
	r := Report{Spec: c.now.Load().spec, Counts: map[string]uint64{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, n := range c.counts {
		r.Counts[k] = n
	}
	return r
}
