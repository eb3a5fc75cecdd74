package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

func (a *app) uncertainCommand() *cobra.Command {
	list, resolve := a.uncertainList(), a.uncertainResolve()
	a.clientFlags(list, resolve)
	return group("uncertain", "Attempts of which nobody can tell whether the receiver has the message", list, resolve)
}

func (a *app) uncertainList() *cobra.Command {
	var r reading
	var p paging
	var destination, message string
	var age time.Duration
	c := &cobra.Command{
		Use: "list", Short: "The inbox: every attempt that waits for a decision, oldest first in each shard", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			level, err := r.level()
			if err == nil {
				err = p.check()
			}
			if err != nil {
				return err
			}
			req := &sealanev1.ListUncertainAttemptsRequest{
				Destination: destination, MessageId: message, Consistency: level, Positions: r.positions(), Wait: durationpb.New(r.wait),
			}
			if age > 0 {
				req.MinAge = durationpb.New(age)
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				rows, next, err := fetch(p, func(size int32, token string) ([]*sealanev1.UncertainAttempt, string, error) {
					req.PageSize, req.PageToken = size, token
					resp, err := c.Query().ListUncertainAttempts(ctx, req)
					if err == nil {
						err = pending(r.position, resp.GetReads()...)
					}
					return resp.GetUncertainAttempts(), resp.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return rowsJSON(a, "uncertain_attempts", rows, next)
				}
				for i, u := range rows {
					if i > 0 {
						fmt.Fprintln(a.out)
					}
					printUncertain(a.out, u)
				}
				a.printRows(&table{}, len(rows), "nothing is uncertain", next)
				return nil
			})
		},
	}
	r.flags(c)
	p.flags(c)
	c.Flags().StringVar(&destination, "destination", "", "only of this destination")
	c.Flags().StringVar(&message, "message", "", "only of this message")
	c.Flags().DurationVar(&age, "min-age", 0, "only those that have been unknown for at least this long")
	return c
}

// printUncertain is one item of the inbox: age, cause, what is known, what may be done and what it would mean.
func printUncertain(w io.Writer, u *sealanev1.UncertainAttempt) {
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line("%s generation %d attempt %d to %s", u.GetMessageId(), u.GetGeneration(), u.GetAttempt(), u.GetDestination())
	line("  age     %s, since %s", span(u.GetAge().AsDuration()), at(u.GetSince()))
	line("  cause   %s; its message is %s", or(u.GetCause(), "-"), u.GetGenerationState())
	line("  at the receiver look for webhook-id %s-%d", u.GetMessageId(), u.GetGeneration())
	if k := u.GetHoldsOrderingKey(); k != "" {
		line("  holds   everything behind it under ordering key %s", printable(k))
	}
	if n := u.GetNextAttemptAt(); n != nil {
		line("  next    its policy sends it again %s", at(n))
	}
	for i, k := range u.GetKnown() {
		line("  %-7s %s", first(i, "known"), printable(k))
	}
	for i, s := range u.GetActions() {
		line("  %-7s %s", first(i, "may do"), actionText(s))
	}
}

func first(i int, label string) string {
	if i == 0 {
		return label
	}
	return ""
}

func actionText(s *sealanev1.SafeAction) string {
	text := verdictFlag(s.GetVerdict()) + ": "
	switch {
	case !s.GetAllowed():
		text += "not now"
	case s.GetDuplicatePossible():
		text += "the receiver could get it twice"
	default:
		text += "no duplicate can come of it"
	}
	if s.GetOverride() {
		text += ", recorded as an override"
	}
	return text + prefixed("; ", printable(s.GetExplanation()))
}

// verdicts are the words of --verdict.
var verdicts = []struct {
	word    string
	verdict sealanev1.ResolveVerdict_Value
}{
	{"published", sealanev1.ResolveVerdict_PUBLISHED},
	{"not-published", sealanev1.ResolveVerdict_NOT_PUBLISHED},
	{"retry", sealanev1.ResolveVerdict_RETRY},
	{"dead-letter", sealanev1.ResolveVerdict_DEAD_LETTER},
}

func verdictFlag(v sealanev1.ResolveVerdict_Value) string {
	for _, x := range verdicts {
		if x.verdict == v {
			return x.word
		}
	}
	return v.String()
}
