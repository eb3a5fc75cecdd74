package main

import (
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// maxShard is the largest shard number that the API knows.
const maxShard = 1<<16 - 2

const clusterHelp = `Changes are control operations: registered with your reason, carried out step by step whichever node leads, and kept for the audit. On a
terminal a command waits and shows the progress; Ctrl-C ends the waiting and not the operation. The operation id is printed: repeating a
command with it is safe and changes nothing twice.`

func (a *app) clusterCommand() *cobra.Command {
	commands := []*cobra.Command{
		a.clusterStatus(), a.clusterAdd(), a.clusterRemove(), a.clusterDrain(), a.clusterActivate(), a.clusterMove(), a.clusterTransfer(),
		a.clusterSnapshot(), a.clusterVerify(),
	}
	a.clientFlags(commands...)
	c := group("cluster", "Nodes, shards and replicas", commands...)
	c.Long = clusterHelp
	return c
}

// ordering makes a command that gives an operation. build reads the arguments and flags.
func (a *app) ordering(use, short, long string, names []string, build func(cmd *cobra.Command, args []string, req *sealanev1.CreateOperationRequest) error) *cobra.Command {
	var o order
	c := &cobra.Command{
		Use: use + " --reason TEXT", Short: short, Long: long, Args: args(names...),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &sealanev1.CreateOperationRequest{}
			if err := build(cmd, args, req); err != nil {
				return err
			}
			return a.give(cmd, o, req)
		},
	}
	o.flags(c)
	return c
}

func (a *app) clusterAdd() *cobra.Command {
	var peer string
	c := a.ordering("add NODE --peer-addr HOST:PORT", "Record that a node is to join", `Records that a node is to join, and is done when it has and holds what it should. The node itself is started with

  sealane serve --node-id NODE --peer-addr HOST:PORT --join PEER-ADDRESS-OF-A-MEMBER …`, []string{"NODE"},
		func(_ *cobra.Command, args []string, req *sealanev1.CreateOperationRequest) error {
			if _, _, err := net.SplitHostPort(peer); err != nil {
				return usagef("peer-addr is %q, want host:port of the node's --peer-addr", peer)
			}
			req.Parameters = &sealanev1.CreateOperationRequest_AddNode{AddNode: &sealanev1.AddNode{NodeId: args[0], PeerAddress: peer}}
			return nil
		})
	c.Flags().StringVar(&peer, "peer-addr", "", "where its peers reach it, host:port; required")
	return c
}

func (a *app) clusterRemove() *cobra.Command {
	var gone bool
	c := a.ordering("remove NODE", "Take a node out of the cluster for ever", `Moves the node's leaderships and replicas to other nodes and then takes it out for ever. Its data directory is of no use afterwards.

With --gone the node is taken for lost: its replicas are replaced from the others, and attempts that it had under way become UNKNOWN. Be sure
that no process of it is running.`, []string{"NODE"},
		func(_ *cobra.Command, args []string, req *sealanev1.CreateOperationRequest) error {
			req.Parameters = &sealanev1.CreateOperationRequest_RemoveNode{RemoveNode: &sealanev1.RemoveNode{NodeId: args[0], Gone: gone}}
			return nil
		})
	c.Flags().BoolVar(&gone, "gone", false, "the node is lost and will never come back")
	return c
}

func (a *app) clusterDrain() *cobra.Command {
	return a.ordering("drain NODE", "Move leaderships off a node and keep them off, as before maintenance", "", []string{"NODE"},
		func(_ *cobra.Command, args []string, req *sealanev1.CreateOperationRequest) error {
			req.Parameters = &sealanev1.CreateOperationRequest_DrainNode{DrainNode: &sealanev1.DrainNode{NodeId: args[0]}}
			return nil
		})
}

func (a *app) clusterActivate() *cobra.Command {
	return a.ordering("activate NODE", "Let a drained node lead again", "", []string{"NODE"},
		func(_ *cobra.Command, args []string, req *sealanev1.CreateOperationRequest) error {
			req.Parameters = &sealanev1.CreateOperationRequest_ActivateNode{ActivateNode: &sealanev1.ActivateNode{NodeId: args[0]}}
			return nil
		})
}

func (a *app) clusterMove() *cobra.Command {
	var from, to string
	c := a.ordering("move SHARD --from NODE --to NODE", "Move a replica of a shard to another node", "", []string{"SHARD"},
		func(_ *cobra.Command, args []string, req *sealanev1.CreateOperationRequest) error {
			n, err := shardNumber(args[0])
			switch {
			case err != nil:
				return err
			case from == "":
				return usagef("from is missing: the node that holds the replica")
			case to == "":
				return usagef("to is missing: the node that shall hold it")
			}
			req.Parameters = &sealanev1.CreateOperationRequest_MoveReplica{MoveReplica: &sealanev1.MoveReplica{Shard: n, FromNodeId: from, ToNodeId: to}}
			return nil
		})
	c.Flags().StringVar(&from, "from", "", "the node that holds it; required")
	c.Flags().StringVar(&to, "to", "", "the node that shall; required")
	return c
}

func (a *app) clusterTransfer() *cobra.Command {
	var to string
	c := a.ordering("transfer SHARD [--to NODE]", "Hand the leadership of a shard over", "", []string{"SHARD"},
		func(_ *cobra.Command, args []string, req *sealanev1.CreateOperationRequest) error {
			n, err := shardNumber(args[0])
			if err != nil {
				return err
			}
			req.Parameters = &sealanev1.CreateOperationRequest_TransferLeadership{TransferLeadership: &sealanev1.TransferLeadership{Shard: n, ToNodeId: to}}
			return nil
		})
	c.Flags().StringVar(&to, "to", "", "the node that shall lead; default: the most advanced one")
	return c
}

func (a *app) clusterSnapshot() *cobra.Command {
	var shard uint32
	c := a.ordering("snapshot [--shard N]", "Take a snapshot of a shard, or of all", "", nil,
		func(cmd *cobra.Command, _ []string, req *sealanev1.CreateOperationRequest) error {
			s := &sealanev1.Snapshot{}
			if cmd.Flags().Changed("shard") {
				s.Shard = &shard
			}
			req.Parameters = &sealanev1.CreateOperationRequest_Snapshot{Snapshot: s}
			return nil
		})
	c.Flags().Uint32Var(&shard, "shard", 0, "only this shard; default: all")
	return c
}

func (a *app) clusterVerify() *cobra.Command {
	var shard uint32
	c := a.ordering("verify [--shard N]", "Compare the digests of all replicas of a shard, or of all", `Every replica computes the digest of its state at the same index while it works on; equal digests mean equal states. Exits with 1 if any
differ, or if a replica has none to compare. `+"`sealane verify`"+` checks the data directory of a stopped node.`, nil,
		func(cmd *cobra.Command, _ []string, req *sealanev1.CreateOperationRequest) error {
			v := &sealanev1.VerifyDigests{}
			if cmd.Flags().Changed("shard") {
				v.Shard = &shard
			}
			req.Parameters = &sealanev1.CreateOperationRequest_VerifyDigests{VerifyDigests: v}
			return nil
		})
	c.Flags().Uint32Var(&shard, "shard", 0, "only this shard; default: all")
	return c
}

func shardNumber(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > maxShard {
		return 0, &usageError{fmt.Errorf("SHARD is %q, want a number from 0 to %d", text, maxShard), "`sealane cluster status` shows the shards"}
	}
	return uint32(n), nil
}
