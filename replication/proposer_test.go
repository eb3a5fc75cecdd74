package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
)

// scriptedRaft holds every entry until the test answers it.
type scriptedRaft struct {
	mu      sync.Mutex
	pending []*scriptedFuture
	index   uint64
}

type scriptedFuture struct {
	entry    Entry
	index    uint64
	response any
	err      chan error
}

func (f *scriptedFuture) Error() error  { return <-f.err }
func (f *scriptedFuture) Index() uint64 { return f.index }
func (f *scriptedFuture) Response() any { return f.response }

func (s *scriptedRaft) Apply(data []byte, _ time.Duration) raft.ApplyFuture {
	e, err := DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index++
	f := &scriptedFuture{entry: e, index: s.index, err: make(chan error, 1)}
	s.pending = append(s.pending, f)
	return f
}

// next takes the oldest unanswered entry.
func (s *scriptedRaft) next(t *testing.T) *scriptedFuture {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		t.Fatal("no entry is pending")
	}
	f := s.pending[0]
	s.pending = s.pending[1:]
	return f
}

func (s *scriptedRaft) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// apply answers as the state machine does: each command's result is its own text.
func (f *scriptedFuture) apply() {
	a := &applied{}
	for _, c := range f.entry.Commands {
		a.results = append(a.results, string(c))
	}
	f.response = a
	f.err <- nil
}

func (f *scriptedFuture) fail(err error) { f.err <- err }

// scripted runs a proposer alone, without a group.
func scripted(t *testing.T) (*proposer, *scriptedRaft, *atomic.Int64) {
	t.Helper()
	s := &scriptedRaft{}
	var refusals atomic.Int64
	q := openQueue()
	begin := time.Now()
	o := Options{NodeID: "n1", BootID: 3, Stamp: func() int64 { return 42 }, Observer: NopObserver{}}
	p := newProposer(q, func() applier { return s }, o, func() int64 { return int64(time.Since(begin)) + 1 }, func() { refusals.Add(1) })
	p.run()
	return p, s, &refusals
}

func (p *proposer) propose(t *testing.T, class Class, command string, got *answers) {
	t.Helper()
	it := item{one: []byte(command), bytes: len(command) + commandOverhead, at: p.now(), done: got.done(command)}
	if err := p.queue.push(class, it); err != nil {
		t.Fatal(err)
	}
}

// The first command goes alone at once; what comes while MaxEntriesInFlight are unanswered is packed together when one comes back.
func TestNeverWaitsAndBoundsFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := scripted(t)
		got := newAnswers()
		for i := range MaxEntriesInFlight {
			p.propose(t, Client, id(i), got)
			synctest.Wait()
			if s.count() != i+1 {
				t.Fatalf("%d entries are out after %d commands", s.count(), i+1)
			}
		}
		for i := range 100 {
			p.propose(t, Client, id(100+i), got)
		}
		synctest.Wait()
		if s.count() != MaxEntriesInFlight {
			t.Fatalf("%d entries are in flight, want %d", s.count(), MaxEntriesInFlight)
		}
		s.next(t).apply()
		synctest.Wait()
		if s.count() != MaxEntriesInFlight || len(s.pending[MaxEntriesInFlight-1].entry.Commands) != 100 {
			t.Fatalf("%d entries, the last with %d commands, want 100", s.count(), len(s.pending[s.count()-1].entry.Commands))
		}
		if e := s.pending[0].entry; e.Stamp != 42 || e.NodeID != "n1" || e.BootID != 3 {
			t.Fatalf("entry %+v", e)
		}
		for s.count() > 0 {
			s.next(t).apply()
			synctest.Wait()
		}
		if got.len() != MaxEntriesInFlight+100 {
			t.Fatalf("%d answers", got.len())
		}
		for command, a := range got.got {
			if len(a) != 1 || a[0].err != nil || a[0].result != command {
				t.Fatalf("%s was answered %+v", command, a)
			}
		}
		p.end()
	})
}

func TestVerdictsByKindOfError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, refusals := scripted(t)
		got := newAnswers()
		cases := []struct {
			name     string
			answer   func(*scriptedFuture)
			want     error
			definite bool
		}{
			{"not leader", func(f *scriptedFuture) { f.fail(raft.ErrNotLeader) }, ErrNotLeader, true},
			{"transfer", func(f *scriptedFuture) { f.fail(raft.ErrLeadershipTransferInProgress) }, ErrTransferring, true},
			{"enqueue", func(f *scriptedFuture) { f.fail(raft.ErrEnqueueTimeout) }, ErrQueueFull, true},
			{"lost", func(f *scriptedFuture) { f.fail(raft.ErrLeadershipLost) }, ErrMaybeAccepted, false},
			{"shutdown", func(f *scriptedFuture) { f.fail(raft.ErrRaftShutdown) }, ErrMaybeAccepted, false},
			{"store", func(f *scriptedFuture) { f.fail(errors.New("disk")) }, ErrMaybeAccepted, false},
			{"machine", func(f *scriptedFuture) { f.response = &applied{err: errPoison}; f.fail(nil) }, ErrMaybeAccepted, false},
			{"applied before", func(f *scriptedFuture) { f.response = &applied{err: errAlreadyApplied}; f.fail(nil) }, ErrMaybeAccepted, false},
			{"nothing", func(f *scriptedFuture) { f.fail(nil) }, ErrMaybeAccepted, false},
		}
		for _, c := range cases {
			p.propose(t, Engine, c.name, got)
			synctest.Wait()
			c.answer(s.next(t))
			synctest.Wait()
			a := got.of(c.name)
			if len(a) != 1 || !errors.Is(a[0].err, c.want) || NotAccepted(a[0].err) != c.definite {
				t.Errorf("%s: %+v, want %v, definite %v", c.name, a, c.want, c.definite)
			}
		}
		if refusals.Load() != 1 {
			t.Errorf("the supervisor was called %d times, want once, for the transfer", refusals.Load())
		}
		p.end()
	})
}

// Commands of one entry, single and vector, each get their own results.
func TestResultsGoToTheirCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := scripted(t)
		got := newAnswers()
		for i := range MaxEntriesInFlight {
			p.propose(t, Client, id(i), got)
			synctest.Wait()
		}
		var many []any
		p.propose(t, Client, "a", got)
		err := p.queue.push(Client, item{many: [][]byte{[]byte("x"), []byte("y")}, bytes: 20, at: 1,
			doneMany: func(results []any, index uint64, err error) { many = results }})
		if err != nil {
			t.Fatal(err)
		}
		p.propose(t, Client, "b", got)
		b, err := p.queue.join()
		if err != nil {
			t.Fatal(err)
		}
		for range MaxEntriesInFlight {
			s.next(t).apply()
		}
		synctest.Wait()
		f := s.next(t)
		f.apply()
		<-b.done
		synctest.Wait()
		if fmt.Sprint(many) != "[x y]" || got.of("a")[0].result != "a" || got.of("b")[0].result != "b" || b.err != nil || b.index != f.index {
			t.Fatalf("vector %v, a %v, b %v, barrier %v at %d", many, got.of("a"), got.of("b"), b.err, b.index)
		}
		p.end()
	})
}

// Raft may abandon a future at its shutdown (498): its callers must still be answered, once, also if it is answered later after all.
func TestAbandonedFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := scripted(t)
		got := newAnswers()
		p.propose(t, Client, "a", got)
		synctest.Wait()
		p.propose(t, Client, "b", got)
		synctest.Wait()
		p.end()
		p.abandon(ErrStopped)
		for _, command := range []string{"a", "b"} {
			a := got.of(command)
			if len(a) != 1 || !errors.Is(a[0].err, ErrMaybeAccepted) || !errors.Is(a[0].err, ErrStopped) || NotAccepted(a[0].err) {
				t.Fatalf("%s was answered %+v", command, a)
			}
		}
		s.next(t).apply() // lets the answerer end; must not answer again
		s.next(t).apply()
		<-p.ended
		if len(got.of("a")) != 1 || len(got.of("b")) != 1 {
			t.Fatalf("answered again: %v", got.got)
		}
	})
}

// A vector cut over several entries that meet different fates is never called definitely refused unless all of it was.
func TestVectorOfMixedFates(t *testing.T) {
	lost := maybeAccepted(raft.ErrLeadershipLost)
	cases := map[string]struct {
		fates    []error
		definite bool
	}{
		"all refused":           {[]error{ErrNotLeader, ErrNotLeader}, true},
		"first refused":         {[]error{ErrNotLeader, nil}, false},
		"last refused":          {[]error{nil, ErrNotLeader}, false},
		"refused and unknown":   {[]error{ErrNotLeader, lost}, false},
		"unknown and refused":   {[]error{lost, ErrNotLeader}, false},
		"refused, three fates":  {[]error{ErrNotLeader, lost, nil}, false},
		"different but refused": {[]error{ErrNotLeader, ErrStopped}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			calls := 0
			var got error
			j := &joiner{left: len(c.fates), results: make([]any, len(c.fates)), done: func(_ []any, _ uint64, err error) {
				calls++
				got = err
			}}
			for i, fate := range c.fates {
				var results []any
				if fate == nil {
					results = []any{i}
				}
				j.part(i, 1)(results, uint64(i), fate)
			}
			if calls != 1 || got == nil || NotAccepted(got) != c.definite || errors.Is(got, ErrMaybeAccepted) == c.definite {
				t.Fatalf("%d calls, %v, want definite %v", calls, got, c.definite)
			}
		})
	}
}

// While the state machine stalls (F35), clients are refused once their queue is full, the engine is not, and when it goes on every command
// gets its one answer. On fake time: the stall has no length.
func TestStalledApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, "data", vfs.NewMem())
		m := newCounter()
		m.gate = make(chan struct{})
		g := open(t, options(s, m))
		waitLed(t, m)
		got := newAnswers()
		if err := g.Propose(t.Context(), Client, []byte("hold"), got.done("hold")); err != nil {
			t.Fatal(err)
		}
		accepted, settled := 1, false
		for ; ; accepted++ {
			err := g.Propose(t.Context(), Client, []byte(id(accepted)), got.done(id(accepted)))
			if errors.Is(err, ErrQueueFull) && settled {
				break
			}
			if settled = errors.Is(err, ErrQueueFull); settled {
				synctest.Wait() // the proposer may have room for some more
				accepted--
				continue
			}
			if err != nil || accepted > 2*ClientQueueCommands {
				t.Fatalf("command %d: %v", accepted, err)
			}
		}
		if err := g.Propose(t.Context(), Engine, []byte("outcome"), got.done("outcome")); err != nil {
			t.Fatalf("the engine was refused behind clients: %v", err)
		}
		synctest.Wait()
		if st := g.Status(); st.ClientQueue < ClientQueueCommands-MaxEntryCommands || st.InFlight != MaxEntriesInFlight {
			t.Fatalf("status %+v", st)
		}
		if got.len() != 0 {
			t.Fatalf("%d answers while nothing can be applied", got.len())
		}
		close(m.gate)
		eventually(t, "every answer", func() bool { return got.len() == accepted+1 })
		for command, a := range got.got {
			if len(a) != 1 || a[0].err != nil || a[0].result != uint64(1) {
				t.Fatalf("%s was answered %+v", command, a)
			}
		}
		closeGroup(t, g)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A restart of a single replica must lead within tens of milliseconds. On fake time nothing but timers takes time, so here: at once.
func TestSingleReplicaLeadsWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, "data", vfs.NewMem())
		for round := range 3 {
			m := newCounter()
			begin := time.Now()
			g := open(t, options(s, m))
			waitLed(t, m)
			if waited := time.Since(begin); waited > 0 {
				t.Fatalf("round %d: %v until it led", round, waited)
			}
			do(t, g, "x")
			closeGroup(t, g)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A close whose context ends while the state machine hangs still answers everyone, and says that Raft has not ended.
func TestCloseGivesUpOnAHangingMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, "data", vfs.NewMem())
		m := newCounter()
		m.gate = make(chan struct{})
		g := open(t, options(s, m))
		waitLed(t, m)
		got := newAnswers()
		// One entry only: Raft would abandon those that wait behind it (498, see TestAbandonedFuture), and the goroutine that waits for
		// them could never end.
		err := g.ProposeVector(t.Context(), Client, [][]byte{[]byte("hold"), []byte("a")}, func(_ []any, index uint64, err error) {
			got.done("vector")(nil, index, err)
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("close: %v", err)
		}
		if a := got.of("vector"); len(a) != 1 || !errors.Is(a[0].err, ErrMaybeAccepted) {
			t.Fatalf("answered %+v", a)
		}
		close(m.gate)
		<-g.current().shutdown()
		synctest.Wait()
		if a := got.of("vector"); len(a) != 1 {
			t.Fatalf("answered again: %+v", a)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
