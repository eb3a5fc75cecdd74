package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

func (a *app) messageCommand() *cobra.Command {
	submit, get, list := a.messageSubmit(), a.messageGet(), a.messageList()
	cancel, reschedule, watch := a.messageCancel(), a.messageReschedule(), a.messageWatch()
	a.clientFlags(submit, get, list, cancel, reschedule, watch)
	return group("message", "Submit messages, and see what became of them", submit, get, list, cancel, reschedule, watch)
}

// timeFlag reads a time: RFC 3339, or a duration from now like 90s or +1h30m.
func (a *app) timeFlag(name, text string) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return timestamppb.New(t), nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return timestamppb.New(a.now().Add(d)), nil
	}
	return nil, usagef("%s is %q, want a time like 2026-01-02T15:04:05Z or a duration from now like 90s", name, text)
}

// reading is how fresh a read must be.
type reading struct {
	consistency string
	position    string
	wait        time.Duration
}

func (r *reading) flags(c *cobra.Command) {
	c.Flags().StringVar(&r.consistency, "consistency", "", "local, position or linearizable; default: position where one is named, else local")
	c.Flags().StringVar(&r.position, "position", "", "shard:index: the answer must be at least as new")
	c.Flags().DurationVar(&r.wait, "wait", 5*time.Second, "how long to wait for the position, up to 60s")
}

func (r reading) level() (sealanev1.Consistency_Value, error) {
	return word[sealanev1.Consistency_Value]("consistency", r.consistency, sealanev1.Consistency_Value_value, "local, position or linearizable")
}

// positions is the position as list calls take it.
func (r reading) positions() []string {
	if r.position == "" {
		return nil
	}
	return []string{r.position}
}

// word reads an enum's word; empty is the unset value.
func word[E ~int32](name, text string, values map[string]int32, want string) (E, error) {
	if text == "" {
		return 0, nil
	}
	if v, ok := values[text]; ok && v != 0 {
		return E(v), nil
	}
	return 0, usagef("%s is %q, want %s", name, text, want)
}

func (a *app) messageGet() *cobra.Command {
	var r reading
	var payload string
	c := &cobra.Command{
		Use: "get ID", Short: "Tell the story of a message", Args: args("ID"),
		Long: "Tells what became of a message: where it stands and why, every attempt with its evidence and the rule that decided, what comes next\nand why then, and what is safe to do. --output json prints everything the node knows.",
		RunE: func(cmd *cobra.Command, args []string) error {
			level, err := r.level()
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				resp, err := c.Query().GetMessage(ctx, &sealanev1.GetMessageRequest{
					Id: args[0], IncludePayload: payload != "", Consistency: level, Position: r.position, Wait: durationpb.New(r.wait),
				})
				if err == nil {
					err = pending(r.position, resp.GetRead())
				}
				if err != nil {
					return err
				}
				if payload != "" {
					return a.writePayload(payload, resp.GetMessage())
				}
				if a.output == outputJSON {
					return a.printJSON(resp)
				}
				story := story{w: a.out, now: readAt(resp.GetRead(), a.now()), m: resp.GetMessage(), addr: a.addrFlag(a.addr)}
				story.tell()
				return nil
			})
		},
	}
	r.flags(c)
	c.Flags().StringVar(&payload, "payload-to", "", "write the payload to this file, byte for byte, instead; - is standard output")
	return c
}

// pending turns a read that did not reach its position into an error.
func pending(position string, reads ...*sealanev1.ReadMetadata) error {
	for _, r := range reads {
		if r.GetStatus() == sealanev1.ReadStatus_PENDING {
			return &pendingError{position, r.GetAppliedPosition()}
		}
	}
	return nil
}

// answerOne prints what a read of one thing answered, or says why there is nothing to print.
func answerOne[T proto.Message](a *app, r *reading, m T, read *sealanev1.ReadMetadata, err error, show func(io.Writer, T)) error {
	if err == nil {
		err = pending(r.position, read)
	}
	if err != nil {
		return err
	}
	if a.output == outputJSON {
		return a.printJSON(m)
	}
	show(a.out, m)
	return nil
}

// readAt is the time that an answer speaks of: the shard's clock, or this machine's where the node did not say.
func readAt(r *sealanev1.ReadMetadata, now time.Time) time.Time {
	if t := r.GetShardClock(); t != nil && t.AsTime().After(now) {
		return t.AsTime()
	}
	return now
}

func (a *app) messageList() *cobra.Command {
	var r reading
	var p paging
	var destination, state, after, before string
	c := &cobra.Command{
		Use: "list", Short: "List messages, newest first in each lane", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := a.listMessages(destination, state, after, before, r)
			if err == nil {
				err = p.check()
			}
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				rows, next, err := fetch(p, func(size int32, token string) ([]*sealanev1.MessageSummary, string, error) {
					req.PageSize, req.PageToken = size, token
					resp, err := c.Query().ListMessages(ctx, req)
					if err == nil {
						err = pending(r.position, resp.GetReads()...)
					}
					return resp.GetMessages(), resp.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return rowsJSON(a, "messages", rows, next)
				}
				t := &table{}
				t.add("ID", "DESTINATION", "STATE", "REASON", "GEN", "ATTEMPTS", "ACCEPTED", "NEXT ATTEMPT", "LAST ERROR")
				for _, m := range rows {
					t.add(m.GetId(), m.GetDestination(), m.GetState().String(), reason(m.GetReason()), number(m.GetGeneration()), number(m.GetAttempts()),
						at(m.GetAcceptedAt()), at(m.GetNextAttemptAt()), or(m.GetLastErrorClass(), "-"))
				}
				a.printRows(t, len(rows), "no messages", next)
				return nil
			})
		},
	}
	r.flags(c)
	p.flags(c)
	c.Flags().StringVar(&destination, "destination", "", "only of this destination")
	c.Flags().StringVar(&state, "state", "", "only in this state: SCHEDULED, IN_FLIGHT, RETRY_WAIT, UNCERTAIN, DELIVERED, DEAD_LETTERED, CANCELLED, EXPIRED")
	c.Flags().StringVar(&after, "accepted-after", "", "only accepted at or after this time, or this long from now, for example -1h")
	c.Flags().StringVar(&before, "accepted-before", "", "only accepted before this time")
	return c
}

func (a *app) listMessages(destination, state, after, before string, r reading) (*sealanev1.ListMessagesRequest, error) {
	req := &sealanev1.ListMessagesRequest{Destination: destination, Positions: r.positions(), Wait: durationpb.New(r.wait)}
	var err error
	if req.State, err = stateFlag(state); err != nil {
		return nil, err
	}
	if req.Consistency, err = r.level(); err != nil {
		return nil, err
	}
	if req.AcceptedAfter, err = a.timeFlag("accepted-after", after); err != nil {
		return nil, err
	}
	req.AcceptedBefore, err = a.timeFlag("accepted-before", before)
	return req, err
}

func stateFlag(state string) (sealanev1.GenerationState_Value, error) {
	return word[sealanev1.GenerationState_Value]("state", state, sealanev1.GenerationState_Value_value,
		"SCHEDULED, IN_FLIGHT, RETRY_WAIT, UNCERTAIN, DELIVERED, DEAD_LETTERED, CANCELLED, EXPIRED or SUPERSEDED")
}

func reason(r sealanev1.TerminalReason_Value) string {
	if r == sealanev1.TerminalReason_REASON_UNSPECIFIED {
		return "-"
	}
	return r.String()
}

func (a *app) messageCancel() *cobra.Command {
	var generation uint32
	var why string
	c := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a message that has not been sent", Args: args("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				resp, err := c.Delivery().Cancel(ctx, &sealanev1.CancelRequest{Id: args[0], Generation: generation, Reason: why})
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return a.printJSON(resp)
				}
				_, err = fmt.Fprintf(a.out, "%s generation %d: cancelled at %s\n", resp.GetMessageId(), resp.GetGeneration(), resp.GetPosition())
				return err
			})
		},
	}
	c.Flags().Uint32Var(&generation, "generation", 0, "the generation that must be current; 0: whichever is")
	c.Flags().StringVar(&why, "reason", "", "why, for the history, up to 256 bytes")
	return c
}

func (a *app) messageReschedule() *cobra.Command {
	var generation uint32
	var deliver, expire, request string
	c := &cobra.Command{
		Use: "reschedule ID --deliver-at TIME", Short: "Give a message that has not been sent another time", Args: args("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if deliver == "" {
				return usagef("deliver-at is missing: name a time, or 0s for at once")
			}
			if request == "" {
				request = client.NewKey()
			}
			req := &sealanev1.RescheduleRequest{Id: args[0], Generation: generation, RequestId: request}
			var err error
			if req.DeliverAt, err = a.timeFlag("deliver-at", deliver); err != nil {
				return err
			}
			if req.ExpireAt, err = a.timeFlag("expire-at", expire); err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				resp, err := c.Delivery().Reschedule(ctx, req)
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return a.printJSON(resp)
				}
				_, err = fmt.Fprintf(a.out, "%s: generation %d made at %s, deliver at %s\n", resp.GetMessageId(), resp.GetGeneration(), resp.GetPosition(), at(req.GetDeliverAt()))
				return err
			})
		},
	}
	c.Flags().Uint32Var(&generation, "generation", 0, "the generation that must be current; 0: whichever is")
	c.Flags().StringVar(&deliver, "deliver-at", "", "earliest delivery: a time, or a duration from now")
	c.Flags().StringVar(&expire, "expire-at", "", "last instant of an attempt: a time, or a duration from now; default: as it was")
	c.Flags().StringVar(&request, "request-id", "", "repeat an earlier call safely; default: a new one")
	return c
}
