package whole

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// heal ends all faults and lets every node run.
func (r *Run) heal() {
	r.trace.note("nemesis", "the faults are over")
	r.cluster.network.heal()
	r.receivers.settle()
	for _, id := range r.cluster.all() {
		r.cluster.clockOf(id).correct()
	}
	for _, id := range r.cluster.down() {
		r.cluster.start(id)
	}
}

// awaitLife waits until every node is open and every shard takes a write through every node.
func (r *Run) awaitLife() bool {
	if !r.cluster.awaitOpen(openWithin) {
		return false
	}
	deadline := time.Now().Add(leadWithin)
	left := map[uint32]bool{}
	for i := range r.plan.shards {
		left[i] = true
	}
	for n := 0; len(left) > 0; n++ {
		if time.Now().After(deadline) {
			r.problem("%s after the faults these shards have taken no write: %v", leadWithin, left)
			return false
		}
		key := fmt.Sprintf("life-%d", n)
		s := &submit{key: key, dest: "good-wide", payload: payloadOf(key)}
		r.journal.begin(s)
		if _, position, ok := r.load.submitOnce(s); ok {
			if shard, _, err := positionOf(position); err == nil {
				delete(left, shard)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

// awaitRest waits until nothing is in flight and nothing is due: every message has ended, or is held, or lies in the future.
func (r *Run) awaitRest() bool {
	random := rand.New(rand.NewPCG(r.seed, 0x7e57))
	began := time.Now()
	for n := 0; ; n++ {
		for i, dest := range destinations { // an operator may have lost the answer of a resume
			if n%20 == 0 {
				if _, err := r.load.operation(resumeOf(dest, 1_000_000+n*100+i), 20*time.Second); err != nil {
					r.problem("resume %s: %v", dest, err)
				}
			}
		}
		held := r.load.resolveSome(random, 1000, true)
		busy, err := r.busy()
		if err == nil && len(busy) == 0 && held == 0 {
			r.report.rest = time.Since(began)
			return true
		}
		if time.Since(began) > restWithin {
			if len(busy) > 8 {
				busy = busy[:8]
			}
			r.problem("no rest %s after the faults: %d hold ordering keys, error %v, busy:\n      %s\n%s", restWithin, held, err,
				strings.Join(busy, "\n      "), r.lanes())
			return false
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// busy lists the messages that still have to move.
func (r *Run) busy() ([]string, error) {
	var out []string
	now := time.Now()
	ms, err := r.list()
	for _, m := range ms {
		switch m.GetState() {
		case sealanev1.GenerationState_SCHEDULED, sealanev1.GenerationState_RETRY_WAIT:
			if m.GetDestination() == spare {
				continue
			}
		case sealanev1.GenerationState_UNCERTAIN:
			if m.GetNextAttemptAt() == nil {
				continue
			}
		case sealanev1.GenerationState_IN_FLIGHT:
		default:
			continue
		}
		out = append(out, fmt.Sprintf("%s to %s: %s, %d attempts, accepted %s, next %s", m.GetId(), m.GetDestination(), m.GetState(), m.GetAttempts(),
			now.Sub(m.GetAcceptedAt().AsTime()), m.GetNextAttemptAt().AsTime().Sub(now)))
	}
	return out, err
}

// list reads all messages, newest state.
func (r *Run) list() ([]*sealanev1.MessageSummary, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var out []*sealanev1.MessageSummary
	req := &sealanev1.ListMessagesRequest{PageSize: 1000, Consistency: sealanev1.Consistency_linearizable, Wait: durationpb.New(10 * time.Second)}
	for m, err := range r.load.client.Messages(ctx, req) {
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// lanes describes all lanes as their leaders see them.
func (r *Run) lanes() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var b strings.Builder
	for l, err := range r.load.client.Lanes(ctx, &sealanev1.ListLanesRequest{PageSize: 100}) {
		if err != nil {
			fmt.Fprintf(&b, "      lanes: %v\n", err)
			break
		}
		fmt.Fprintf(&b, "      %v\n", l)
	}
	return b.String()
}

// compareDigests lets the cluster compare all replicas.
func (r *Run) compareDigests() {
	req := &sealanev1.CreateOperationRequest{
		OperationId: "digests", Reason: "simulation",
		Parameters: &sealanev1.CreateOperationRequest_VerifyDigests{VerifyDigests: &sealanev1.VerifyDigests{}},
	}
	o, err := r.load.operation(req, time.Minute)
	if err != nil {
		r.problem("compare digests: %v", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for o.GetState() < sealanev1.OperationState_COMPLETED {
		if rest(ctx, 200*time.Millisecond) != nil {
			r.problem("the comparison of digests did not end: %v", o)
			return
		}
		got, err := r.load.client.Control().GetOperation(ctx, &sealanev1.GetOperationRequest{Id: "digests"})
		if err == nil {
			o = got.GetOperation()
		}
	}
	if o.GetState() != sealanev1.OperationState_COMPLETED {
		r.problem("the comparison of digests ended as %s: %v", o.GetState(), o)
	}
	for _, t := range o.GetTargets() {
		var sums []string
		for _, d := range t.GetDigests() {
			if s := d.GetState(); s != "EQUAL" && s != "DONE" {
				r.problem("shard %d (control group %v): the digest of %s is %s", t.GetShard(), t.GetControlGroup(), d.GetNodeId(), d.GetState())
				continue
			}
			sums = append(sums, d.GetSha256())
			r.report.digests++
		}
		slices.Sort(sums)
		if len(slices.Compact(sums)) > 1 {
			r.problem("shard %d (control group %v): replicas differ: %v", t.GetShard(), t.GetControlGroup(), t.GetDigests())
		}
	}
}
