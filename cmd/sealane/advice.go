package main

import (
	"google.golang.org/grpc/codes"

	"github.com/sealane/sealane/client"
)

// adviceByReason says what to do about a refusal that has a stable reason.
var adviceByReason = map[string]string{
	"DESTINATION_NOT_FOUND":      "`sealane destination list` shows what there is; `sealane destination apply -f FILE` registers one",
	"MESSAGE_NOT_FOUND":          "check the id; `sealane message list` shows messages",
	"DEAD_LETTER_NOT_FOUND":      "it has not failed; `sealane message get` tells its story",
	"INVALID_ID":                 "copy the id whole: msg_ and 48 characters, with its checksum",
	"FOREIGN_INCARNATION":        "the id belongs to another cluster, or to an in-memory node that has ended",
	"DESTINATION_IN_USE":         "wait until its messages have ended, or cancel them; `sealane message list --destination NAME` shows them",
	"SPREAD_FIXED":               "lane.spread is fixed at the first apply: leave it as it is, or use another name",
	"INVALID_PAGE_TOKEN":         "start again from the first page, with the same filters throughout",
	"DISK_LOW":                   "free some space on the node's disk; what is stored stays safe and deliverable",
	"NOT_IN_THIS_VERSION":        "this version does not have that yet",
	"LANE_NOT_FOUND":             "a lane exists once its first message was accepted; `sealane lane list` shows lanes",
	"IDEMPOTENCY_CONFLICT":       "the key belongs to another message: use a new key, or submit exactly what was submitted first",
	"SUBMIT_BY_PASSED":           "the submit came later than it promised; check this machine's clock, then submit with a new key",
	"LANE_BACKLOG_FULL":          "wait until the lane has delivered some (`sealane lane get`), then submit again with the same key",
	"LANE_CLOSED":                "the lane is closed for ever; use another destination",
	"TOO_LATE":                   "an attempt was admitted already; `sealane message get` shows how it went",
	"ALREADY_TERMINAL":           "nothing to do: the generation has ended; `sealane message get` shows how",
	"VERSION_CONFLICT":           "another generation is current; `sealane message get` shows which",
	"ATTEMPT_NOT_UNCERTAIN":      "nothing to decide: `sealane message get` shows the attempt's outcome",
	"OPERATION_NOT_FOUND":        "check the id; `sealane operation list` shows the operations on the cluster",
	"TOO_MANY_OPERATIONS":        "wait until some of those under way are done; `sealane operation list --state APPLYING` shows them",
	"NODE_NOT_FOUND":             "`sealane cluster status` shows the nodes",
	"NODE_CONFLICT":              "the name belongs to a node with another data directory: remove that one first, or choose another name",
	"NODE_REMOVED":               "a removed node never comes back: start it with an empty data directory under another --node-id",
	"NODE_IN_USE":                "wait until its replicas have moved; `sealane cluster status` shows where they are",
	"LAST_NODE":                  "add another node first",
	"MEMBERSHIP_CHANGE_FAILED":   "`sealane cluster status` shows where replicas are and who leads; another change may be under way",
	"NO_TRANSFER_TARGET":         "no other voter of that shard can lead now; `sealane cluster status` shows how far they are",
	"NO_REPLICA":                 "`sealane cluster status` shows which nodes cannot be reached",
	"LEADER_UNREACHABLE":         "ask another node with --addr, or try again in a moment; `sealane cluster status` shows who leads",
	"NO_LEADER":                  "try again in a moment; `sealane cluster status` shows which shards have a leader",
	"CLUSTER_NOT_FOUNDED":        "the cluster begins when every node that --initial-cluster names is running",
	"UNKNOWN_SHARD":              "`sealane cluster status` shows the shards",
	"OPERATION_CONFLICT":         "the operation id was used for something else: choose a new one, or leave --operation-id out",
	"LANE_ALREADY_PAUSED":        "nothing to do",
	"LANE_ALREADY_OPEN":          "nothing to do",
	"ORDERING_KEY_NOT_SUPPORTED": "give the destination's uncertainty policy a receiver_dedup_window, or hold, or submit without an ordering key",
}

// adviceByCode is the same for refusals whose reason is not in the table.
var adviceByCode = map[codes.Code]string{
	codes.InvalidArgument:   "correct what is named above; nothing was changed",
	codes.ResourceExhausted: "a limit is reached; lower the size or the rate, or try again later",
	codes.Unavailable:       "try again in a moment",
	codes.Unimplemented:     "this node cannot do that; `sealane version` on its machine shows which it is",
	codes.Internal:          "this is a fault of the node; its log has the details",
}

func advice(e *client.Error) string {
	if s := adviceByReason[e.Reason]; s != "" {
		return s
	}
	return adviceByCode[e.Code]
}
