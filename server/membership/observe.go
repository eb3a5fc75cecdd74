package membership

import (
	"context"
	"sync"
	"time"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/catalog/plan"
	"github.com/sealane/sealane/policy"
)

// seenNode is since when a node is reachable, or not.
type seenNode struct {
	reachable bool
	since     policy.Time
}

// seenCommit is a leader's commit index when it was asked, kept for the next round: a replica has caught up when it has applied by now what
// was committed then.
type seenCommit struct {
	term, commit uint64
	at           policy.Time
}

// maxCommitAge is how old such an index may be: an older one says little about how far behind a replica is.
const maxCommitAge = 10 * time.Second

// gather reads the recorded state and asks every node.
func (d *Driver) gather(ctx context.Context) (*plan.View, error) {
	v := &plan.View{}
	err := d.opts.Control.Read(ctx, func(r catalog.Reader) (err error) {
		if v.Cluster, _, err = catalog.GetCluster(r); err != nil {
			return err
		}
		if v.Nodes, err = catalog.Nodes(r); err != nil {
			return err
		}
		if v.Placements, err = catalog.Placements(r); err != nil {
			return err
		}
		v.Operations, err = catalog.OpenOperations(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	v.Observed = d.ask(ctx, v.Nodes)
	v.Now = d.opts.Now()
	d.remember(v)
	for group := range d.busy {
		v.Running = append(v.Running, d.busy[group])
	}
	for group := range d.transfers {
		v.Transfers = append(v.Transfers, d.transfers[group])
	}
	return v, nil
}

func (d *Driver) ask(ctx context.Context, nodes []catalog.Node) []plan.NodeView {
	out := make([]plan.NodeView, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		if out[i].Node = n.ID; n.State == catalog.NodeRemoved {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, reportTimeout)
			defer cancel()
			report, err := d.opts.Nodes.Report(ctx, n)
			if err != nil || report.Replica != n.Replica {
				return
			}
			report.Node, report.Reachable = n.ID, true
			out[i] = report
		})
	}
	wg.Wait()
	return out
}

// remember fills in what only this driver knows: since when a node is reachable, and what the leaders had committed the time before.
func (d *Driver) remember(v *plan.View) {
	for i := range v.Observed {
		n := &v.Observed[i]
		if have, ok := d.seen[n.Node]; !ok || have.reachable != n.Reachable {
			d.seen[n.Node] = seenNode{reachable: n.Reachable, since: v.Now}
		}
		n.Since = d.seen[n.Node].since
		for j := range n.Groups {
			g := &n.Groups[j]
			g.CommitAsked = 0
			if !g.Leads {
				continue
			}
			before, ok := d.commits[g.Group]
			if ok && before.term > g.Term {
				continue
			}
			if ok && before.term == g.Term && v.Now.Sub(before.at) <= maxCommitAge {
				g.CommitAsked = before.commit
			}
			d.commits[g.Group] = seenCommit{term: g.Term, commit: g.Commit, at: v.Now}
		}
	}
}
