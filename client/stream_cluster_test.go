package client

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

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
