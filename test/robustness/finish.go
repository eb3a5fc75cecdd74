package robustness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// moveWithin is how long a due message may wait once the faults have stopped (I22).
const moveWithin = 10 * time.Second

// Ending is what the last phase of a run found.
type Ending struct {
	Audit     *Report
	Whole     time.Duration // until every shard took a write
	Drained   time.Duration // until nothing was due any more
	WorstWait time.Duration // the longest that anything due waited, since then
	WorstLane string        // where, and what the lane said about it
	Digests   string
	Footprint []Footprint
}

// Footprint is what a node uses.
type Footprint struct {
	Node                string
	Goroutines          int
	ResidentMiB, LogMiB int
	Snapshots, Installs int // taken and received since the process started
}

// Finish stops the load and all faults, watches that everything due moves, and audits.
func (r *Run) Finish(ctx context.Context, random *rand.Rand) (*Ending, error) {
	r.o.Log("faults stop")
	r.Quiet()
	r.Receiver.Calm()
	e := &Ending{}
	var err error
	if e.Whole, err = r.Recover(ctx, random); err != nil {
		return e, fmt.Errorf("%w\n%s", err, r.Describe(ctx))
	}
	if err := r.drain(ctx, e, true); err != nil {
		return e, err
	}
	r.Silence()
	if err := r.drain(ctx, e, false); err != nil {
		return e, err
	}
	if len(r.Members()) > 1 {
		e.Digests = r.compare(ctx, "at the end")
	}
	for _, m := range r.Members() {
		f, err := m.Footprint(ctx)
		if err != nil {
			return e, fmt.Errorf("metrics of %s: %w", m.ID, err)
		}
		e.Footprint = append(e.Footprint, f)
	}
	r.o.Log("audit")
	e.Audit, err = Audit(ctx, r.Admin.Query(), r.Submitted(), r.Receiver.Requests())
	return e, err
}

// drain waits until nothing is left to do, and watches how long what is due waits. While the probes go on, theirs never is empty.
func (r *Run) drain(ctx context.Context, e *Ending, probing bool) error {
	began := time.Now()
	for {
		oldest, where, left, err := r.backlog(ctx, probing)
		if err == nil && left == "" {
			e.Drained = max(e.Drained, time.Since(began))
			return nil
		}
		if wait := min(time.Since(oldest), time.Since(began)); err == nil && !oldest.IsZero() && wait > e.WorstWait {
			e.WorstWait, e.WorstLane = wait, where
		}
		if time.Since(began) > 2*time.Minute {
			return fmt.Errorf("not at rest within two minutes: %s (%v)\n%s", left, err, r.Describe(ctx))
		}
		if !pause(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// backlog looks at every lane but that of the registers: what is left to do, and what has waited longest since it was due. What cannot be sent
// anywhere is left to do until it expires, and does not count as waiting.
func (r *Run) backlog(ctx context.Context, probing bool) (oldest time.Time, where, left string, err error) {
	q := &sealanev1.ListLanesRequest{PageSize: 1000, Consistency: sealanev1.Consistency_linearizable}
	for {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		a, err := r.Admin.Query().ListLanes(call, q)
		cancel()
		if err != nil {
			return oldest, where, left, err
		}
		for _, l := range a.GetLanes() {
			if l.GetDestination() == "register" {
				continue
			}
			due := l.GetOldestDueAt()
			if l.GetDestination() != "nowhere" && due != nil && due.AsTime().Before(time.Now()) && (oldest.IsZero() || due.AsTime().Before(oldest)) {
				oldest, where = due.AsTime(), fmt.Sprintf("%s/%d on shard %d: %s, %s; scheduled %d, in flight %d, open %d, uncertain %d, circuit %s", l.GetDestination(), l.GetSlot(), l.GetShard(),
					l.GetHold(), l.GetHoldExplanation(), l.GetScheduled(), l.GetInFlight(), l.GetOpenAttempts(), l.GetUncertain(), l.GetTargets())
			}
			if probing && strings.HasPrefix(l.GetDestination(), "probe-") {
				continue
			}
			if l.GetScheduled()+l.GetInFlight()+l.GetOpenAttempts() > 0 || l.GetUncertain() > 0 && due != nil {
				left += fmt.Sprintf("%s/%d: scheduled %d, in flight %d, open %d, uncertain %d, hold %s; ", l.GetDestination(), l.GetSlot(),
					l.GetScheduled(), l.GetInFlight(), l.GetOpenAttempts(), l.GetUncertain(), l.GetHold())
			}
		}
		if q.PageToken = a.GetNextPageToken(); q.PageToken == "" {
			return oldest, where, left, nil
		}
	}
}

// compare compares all replicas of all shards while the load goes on, and says how that ended.
func (r *Run) compare(ctx context.Context, when string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	op, err := r.VerifyDigests(ctx)
	if errors.Is(err, ErrOperation) && op.GetProgress().GetFailed() == 0 && op.GetProgress().GetApplied() > 0 {
		err = nil // some replicas could not be compared, since they were filled over the mark: that is not unequal
	}
	if err != nil {
		r.Problem("digests %s: %v", when, err)
		return "NOT EQUAL, or not known"
	}
	p := op.GetProgress()
	if p.GetFailed() > 0 || p.GetApplied() == 0 {
		r.Problem("digests %s: %s", when, op)
		return "NOT EQUAL"
	}
	r.mu.Lock()
	r.compared++
	r.mu.Unlock()
	return fmt.Sprintf("equal on all replicas (%d compared at the end, %d times in all)", p.GetApplied(), r.compared)
}

// Footprint reads what a node uses, from its metrics and its directory.
func (m *Member) Footprint(ctx context.Context) (Footprint, error) {
	f := Footprint{Node: m.ID}
	values, err := m.metrics(ctx, "go_goroutines", "process_resident_memory_bytes", "sealane_snapshots_total", "sealane_snapshot_installs_total")
	if err != nil {
		return f, err
	}
	f.Goroutines, f.ResidentMiB = int(values["go_goroutines"]), int(values["process_resident_memory_bytes"])>>20
	f.Snapshots, f.Installs = int(values["sealane_snapshots_total"]), int(values["sealane_snapshot_installs_total"])
	bytes := int64(0)
	err = filepath.WalkDir(filepath.Join(m.Dir, "log"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // files come and go while the node works
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	f.LogMiB = int(bytes >> 20)
	return f, err
}

// metrics reads some series, each summed over its labels.
func (m *Member) metrics(ctx context.Context, names ...string) (map[string]float64, error) {
	dial := func(ctx context.Context, _, address string) (net.Conn, error) { return m.Site.Dial(ctx, address) }
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.Site.HTTP+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	a, err := c.Do(q)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	out := map[string]float64{}
	lines := bufio.NewScanner(a.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ := strings.Cut(series, "{")
		for _, want := range names {
			if name == want {
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return nil, err
				}
				out[want] += n
			}
		}
	}
	return out, lines.Err()
}
