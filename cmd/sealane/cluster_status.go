package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

// muchBehind is a lag that is worth a word: a replica that far behind takes noticeable time to lead.
const muchBehind = 10_000

func (a *app) clusterStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show nodes and shards, and whether all is well", Args: args(),
		Long: `The first line is the verdict: healthy; degraded, with what is wrong; or unavailable, where shards cannot take messages. What follows is
the cluster as the node that answered sees it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				resp, err := c.Cluster().GetCluster(ctx, &sealanev1.GetClusterRequest{})
				if err != nil {
					return err
				}
				if a.output == outputJSON {
					return a.printJSON(resp.GetCluster())
				}
				printCluster(a.out, resp.GetCluster())
				return nil
			})
		},
	}
}

func printCluster(w io.Writer, c *sealanev1.Cluster) {
	fmt.Fprintf(w, "%s\ncluster %s as node %s sees it\n\n", verdict(c), c.GetIncarnation(), or(c.GetAnsweredBy(), "?"))
	nodes := &table{}
	nodes.add("NODE", "STATE", "REACHABLE", "LEADS", "VERSION", "BOOT", "GRPC", "PEERS")
	for _, n := range present(c) {
		nodes.add(n.GetId(), nodeState(n), yesNo(n.GetReachable()), number(n.GetLeading()), or(n.GetVersion(), "-"), or(n.GetBootId(), "-"),
			or(n.GetGrpcAddress(), "-"), or(n.GetPeerAddress(), "-"))
	}
	nodes.print(w)
	fmt.Fprintln(w)
	shards := &table{}
	shards.add("SHARD", "LEADER", "TERM", "PENDING", "UNCERTAIN", "REPLICAS")
	for _, s := range c.GetShards() {
		pending, uncertain := "-", "-"
		if s.GetAppliedPosition() != "" {
			pending, uncertain = number(s.GetPending()), number(s.GetUncertainAttempts())
		}
		shards.add(number(s.GetNumber()), or(s.GetLeader(), "-"), number(s.GetTerm()), pending, uncertain, replicas(s))
	}
	if s := c.GetControlGroup(); s != nil {
		shards.add("control", or(s.GetLeader(), "-"), number(s.GetTerm()), "-", "-", replicas(s))
	}
	shards.print(w)
}

func nodeState(n *sealanev1.Node) string {
	if n.GetState() == sealanev1.NodeState_NODE_STATE_UNSPECIFIED {
		return "-"
	}
	return n.GetState().String()
}

// replicas lists a shard's replicas with their role, and how far they are behind where they are.
func replicas(s *sealanev1.Shard) string {
	list := make([]string, 0, len(s.GetReplicas()))
	for _, r := range s.GetReplicas() {
		role := strings.ToLower(r.GetRole().String())
		if r.GetRole() == sealanev1.ReplicaRole_ROLE_UNSPECIFIED {
			role = "unknown"
		}
		text := r.GetNodeId() + " " + role
		if p := r.GetPlacement(); p != "" && p != "VOTER" {
			text += " " + p
		}
		if r.GetLag() > 0 {
			text += fmt.Sprintf(" (%d behind)", r.GetLag())
		}
		list = append(list, text)
	}
	return or(strings.Join(list, ", "), "-")
}

// verdict is the whole state in one line.
func verdict(c *sealanev1.Cluster) string {
	var down []string
	for _, s := range c.GetShards() {
		if !s.GetAvailable() {
			down = append(down, number(s.GetNumber()))
		}
	}
	troubles := append(nodeTroubles(c), shardTroubles(c)...)
	switch {
	case len(down) > 0:
		return fmt.Sprintf("unavailable: %d of %d %s", len(down), len(c.GetShards()), plural(len(c.GetShards()), "shard")) + because(troubles)
	case c.GetControlGroup() != nil && !c.GetControlGroup().GetAvailable():
		return "unavailable: the control group, so nothing can be administered; messages still flow" + because(troubles)
	case len(troubles) > 0:
		return "degraded: " + strings.Join(troubles, "; ")
	}
	return fmt.Sprintf("healthy: %d %s, %d %s%s", len(present(c)), plural(len(present(c)), "node"), len(c.GetShards()), plural(len(c.GetShards()), "shard"), because(notes(c)))
}

func because(list []string) string { return prefixed("; ", strings.Join(list, "; ")) }

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// present are the nodes that have not been removed.
func present(c *sealanev1.Cluster) (list []*sealanev1.Node) {
	for _, n := range c.GetNodes() {
		if n.GetState() != sealanev1.NodeState_REMOVED {
			list = append(list, n)
		}
	}
	return list
}

func nodeTroubles(c *sealanev1.Cluster) (list []string) {
	for _, n := range present(c) {
		switch {
		case !n.GetReachable():
			list = append(list, "node "+n.GetId()+" cannot be reached")
		case n.GetClockGateClosed():
			list = append(list, "the clock of node "+n.GetId()+" made a step: it admits nothing until its peers agree")
		}
	}
	return list
}

// shardTroubles says what is wrong with which shards: the same trouble is told once.
func shardTroubles(c *sealanev1.Cluster) (list []string) {
	shards := map[string][]string{}
	var texts []string
	for _, s := range c.GetShards() {
		for _, text := range troublesOf(s) {
			if shards[text] == nil {
				texts = append(texts, text)
			}
			shards[text] = append(shards[text], number(s.GetNumber()))
		}
	}
	for _, text := range texts {
		list = append(list, fmt.Sprintf("%s %s: %s", plural(len(shards[text]), "shard"), strings.Join(shards[text], ", "), text))
	}
	for _, text := range troublesOf(c.GetControlGroup()) {
		list = append(list, "control group: "+text)
	}
	return list
}

func troublesOf(s *sealanev1.Shard) (list []string) {
	if s.GetTrouble() != "" {
		list = append(list, printable(s.GetTrouble()))
	}
	for _, r := range s.GetReplicas() {
		if r.GetLag() >= muchBehind {
			list = append(list, fmt.Sprintf("node %s is %d entries behind", r.GetNodeId(), r.GetLag()))
		}
	}
	return list
}

// notes are things that are under way and no trouble.
func notes(c *sealanev1.Cluster) (list []string) {
	for _, n := range present(c) {
		if n.GetState() == sealanev1.NodeState_DRAINING {
			list = append(list, "node "+n.GetId()+" is drained")
		}
	}
	moving := 0
	for _, s := range c.GetShards() {
		for _, r := range s.GetReplicas() {
			if p := r.GetPlacement(); p == "ADDING" || p == "REMOVING" {
				moving++
			}
		}
	}
	if moving > 0 {
		list = append(list, fmt.Sprintf("%d %s on the move", moving, plural(moving, "replica")))
	}
	return list
}
