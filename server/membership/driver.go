package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/catalog/plan"
	"github.com/sealane/sealane/policy"
)

// Options are what a Driver works with.
type Options struct {
	// Node is this node's id. Required.
	Node string
	// Control, Nodes and Groups are required.
	Control Control
	Nodes   Nodes
	Groups  Groups
	// Now is the time, on the scale of the control group's clock: unix nanoseconds. It must not go back while the driver lives. Required.
	Now func() policy.Time
	// Interval is the time between two rounds, 10 ms to 1 min. 0: DefaultInterval.
	Interval time.Duration
	// StepTimeout bounds one change or recording, 100 ms to 10 min. 0: DefaultStepTimeout.
	StepTimeout time.Duration
	// LongTimeout bounds a snapshot or a comparison of digests, at least StepTimeout, up to 1 h. 0: DefaultLongTimeout.
	LongTimeout time.Duration
	// Observer receives measurements. Default: none.
	Observer Observer
	// Logger receives what was done and why. Default: none.
	Logger *slog.Logger
}

// Defaults and bounds.
const (
	DefaultInterval    = time.Second
	DefaultStepTimeout = 10 * time.Second
	DefaultLongTimeout = 2 * time.Minute

	// reportTimeout bounds the asking of one node; who is slower is not reachable in that round.
	reportTimeout = time.Second
	// leastGap is the least time between two rounds, so that nothing can make the driver spin.
	leastGap = 20 * time.Millisecond
	// maxRunning bounds the steps that are executed at once.
	maxRunning = 16
)

func (o Options) withDefaults() Options {
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.StepTimeout == 0 {
		o.StepTimeout = DefaultStepTimeout
	}
	if o.LongTimeout == 0 {
		o.LongTimeout = max(DefaultLongTimeout, o.StepTimeout)
	}
	if o.Observer == nil {
		o.Observer = NopObserver{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate reports every problem at once.
func (o Options) Validate() error {
	var errs []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("membership: "+format, args...))
		}
	}
	bad(o.Node != "", "Node is required")
	bad(o.Control != nil && o.Nodes != nil && o.Groups != nil, "Control, Nodes and Groups are required")
	bad(o.Now != nil, "Now is required")
	bad(o.Interval == 0 || o.Interval >= 10*time.Millisecond && o.Interval <= time.Minute, "Interval is %s, want 10ms to 1m", o.Interval)
	bad(o.StepTimeout == 0 || o.StepTimeout >= 100*time.Millisecond && o.StepTimeout <= 10*time.Minute, "StepTimeout is %s, want 100ms to 10m", o.StepTimeout)
	bad(o.LongTimeout == 0 || o.LongTimeout >= o.StepTimeout && o.LongTimeout <= time.Hour, "LongTimeout is %s, want StepTimeout to 1h", o.LongTimeout)
	return errors.Join(errs...)
}

// Driver drives the cluster while this node leads the control group. Make one for each leadership.
type Driver struct {
	opts Options
	poke chan struct{}
	done chan outcome // finished steps

	busy      map[uint32]plan.Step // being executed, by group
	transfers map[uint32]plan.Transfer
	seen      map[string]seenNode
	commits   map[uint32]seenCommit
	failures  map[uint32]failure
}

// New makes a driver; Run runs it.
func New(o Options) (*Driver, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Driver{
		opts: o.withDefaults(), poke: make(chan struct{}, 1), done: make(chan outcome, maxRunning), busy: map[uint32]plan.Step{},
		transfers: map[uint32]plan.Transfer{}, seen: map[string]seenNode{}, commits: map[uint32]seenCommit{}, failures: map[uint32]failure{},
	}, nil
}

// Poke asks for a round at once: after a registration, an operation, or a change of leadership. It never blocks.
func (d *Driver) Poke() {
	select {
	case d.poke <- struct{}{}:
	default:
	}
}

// Run drives the cluster until ctx ends or a port says ErrNotLeading, and returns which. All that it started has returned by then.
func (d *Driver) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := true // the timer is set for a round that was asked for
	for {
		select {
		case <-ctx.Done():
			return d.stop(ctx)
		case o := <-d.done:
			d.finished(ctx, &o, cancel)
		case <-d.poke:
			if !soon {
				soon = true
				timer.Reset(leastGap)
			}
		case <-timer.C:
			soon = false
			timer.Reset(d.opts.Interval)
			if err := d.round(ctx); errors.Is(err, ErrNotLeading) {
				cancel(err)
			} else if err != nil && ctx.Err() == nil {
				d.opts.Logger.Warn("membership round failed", "err", err)
			}
		}
	}
}

// stop waits for what was started.
func (d *Driver) stop(ctx context.Context) error {
	for len(d.busy) > 0 {
		o := <-d.done
		delete(d.busy, o.step.Group)
	}
	return context.Cause(ctx)
}

// round plans the next steps and starts them.
func (d *Driver) round(ctx context.Context) error {
	v, err := d.gather(ctx)
	if err != nil {
		return err
	}
	steps := plan.Next(v)
	nodes, reachable := 0, 0
	for i := range v.Nodes {
		if v.Nodes[i].State != catalog.NodeRemoved {
			nodes++
		}
		if v.Observed[i].Reachable {
			reachable++
		}
	}
	d.opts.Observer.Round(nodes, reachable, len(steps))
	d.opts.Observer.Filling(plan.Filling(v.Placements))
	for i := range steps {
		if len(d.busy) == maxRunning {
			break
		}
		d.start(ctx, &steps[i], v)
	}
	return nil
}
