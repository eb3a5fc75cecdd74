package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answers gathers what a stream answers, by key.
type answers struct {
	mu  sync.Mutex
	got map[string][]string
}

func (a *answers) done(key string) func(Accepted, error) {
	return func(acc Accepted, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.got[key] = append(a.got[key], describe(acc, err))
	}
}

func submitAll(t *testing.T, s *Stream, count int) *answers {
	t.Helper()
	a := &answers{got: map[string][]string{}}
	for i := range count {
		key := fmt.Sprintf("k%04d", i)
		if err := s.Submit(Message{Destination: "d", IdempotencyKey: key, Payload: []byte(key)}, a.done(key)); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func TestStreamAnswersEveryMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		s := testClient(Options{StreamWindow: 100}, n).Stream(t.Context())
		a := submitAll(t, s, 5000)
		s.Close()
		for key, got := range a.got {
			if len(got) != 1 || got[0] != "accepted" {
				t.Errorf("%s: %v", key, got)
			}
		}
		if len(a.got) != 5000 || len(n.kept) != 5000 || n.calls != 1 {
			t.Errorf("%d answers, %d kept, %d calls", len(a.got), len(n.kept), n.calls)
		}
		if err := s.Submit(Message{}, nil); !errors.Is(err, ErrStreamClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestStreamGoesOnAfterBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.breakOff = func(nth int) bool { return nth%97 == 0 }
		s := testClient(Options{StreamWindow: 50}, n).Stream(t.Context())
		a := submitAll(t, s, 1000)
		s.Close()
		for key, got := range a.got {
			if len(got) != 1 || got[0] != "accepted" && got[0] != "accepted again" {
				t.Errorf("%s: %v", key, got)
			}
		}
		if len(a.got) != 1000 || len(n.kept) != 1000 || n.calls < 10 {
			t.Errorf("%d answers, %d kept, %d calls", len(a.got), len(n.kept), n.calls)
		}
	})
}

// An outage that lasts longer than RetryFor ends with an answer, and the stream can be used again afterwards.
func TestStreamGivesUpAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.breakOff = func(int) bool { return true }
		s := testClient(Options{RetryFor: 10 * time.Second}, n).Stream(t.Context())
		a := submitAll(t, s, 3)
		time.Sleep(time.Minute) // fake time
		synctest.Wait()
		for key, got := range a.got {
			if len(got) != 1 || got[0] != "maybe" {
				t.Errorf("%s: %v", key, got)
			}
		}
		if len(a.got) != 3 {
			t.Errorf("%d answers", len(a.got))
		}
		n.mu.Lock()
		n.breakOff = nil
		n.mu.Unlock()
		a = submitAll(t, s, 3)
		s.Close()
		if len(a.got) != 3 || a.got["k0000"][0] != "accepted again" {
			t.Errorf("afterwards: %v", a.got)
		}
	})
}

func TestStreamCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.verdict = func(*sealanev1.SubmitRequest, int) (bool, error) {
			return false, refusal(codes.Unavailable, "NO_LEADER", no, "")
		}
		ctx, cancel := context.WithCancel(t.Context())
		s := testClient(Options{}, n).Stream(ctx)
		a := submitAll(t, s, 2)
		time.Sleep(time.Second) // fake time
		synctest.Wait()
		cancel()
		s.Close()
		if a.got["k0000"] == nil || a.got["k0000"][0] != "not accepted NO_LEADER" && a.got["k0000"][0] != "maybe" || len(a.got) != 2 {
			t.Errorf("answers %v", a.got)
		}
		if err := s.Submit(Message{}, nil); err == nil {
			t.Error("a cancelled stream takes messages")
		}
	})
}

// Whatever a node does to the tries, every message gets one answer, and the answer is true: accepted means kept, not accepted means not kept.
func TestStreamAnswersAreTrue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fates := rapid.SliceOfN(rapid.IntRange(0, 11), 1, 200).Draw(rt, "fates")
		count := rapid.IntRange(1, 60).Draw(rt, "messages")
		window := rapid.IntRange(1, 20).Draw(rt, "window")
		nodes := newNodes(rapid.IntRange(1, 3).Draw(rt, "nodes"))
		synctest.Test(t, func(t *testing.T) {
			fate := func(nth int) int { return fates[nth%len(fates)] }
			n := nodes[0]
			verdict := func(r *sealanev1.SubmitRequest, nth int) (bool, error) {
				switch fate(nth) {
				case 0:
					return true, status.Error(codes.Unavailable, "lost")
				case 1:
					return false, status.Error(codes.Unavailable, "lost")
				case 2:
					return false, refusal(codes.Unavailable, "NO_LEADER", no, "")
				case 3:
					return false, refusal(codes.InvalidArgument, "INVALID_REQUEST", no, "payload")
				case 4:
					// Decided at apply: only where the key is not there.
					if !n.has(r.GetIdempotencyKey()) {
						return false, refusal(codes.ResourceExhausted, "LANE_BACKLOG_FULL", no, "")
					}
				}
				return true, nil
			}
			for _, n := range nodes {
				n.verdict, n.breakOff = verdict, func(nth int) bool { return fate(nth) == 5 }
			}
			s := testClient(Options{StreamWindow: window, RetryFor: 5 * time.Second}, nodes...).Stream(t.Context())
			a := submitAll(t, s, count)
			s.Close()
			if len(a.got) != count {
				rt.Fatalf("%d answers to %d messages", len(a.got), count)
			}
			for key, got := range a.got {
				_, kept := n.kept[key]
				accepted := got[0] == "accepted" || got[0] == "accepted again"
				if len(got) != 1 || accepted && !kept || !accepted && got[0] != "maybe" && kept {
					rt.Errorf("%s: answers %v, kept %v", key, got, kept)
				}
			}
		})
	})
}
