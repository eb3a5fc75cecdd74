package client

import (
	"context"
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
			time.Sleep(refreshEvery + time.Second) // fake time
			submit(1)
			synctest.Wait()
			before := nodes[2-term].count()
			submit(10)
			if got := nodes[2-term].count() - before; got != 10 {
				t.Errorf("the leader %s got %d of 10", leader, got)
			}
		}
		lead(9, "nobody")
		time.Sleep(refreshEvery + time.Second) // fake time
		submit(5)
		lead(1<<60, "c")
		nodes[2].setDown(true)
		time.Sleep(refreshEvery + time.Second) // fake time
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
		if tries := nodes[0].count() + nodes[1].count(); asked < 3 || asked > tries+2 || asked > 60*4+2 {
			t.Errorf("asked %d times in a minute, after %d tries", asked, tries)
		}
	})
}

func TestHints(t *testing.T) {
	v := newView()
	v.adopt([]*sealanev1.Shard{{Number: 0, Leader: "a", Term: 3}, {Number: 1, Leader: "b", Term: 3}})
	check := func(what, destination, key, want string) {
		t.Helper()
		if got := v.leaderFor(destination, key); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("nothing known", "d", "", "")
	v.learn("d", "", "1:5")
	v.learn("d", "", "damaged")
	check("one lane", "d", "", "b")
	check("one lane, with a key", "d", "k", "b")
	v.adopt([]*sealanev1.Shard{{Number: 1, Leader: "old", Term: 2}})
	check("an older term", "d", "", "b")
	v.adopt([]*sealanev1.Shard{{Number: 1, Leader: "new", Term: 4}})
	check("a newer term", "d", "", "new")
	v.learn("d", "k", "0:9")
	check("several lanes, no key", "d", "", "")
	check("several lanes, a key that was seen", "d", "k", "a")
	check("several lanes, another key", "d", "l", "")
	if v.leaderAt("0:17") != "a" || v.leaderAt("5:1") != "" || v.leaderAt("x") != "" {
		t.Error("leaders of positions")
	}
	for i := range 3 * maxHints {
		v.learn(fmt.Sprint("d", i), "", "0:1")
	}
	if len(v.shards) > maxHints {
		t.Errorf("%d hints", len(v.shards))
	}
}

// What a node says about addresses is taken with care.
func TestLearnedAddresses(t *testing.T) {
	type n = *sealanev1.Node
	at := func(id, addr string) n { return &sealanev1.Node{Id: id, GrpcAddress: addr} }
	for _, c := range []struct {
		name   string
		seeds  string
		static bool
		nodes  []n
		want   string
	}{
		{"the others are learned", "10.0.0.1:1", false, []n{at("a", "10.0.0.1:1"), at("b", "10.0.0.2:1")}, "10.0.0.1:1=a 10.0.0.2:1=b"},
		{"a name resolves to one of them", "sealane:1", false, []n{at("a", "10.0.0.1:1"), at("b", "10.0.0.2:1")}, "sealane:1=a 10.0.0.2:1=b"},
		{"static", "10.0.0.1:1", true, []n{at("a", "10.0.0.1:1"), at("b", "10.0.0.2:1")}, "10.0.0.1:1=a"},
		{"all name the same", "x:1,y:1", false, []n{at("a", "127.0.0.1:1"), at("b", "127.0.0.1:1")}, "x:1=a y:1="},
		{"all name one balancer", "x:1,y:1", false, []n{at("a", "10.0.0.9:1"), at("b", "10.0.0.9:1")}, "x:1=a y:1="},
		{"loopback of another machine", "10.0.0.1:1", false, []n{at("a", "10.0.0.1:1"), at("b", "127.0.0.1:1")}, "10.0.0.1:1=a"},
		{"loopback of this machine", "localhost:1", false, []n{at("a", "127.0.0.1:1"), at("b", "127.0.0.1:2")}, "localhost:1=a 127.0.0.1:2=b"},
		{"no addresses", "10.0.0.1:1", false, []n{at("a", ""), at("b", "b"), at("c", ":7"), at("d", "0.0.0.0:7")}, "10.0.0.1:1=a"},
		{"nothing", "10.0.0.1:1", false, nil, "10.0.0.1:1=a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPool(strings.Split(c.seeds, ","), c.static, nil)
			p.name(p.all[0], "a")
			p.learn(p.all[0], c.nodes)
			if got := p.text(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			p.learn(p.all[0], c.nodes)
			if got := p.text(); got != c.want {
				t.Errorf("the second time %s", got)
			}
		})
	}
	p := newPool([]string{"10.0.0.1:1"}, false, func(string) (link, error) { return &nodeLink{newNode()}, nil })
	p.name(p.all[0], "a")
	p.learn(p.all[0], []n{at("a", "10.0.0.1:1"), at("b", "10.0.0.2:1"), at("c", "10.0.0.3:1")})
	if err := p.openAll(); err != nil {
		t.Fatal(err)
	}
	p.learn(p.all[0], []n{at("a", "10.0.0.1:1"), at("b", "10.0.0.9:1")})
	if got := p.text(); got != "10.0.0.1:1=a 10.0.0.9:1=b" {
		t.Errorf("one moved and one left: %s", got)
	}
	p.learn(p.all[0], []n{at("b", "10.0.0.2:1")})
	if got := p.text(); got != "10.0.0.1:1=a 10.0.0.2:1=b" || len(p.retired) > maxRetired {
		t.Errorf("moved back: %s", got)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

// text lists the endpoints with their names.
func (p *pool) text() string {
	var list []string
	for _, e := range p.all {
		list = append(list, e.addr+"="+e.id)
	}
	return strings.Join(list, " ")
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

// The streams of several nodes.

func TestStreamSpreadsOverLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for i, n := range nodes {
			n.cluster = says(abc[i], abc, 1, "a", "b", "c")
		}
		cl := testClient(Options{Static: true}, nodes...)
		defer settle(t, cl)
		for i, d := range []string{"d0", "d1", "d2"} {
			cl.view.learn(d, "", fmt.Sprintf("%d:1", i))
		}
		cl.refreshDue()
		synctest.Wait()
		s := cl.Stream(t.Context())
		answered := 0
		for i := range 300 {
			d := i % 3
			nodes[d].mu.Lock()
			nodes[d].position = fmt.Sprintf("%d:1", d)
			nodes[d].mu.Unlock()
			if err := s.Submit(Message{Destination: fmt.Sprint("d", d)}, func(_ Accepted, err error) {
				if err == nil {
					answered++
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
		for i, n := range nodes {
			if n.count() != 100 || n.calls != 1 {
				t.Errorf("node %s got %d messages over %d calls", abc[i], n.count(), n.calls)
			}
		}
		if answered != 300 {
			t.Errorf("%d answered", answered)
		}
	})
}

// A stream goes on when its node dies, falls silent, or stops, and nothing is lost or doubled.
func TestStreamSurvivesItsNode(t *testing.T) {
	for _, c := range []struct {
		name   string
		fail   func(n *node)
		within time.Duration
	}{
		{"dies", func(n *node) {
			n.down = true
			n.breakOff = func(int) bool { return true }
		}, 0},
		{"falls silent", func(n *node) { n.silent = true }, DefaultTryFor},
		{"stops", func(n *node) {
			n.verdict = func(*sealanev1.SubmitRequest, int) (bool, error) {
				return false, refusal(codes.Unavailable, "NODE_STOPPING", no, "")
			}
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(2)
				cl := testClient(Options{}, nodes...)
				defer settle(t, cl)
				cl.nodes.start = 0
				s := cl.Stream(t.Context())
				first := submitAll(t, s, 10)
				synctest.Wait()
				nodes[0].mu.Lock()
				c.fail(nodes[0])
				nodes[0].mu.Unlock()
				begun := time.Now()
				a := &answers{got: map[string][]string{}}
				for i := range 200 {
					key := fmt.Sprint("later", i)
					if err := s.Submit(Message{Destination: "d", IdempotencyKey: key}, a.done(key)); err != nil {
						t.Fatal(err)
					}
				}
				s.Close()
				if took := time.Since(begun); took > c.within {
					t.Errorf("took %s", took)
				}
				for key, got := range a.got {
					if len(got) != 1 || !strings.HasPrefix(got[0], "accepted") {
						t.Errorf("%s: %v", key, got)
					}
				}
				if len(a.got) != 200 || len(first.got) != 10 || len(nodes[0].kept) != 210 {
					t.Errorf("%d and %d answers, %d kept", len(first.got), len(a.got), len(nodes[0].kept))
				}
			})
		})
	}
}

// The messages of an ordering key are accepted in the order of their submits, also while what is known about leaders changes.
func TestStreamKeepsTheOrderOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for i, n := range nodes {
			n.cluster = says(abc[i], abc, 1, "a")
		}
		cl := testClient(Options{Static: true, StreamWindow: 64}, nodes...)
		defer settle(t, cl)
		s := cl.Stream(t.Context())
		for i := range 3000 {
			if i%100 == 0 {
				cl.view.adopt([]*sealanev1.Shard{{Number: 0, Leader: abc[i/100%3], Term: uint64(i + 2)}})
			}
			m := Message{Destination: "d", OrderingKey: fmt.Sprint(i % 3), IdempotencyKey: fmt.Sprintf("%d/%06d", i%3, i)}
			if err := s.Submit(m, func(Accepted, error) {}); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
		last := map[string]string{}
		for _, key := range nodes[0].log {
			lane, _, _ := strings.Cut(key, "/")
			if key < last[lane] {
				t.Fatalf("%s was accepted after %s", key, last[lane])
			}
			last[lane] = key
		}
		if len(nodes[0].log) != 3000 || len(s.orders) != 0 {
			t.Errorf("%d accepted, %d orders left", len(nodes[0].log), len(s.orders))
		}
	})
}

// A call that has nothing to do for long is ended, and another one is made when there is something again.
func TestStreamIdleCallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(1)
		cl := testClient(Options{}, nodes...)
		defer settle(t, cl)
		s := cl.Stream(t.Context())
		submitAll(t, s, 3)
		time.Sleep(callIdle + 2*time.Second) // fake time
		synctest.Wait()
		s.mu.Lock()
		live, calls := s.live, len(s.calls)
		s.mu.Unlock()
		if live != 1 || calls != 0 {
			t.Errorf("%d live, %d calls", live, calls)
		}
		submitAll(t, s, 3)
		s.Close()
		if nodes[0].calls != 2 {
			t.Errorf("%d calls", nodes[0].calls)
		}
	})
}

// A whole cluster that is slow is not flooded: silence is given twice as long each time.
func TestStreamSilenceIsGivenLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for _, n := range nodes {
			n.silent = true
		}
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		cl := testClient(Options{}, nodes...)
		defer settle(t, cl)
		s := cl.Stream(ctx)
		a := submitAll(t, s, 1)
		s.Close()
		if got := a.got["k0000"]; len(got) != 1 || got[0] != "maybe" {
			t.Errorf("answers %v", got)
		}
		if calls := nodes[0].calls + nodes[1].calls + nodes[2].calls; calls < 3 || calls > 4 {
			t.Errorf("%d calls in 25 s of silence", calls) // after 3, 6 and 12 seconds
		}
	})
}
