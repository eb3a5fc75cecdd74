package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

// ErrAudit: the receiver's record and the ledger do not agree. The table says where; the data directory is kept for a closer look.
var ErrAudit = errors.New("demo: the audit does not hold")

// Bounds of the waits. They are far above what any step needs; a step that reaches its bound has failed.
const (
	stepBound  = 20 * time.Second
	startBound = 30 * time.Second
	pollEvery  = 20 * time.Millisecond
)

// Options says how to run the demo.
type Options struct {
	// Binary is the executable that is started as the node, with the arguments of `sealane serve`. Required.
	Binary string
	// Env is the environment of the node.
	Env []string
	// Out is where the story goes. Required.
	Out io.Writer
	// Bold lets headings stand out; for terminals.
	Bold bool
	// Parent is where the temporary directory is made; empty is the system's.
	Parent string
}

// demo is one run.
type demo struct {
	out      *narrator
	dir      string
	node     *node
	receiver *receiver
	client   *client.Client
	sent     []sent // every acknowledged message, in the order of the answers
}

// sent is one acknowledged message.
type sent struct {
	destination string
	id          string
}

// Run tells the story. It returns ErrAudit if the end does not balance, and another error if a step failed. Nothing is left running; the
// temporary directory is kept only after a failure, and the error names it; an interrupted run keeps nothing.
func Run(ctx context.Context, o Options) (err error) {
	dir, err := os.MkdirTemp(o.Parent, "sealane-demo-")
	if err != nil {
		return fmt.Errorf("demo: temporary directory: %w", err)
	}
	d := &demo{out: &narrator{w: o.Out, bold: o.Bold}, dir: dir}
	defer func() {
		err = errors.Join(err, d.close())
		switch {
		case ctx.Err() != nil:
			err = errors.Join(fmt.Errorf("demo: interrupted: %w", ctx.Err()), os.RemoveAll(dir))
		case err != nil:
			err = fmt.Errorf("%w (see %s)", err, dir)
		default:
			err = os.RemoveAll(dir)
		}
	}()
	if d.receiver, err = startReceiver(filepath.Join(dir, "received.jsonl")); err != nil {
		return err
	}
	d.node = &node{binary: o.Binary, env: o.Env, dataDir: filepath.Join(dir, "node"), logPath: filepath.Join(dir, "node.log"), grpc: "127.0.0.1:0", http: "127.0.0.1:0"}
	started := time.Now()
	if err := d.begin(ctx); err != nil {
		return err
	}
	for _, s := range []struct {
		title string
		play  func(context.Context) error
	}{
		{"Delivered", d.delivered},
		{"Retried: the receiver is busy and says when to come back", d.retried},
		{"Dead-lettered: the receiver refuses the message for good", d.deadLettered},
		{"Uncertain: the receiver takes the message and drops the connection", d.uncertain},
		{"A failing destination stops its own lane, and recovers by itself", d.circuit},
		{"The node is killed in the middle of its work", d.killed},
		{"The audit", d.audit},
	} {
		d.out.scene(s.title)
		if err := s.play(ctx); err != nil {
			return fmt.Errorf("demo: scene %q: %w", s.title, err)
		}
	}
	d.out.blank()
	d.out.say("Done in %s.", time.Since(started).Round(100*time.Millisecond))
	return nil
}

// begin starts the node and registers the destinations.
func (d *demo) begin(ctx context.Context) error {
	d.out.say("Sealane demo: one node, one receiver.")
	d.out.say("The node is a process of its own with its data on disk; the receiver writes down every request before it answers.")
	if err := d.node.start(ctx); err != nil {
		return err
	}
	var err error
	if d.client, err = client.Dial(d.node.grpc, client.Options{StreamWindow: 8}); err != nil {
		return err
	}
	for _, spec := range destinations(d.receiver.url) {
		callCtx, cancel := context.WithTimeout(ctx, stepBound)
		_, err := d.client.Destinations().ApplyDestination(callCtx, &sealanev1.ApplyDestinationRequest{Destination: spec})
		cancel()
		if err != nil {
			return fmt.Errorf("demo: apply %s: %w", spec.GetName(), err)
		}
	}
	d.out.say("Node %s is ready (gRPC %s, HTTP %s); receiver on %s.", nodeID, d.node.grpc, d.node.http, d.receiver.url)
	return nil
}

func (d *demo) close() error {
	var errs []error
	if d.client != nil {
		errs = append(errs, d.client.Close())
	}
	if d.node != nil {
		errs = append(errs, d.node.end())
	}
	if d.receiver != nil {
		errs = append(errs, d.receiver.close())
	}
	return errors.Join(errs...)
}

// submit sends one message and remembers it once it is acknowledged.
func (d *demo) submit(ctx context.Context, destination, payload string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stepBound)
	defer cancel()
	a, err := d.client.Submit(ctx, client.Message{Destination: destination, Payload: []byte(payload), ContentType: "application/json"})
	if err != nil {
		return "", err
	}
	d.sent = append(d.sent, sent{destination, a.MessageID})
	return a.MessageID, nil
}

// message reads a message from the ledger, as new as the moment of the call.
func (d *demo) message(ctx context.Context, id string) (*sealanev1.Message, error) {
	resp, err := d.client.Query().GetMessage(ctx, &sealanev1.GetMessageRequest{Id: id, Consistency: sealanev1.Consistency_linearizable})
	return resp.GetMessage(), err
}

// await reads a message until it is in a state.
func (d *demo) await(ctx context.Context, id string, want sealanev1.GenerationState_Value) (m *sealanev1.Message, err error) {
	err = d.until(ctx, func(ctx context.Context) (bool, error) {
		m, err = d.message(ctx, id)
		return m.GetState() == want, err
	})
	if err != nil {
		return nil, fmt.Errorf("%s should become %s and is %s: %w", id, want, m.GetState(), err)
	}
	return m, nil
}

// until asks again and again until the answer is yes, the step's bound is reached, or the node has gone. A node that is not reachable for a
// moment is asked again.
func (d *demo) until(ctx context.Context, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, stepBound)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		yes, err := ask(ctx)
		if e, ok := client.AsError(err); ok && (e.Code == codes.Unavailable || e.Code == codes.DeadlineExceeded) {
			err = nil
		}
		if err != nil || yes {
			return err
		}
		select {
		case <-tick.C:
		case err := <-d.node.exited:
			d.node.exited <- err
			return fmt.Errorf("the node ended by itself: %v", err)
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", stepBound, ctx.Err())
		}
	}
}
