package host

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// steppedClock is the bubble's clock with a wall that can be moved.
type steppedClock struct {
	base time.Time
	step atomic.Int64
}

func (c *steppedClock) Read() (time.Duration, policy.Time) {
	t := time.Now()
	return t.Sub(c.base), policy.Time(t.UnixNano() + c.step.Load())
}

type testNode struct {
	name    string
	boot    uint64
	clock   *steppedClock
	stamper *Stamper
	host    *Host
	carrier *carrierFor
	seen    *counts
}

// rig is one shard with its log, its nodes and its receivers.
type rig struct {
	testing.TB
	log       *testLog
	receivers receiverSet
	nodes     []*testNode
	sent      uint64 // messages submitted
	version   uint64
	boots     uint64
}

func newRig(t testing.TB) *rig {
	return &rig{TB: t, log: newTestLog(t), receivers: receiverSet{m: map[string]*receiver{}}}
}

// inBubble runs a test on fake time with one leading node.
func inBubble(t *testing.T, opt func(*Options), fn func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		n := r.node("n1", opt)
		r.log.lead(n)
		fn(r)
	})
}

func (r *rig) node(name string, opt func(*Options)) *testNode {
	r.Helper()
	r.boots++
	n := &testNode{name: name, boot: r.boots, clock: &steppedClock{base: time.Now()}, seen: &counts{}}
	n.stamper = NewStamper(n.clock, 0)
	n.carrier = &carrierFor{node: n, of: &r.receivers}
	o := Options{Log: nodeLog{r.log, n}, Store: r.log.store, Carrier: n.carrier, Stamper: n.stamper, Node: name, Boot: n.boot, Observer: n.seen}
	if opt != nil {
		opt(&o)
	}
	h, err := New(o)
	if err != nil {
		r.Fatal(err)
	}
	n.host = h
	r.nodes = append(r.nodes, n)
	r.log.mu.Lock()
	r.log.nodes = append(r.log.nodes, n)
	r.log.mu.Unlock()
	return n
}

// crash ends a node as if its process had died: its goroutines may linger, nothing of it reaches the log.
func (r *rig) crash(n *testNode) {
	r.log.mu.Lock()
	if r.log.leader == n {
		r.log.leader = nil
	}
	for i, o := range r.log.nodes {
		if o == n {
			r.log.nodes = append(r.log.nodes[:i:i], r.log.nodes[i+1:]...)
			break
		}
	}
	r.log.mu.Unlock()
	if err := n.host.Close(); err != nil {
		r.Errorf("close %s: %v", n.name, err)
	}
	for i, o := range r.nodes {
		if o == n {
			r.nodes = append(r.nodes[:i:i], r.nodes[i+1:]...)
			break
		}
	}
}

func (r *rig) close() {
	r.Helper()
	for _, n := range append([]*testNode(nil), r.nodes...) {
		if err := n.host.Close(); err != nil {
			r.Errorf("close %s: %v", n.name, err)
		}
		if n.carrier.open != 0 {
			r.Errorf("%s left %d targets open", n.name, n.carrier.open)
		}
	}
	r.log.stop()
	for key, rc := range r.receivers.m {
		if rc.conns != 0 {
			r.Errorf("%s: %d connections were not released", key, rc.conns)
		}
	}
}

func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// until waits, in steps, for a condition.
func (r *rig) until(what string, most time.Duration, ok func() bool) {
	r.Helper()
	end := time.Now().Add(most)
	for {
		synctest.Wait()
		if ok() {
			return
		}
		if time.Now().After(end) {
			r.Fatalf("not within %s: %s", most, what)
		}
		<-time.After(max(10*time.Millisecond, most/2000))
	}
}

// destination installs a destination whose target is a receiver of the same name.
func (r *rig) destination(name string, change func(*shard.Destination)) *receiver {
	r.Helper()
	r.version++
	d := shard.Destination{
		Namespace: "default", Name: name, Version: r.version, Adapter: "test", TargetKey: name, Timeout: 10 * time.Second,
		Retry: policy.DefaultRetry(), Circuit: policy.DefaultCircuit(), IdempotencyWindow: 24 * time.Hour,
	}
	d.Retry.Jitter = policy.JitterNone
	if change != nil {
		change(&d)
	}
	rc := r.receivers.make(d.TargetKey)
	r.log.do(&shard.InstallDestination{Destination: d})
	return rc
}

func (r *rig) newSubmit(dest string) *shard.Submit {
	r.sent++
	var random [10]byte
	binary.BigEndian.PutUint64(random[2:], r.sent)
	payload := []byte(fmt.Sprintf("payload %d", r.sent))
	return &shard.Submit{
		ID: shard.NewMessageID(7, 1, time.Now().UnixMilli(), random), Namespace: "default", Destination: dest, ContentType: "text/plain",
		Payload: payload, PayloadHash: sha256.Sum256(payload),
	}
}

// submit accepts n messages in one entry and returns their ids.
func (r *rig) submit(dest string, n int, change func(i int, s *shard.Submit)) []shard.MessageID {
	r.Helper()
	ids := make([]shard.MessageID, n)
	cmds := make([]shard.Command, n)
	for i := range n {
		s := r.newSubmit(dest)
		if change != nil {
			change(i, s)
		}
		ids[i], cmds[i] = s.ID, s
	}
	for i, res := range r.log.do(cmds...) {
		if res.Rejected != nil {
			r.Fatalf("submit %d: %v", i, res.Rejected)
		}
	}
	return ids
}

func (r *rig) view(id shard.MessageID) *shard.MessageView {
	r.Helper()
	v, err := shard.GetMessage(r.log.store, id, false)
	if err != nil || v == nil {
		r.Fatalf("message %s: %v %v", id, v, err)
	}
	return v
}

// state is that of the newest generation.
func (r *rig) state(id shard.MessageID) shard.GenerationState {
	r.Helper()
	v := r.view(id)
	return v.Generations[len(v.Generations)-1].Generation.State
}

func (r *rig) attempts(id shard.MessageID) []*shard.Attempt {
	r.Helper()
	v := r.view(id)
	return v.Generations[len(v.Generations)-1].Attempts
}

func (r *rig) lane(dest string) shard.LaneRecord {
	r.Helper()
	l, ok, err := shard.LaneByName(r.log.store, "default", dest, 0)
	if err != nil || !ok {
		r.Fatalf("lane of %s: %v %v", dest, ok, err)
	}
	return l
}

func (r *rig) status(n *testNode, dest string) LaneStatus {
	r.Helper()
	st, err := n.host.LaneStatus(context.Background(), r.lane(dest).ID)
	if err != nil {
		r.Fatalf("status of %s: %v", dest, err)
	}
	return st
}

func (r *rig) wantWhy(dest string, want Why) {
	r.Helper()
	if st := r.status(r.nodes[0], dest); st.Why != want {
		r.Errorf("%s is not sending because of %s, want %s (%+v)", dest, st.Why, want, st)
	}
}

func (r *rig) wantState(id shard.MessageID, want shard.GenerationState) {
	r.Helper()
	if got := r.state(id); got != want {
		r.Errorf("%s is %s, want %s", id, got, want)
	}
}

// delivered tells whether all are.
func (r *rig) delivered(ids []shard.MessageID) bool {
	for _, id := range ids {
		if r.state(id) != shard.StateDelivered {
			return false
		}
	}
	return true
}

// audit compares what receivers saw with the ledger: every request belongs to an admitted attempt, and none is repeated.
func (r *rig) audit(ids []shard.MessageID) {
	r.Helper()
	ledger := map[string]bool{}
	for _, id := range ids {
		for _, g := range r.view(id).Generations {
			for _, a := range g.Attempts {
				ledger[fmt.Sprintf("%s-%d#%d", id, g.Generation.Number, a.Number)] = true
			}
		}
	}
	for name, rc := range r.receivers.m {
		once := map[string]bool{}
		for _, q := range rc.seen() {
			if !ledger[q.key()] {
				r.Errorf("%s saw %s, which was never admitted", name, q.key())
			}
			if once[q.key()] {
				r.Errorf("%s saw %s twice", name, q.key())
			}
			once[q.key()] = true
		}
	}
}

// counts is an Observer.
type counts struct {
	claimed, dropped, sent, notSent, returned, failedConnects, recovered atomic.Int64
	lag                                                                  atomic.Int64
}

func (c *counts) Claimed(n int)                  { c.claimed.Add(int64(n)) }
func (c *counts) ClaimDropped(string)            { c.dropped.Add(1) }
func (c *counts) NotSent(LaneName, NotSentCause) { c.notSent.Add(1) }
func (c *counts) Sent(_ LaneName, lag time.Duration) {
	c.sent.Add(1)
	c.lag.Store(max(c.lag.Load(), int64(lag)))
}
func (c *counts) Returned(LaneName, policy.SideEffect, policy.Disposition) { c.returned.Add(1) }
func (c *counts) ConnectFailed(LaneName, string)                           { c.failedConnects.Add(1) }
func (c *counts) Recovered(n int)                                          { c.recovered.Add(int64(n)) }
