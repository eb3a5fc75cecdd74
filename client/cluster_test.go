package client

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// count is how many submits a node got.
func (n *node) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.requests)
}

// settle lets the client's background work finish, then ends it.
func settle(t *testing.T, c *Client) {
	t.Helper()
	synctest.Wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestSubmitFindsANodeThatAnswers(t *testing.T) {
	stopping := func(*sealanev1.SubmitRequest, int) (bool, error) {
		return false, refusal(codes.Unavailable, "NODE_STOPPING", no, "")
	}
	lost := func(*sealanev1.SubmitRequest, int) (bool, error) {
		return true, status.Error(codes.Unavailable, "connection lost")
	}
	leaderless := func(_ *sealanev1.SubmitRequest, nth int) (bool, error) {
		return nth > 1, map[bool]error{true: refusal(codes.Unavailable, "NO_LEADER", no, "")}[nth == 1]
	}
	for _, c := range []struct {
		name    string
		prepare func(first *node)
		answer  string
		within  time.Duration // at most, on fake time
		first   int           // submits that the first node gets
	}{
		{"the first is down", func(n *node) { n.setDown(true) }, "accepted", 0, 0},
		{"the first is stopping", func(n *node) { n.verdict = stopping }, "accepted", 0, 1},
		{"the first loses the answer", func(n *node) { n.verdict = lost }, "accepted again", 0, 1},
		{"the first has no leader for a moment", func(n *node) { n.verdict = leaderless }, "accepted", 0, 1},
		{"the first is silent", func(n *node) { n.silent = true }, "accepted", DefaultTryFor, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(3)
				c.prepare(nodes[0])
				cl := testClient(Options{}, nodes...)
				defer settle(t, cl)
				cl.nodes.start = 0
				begun := time.Now()
				a, err := cl.Submit(t.Context(), Message{Destination: "d"})
				if got := describe(a, err); got != c.answer {
					t.Errorf("answer %q, want %q (%v)", got, c.answer, err)
				}
				if took := time.Since(begun); took > c.within {
					t.Errorf("took %s, want %s", took, c.within)
				}
				if got := nodes[0].count(); got != c.first {
					t.Errorf("the first node got %d submits, want %d", got, c.first)
				}
				if len(nodes[0].kept) != 1 {
					t.Errorf("%d messages", len(nodes[0].kept))
				}
			})
		})
	}
}

// A silent node is remembered: no other submit waits for it, and it is used again when it answers again.
func TestSubmitAvoidsANodeThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(2)
		nodes[0].silent = true
		cl := testClient(Options{}, nodes...)
		defer settle(t, cl)
		cl.nodes.start = 0
		for i := range 300 {
			begun := time.Now()
			if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); i > 0 && took > 0 {
				t.Errorf("submit %d took %s", i, took)
			}
			time.Sleep(200 * time.Millisecond) // fake time
			cl.nodes.mu.Lock()
			cl.nodes.current = nil // nothing but what is known of the nodes decides
			cl.nodes.mu.Unlock()
		}
		nodes[0].mu.Lock()
		nodes[0].silent = false
		nodes[0].mu.Unlock()
		for range 50 {
			if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond) // fake time
			cl.nodes.mu.Lock()
			cl.nodes.current = nil
			cl.nodes.mu.Unlock()
		}
		if nodes[0].count() == 0 {
			t.Error("the node is not used again")
		}
	})
}

// Where nothing was sent nothing is in doubt, and a person is told at once.
func TestSubmitWithoutAnyNode(t *testing.T) {
	for _, c := range []struct {
		o    Options
		took time.Duration
	}{{Options{RetryFor: 10 * time.Second}, 10 * time.Second}, {Options{FailFast: true}, 0}} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(2)
			nodes[0].down, nodes[1].down = true, true
			cl := testClient(c.o, nodes...)
			defer settle(t, cl)
			begun := time.Now()
			_, err := cl.Submit(t.Context(), Message{Destination: "d"})
			var refused *NotAcceptedError
			if !errors.As(err, &refused) || refused.Refusal.Code != codes.Unavailable || !strings.Contains(err.Error(), "none of 2 nodes") {
				t.Errorf("got %v", err)
			}
			if took := time.Since(begun); took != c.took {
				t.Errorf("took %s, want %s", took, c.took)
			}
			_, err = cl.Query().GetMessage(t.Context(), &sealanev1.GetMessageRequest{Id: "m"})
			if e, ok := AsError(err); !ok || e.Code != codes.Unavailable {
				t.Errorf("a read: %v", err)
			}
		})
	}
}

// A closed client says so at once, and nothing is in doubt.
func TestClosedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := testClient(Options{}, newNodes(2)...)
		s := cl.Stream(t.Context())
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		var refused *NotAcceptedError
		if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("submit: %v", err)
		}
		if _, err := cl.Cluster().GetCluster(t.Context(), &sealanev1.GetClusterRequest{}); !NeverSent(err) {
			t.Errorf("a read: %v", err)
		}
		a := submitAll(t, s, 2)
		s.Close()
		if got := a.got["k0000"]; len(a.got) != 2 || got[0] != "not accepted" {
			t.Errorf("stream: %v", a.got)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// An outage of all nodes that ends within RetryFor costs nothing but time.
func TestSubmitOutlastsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for _, n := range nodes {
			n.down = true
		}
		time.AfterFunc(20*time.Second, func() { nodes[2].setDown(false) })
		cl := testClient(Options{}, nodes...)
		defer settle(t, cl)
		begun := time.Now()
		if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); err != nil || time.Since(begun) > 23*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}

// says makes a node answer GetCluster: leaders by shard.
func says(name string, names []string, term uint64, leaders ...string) func() *sealanev1.Cluster {
	return func() *sealanev1.Cluster {
		c := &sealanev1.Cluster{AnsweredBy: name}
		for i, n := range names {
			c.Nodes = append(c.Nodes, &sealanev1.Node{Id: n, GrpcAddress: fmt.Sprintf("10.0.0.%d:7450", i+1)})
		}
		for i, l := range leaders {
			c.Shards = append(c.Shards, &sealanev1.Shard{Number: uint32(i), Leader: l, Term: term})
		}
		return c
	}
}

var abc = []string{"a", "b", "c"}

// Submits go to the leader once it is known, follow it when it moves, and are accepted wherever the hints point.
func TestSubmitFollowsTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		lead := func(term uint64, leader string) {
			for i, n := range nodes {
				n.mu.Lock()
				n.cluster, n.position = says(abc[i], abc, term, "a", leader), "1:7"
				n.mu.Unlock()
			}
		}
		cl := testClient(Options{Static: true}, nodes...)
		defer settle(t, cl)
		submit := func(count int) {
			t.Helper()
			for range count {
				if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		for term, leader := range []string{"c", "b", "a"} {
			lead(uint64(term+1), leader)
			time.Sleep(2 * refreshEvery) // fake time
			submit(1)
			synctest.Wait()
			before := nodes[2-term].count()
			submit(10)
			if got := nodes[2-term].count() - before; got != 10 {
				t.Errorf("the leader %s got %d of 10", leader, got)
			}
		}
		lead(9, "nobody")
		time.Sleep(2 * refreshEvery) // fake time
		submit(5)
		lead(1<<60, "c")
		nodes[2].setDown(true)
		time.Sleep(2 * refreshEvery) // fake time
		submit(20)
	})
}

// A refusal that speaks of leaders makes the client ask again soon, and not in a storm.
func TestRefreshIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(2)
		asked := 0
		for i, n := range nodes {
			view := says(abc[i], abc[:2], 1, "a")
			n.cluster = func() *sealanev1.Cluster { asked++; return view() } // one refresh at a time
			n.verdict = func(*sealanev1.SubmitRequest, int) (bool, error) {
				return false, refusal(codes.Unavailable, "NO_LEADER", no, "")
			}
		}
		cl := testClient(Options{Static: true, RetryFor: time.Minute}, nodes...)
		defer settle(t, cl)
		if _, err := cl.Submit(t.Context(), Message{Destination: "d"}); err == nil {
			t.Error("accepted")
		}
		synctest.Wait()
		if tries := nodes[0].count() + nodes[1].count(); asked < 3 || asked > tries+2 || asked > 60+2 {
			t.Errorf("asked %d times in a minute, after %d tries", asked, tries)
		}
	})
}

// Reads are repeated on other nodes; what could happen twice is not, unless the refusal says that nothing happened.
func TestRepeatOf(t *testing.T) {
	lost := status.Error(codes.Unavailable, "connection lost")
	leaderless := refusal(codes.Unavailable, "NO_LEADER", no, "")
	maybeDone := refusal(codes.Unavailable, "MAYBE_ACCEPTED", maybe, "")
	invalid := refusal(codes.InvalidArgument, "INVALID_REQUEST", no, "")
	for _, c := range []struct {
		method                             string
		args                               any
		lost, leaderless, maybe, isInvalid bool
	}{
		{sealanev1.QueryService_GetMessage_FullMethodName, nil, true, true, true, false},
		{sealanev1.ControlService_CreateOperation_FullMethodName, nil, true, true, true, false},
		{sealanev1.ClusterService_GetCluster_FullMethodName, nil, true, true, true, false},
		{sealanev1.DeliveryService_Submit_FullMethodName, nil, false, true, false, false},
		{sealanev1.DeliveryService_SubmitBatch_FullMethodName, nil, false, true, false, false},
		{sealanev1.DeliveryService_Cancel_FullMethodName, nil, false, true, false, false},
		{sealanev1.DeliveryService_Reschedule_FullMethodName, &sealanev1.RescheduleRequest{}, false, true, false, false},
		{sealanev1.DeliveryService_Reschedule_FullMethodName, &sealanev1.RescheduleRequest{RequestId: "r"}, true, true, true, false},
		{sealanev1.DestinationService_ApplyDestination_FullMethodName, nil, false, true, false, false},
		{sealanev1.DestinationService_DeleteDestination_FullMethodName, nil, false, true, false, false},
		{sealanev1.DestinationService_ListDestinations_FullMethodName, nil, true, true, true, false},
	} {
		r := repeatOf(c.method, c.args)
		if r.allows(lost) != c.lost || r.allows(leaderless) != c.leaderless || r.allows(maybeDone) != c.maybe || r.allows(invalid) != c.isInvalid {
			t.Errorf("%s: %v %v %v %v", c.method, r.allows(lost), r.allows(leaderless), r.allows(maybeDone), r.allows(invalid))
		}
	}
}
