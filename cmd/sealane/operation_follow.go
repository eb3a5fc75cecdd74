package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

// leftError: an operation was not waited for to its end. It goes on by itself.
type leftError struct {
	id    string
	state sealanev1.OperationState_Value
}

func (e *leftError) Error() string {
	return fmt.Sprintf("operation %s is %s and goes on; nobody waits for it any more", e.id, e.state)
}

// order is a control operation that runs for a while: who waits for it, and how.
type order struct {
	operation, why string
	wait, noWait   bool
}

func (o *order) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.operation, "operation-id", "", "repeat an earlier operation safely; default: a new one, which is printed")
	f.StringVar(&o.why, "reason", "", "why, for the audit, up to 256 bytes; required")
	f.BoolVar(&o.wait, "wait", false, "wait until it is done; the default on a terminal")
	f.BoolVar(&o.noWait, "no-wait", false, "return when it is registered; the default elsewhere")
}

func (o *order) check() error {
	if o.wait && o.noWait {
		return usagef("wait and no-wait exclude each other")
	}
	return checkReason(o.why)
}

// give registers an operation, and follows it to its end where that is wanted. A signal ends the waiting, never the operation.
func (a *app) give(cmd *cobra.Command, o order, req *sealanev1.CreateOperationRequest) error {
	if err := o.check(); err != nil {
		return err
	}
	req.OperationId, req.Reason = o.operation, o.why
	if req.OperationId == "" {
		req.OperationId = client.NewKey()
	}
	var op *sealanev1.Operation
	return a.call(cmd, func(ctx context.Context, c *client.Client) error {
		resp, err := c.Control().CreateOperation(ctx, req)
		if err != nil {
			return a.unregistered(req.GetOperationId(), err)
		}
		op = resp.GetOperation()
		if ended(op.GetState()) {
			return a.finish(op)
		}
		if !o.wait && (o.noWait || !isTerminal(a.out)) {
			return a.registered(op)
		}
		fmt.Fprintf(a.err, "operation %s registered; it goes on if you leave\n", op.GetOperationId())
		waiting, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		return a.follow(waiting, c, op)
	})
}

// unregistered names the operation id where the caller needs it: without a verdict the same id makes a repetition harmless.
func (a *app) unregistered(id string, err error) error {
	e, ok := client.AsError(err)
	if ok && !client.NeverSent(err) && (e.Reason == "" && e.Code != codes.InvalidArgument || e.Reason == "MAYBE_ACCEPTED") {
		fmt.Fprintf(a.err, "operation %s had no answer; repeating it with --operation-id %s is safe\n", id, id)
	}
	return err
}

// registered tells of an operation that is not waited for.
func (a *app) registered(op *sealanev1.Operation) error {
	if a.output == outputJSON {
		return a.printJSON(op)
	}
	_, err := fmt.Fprintf(a.out, "operation %s %s; `sealane operation watch %s%s` shows how it goes on\n",
		op.GetOperationId(), op.GetState(), op.GetOperationId(), a.addrFlag(a.addr))
	return err
}

// follow shows an operation's progress on standard error until it is done, and then how it ended. ctx is the wait.
func (a *app) follow(ctx context.Context, c *client.Client, op *sealanev1.Operation) error {
	last := ""
	for now, err := range c.WatchOperation(ctx, op.GetOperationId()) {
		switch {
		case err != nil && ctx.Err() != nil:
			return &leftError{op.GetOperationId(), op.GetState()}
		case err != nil:
			return err
		}
		op = now
		if text := op.GetState().String() + prefixed(": ", progressText(op)); text != last && !ended(op.GetState()) {
			last = text
			if isTerminal(a.err) {
				fmt.Fprintln(a.err, text)
			}
		}
	}
	if !ended(op.GetState()) {
		return &leftError{op.GetOperationId(), op.GetState()}
	}
	return a.finish(op)
}

// finish tells how an operation ended.
func (a *app) finish(op *sealanev1.Operation) error {
	failed := failureOf(op)
	if a.output == outputJSON {
		return errors.Join(a.printJSON(op), failed)
	}
	if op.GetState() == sealanev1.OperationState_REJECTED {
		return failed
	}
	fmt.Fprintf(a.out, "%s: %s%s (operation %s)\n", whatOf(op), op.GetState(), prefixed(": ", printable(op.GetError().GetMessage())), op.GetOperationId())
	if op.GetVerifyDigests() != nil {
		t, _, _ := digestTable(op.GetTargets())
		t.print(a.out)
	} else if len(op.GetTargets()) > 1 || op.GetProgress().GetFailed() > 0 {
		targetTable(op.GetTargets()).print(a.out)
	}
	return failed
}

// failureOf is why an operation that has ended did not do what was asked; nil where it did.
func failureOf(op *sealanev1.Operation) error {
	if err := rejection(op); err != nil {
		return err
	}
	if op.GetVerifyDigests() != nil {
		if _, differ, missing := digestTable(op.GetTargets()); differ > 0 {
			return status.Errorf(codes.DataLoss, "the replicas of %d %s differ", differ, plural(differ, "group"))
		} else if missing > 0 {
			return fmt.Errorf("no digest to compare of %d %s; the others are equal", missing, plural(missing, "replica"))
		}
	}
	switch {
	case op.GetState() == sealanev1.OperationState_CANCELLED:
		return fmt.Errorf("operation %s was cancelled; what took effect stays", op.GetOperationId())
	case op.GetProgress().GetFailed() > 0:
		return fmt.Errorf("%d of %d steps of operation %s failed", op.GetProgress().GetFailed(), op.GetProgress().GetMatched(), op.GetOperationId())
	}
	return nil
}
