package membership_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/server/membership"
)

// TestVerifyDigests: every member is compared with the leader at one index, and what is not known is said so.
func TestVerifyDigests(t *testing.T) {
	for name, c := range map[string]struct {
		n2, n3     *fakeDigest
		dead       bool
		state      catalog.OperationState
		r2, r3     string
		detail     string
		applied    uint64
		longestRun time.Duration
	}{
		"equal":       {state: catalog.OperationCompleted, r2: catalog.ResultEqual, r3: catalog.ResultEqual, applied: 3},
		"different":   {n2: &fakeDigest{sum: [32]byte{9}, state: membership.DigestDone}, state: catalog.OperationOutstanding, r2: catalog.ResultDifferent, r3: catalog.ResultEqual, detail: "1 of 3 replicas differ", applied: 2},
		"skipped":     {n2: &fakeDigest{state: membership.DigestSkipped}, state: catalog.OperationOutstanding, r2: catalog.ResultSkipped, r3: catalog.ResultEqual, detail: "1 of 3 replicas could not be compared", applied: 2},
		"unknown":     {n2: &fakeDigest{state: membership.DigestUnknown}, state: catalog.OperationOutstanding, r2: catalog.ResultUnknown, r3: catalog.ResultEqual, detail: "could not be compared", applied: 2},
		"pending":     {n2: &fakeDigest{state: membership.DigestPending}, state: catalog.OperationOutstanding, r2: catalog.ResultPending, r3: catalog.ResultEqual, detail: "could not be compared", applied: 2},
		"no answer":   {n2: &fakeDigest{err: errors.New("hangs")}, state: catalog.OperationOutstanding, r2: catalog.ResultUnreachable, r3: catalog.ResultEqual, detail: "could not be compared", applied: 2},
		"a dead node": {dead: true, state: catalog.OperationOutstanding, r2: catalog.ResultEqual, r3: catalog.ResultUnreachable, detail: "could not be compared", applied: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 2, "n1", "n2", "n3")
				_, stop := f.drive(nil)
				f.settle()
				f.mu.Lock()
				f.digests = map[string]fakeDigest{}
				if c.n2 != nil {
					f.digests[replicaID("n2", 1)] = *c.n2
				}
				f.node["n3"].dead = c.dead
				f.raft[1].leader = replicaID("n1", 1)
				f.mu.Unlock()
				f.order("verify", catalog.VerifyDigests, catalog.OperationParams{Group: 1})
				time.Sleep(5 * time.Minute)
				o := f.operation("verify")
				target := o.Targets[0]
				if o.State != c.state || target.State != catalog.TargetCompleted || target.Matched != 3 || target.Applied != c.applied || target.FirstIndex == 0 {
					t.Errorf("%s %+v", o.State, target)
				}
				if target.Matched != target.Applied+target.Skipped+target.Failed || !strings.Contains(target.Detail, c.detail) {
					t.Errorf("%+v", target)
				}
				var got []string
				for _, r := range target.Replicas {
					got = append(got, r.Result)
					if (r.Digest != "") != (r.Result == catalog.ResultEqual || r.Result == catalog.ResultDifferent) {
						t.Errorf("%+v", r)
					}
				}
				if !slices.Equal(got, []string{catalog.ResultEqual, c.r2, c.r3}) {
					t.Errorf("%q", got)
				}
				_ = stop()
			})
		})
	}
}

// TestSnapshotAll: every shard gets its snapshot, a few at a time, and each target its index.
func TestSnapshotAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 6, "n1", "n2", "n3")
		_, stop := f.drive(nil)
		f.order("all", catalog.Snapshot, catalog.OperationParams{AllShards: true})
		f.settle()
		o := f.operation("all")
		if o.State != catalog.OperationCompleted || len(o.Targets) != 6 {
			t.Errorf("%s %+v", o.State, o.Targets)
		}
		for _, target := range o.Targets {
			if target.LastIndex == 0 || target.Applied != 1 {
				t.Errorf("%+v", target)
			}
		}
		_ = stop()
	})
}

// TestCancelledMeanwhile: an operation that an operator ends while its step runs keeps that end.
func TestCancelledMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, "n1", "n2", "n3")
		f.digests = map[string]fakeDigest{replicaID("n2", 1): {err: errors.New("hangs")}}
		_, stop := f.drive(nil)
		f.order("verify", catalog.VerifyDigests, catalog.OperationParams{Group: 1})
		time.Sleep(20 * time.Second)
		f.mustApply(&catalog.FinishOperation{ID: "verify", State: catalog.OperationCancelled, Detail: "enough"})
		time.Sleep(5 * time.Minute)
		if o := f.operation("verify"); o.State != catalog.OperationCancelled || o.Targets[0].State != catalog.TargetCancelled {
			t.Errorf("%s %+v", o.State, o.Targets)
		}
		_ = stop()
	})
}

// TestTransferAndDrain: a transfer sticks, a drain empties a node of leaderships and keeps its replicas, activation lets them come back.
func TestTransferAndDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 3, "n1", "n2", "n3")
		_, stop := f.drive(nil)
		f.settle()
		shape := f.shape()
		f.order("transfer", catalog.TransferLeadership, catalog.OperationParams{Group: 1, To: "n2"})
		f.settle()
		if o := f.operation("transfer"); o.State != catalog.OperationCompleted {
			t.Errorf("the transfer is %s %+v", o.State, o.Targets)
		}
		f.order("drain", catalog.DrainNode, catalog.OperationParams{Node: "n2"})
		f.settle()
		if o := f.operation("drain"); o.State != catalog.OperationCompleted {
			t.Errorf("the drain is %s %+v", o.State, o.Targets)
		}
		for group, r := range f.raft {
			if catalog.NodeOf(r.leader) == "n2" {
				t.Errorf("n2 still leads group %d", group)
			}
		}
		if got := f.shape(); !slices.Equal(got, shape) {
			t.Errorf("%q", got)
		}
		f.order("activate", catalog.ActivateNode, catalog.OperationParams{Node: "n2"})
		f.settle()
		leads := 0
		for group, r := range f.raft {
			if group != 0 && catalog.NodeOf(r.leader) == "n2" {
				leads++
			}
		}
		if o := f.operation("activate"); o.State != catalog.OperationCompleted || leads != 1 {
			t.Errorf("%s %+v; n2 leads %d", o.State, o.Targets, leads)
		}
		_ = stop()
	})
}

// TestRejected: what turns out to be impossible ends as such and changes nothing.
func TestRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, "n1", "n2", "n3")
		_, stop := f.drive(nil)
		f.order("gone", catalog.RemoveNode, catalog.OperationParams{Node: "n3", Gone: true})
		f.settle()
		if o := f.operation("gone"); o.State != catalog.OperationRejected || !strings.Contains(o.Detail, "answers") {
			t.Errorf("%s %q", o.State, o.Detail)
		}
		f.mu.Lock()
		f.node["n2"].dead = true
		f.mu.Unlock()
		time.Sleep(10 * time.Second)
		f.order("transfer", catalog.TransferLeadership, catalog.OperationParams{Group: 1, To: "n2"})
		time.Sleep(3 * time.Minute)
		if o := f.operation("transfer"); o.State != catalog.OperationOutstanding || !strings.Contains(o.Detail, "did not take over") {
			t.Errorf("%s %q %+v", o.State, o.Detail, o.Targets)
		}
		f.order("add", catalog.AddNode, catalog.OperationParams{Node: "n4", PeerAddress: "n4:7452"})
		time.Sleep(time.Minute)
		if o := f.operation("add"); o.State != catalog.OperationApplying || !strings.Contains(o.Targets[0].Detail, "register") {
			t.Errorf("%s %+v", o.State, o.Targets)
		}
		f.join("n4")
		f.settle()
		if o := f.operation("add"); o.State != catalog.OperationCompleted {
			t.Errorf("%s %+v", o.State, o.Targets)
		}
		_ = stop()
	})
}
