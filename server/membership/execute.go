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

// outcome is a finished step.
type outcome struct {
	step  plan.Step
	actor string // who ordered it, where an operation did
	took  time.Duration
	err   error
}

// failure is the last failure of a group's steps, kept so that one that repeats itself does not fill the log.
type failure struct {
	text string
	at   policy.Time
}

// repeatAfter is how often a failure that repeats itself is logged.
const repeatAfter = time.Minute

// start executes a step on its own goroutine, which ends by itself when the step's time is over.
func (d *Driver) start(ctx context.Context, s *plan.Step, v *plan.View) {
	d.busy[s.Group] = *s
	if s.Kind == plan.TransferTo {
		d.transfers[s.Group] = plan.Transfer{Group: s.Group, From: s.Leader, To: s.Node, At: v.Now}
	}
	o := outcome{step: *s}
	for i := range v.Operations {
		if v.Operations[i].ID == s.Operation {
			o.actor = v.Operations[i].Actor
		}
	}
	limit := d.opts.StepTimeout
	if s.Kind == plan.TakeSnapshot || s.Kind == plan.CompareDigests {
		limit = d.opts.LongTimeout
	}
	go func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		began := time.Now()
		o.err = d.execute(ctx, &o.step)
		o.took = time.Since(began)
		d.done <- o // never waits: it has room for all that run
	}()
}

// finished takes note of a finished step and asks for the next round where something has changed.
func (d *Driver) finished(ctx context.Context, o *outcome, cancel context.CancelCauseFunc) {
	s := &o.step
	delete(d.busy, s.Group)
	d.opts.Observer.Step(s.Kind, o.err)
	attrs := []any{
		"group", s.Group, "step", s.Kind.String(), "node", s.Node, "replica", s.Replica, "why", s.Why, "operation", s.Operation,
		"actor", o.actor, "took", o.took,
	}
	if c, ok := s.Command.(*catalog.ChangePlacement); ok {
		attrs = append(attrs, "state", c.State.String())
	}
	log := d.opts.Logger
	switch {
	case o.err == nil:
		delete(d.failures, s.Group)
		log.Info("membership step", attrs...)
		d.Poke()
	case errors.Is(o.err, ErrNotLeading):
		cancel(o.err)
	case ctx.Err() != nil:
	case errors.Is(o.err, catalog.ErrStale):
		log.Debug("membership step came late", append(attrs, "err", o.err)...)
		d.Poke()
	default:
		log.Log(ctx, d.severity(s.Group, o.err), "membership step failed", append(attrs, "err", o.err)...)
	}
}

// severity keeps the same failure of the same group from being a warning each second.
func (d *Driver) severity(group uint32, err error) slog.Level {
	now, text := d.opts.Now(), err.Error()
	if last, ok := d.failures[group]; ok && last.text == text && now.Sub(last.at) < repeatAfter {
		return slog.LevelDebug
	}
	d.failures[group] = failure{text: text, at: now}
	return slog.LevelWarn
}

// execute does one step.
func (d *Driver) execute(ctx context.Context, s *plan.Step) error {
	switch s.Kind {
	case plan.Record, plan.Prefer, plan.SetNode, plan.Advance, plan.Finish:
		return d.propose(ctx, s.Command)
	case plan.AddLearner, plan.Promote, plan.Demote, plan.RemoveMember, plan.TransferTo:
		return d.opts.Groups.Change(ctx, s.Leader, s.Group, Change{Kind: s.Kind, Replica: s.Replica, MembersAt: s.MembersAt})
	case plan.TakeSnapshot:
		return d.snapshot(ctx, s)
	case plan.CompareDigests:
		return d.compare(ctx, s)
	}
	return fmt.Errorf("membership: the plan has a step of unknown kind %s", s.Kind)
}

// propose records something and returns the verdict as an error too.
func (d *Driver) propose(ctx context.Context, c catalog.Command) error {
	r, err := d.opts.Control.Propose(ctx, c)
	if err != nil {
		return err
	}
	return r.Err
}
