package main

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

// maxWatch bounds a watch; the longest lifetime of a message is longer, but no terminal stays open that long.
const maxWatch = 7 * 24 * time.Hour

func (a *app) messageWatch() *cobra.Command {
	var limit time.Duration
	var position string
	c := &cobra.Command{
		Use: "watch ID", Short: "Follow a message until it has ended", Args: args("ID"),
		Long: "Prints a line for the present state and for each change until the message has ended. With --output json each line is one JSON object.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < time.Millisecond || limit > maxWatch {
				return usagef("for is %s, want 1ms to %s", limit, maxWatch)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			return a.dial(cmd, func(c *client.Client) error {
				return a.watch(ctx, c, &sealanev1.WatchMessageRequest{Id: args[0], Position: position})
			})
		},
	}
	c.Flags().DurationVar(&limit, "for", time.Hour, "longest time to watch")
	c.Flags().StringVar(&position, "position", "", "shard:index: leave out what was already so at this position")
	return c
}

func (a *app) watch(ctx context.Context, c *client.Client, req *sealanev1.WatchMessageRequest) error {
	for resp, err := range c.Watch(ctx, req) {
		if e, ok := client.AsError(err); ok && e.Code == codes.DeadlineExceeded && ctx.Err() != nil {
			return fmt.Errorf("the message has not ended in the time that --for allows")
		}
		if err != nil {
			return err
		}
		if err := a.printChange(resp); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printChange(resp *sealanev1.WatchMessageResponse) error {
	if a.output == outputJSON {
		return a.printLine(resp)
	}
	m := resp.GetMessage()
	text := fmt.Sprintf("%s  %-13s  %s", resp.GetRead().GetAppliedPosition(), m.GetState(), stateMeans[m.GetState()])
	if last := lastAttempt(m); last != nil && last.GetOutcome() != nil {
		text += fmt.Sprintf("; attempt %d: %s", last.GetNumber(), evidence(last.GetOutcome().GetEvidence()))
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}

func lastAttempt(m *sealanev1.Message) *sealanev1.Attempt {
	gs := m.GetGenerations()
	if len(gs) == 0 || len(gs[len(gs)-1].GetAttempts()) == 0 {
		return nil
	}
	as := gs[len(gs)-1].GetAttempts()
	return as[len(as)-1]
}
