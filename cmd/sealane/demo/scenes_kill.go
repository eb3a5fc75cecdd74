package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

const (
	killAfter   = 3 * eventsInFlight // requests the receiver has seen when the node is killed
	afterwards  = 20                 // events submitted once the node is back
	eventsEvery = 3 * time.Millisecond
	maxEvents   = 2000 // a bound on a slow machine; far above what a run makes
)

// flow submits events without a pause for the outage, and gathers the answers.
type flow struct {
	mu       sync.Mutex
	accepted []client.Accepted
	repeated int // answered from an earlier try of the same key
	failures []error
}

func (f *flow) answer(a client.Accepted, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.failures = append(f.failures, err)
		return
	}
	f.accepted = append(f.accepted, a)
	if a.Deduplicated {
		f.repeated++
	}
}

// killed: SIGKILL with requests in flight and submits under way, then a start on the same directory.
func (d *demo) killed(ctx context.Context) error {
	f := &flow{}
	stream := d.client.Stream(ctx)
	restarted, submitted := make(chan struct{}), make(chan error, 1)
	go func() { submitted <- submitEvents(ctx, stream, f, restarted) }()
	err := d.killAndRestart(ctx)
	close(restarted)
	err = errors.Join(err, <-submitted)
	stream.Close()
	if err != nil {
		return err
	}
	if len(f.failures) > 0 {
		return fmt.Errorf("%d of the submits failed: %w", len(f.failures), f.failures[0])
	}
	for _, a := range f.accepted {
		d.sent = append(d.sent, sent{events, a.MessageID})
	}
	d.out.tell("The client never stopped: all %d of its events are acknowledged; %d had been accepted already when it asked again with the same key.", len(f.accepted), f.repeated)
	cut, err := d.awaitEvents(ctx, f.accepted)
	if err != nil {
		return err
	}
	d.out.tell("All %d are delivered. %d requests were cut off by the kill, and nobody can know what became of them: they are UNKNOWN,", len(f.accepted), cut)
	d.out.tell("and were repeated only because this receiver promises to treat a repeated webhook-id as one.")
	return nil
}

// submitEvents submits at an even pace until the node is back, and a few more.
func submitEvents(ctx context.Context, s *client.Stream, f *flow, restarted <-chan struct{}) error {
	pace := time.NewTicker(eventsEvery)
	defer pace.Stop()
	left := afterwards
	for i := 1; left > 0 && i <= maxEvents; i++ {
		if err := s.Submit(client.Message{Destination: events, Payload: fmt.Appendf(nil, `{"event": %d}`, i), ContentType: "application/json"}, f.answer); err != nil {
			return err
		}
		select {
		case <-restarted:
			left--
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		<-pace.C
	}
	return nil
}

func (d *demo) killAndRestart(ctx context.Context) error {
	err := d.until(ctx, func(context.Context) (bool, error) { return len(d.receiver.requests(eventsPath)) >= killAfter, nil })
	if err != nil {
		return err
	}
	if err := d.node.kill(); err != nil {
		return err
	}
	killed := time.Now()
	before := len(d.receiver.requests(eventsPath))
	d.out.tell("A client submits events without pause; the receiver takes a tenth of a second for each. SIGKILL after %d requests.", before)
	if err := d.node.start(ctx); err != nil {
		return err
	}
	// What arrives from here on was sent by the new process: nothing of the old one can still be on its way.
	atReady := len(d.receiver.requests(eventsPath))
	err = d.until(ctx, func(context.Context) (bool, error) { return len(d.receiver.requests(eventsPath)) > atReady, nil })
	if err != nil {
		return err
	}
	d.out.tell("Started again on the same directory: sending again within %s of the kill.", time.Since(killed).Round(time.Millisecond))
	return nil
}

// awaitEvents waits until all are delivered, and counts the attempts that the kill left unknown.
func (d *demo) awaitEvents(ctx context.Context, all []client.Accepted) (cut int, err error) {
	for _, a := range all {
		m, err := d.await(ctx, a.MessageID, sealanev1.GenerationState_DELIVERED)
		if err != nil {
			return 0, err
		}
		for _, t := range attempts(m) {
			if t.GetOutcome().GetSideEffect() == sealanev1.SideEffect_UNKNOWN {
				cut++
			}
		}
	}
	return cut, nil
}
