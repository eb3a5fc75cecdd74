package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/status"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

// maxReason is the API's limit for the reason of an operation.
const maxReason = 256

func operationFlags(c *cobra.Command, operation, why *string, dryRun *bool) {
	c.Flags().StringVar(operation, "operation-id", "", "repeat an earlier operation safely; default: a new one")
	c.Flags().StringVar(why, "reason", "", "why, for the audit, up to 256 bytes; required")
	c.Flags().BoolVar(dryRun, "dry-run", false, "show what would happen, and change nothing")
}

func checkReason(why string) error {
	if why == "" || len(why) > maxReason {
		return usagef("reason has %d bytes, want 1 to %d: say why, for the audit", len(why), maxReason)
	}
	return nil
}

// operate registers a control operation and waits until it is done. done is what people read then.
func (a *app) operate(ctx context.Context, c *client.Client, id, why string, req *sealanev1.CreateOperationRequest, done string) error {
	if id == "" {
		id = client.NewKey()
	}
	req.OperationId, req.Reason = id, why
	resp, err := c.Control().CreateOperation(ctx, req)
	if err != nil {
		return a.unregistered(id, err)
	}
	op := resp.GetOperation()
	for pause := 20 * time.Millisecond; !ended(op.GetState()); pause = min(2*pause, time.Second) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("operation %s is %s and was not done within the timeout; it goes on", id, op.GetState())
		}
		got, err := c.Control().GetOperation(ctx, &sealanev1.GetOperationRequest{Id: id})
		if err != nil {
			return err
		}
		op = got.GetOperation()
	}
	if err := rejection(op); err != nil {
		return err
	}
	if a.output == outputJSON {
		return a.printJSON(op)
	}
	_, err = fmt.Fprintf(a.out, "%s%s (operation %s %s)\n", done, where(op), op.GetOperationId(), op.GetState())
	return err
}

func ended(s sealanev1.OperationState_Value) bool {
	return s >= sealanev1.OperationState_COMPLETED
}

// rejection is why an operation was refused, if it was.
func rejection(op *sealanev1.Operation) error {
	if op.GetState() != sealanev1.OperationState_REJECTED {
		return nil
	}
	if op.GetError() != nil {
		return status.ErrorProto(op.GetError())
	}
	for _, t := range op.GetTargets() {
		if t.GetError() != nil {
			return status.ErrorProto(t.GetError())
		}
	}
	return fmt.Errorf("operation %s was rejected, and the node does not say why", op.GetOperationId())
}

func where(op *sealanev1.Operation) string {
	text := ""
	for _, t := range op.GetTargets() {
		if t.GetPosition() != "" {
			text += " " + t.GetPosition()
		}
	}
	return prefixed(" at", text)
}
