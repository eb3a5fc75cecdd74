package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

func (a *app) deadLetterCommand() *cobra.Command {
	list, get := a.deadLetterList(), a.deadLetterGet()
	a.clientFlags(list, get)
	return group("deadletter", "Messages that failed for good", list, get)
}

func (a *app) deadLetterList() *cobra.Command {
	var r reading
	var p paging
	var destination, state, why, class, after, before string
	c := &cobra.Command{
		Use: "list", Short: "List dead letters, newest first", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := a.listDeadLetters(state, why, after, before, r)
			if err == nil {
				err = p.check()
			}
			if err != nil {
				return err
			}
			req.Destination, req.ErrorClass = destination, class
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				rows, next, err := fetch(p, func(size int32, token string) ([]*sealanev1.DeadLetter, string, error) {
					req.PageSize, req.PageToken = size, token
					resp, err := c.Query().ListDeadLetters(ctx, req)
					if err == nil {
						err = pending(r.position, resp.GetReads()...)
					}
					return resp.GetDeadLetters(), resp.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return rowsJSON(a, "dead_letters", rows, next)
				}
				t := &table{}
				t.add("MESSAGE", "GEN", "DESTINATION", "REASON", "LAST ERROR", "ATTEMPTS", "FAILED", "MAY BE DELIVERED", "EXPORT")
				for _, d := range rows {
					t.add(d.GetMessageId(), number(d.GetGeneration()), d.GetDestination(), d.GetReason().String(), or(d.GetLastErrorClass(), "-"),
						number(d.GetAttemptCount()), at(d.GetFailedAt()), yesNo(mayBeDelivered(d)), d.GetExport().GetState().String())
				}
				a.printRows(t, len(rows), "no dead letters", next)
				return nil
			})
		},
	}
	r.flags(c)
	p.flags(c)
	c.Flags().StringVar(&destination, "destination", "", "only of this destination")
	c.Flags().StringVar(&state, "state", "", "DEAD_LETTERED (default) or EXPIRED")
	c.Flags().StringVar(&why, "reason", "", "only with this reason, for example EXHAUSTED or PERMANENT_FAILURE")
	c.Flags().StringVar(&class, "error-class", "", "only with this last error class, for example TIMEOUT")
	c.Flags().StringVar(&after, "failed-after", "", "only failed at or after this time, or this long from now, for example -1h")
	c.Flags().StringVar(&before, "failed-before", "", "only failed before this time")
	return c
}

func (a *app) listDeadLetters(state, why, after, before string, r reading) (*sealanev1.ListDeadLettersRequest, error) {
	req := &sealanev1.ListDeadLettersRequest{Positions: r.positions(), Wait: durationpb.New(r.wait)}
	var err error
	if req.State, err = word[sealanev1.GenerationState_Value]("state", state, sealanev1.GenerationState_Value_value, "DEAD_LETTERED or EXPIRED"); err != nil {
		return nil, err
	}
	if req.Reason, err = word[sealanev1.TerminalReason_Value]("reason", why, sealanev1.TerminalReason_Value_value, words(sealanev1.TerminalReason_REASON_UNSPECIFIED.Descriptor())); err != nil {
		return nil, err
	}
	if req.Consistency, err = r.level(); err != nil {
		return nil, err
	}
	if req.FailedAfter, err = a.timeFlag("failed-after", after); err != nil {
		return nil, err
	}
	req.FailedBefore, err = a.timeFlag("failed-before", before)
	return req, err
}

func mayBeDelivered(d *sealanev1.DeadLetter) bool {
	return d.GetPossibleDuplicate() || d.GetAttemptsUnknown() > 0
}

func (a *app) deadLetterGet() *cobra.Command {
	var r reading
	var generation uint32
	c := &cobra.Command{
		Use: "get MESSAGE_ID", Short: "Show a dead letter with its attempts", Args: args("MESSAGE_ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			level, err := r.level()
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				resp, err := c.Query().GetDeadLetter(ctx, &sealanev1.GetDeadLetterRequest{
					MessageId: args[0], Generation: generation, Consistency: level, Position: r.position, Wait: durationpb.New(r.wait),
				})
				return answerOne(a, &r, resp.GetDeadLetter(), resp.GetRead(), err, printDeadLetter)
			})
		},
	}
	r.flags(c)
	c.Flags().Uint32Var(&generation, "generation", 0, "the generation; 0: the newest that failed")
	return c
}

func printDeadLetter(w io.Writer, d *sealanev1.DeadLetter) {
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line("%s generation %d to %s (version %d)", d.GetMessageId(), d.GetGeneration(), d.GetDestination(), d.GetDestinationVersion())
	line("  failed     %s at %s: %s", at(d.GetFailedAt()), d.GetFailedPosition(), d.GetState())
	line("  why        %s: %s", d.GetReason(), reasonMeans[d.GetReason()])
	line("  accepted   %s, %s", at(d.GetAcceptedAt()), size(d.GetPayloadSize()))
	line("  attempts   %d, %d of them retries that counted, %d unknown", d.GetAttemptCount(), d.GetRetryCount(), d.GetAttemptsUnknown())
	line("  errors     first %s, last %s", or(d.GetFirstErrorClass(), "-"), or(d.GetLastErrorClass(), "-"))
	line("  export     %s%s", d.GetExport().GetState(), prefixed(" to ", d.GetExport().GetDestination()))
	if d.GetReplayedAs() != 0 {
		line("  replayed   as generation %d", d.GetReplayedAs())
	}
	s := story{w: w}
	for _, t := range d.GetAttempts() {
		s.attempt(t)
	}
	line("")
	if mayBeDelivered(d) {
		line("The receiver may have it although it is listed here: look for webhook-id %s-%d before it is sent again.", d.GetMessageId(), d.GetGeneration())
		return
	}
	line("The receiver does not have it: every attempt is known not to have been accepted.")
}
