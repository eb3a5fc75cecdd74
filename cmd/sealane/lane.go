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

func (a *app) laneCommand() *cobra.Command {
	list, get, pause, resume := a.laneList(), a.laneGet(), a.lanePause(), a.laneResume()
	a.clientFlags(list, get, pause, resume)
	return group("lane", "Queues of destinations: whether they send, and if not, why", list, get, pause, resume)
}

func (a *app) laneList() *cobra.Command {
	var p paging
	var destination string
	var troubled bool
	c := &cobra.Command{
		Use: "list", Short: "List lanes", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				rows, next, err := fetch(p, func(size int32, token string) ([]*sealanev1.Lane, string, error) {
					resp, err := c.Query().ListLanes(ctx, &sealanev1.ListLanesRequest{
						Destination: destination, TroubledOnly: troubled, PageSize: size, PageToken: token,
					})
					return resp.GetLanes(), resp.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return rowsJSON(a, "lanes", rows, next)
				}
				a.printRows(laneTable(rows), len(rows), "no lanes", next)
				return nil
			})
		},
	}
	p.flags(c)
	c.Flags().StringVar(&destination, "destination", "", "only of this destination")
	c.Flags().BoolVar(&troubled, "troubled", false, "only lanes that are paused, closed or not ready, or whose circuit is not closed")
	return c
}

func laneTable(rows []*sealanev1.Lane) *table {
	t := &table{}
	t.add("DESTINATION", "SLOT", "SHARD", "GATE", "READINESS", "CIRCUIT", "SENDING", "PENDING", "IN FLIGHT", "UNCERTAIN", "OLDEST DUE")
	for _, l := range rows {
		t.add(l.GetDestination(), number(l.GetSlot()), number(l.GetShard()), l.GetGate().String(), readiness(l.GetReadiness()), circuit(l),
			l.GetHold().String(), number(l.GetPending()), number(l.GetInFlight()), number(l.GetUncertain()), at(l.GetOldestDueAt()))
	}
	return t
}

func readiness(r sealanev1.Readiness_Value) string {
	if r == sealanev1.Readiness_READINESS_UNSPECIFIED {
		return "-"
	}
	return r.String()
}

// circuit is the phase of the newest target's circuit: the one that new messages go to.
func circuit(l *sealanev1.Lane) string {
	if len(l.GetTargets()) == 0 {
		return "-"
	}
	return l.GetTargets()[len(l.GetTargets())-1].GetCircuit().GetPhase().String()
}

func (a *app) laneGet() *cobra.Command {
	var r reading
	var slot uint32
	c := &cobra.Command{
		Use: "get DESTINATION", Short: "Show a lane: whether it sends, and if not, why", Args: args("DESTINATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			level, err := r.level()
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				resp, err := c.Query().GetLane(ctx, &sealanev1.GetLaneRequest{
					Destination: args[0], Slot: slot, Consistency: level, Position: r.position, Wait: durationpb.New(r.wait),
				})
				return answerOne(a, &r, resp.GetLane(), resp.GetRead(), err, printLane)
			})
		},
	}
	r.flags(c)
	c.Flags().Uint32Var(&slot, "slot", 0, "which of the destination's lanes")
	return c
}

func printLane(w io.Writer, l *sealanev1.Lane) {
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line("%s slot %d, in shard %d", l.GetDestination(), l.GetSlot(), l.GetShard())
	line("  now        %s%s", l.GetHold(), prefixed(": ", printable(l.GetHoldExplanation())))
	line("  gate       %s%s%s", l.GetGate(), by(printable(l.GetGateActor())), prefixed(": ", printable(l.GetGateReason())))
	line("  pending    %d: %d scheduled, %d in flight, %d uncertain; %s", l.GetPending(), l.GetScheduled(), l.GetInFlight(), l.GetUncertain(), size(l.GetPendingBytes()))
	k := l.GetKept()
	line("  kept       %d delivered, %d dead-lettered, %d cancelled, %d expired", k.GetDelivered(), k.GetDeadLettered(), k.GetCancelled(), k.GetExpired())
	line("  oldest due %s", at(l.GetOldestDueAt()))
	s := l.GetLimits()
	line("  limits     %d in flight, %s per second, %d pending", s.GetMaxInFlight(), unlimited(s.GetRatePerSecond()), s.GetMaxPending())
	for _, t := range l.GetTargets() {
		line("  target     %s (version %d): %s, %s", printable(t.GetDescription()), t.GetDestinationVersion(), readiness(t.GetReadiness()), t.GetHold())
		if b := t.GetBlocked(); b != nil {
			since := ""
			if b.GetSince() != nil {
				since = " since " + at(b.GetSince())
			}
			line("    not yet  %s%s%s", b.GetClass(), since, prefixed(": ", printable(b.GetDetail())))
			if b.GetExpected() != "" || b.GetFound() != "" {
				line("             expected %s, found %s", printable(b.GetExpected()), printable(b.GetFound()))
			}
		}
		printCircuit(line, t.GetCircuit())
	}
}

func printCircuit(line func(string, ...any), c *sealanev1.Circuit) {
	text := c.GetPhase().String()
	switch c.GetPhase() {
	case sealanev1.CircuitPhase_OPEN:
		text += fmt.Sprintf(" (%s) until %s and a good readiness check, opening %d in a row", or(c.GetReason(), "-"), at(c.GetOpenUntil()), c.GetOpenings())
	case sealanev1.CircuitPhase_HALF_OPEN:
		text += fmt.Sprintf(", %d trials succeeded in a row", c.GetTrialSuccesses())
	default:
		if n := c.GetConsecutiveFailures(); n > 0 {
			text += fmt.Sprintf(", %d failures in a row", n)
		}
		if n := c.GetRampLimit(); n > 0 {
			text += fmt.Sprintf(", %d in flight allowed while it ramps up", n)
		}
	}
	line("    circuit  %s", text)
	if c.GetLastErrorClass() != "" {
		line("    trouble  %s%s", c.GetLastErrorClass(), prefixed(": ", printable(c.GetLastErrorDetail())))
	}
}

func unlimited(n uint32) string {
	if n == 0 {
		return "any number"
	}
	return number(n)
}

func (a *app) lanePause() *cobra.Command {
	return a.moveGate("pause", "Stop sending; messages still arrive and still expire", "paused", func(name string, slot *uint32) *sealanev1.CreateOperationRequest {
		return &sealanev1.CreateOperationRequest{
			Parameters: &sealanev1.CreateOperationRequest_PauseLane{PauseLane: &sealanev1.PauseLane{Destination: name, Slot: slot}},
		}
	})
}

func (a *app) laneResume() *cobra.Command {
	return a.moveGate("resume", "Send again after a pause", "resumed", func(name string, slot *uint32) *sealanev1.CreateOperationRequest {
		return &sealanev1.CreateOperationRequest{
			Parameters: &sealanev1.CreateOperationRequest_ResumeLane{ResumeLane: &sealanev1.ResumeLane{Destination: name, Slot: slot}},
		}
	})
}

// moveGate is the command of one move of the gate.
func (a *app) moveGate(verb, short, done string, build func(name string, slot *uint32) *sealanev1.CreateOperationRequest) *cobra.Command {
	var slot uint32
	var operation, why string
	var dryRun bool
	c := &cobra.Command{
		Use: verb + " DESTINATION --reason TEXT", Short: short, Args: args("DESTINATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkReason(why); err != nil {
				return err
			}
			var one *uint32
			if cmd.Flags().Changed("slot") {
				one = &slot
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				if dryRun {
					return a.planGate(ctx, c, verb, args[0], one)
				}
				return a.operate(ctx, c, operation, why, build(args[0], one), "lane "+args[0]+": "+done)
			})
		},
	}
	c.Flags().Uint32Var(&slot, "slot", 0, "only this lane of the destination; default: all")
	operationFlags(c, &operation, &why, &dryRun)
	return c
}

// planGate shows the lanes that a move of the gate would touch.
func (a *app) planGate(ctx context.Context, c *client.Client, verb, destination string, slot *uint32) error {
	var rows []*sealanev1.Lane
	for l, err := range c.Lanes(ctx, &sealanev1.ListLanesRequest{Destination: destination, Slot: slot}) {
		if err != nil {
			return err
		}
		rows = append(rows, l)
	}
	if a.output == outputJSON {
		return rowsJSON(a, "lanes", rows, "")
	}
	if len(rows) > 0 {
		fmt.Fprintf(a.out, "Would %s (nothing was changed):\n", verb)
	}
	a.printRows(laneTable(rows), len(rows), "no lanes", "")
	return nil
}
