package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

const resolveHelp = `Decides about an attempt of which nobody can tell whether the receiver has the message. Look at the receiver first.

  published      the receiver has it: the message is delivered
  not-published  the receiver does not have it: the policy goes on as after a failure
  retry          send it once more and accept that the receiver may get it twice
  dead-letter    give up: it becomes a dead letter that is marked as perhaps delivered

With --operation-id the command can be repeated safely; it must then name the --attempt, so that each time says the same.

The decision is recorded with your reason. What nothing verifies is recorded as an override. --dry-run shows what would happen.`

type resolution struct {
	attempt, generation uint32
	verdict, evidence   string
	operation, why      string
	dryRun              bool
	chosen              sealanev1.ResolveVerdict_Value
}

func (a *app) uncertainResolve() *cobra.Command {
	var d resolution
	c := &cobra.Command{
		Use: "resolve MESSAGE_ID --verdict VERDICT --reason TEXT", Short: "Decide about an unknown attempt", Long: resolveHelp, Args: args("MESSAGE_ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.check(); err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				target, err := a.findUncertain(ctx, c, args[0], d)
				if err != nil {
					return err
				}
				if d.dryRun {
					return a.planResolve(target, d.chosen)
				}
				return a.operate(ctx, c, d.operation, d.why, &sealanev1.CreateOperationRequest{
					Parameters: &sealanev1.CreateOperationRequest_Resolve{Resolve: &sealanev1.Resolve{
						MessageId: args[0], Generation: target.GetGeneration(), Attempt: target.GetAttempt(), Verdict: d.chosen, Evidence: d.evidence,
					}},
				}, fmt.Sprintf("%s attempt %d: resolved as %s", args[0], target.GetAttempt(), d.verdict))
			})
		},
	}
	f := c.Flags()
	f.Uint32Var(&d.attempt, "attempt", 0, "the attempt; may be left out where only one is unknown")
	f.Uint32Var(&d.generation, "generation", 0, "the generation; may be left out where only one has an unknown attempt")
	f.StringVar(&d.verdict, "verdict", "", "published, not-published, retry or dead-letter; required")
	f.StringVar(&d.evidence, "evidence", "", "what was seen, for the record, up to 256 bytes")
	operationFlags(c, &d.operation, &d.why, &d.dryRun)
	return c
}

func (d *resolution) check() error {
	for _, v := range verdicts {
		if v.word == d.verdict {
			d.chosen = v.verdict
		}
	}
	if d.chosen == sealanev1.ResolveVerdict_VERDICT_UNSPECIFIED {
		return usagef("verdict is %q, want published, not-published, retry or dead-letter", d.verdict)
	}
	if d.operation != "" && d.attempt == 0 {
		return usagef("attempt is missing: an operation with an id names the attempt, so that its repetition says the same")
	}
	return checkReason(d.why)
}

// findUncertain finds the one attempt that is meant. Its generation is named only where it is not the current one.
func (a *app) findUncertain(ctx context.Context, c *client.Client, id string, d resolution) (*sealanev1.UncertainAttempt, error) {
	if d.attempt != 0 && !d.dryRun {
		return &sealanev1.UncertainAttempt{MessageId: id, Generation: d.generation, Attempt: d.attempt}, nil
	}
	var found []*sealanev1.UncertainAttempt
	for u, err := range c.UncertainAttempts(ctx, &sealanev1.ListUncertainAttemptsRequest{MessageId: id, Consistency: sealanev1.Consistency_linearizable}) {
		if err != nil {
			return nil, err
		}
		if (d.attempt == 0 || d.attempt == u.GetAttempt()) && (d.generation == 0 || d.generation == u.GetGeneration()) {
			found = append(found, u)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%s has no such unknown attempt; `sealane message get %s%s` tells its story", id, id, a.addrFlag(a.addr))
	case 1:
		if !terminal(found[0].GetGenerationState()) && !d.dryRun {
			found[0].Generation = d.generation
		}
		return found[0], nil
	}
	text := ""
	for _, u := range found {
		text += fmt.Sprintf(" --generation %d --attempt %d", u.GetGeneration(), u.GetAttempt())
	}
	return nil, usagef("%d attempts of %s are unknown; name one:%s", len(found), id, text)
}

func (a *app) planResolve(u *sealanev1.UncertainAttempt, v sealanev1.ResolveVerdict_Value) error {
	if a.output == outputJSON {
		return a.printJSON(u)
	}
	printUncertain(a.out, u)
	for _, s := range u.GetActions() {
		if s.GetVerdict() == v {
			_, err := fmt.Fprintf(a.out, "\nWould do (nothing was changed): %s\n", actionText(s))
			return err
		}
	}
	return fmt.Errorf("the node does not say what %s would mean", verdictFlag(v))
}
