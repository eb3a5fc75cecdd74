package robustness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/sealane/sealane/server/fault"
)

// Link is what is wrong with the connections to one peer.
type Link = fault.Link

// Faults steers what is wrong inside one node of the fault build. It remembers what it asked for, so that a node that was started again can
// be made to suffer as before.
type Faults struct {
	address string
	client  *http.Client

	mu   sync.Mutex
	spec fault.Spec
}

// NewFaults makes the control of one node.
func NewFaults(s *Site) *Faults {
	dial := func(ctx context.Context, _, address string) (net.Conn, error) { return s.Dial(ctx, address) }
	return &Faults{address: s.Faults, client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Set changes what is wrong. Where the node does not run it takes effect with Renew.
func (f *Faults) Set(ctx context.Context, change func(*fault.Spec)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.spec)
	return f.put(ctx)
}

// Link changes what is wrong with the connections to one peer address.
func (f *Faults) Link(ctx context.Context, peer string, change func(*Link)) error {
	return f.Set(ctx, func(s *fault.Spec) {
		if s.Links == nil {
			s.Links = map[string]Link{}
		}
		k := s.Links[peer]
		change(&k)
		if s.Links[peer] = k; k == (Link{}) {
			delete(s.Links, peer)
		}
	})
}

// Renew tells a node that was started again what is wrong.
func (f *Faults) Renew(ctx context.Context) error { return f.Set(ctx, func(*fault.Spec) {}) }

// Forget drops what was asked for, without telling the node: it is about to be started again.
func (f *Faults) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spec = fault.Spec{}
}

// putTries is how often the endpoint of a node is asked: a process that was paused, or a busy machine, may let a call time out.
const putTries = 4

func (f *Faults) put(ctx context.Context) (err error) {
	for range putTries {
		if err = f.putOnce(ctx); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (f *Faults) putOnce(ctx context.Context) error {
	b, err := json.Marshal(f.spec)
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+f.address+"/", bytes.NewReader(b))
	if err != nil {
		return err
	}
	r, err := f.client.Do(q)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil // the node is down and suffers nothing; Renew tells it when it is back
	}
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 1<<10))
		return fmt.Errorf("faults of %s: %s: %s", f.address, r.Status, text)
	}
	return nil
}

// Counts tells how often each fault acted in the process that runs now.
func (f *Faults) Counts(ctx context.Context) (map[string]uint64, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.address+"/", nil)
	if err != nil {
		return nil, err
	}
	r, err := f.client.Do(q)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	var report fault.Report
	if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
		return nil, err
	}
	return report.Counts, nil
}
