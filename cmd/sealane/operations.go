package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

func (a *app) operationCommand() *cobra.Command {
	list, get, watch := a.operationList(), a.operationGet(), a.operationWatch()
	a.clientFlags(list, get, watch)
	return group("operation", "What operators did and are doing: control operations", list, get, watch)
}

func (a *app) operationList() *cobra.Command {
	var p paging
	var state, kind, actor string
	c := &cobra.Command{
		Use: "list", Short: "List operations, newest first", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			only, err := word[sealanev1.OperationState_Value]("state", state, sealanev1.OperationState_Value_value, words(sealanev1.OperationState_REGISTERED.Descriptor()))
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				rows, next, err := fetch(p, func(size int32, token string) ([]*sealanev1.Operation, string, error) {
					resp, err := c.Control().ListOperations(ctx, &sealanev1.ListOperationsRequest{
						State: only, Kind: kind, Actor: actor, PageSize: size, PageToken: token,
					})
					return resp.GetOperations(), resp.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return rowsJSON(a, "operations", rows, next)
				}
				t := &table{}
				t.add("OPERATION", "KIND", "STATE", "REGISTERED", "BY", "WHAT", "REASON")
				for _, o := range rows {
					t.add(o.GetOperationId(), operationKind(o), o.GetState().String(), at(o.GetRegisteredAt()), or(printable(o.GetActor()), "-"), or(parameters(o), "-"), printable(o.GetReason()))
				}
				a.printRows(t, len(rows), "no operations", next)
				return nil
			})
		},
	}
	p.flags(c)
	c.Flags().StringVar(&state, "state", "", "only in this state, for example APPLYING")
	c.Flags().StringVar(&kind, "kind", "", "only of this kind, for example move_replica")
	c.Flags().StringVar(&actor, "actor", "", "only by this actor")
	return c
}

func (a *app) operationGet() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show an operation with its targets", Args: args("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				resp, err := c.Control().GetOperation(ctx, &sealanev1.GetOperationRequest{Id: args[0]})
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return a.printJSON(resp.GetOperation())
				}
				printOperation(a.out, resp.GetOperation())
				return nil
			})
		},
	}
}

func printOperation(w io.Writer, o *sealanev1.Operation) {
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line("%s: %s", whatOf(o), o.GetState())
	line("  operation  %s", o.GetOperationId())
	line("  reason     %s", printable(o.GetReason()))
	line("  by         %s, registered %s at %s", or(printable(o.GetActor()), "-"), at(o.GetRegisteredAt()), or(o.GetRegisteredPosition(), "-"))
	if text := progressText(o); text != "" {
		line("  progress   %s, last change %s", text, at(o.GetUpdatedAt()))
	}
	if o.GetCompletedAt() != nil {
		line("  ended      %s", at(o.GetCompletedAt()))
	}
	if e := o.GetError(); e != nil {
		line("  why        %s", printable(e.GetMessage()))
	}
	if len(o.GetTargets()) > 0 {
		targetTable(o.GetTargets()).print(w)
	}
	if o.GetVerifyDigests() != nil {
		if t, _, _ := digestTable(o.GetTargets()); len(t.rows) > 1 {
			t.print(w)
		}
	}
}

func (a *app) operationWatch() *cobra.Command {
	return &cobra.Command{
		Use: "watch ID", Short: "Follow an operation until it is done", Args: args("ID"),
		Long: "Shows the operation's progress on a terminal and then how it ended, with the exit code of the command that began it. With --output json it\n" +
			"prints a line for each change.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return a.dial(cmd, func(c *client.Client) error {
				op := &sealanev1.Operation{OperationId: args[0]}
				if a.output != outputJSON {
					return a.follow(ctx, c, op)
				}
				for now, err := range c.WatchOperation(ctx, args[0]) {
					if err != nil && ctx.Err() != nil {
						return &leftError{args[0], op.GetState()}
					}
					if err != nil {
						return err
					}
					op = now
					if err := a.printLine(op); err != nil {
						return err
					}
				}
				return failureOf(op)
			})
		},
	}
}
