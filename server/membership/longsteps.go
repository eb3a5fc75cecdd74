package membership

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/catalog/plan"
)

// errNoDigest: the leader could not give the digest that the others are compared with. The comparison is made again.
var errNoDigest = errors.New("membership: the leader has no digest at its own mark")

// maxRecordTries bounds the tries of recording a result beside other changes of the same operation.
const maxRecordTries = 8

// snapshot takes one snapshot and records it.
func (d *Driver) snapshot(ctx context.Context, s *plan.Step) error {
	index, err := d.opts.Groups.Snapshot(ctx, s.Leader, s.Group)
	if err != nil {
		return err
	}
	return d.recordTarget(ctx, s, func(t *catalog.OperationTarget) {
		t.FirstIndex, t.LastIndex, t.Node = index, index, s.Leader
		t.Matched, t.Applied, t.Detail = 1, 1, ""
	})
}

// compare puts a mark into the log, asks every member for its digest exactly there, and records what it found. A member that did not answer
// in time is UNREACHABLE: nothing is known of it.
func (d *Driver) compare(ctx context.Context, s *plan.Step) error {
	index, err := d.opts.Groups.Digest(ctx, s.Leader, s.Group)
	if err != nil {
		return err
	}
	want, state, err := d.opts.Groups.DigestAt(ctx, s.Leader, s.Group, index)
	if err != nil {
		return err
	}
	if state != DigestDone {
		return fmt.Errorf("%w: node %s, index %d", errNoDigest, s.Leader, index)
	}
	results := d.digests(ctx, s, index, want)
	return d.recordTarget(ctx, s, func(t *catalog.OperationTarget) { summarize(t, s, index, results) })
}

// digests asks the members; s.Members is sorted, and so are the results.
func (d *Driver) digests(ctx context.Context, s *plan.Step, index uint64, want [32]byte) []catalog.ReplicaResult {
	// Part of the time is kept for recording what was found.
	ctx, cancel := context.WithTimeout(ctx, d.opts.LongTimeout/2)
	defer cancel()
	results := make([]catalog.ReplicaResult, len(s.Members))
	alive := make(map[string]bool, len(s.Alive))
	for _, id := range s.Alive {
		alive[id] = true
	}
	var wg sync.WaitGroup
	for i, m := range s.Members {
		results[i] = catalog.ReplicaResult{Replica: m.Replica, Result: catalog.ResultUnreachable}
		if !alive[m.Replica] {
			continue
		}
		wg.Go(func() {
			sum, state, err := d.opts.Groups.DigestAt(ctx, catalog.NodeOf(m.Replica), s.Group, index)
			switch {
			case err != nil:
			case state == DigestPending:
				results[i].Result = catalog.ResultPending
			case state == DigestDone && sum == want:
				results[i].Result, results[i].Digest = catalog.ResultEqual, hex.EncodeToString(sum[:])
			case state == DigestDone:
				results[i].Result, results[i].Digest = catalog.ResultDifferent, hex.EncodeToString(sum[:])
			case state == DigestSkipped:
				results[i].Result = catalog.ResultSkipped
			default:
				results[i].Result = catalog.ResultUnknown
			}
		})
	}
	wg.Wait()
	return results
}

func summarize(t *catalog.OperationTarget, s *plan.Step, index uint64, results []catalog.ReplicaResult) {
	t.FirstIndex, t.LastIndex, t.Node, t.Replicas = index, index, s.Leader, results
	t.Matched, t.Applied, t.Skipped, t.Failed, t.Detail = uint64(len(results)), 0, 0, 0, ""
	for _, r := range results {
		switch r.Result {
		case catalog.ResultEqual:
			t.Applied++
		case catalog.ResultDifferent:
			t.Failed++
		default:
			t.Skipped++
		}
	}
	switch {
	case t.Failed > 0:
		t.Detail = fmt.Sprintf("%d of %d replicas differ from the leader's at index %d", t.Failed, t.Matched, index)
	case t.Skipped > 0:
		t.Detail = fmt.Sprintf("%d of %d replicas could not be compared at index %d", t.Skipped, t.Matched, index)
	}
}

// recordTarget ends a target of the step's operation with a result. Other targets of the operation may be recorded at the same time, so it
// tries again from the newest version. An operation that has ended meanwhile keeps its end.
func (d *Driver) recordTarget(ctx context.Context, s *plan.Step, fill func(*catalog.OperationTarget)) error {
	for range maxRecordTries {
		var o catalog.Operation
		err := d.opts.Control.Read(ctx, func(r catalog.Reader) (err error) {
			o, _, err = catalog.GetOperation(r, s.Operation)
			return err
		})
		if err != nil {
			return err
		}
		have := o.Target(s.Group)
		if o.State.Done() || have == nil || have.State.Done() {
			return nil
		}
		t := *have
		fill(&t)
		t.State = catalog.TargetCompleted
		err = d.propose(ctx, &catalog.AdvanceOperation{ID: o.ID, ExpectVersion: o.Version, Target: &t})
		if !errors.Is(err, catalog.ErrStale) {
			return err
		}
	}
	return fmt.Errorf("%w: operation %q changed %d times meanwhile", catalog.ErrStale, s.Operation, maxRecordTries)
}
