package peer

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// Each test here fails without one remedy; its comment names the line to take away.

// hashicorp/raft 695: a heartbeat handler runs on the transport's goroutine and can set Raft's term back. Remedy: SetHeartbeatHandler is empty
// (transport.go), and nothing in inbox.go treats heartbeats apart.
func TestHeartbeatsTakeTheMainLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "n1", "n2")
		defer r.close()
		t2 := r.nodes["n2"].Transport(1)
		t2.SetHeartbeatHandler(func(raft.RPC) { t.Error("the fast path was taken") })
		there := answer(t2, nil)
		mustSend(t, r.nodes["n1"].Transport(1), "n2", heartbeat("n1", 1))
		if len(there.seen()) != 1 {
			t.Fatal("the heartbeat did not come through Consumer")
		}
	})
}

// hashicorp/raft 612 and 541: a pipeline can wedge a follower that still looks healthy, and a deep one raises latency. Remedy: there is none;
// AppendEntriesPipeline in transport.go says so, and a call that gets no answer ends by itself and leaves the stream free for the next.
func TestNoPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "n1", "n2")
		defer r.close()
		t1 := r.nodes["n1"].Transport(1)
		if _, err := t1.AppendEntriesPipeline("", raft.ServerAddress(rid("n2"))); !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
			t.Fatalf("got %v", err)
		}
		hold := make(chan struct{})
		answer(r.nodes["n2"].Transport(1), hold)
		began := time.Now()
		_, err := send(t1, "n2", entries("n1", 1, 5))
		wantErr(t, err, ErrTimeout, "an append without an answer")
		if took := time.Since(began); took >= time.Second {
			t.Fatalf("it took %v, an election's time", took)
		}
		close(hold)
		mustSend(t, t1, "n2", entries("n1", 1, 5))
	})
}

// An error that reads "unexpected command" would count as a granted pre-vote. Remedy: the ReplaceAll in harmless (errors.go).
func TestNoErrorGrantsAPreVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "n1", "n2")
		defer r.close()
		t1, t2 := r.nodes["n1"].Transport(1), r.nodes["n2"].Transport(1)
		go func() {
			rpc := <-t2.Consumer()
			rpc.Respond(nil, errors.New("unexpected command"))
		}()
		ask := func(tr *Transport) error {
			return tr.RequestPreVote("", raft.ServerAddress(rid("n2")), &raft.RequestPreVoteRequest{RPCHeader: headerOf("n1")}, &raft.RequestPreVoteResponse{})
		}
		err := ask(t1)
		wantErr(t, err, ErrRemote, "an error of the other side's Raft")
		if grants(err) {
			t.Fatalf("raft would count %q as granted", err)
		}
		err = ask(r.nodes["n1"].Transport(99))
		wantErr(t, err, ErrUnknownGroup, "a group that is not there")
		if grants(err) {
			t.Fatalf("raft would count %q as granted", err)
		}
	})
}

// A group whose Raft takes nothing holds up only itself; what overflows is refused at once and counted. Remedy: inbox.push does not wait
// (inbox.go), and each group has its own goroutine deliver.
func TestStuckGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "n1", "n2")
		defer r.close()
		n1, n2 := r.nodes["n1"], r.nodes["n2"]
		stuck := n1.Transport(1)
		n2.Transport(1) // attached, and nobody reads from it
		fine := n1.Transport(2)
		answer(n2.Transport(2), nil)

		results := make(chan error, 3*maxInboxFrames)
		for range cap(results) {
			go func() {
				_, err := send(stuck, "n2", entries("n1", 1, 5))
				results <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		mustSend(t, fine, "n2", entries("n1", 1, 5))
		mustSend(t, fine, "n2", heartbeat("n1", 1))
		if took := time.Since(began); took > 3*linger {
			t.Fatalf("the other group's calls took %v", took)
		}
		busy, timedOut := 0, 0
		for range cap(results) {
			switch err := <-results; {
			case errors.Is(err, ErrBusy):
				busy++
			case errors.Is(err, ErrTimeout):
				timedOut++
			default:
				t.Fatalf("got %v", err)
			}
		}
		if want := cap(results) - maxInboxFrames - 1; busy != want || timedOut != maxInboxFrames+1 {
			t.Fatalf("%d refused, want %d; %d timed out", busy, want, timedOut)
		}
		if s := statusOf(t, n2, "n1"); s.InboxFull != uint64(busy) {
			t.Fatalf("counted %d, want %d", s.InboxFull, busy)
		}
	})
}

// Every wait ends with Close: of the network, and of one group. Remedies: the closing cases in transport.go and stream.go.
func TestCallsReturnOnClose(t *testing.T) {
	for _, whole := range []bool{true, false} {
		t.Run(named("network %v", whole), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "n1", "n2")
				defer r.close()
				t1 := r.nodes["n1"].Transport(1)
				r.nodes["n2"].Transport(1)
				mustReach(t, r.nodes["n1"], "n2")
				results := make(chan error, 3)
				go func() {
					_, err := send(t1, "n2", heartbeat("n1", 1))
					results <- err
				}()
				go func() {
					_, err := send(t1, "n9", entries("n1", 1, 3)) // waits for a node that is not there
					results <- err
				}()
				go func() {
					_, err := sendSnapshot(t1, 4*streamWindow, bytes.NewReader(pattern(4*streamWindow))) // nobody reads it there
					results <- err
				}()
				synctest.Wait()
				began := time.Now()
				if whole {
					r.stop("n1")
				} else if err := t1.Close(); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if err := <-results; !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnreachable) {
						t.Errorf("got %v", err)
					}
				}
				if took := time.Since(began); took != 0 {
					t.Fatalf("they returned after %v", took)
				}
				_, err := send(t1, "n2", heartbeat("n1", 1))
				wantErr(t, err, ErrClosed, "a call after the end")
			})
		})
	}
}

// An answer that comes after the call's time changes nothing and is counted. Remedy: finish takes the call out of pending before it decodes
// (session.go).
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "n1", "n2")
		defer r.close()
		t1 := r.nodes["n1"].Transport(1)
		hold := make(chan struct{})
		answer(r.nodes["n2"].Transport(1), hold)
		var out raft.AppendEntriesResponse
		began := time.Now()
		err := t1.AppendEntries("", raft.ServerAddress(rid("n2")), heartbeat("n1", 1), &out)
		wantErr(t, err, ErrTimeout, "a call without an answer")
		if took := time.Since(began); took > controlTimeout+linger {
			t.Fatalf("it took %v", took)
		}
		close(hold)
		eventually(t, "the late answer", func() bool { return statusOf(t, r.nodes["n1"], "n2").Late == 1 })
		if out.Success || out.Term != 0 {
			t.Fatalf("a late answer changed the response: %+v", out)
		}
		if s := statusOf(t, r.nodes["n1"], "n2"); s.TimedOut != 1 {
			t.Fatalf("%d timed out, want 1", s.TimedOut)
		}
	})
}

// Frames that are sent twice (F11) reach Raft twice, which is used to that; the caller gets one answer and the other counts as late.
func TestDuplicateFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "n2")
		defer r.close()
		n1 := r.start("n1", func(o *Options) {
			o.Intercept = func(_, _ string, class Class) Verdict {
				return Verdict{Copies: map[Class]int{ClassHeartbeat: 1, ClassAppend: 2}[class]}
			}
		})
		t1 := n1.Transport(1)
		there := answer(r.nodes["n2"].Transport(1), nil)
		mustSend(t, t1, "n2", heartbeat("n1", 1))
		mustSend(t, t1, "n2", entries("n1", 1, 5))
		eventually(t, "the copies", func() bool { return statusOf(t, n1, "n2").Late == 3 })
		if n := len(there.seen()); n != 5 {
			t.Fatalf("raft saw %d requests, want 5", n)
		}
	})
}

// Loss of heartbeats only, delay that reorders, and loss of answers: single frames meet their fate and the others pass (F10, F11).
func TestInterceptedFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "n2")
		defer r.close()
		verdicts := make(chan map[Class]Verdict, 1)
		verdicts <- nil
		n1 := r.start("n1", func(o *Options) {
			o.Intercept = func(from, to string, class Class) Verdict {
				if from != "n1" || to != "n2" {
					t.Errorf("from %s to %s", from, to)
				}
				v := <-verdicts
				verdicts <- v
				return v[class]
			}
		})
		set := func(v map[Class]Verdict) { <-verdicts; verdicts <- v }
		t1 := n1.Transport(1)
		there := answer(r.nodes["n2"].Transport(1), nil)
		set(map[Class]Verdict{ClassAppend: {Drop: true}})
		mustSend(t, t1, "n2", heartbeat("n1", 1))
		_, err := send(t1, "n2", entries("n1", 1, 5))
		wantErr(t, err, ErrTimeout, "a lost append")
		set(map[Class]Verdict{ClassHeartbeat: {Delay: 100 * time.Millisecond}, ClassCall: {Drop: true}})
		done := make(chan struct{})
		go func() {
			defer close(done)
			mustSend(t, t1, "n2", heartbeat("n1", 7))
		}()
		synctest.Wait()
		mustSend(t, t1, "n2", entries("n1", 8, 5))
		<-done
		seen := there.seen()
		if n := len(seen); n != 3 || seen[1].(*raft.AppendEntriesRequest).Term != 8 || seen[2].(*raft.AppendEntriesRequest).Term != 7 {
			t.Fatalf("%d requests, or in another order than 8, 7", n)
		}
		if err := check(n1, "n2"); err == nil {
			t.Fatal("a call that was dropped succeeded")
		}
		if s := statusOf(t, n1, "n2"); s.Intercepted != 1 {
			t.Fatalf("%d intercepted, want 1", s.Intercepted)
		}
	})
}

// What waits for a node is bounded in frames and bytes. Remedy: the limits in outbox.add.
func TestQueueIsBounded(t *testing.T) {
	stats := &counters{}
	o := newOutbox("a", "b", nil, stats)
	huge := make([]byte, maxQueueBytes+1)
	if err := o.add(huge, true); err != nil {
		t.Fatalf("one frame always fits an empty queue: %v", err)
	}
	wantErr(t, o.add([]byte{1}, true), ErrQueueFull, "bytes")
	if got := o.pack(); got.Len() != len(huge) {
		t.Fatalf("packed %d bytes", got.Len())
	}
	for range maxQueueFrames {
		if err := o.add(make([]byte, 1000), false); err != nil {
			t.Fatal(err)
		}
	}
	wantErr(t, o.add([]byte{1}, true), ErrQueueFull, "frames")
	total := 0
	for {
		parts := o.pack()
		if len(parts) == 0 {
			break
		}
		if parts.Len() > maxPackedBytes+1000 {
			t.Fatalf("a message of %d bytes", parts.Len())
		}
		total += len(parts)
	}
	if total != maxQueueFrames || stats.queueFull.Load() != 2 {
		t.Fatalf("%d frames, %d refused", total, stats.queueFull.Load())
	}
	o.close()
	wantErr(t, o.add([]byte{1}, true), ErrUnreachable, "a closed queue")
}

// A request that claims to come from another replica than its stream does is refused. Remedy: the check in incoming.take.
func TestForgedSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "n1", "n2")
		defer r.close()
		there := answer(r.nodes["n2"].Transport(1), nil)
		_, err := send(r.nodes["n1"].Transport(1), "n2", heartbeat("n3", 1))
		wantErr(t, err, ErrMalformed, "a forged request")
		if len(there.seen()) != 0 {
			t.Fatal("it was delivered")
		}
	})
}

// Raft waits longer with each failed append, up to ten seconds. Appends to a node that is away wait here instead, end when asked to, and go out at
// the moment of its return. Remedy: the patience in reach (transport.go).
func TestAppendsWaitForANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "n1")
		defer r.close()
		t1 := r.nodes["n1"].Transport(1)
		failed := 0
		for began := time.Now(); time.Since(began) < 10*time.Minute; failed++ {
			_, err := send(t1, "n2", entries("n1", 1, 5))
			wantErr(t, err, ErrUnreachable, "an append to a node that is away")
		}
		if failed > 40 {
			t.Fatalf("%d appends failed in ten minutes", failed)
		}
		results := make(chan error, 1)
		try := func() {
			go func() {
				_, err := send(t1, "n2", entries("n1", 1, 5))
				results <- err
			}()
			synctest.Wait()
		}
		try()
		t1.Interrupt()
		began := time.Now()
		wantErr(t, <-results, ErrInterrupted, "an interrupted append")
		try()
		wantErr(t, <-results, ErrUnreachable, "an append soon after")
		if took := time.Since(began); took != 0 {
			t.Fatalf("they returned after %v", took)
		}
		<-time.After(2 * interruptHold)
		try()
		r.start("n2", nil)
		answer(r.nodes["n2"].Transport(1), nil)
		if err := <-results; err != nil {
			t.Fatalf("an append that waited for the node: %v", err)
		}
	})
}
