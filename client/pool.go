package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// endpoint is one node's address with its connection and what its use has shown. The fields below addr belong to pool.mu.
type endpoint struct {
	addr string
	seed bool // given to Dial: never forgotten

	id       string    // the node's id; empty while not known
	asked    bool      // it was asked for its id since it last failed
	link     link      // nil until it is first needed
	failures int       // in a row; above none other nodes are asked first
	suspect  time.Time // when it may be probed
	probing  bool
}

// How long a node that failed is left alone before it is probed: doubling from the first to the second. Only a probe or a call for want of
// any other node brings it back: calls of users would each wait in vain for a node that hangs.
const (
	firstSuspicion   = 200 * time.Millisecond
	longestSuspicion = 3 * time.Second
	probeWithin      = time.Second
)

// stagger is how long the connection to one node is awaited before the next is tried beside it.
const stagger = 250 * time.Millisecond

// pool keeps the endpoints and chooses among them.
type pool struct {
	open   func(addr string) (link, error)
	probe  func(e *endpoint) // begins a probe in the background, after which probed is called; must not call back at once
	static bool

	mu      sync.Mutex
	all     []*endpoint // what calls may go to; seeds first
	retired []*endpoint // nodes that left the cluster: calls under way may still use them
	current *endpoint   // where calls without a better place go
	start   int         // rotates the rest, so that many clients do not all begin at the first address
	closed  bool
}

func newPool(seeds []string, static bool, open func(addr string) (link, error)) *pool {
	p := &pool{open: open, static: static, start: rand.IntN(len(seeds))}
	for _, addr := range seeds {
		p.all = append(p.all, &endpoint{addr: addr, seed: true})
	}
	return p
}

// unreachableError: no node could be connected to, so nothing was sent. It is an UNAVAILABLE status, or what ended the context.
type unreachableError struct {
	code codes.Code
	text string
	err  error
}

func (e *unreachableError) Error() string              { return e.text }
func (e *unreachableError) Unwrap() error              { return e.err }
func (e *unreachableError) GRPCStatus() *status.Status { return status.New(e.code, e.text) }

var errClosed = errors.New("client: closed")

// openAll makes the links of all endpoints. Nothing connects yet.
func (p *pool) openAll() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.all {
		if err := p.openLocked(e); err != nil {
			return err
		}
	}
	return nil
}

func (p *pool) openLocked(e *endpoint) (err error) {
	if p.closed {
		return errClosed
	}
	if e.link == nil {
		e.link, err = p.open(e.addr)
	}
	return err
}

// close ends all connections.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	if !p.closed {
		p.closed = true
		for _, e := range slices.Concat(p.all, p.retired) {
			if e.link != nil {
				errs = append(errs, e.link.Close())
			}
		}
	}
	return errors.Join(errs...)
}

func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all)
}

// orderLocked lists the endpoints in the order in which they are to be tried: the one of the wanted node first, then the current one, then
// the rest; those that failed after the others, the soonest forgiven first; and not, which has just failed this very call, last. good is how
// many of them nothing speaks against.
func (p *pool) orderLocked(want string, not *endpoint) (list []*endpoint, good int) {
	now := time.Now()
	list = make([]*endpoint, 0, len(p.all))
	for i := range p.all {
		e := p.all[(i+p.start)%len(p.all)]
		list = append(list, e)
		if e.failures > 0 && !e.probing && !now.Before(e.suspect) && p.openLocked(e) == nil {
			e.probing = true
			p.probe(e)
		}
	}
	bad := func(e *endpoint) bool { return e == not || e.failures > 0 }
	rank := func(e *endpoint) int {
		switch {
		case e == not:
			return 4
		case e.failures > 0:
			return 3
		case want != "" && e.id == want:
			return 0
		case e == p.current:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(list, func(a, b *endpoint) int {
		if c := cmp.Compare(rank(a), rank(b)); c != 0 || rank(a) != 3 {
			return c
		}
		return a.suspect.Compare(b.suspect)
	})
	for good < len(list) && !bad(list[good]) {
		good++
	}
	return list, good
}

// quickLocked is choose and acquire for the usual case, without sorting: the wanted node, or else the current one, is well and connected.
func (p *pool) quickLocked(want string, not *endpoint) *endpoint {
	e := p.current
	if want != "" {
		if i := slices.IndexFunc(p.all, func(e *endpoint) bool { return e.id == want }); i >= 0 {
			e = p.all[i]
		}
	}
	if e == nil || e == not || e.failures > 0 || e.link == nil || !e.link.ready() {
		return nil
	}
	return e
}

// chooseLocked picks the endpoint for a call. connected says that it can take the call at once. A better one that is not connected yet is
// made to connect meanwhile: going through another node costs a hop, waiting costs more.
func (p *pool) chooseLocked(want string, not *endpoint) (e *endpoint, list []*endpoint, connected bool, err error) {
	if p.closed {
		return nil, nil, false, errClosed
	}
	if e = p.quickLocked(want, not); e != nil {
		return e, nil, true, nil
	}
	list, good := p.orderLocked(want, not)
	for i, e := range list {
		if err := p.openLocked(e); err != nil {
			return nil, nil, false, err
		}
		if i < good && e.link.ready() {
			if i > 0 {
				list[0].link.nudge()
			}
			return e, list, true, nil
		}
	}
	return list[0], list, false, nil
}

// choose picks the endpoint for a call of a stream, connected or not. An error means that the client is closed.
func (p *pool) choose(want string, not *endpoint) (*endpoint, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, _, _, err := p.chooseLocked(want, not)
	return e, err
}

// acquire picks a connected endpoint for a call, and waits for a connection where there is none. An *unreachableError means that no node
// could be connected to.
func (p *pool) acquire(ctx context.Context, want string, not *endpoint) (*endpoint, error) {
	p.mu.Lock()
	e, list, connected, err := p.chooseLocked(want, not)
	p.mu.Unlock()
	switch {
	case err != nil:
		return nil, &unreachableError{codes.Canceled, err.Error(), err}
	case connected:
		return e, nil
	}
	return p.race(ctx, list)
}

// race connects to the endpoints one after the other, each a moment after the one before or when that one has failed, and takes the first
// that is ready.
func (p *pool) race(ctx context.Context, list []*endpoint) (*endpoint, error) {
	inner, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	type result struct {
		e   *endpoint
		err error
	}
	results := make(chan result, len(list))
	next := time.NewTimer(0)
	defer next.Stop()
	errs := make([]string, 0, len(list))
	for started := 0; len(errs) < len(list); {
		select {
		case <-next.C:
			if started < len(list) {
				e := list[started]
				started++
				go func() { results <- result{e, e.link.connect(inner)} }()
				next.Reset(stagger)
			}
		case r := <-results:
			if r.err == nil {
				return r.e, nil
			}
			if ctx.Err() != nil {
				return nil, endedWhileConnecting(ctx, errs)
			}
			p.used(r.e, &unreachableError{code: codes.Unavailable, text: r.err.Error(), err: r.err})
			errs = append(errs, r.e.addr+": "+connectText(r.err))
			next.Reset(0)
		case <-ctx.Done():
			return nil, endedWhileConnecting(ctx, errs)
		}
	}
	text := fmt.Sprintf("none of %d nodes can be reached: %s", len(errs), strings.Join(errs, "; "))
	if len(errs) == 1 {
		_, text, _ = strings.Cut(errs[0], ": ")
	}
	return nil, &unreachableError{code: codes.Unavailable, text: text}
}

func connectText(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no connection within " + connectWithin.String()
	}
	if e, ok := AsError(err); ok {
		return e.Message
	}
	return err.Error()
}

func endedWhileConnecting(ctx context.Context, errs []string) error {
	text := "no node could be reached in time"
	if len(errs) > 0 {
		text += ": " + strings.Join(errs, "; ")
	}
	return &unreachableError{status.FromContextError(ctx.Err()).Code(), text, ctx.Err()}
}

// probed ends a probe.
func (p *pool) probed(e *endpoint, err error) {
	p.used(e, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	e.probing = false
}

// used notes how a call to an endpoint went. Only what speaks about the node itself counts: a refusal of the request does not.
func (p *pool) used(e *endpoint, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !aboutTheNode(err) {
		e.failures, e.suspect = 0, time.Time{}
		if p.current == nil {
			p.current = e
		}
		return
	}
	e.suspect = time.Now().Add(min(firstSuspicion<<min(e.failures, 8), longestSuspicion))
	e.failures++
	e.asked = false
	if p.current == e {
		p.current = nil
	}
}
