package membership_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/catalog/plan"
	"github.com/sealane/sealane/server/membership"
)

// pass lets fake time pass.
func pass(d time.Duration) { time.Sleep(d) }

var grown = []string{"0: n1=VOTER n2=VOTER n3=VOTER", "1: n1=VOTER n2=VOTER n3=VOTER", "2: n1=VOTER n2=VOTER n3=VOTER"}

// TestGrow: two nodes join one, and every group gets three voters and the leaders are spread.
func TestGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, "n1")
		f.fill = 3 * time.Second
		_, stop := f.drive(nil)
		f.settle()
		if f.calls != 0 {
			t.Errorf("one node by itself needs nothing, and %q was done", f.log)
		}
		f.join("n2")
		f.settle()
		if got, want := f.shape(), []string{"0: n1=VOTER n2=LEARNER", "1: n1=VOTER n2=LEARNER", "2: n1=VOTER n2=LEARNER"}; !slices.Equal(got, want) {
			t.Errorf("with two nodes: %q", got)
		}
		f.join("n3")
		f.settle()
		if got := f.shape(); !slices.Equal(got, grown) {
			t.Errorf("with three nodes: %q", got)
		}
		if f.raft[1].leader == f.raft[2].leader {
			t.Errorf("both shards are led by %s", f.raft[1].leader)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// errCrash is what a call returns on which the driver is made to die.
var errCrash = errors.New("crash")

// TestCrashAtEveryCall: a driver dies at its first call that changes something, at its second, and so on, before or after the call took effect;
// the next one ends where an undisturbed one ends.
func TestCrashAtEveryCall(t *testing.T) {
	scenario := func(t *testing.T, crashAt int, after bool) (calls int) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, 2, "n1")
			f.fill = 2 * time.Second
			dead := make(chan struct{})
			crash := func(call int, _ string) error {
				if call == crashAt {
					close(dead)
					return errCrash
				}
				return nil
			}
			if after {
				f.after = crash
			} else {
				f.before = crash
			}
			f.join("n2")
			f.join("n3")
			f.join("n4")
			f.order("remove", catalog.RemoveNode, catalog.OperationParams{Node: "n1"})
			_, stop := f.drive(nil)
			settled := make(chan struct{})
			go func() {
				f.settle()
				close(settled)
			}()
			select {
			case <-dead:
				_ = stop()
				<-settled
				_, stop = f.drive(nil)
				f.settle()
			case <-settled:
			}
			calls = f.calls
			if err := stop(); !errors.Is(err, context.Canceled) {
				t.Errorf("Run returned %v", err)
			}
			want := []string{"0: n2=VOTER n3=VOTER n4=VOTER", "1: n2=VOTER n3=VOTER n4=VOTER", "2: n2=VOTER n3=VOTER n4=VOTER"}
			if got := f.shape(); !slices.Equal(got, want) {
				t.Errorf("crash at call %d, after it %v: %q, after %q", crashAt, after, got, f.log)
			}
			if o := f.operation("remove"); o.State != catalog.OperationCompleted {
				t.Errorf("crash at call %d: the removal is %s %+v", crashAt, o.State, o.Targets)
			}
		})
		return calls
	}
	total := scenario(t, 0, false)
	if total < 40 {
		t.Fatalf("the scenario has %d calls", total)
	}
	for at := 1; at <= total && !t.Failed(); at++ {
		scenario(t, at, false)
		scenario(t, at, true)
	}
}

// TestStopsWhenItDoesNotLead: the word of any port ends the driver, and nothing is begun after it.
func TestStopsWhenItDoesNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, "n1")
		f.join("n2")
		f.before = func(call int, _ string) error {
			if call >= 3 {
				return fmt.Errorf("%w: deposed", membership.ErrNotLeading)
			}
			return nil
		}
		d, err := membership.New(membership.Options{Node: "n1", Control: f, Nodes: f, Groups: f, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Run(t.Context()); !errors.Is(err, membership.ErrNotLeading) {
			t.Errorf("Run returned %v", err)
		}
		calls := f.calls
		d.Poke()
		time.Sleep(time.Minute)
		if f.calls != calls {
			t.Errorf("%d calls after the end", f.calls-calls)
		}
	})
}

// TestDeposedInTheMiddle: a driver whose context ends while a step hangs returns when the step does, and the next one goes on.
func TestDeposedInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, "n1")
		f.join("n2")
		f.join("n3")
		hanging := true
		f.hang = func(uint32) bool { return hanging }
		_, stop := f.drive(nil)
		time.Sleep(5 * time.Second)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		hanging = false
		_, stop = f.drive(nil)
		f.settle()
		if got := f.shape(); !slices.Equal(got, grown) {
			t.Errorf("%q", got)
		}
		_ = stop()
	})
}

// TestOneGroupHangs: a change that never returns costs its group time and holds nothing else up.
func TestOneGroupHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, "n1")
		var mu sync.Mutex
		tries := 0
		f.hang = func(group uint32) bool {
			mu.Lock()
			defer mu.Unlock()
			if group == 1 && tries < 2 {
				tries++
				return true
			}
			return false
		}
		f.join("n2")
		f.join("n3")
		_, stop := f.drive(nil)
		time.Sleep(8 * time.Second) // the hanging change has not even been given up
		if got := f.shapeOf(2); got != grown[2] {
			t.Errorf("%q", got)
		}
		f.settle()
		if got := f.shape(); !slices.Equal(got, grown) {
			t.Errorf("%q", got)
		}
		_ = stop()
	})
}

func (f *fake) shapeOf(group uint32) string {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	p, _, err := catalog.GetPlacement(f.st, group)
	if err != nil {
		f.t.Fatal(err)
	}
	line := fmt.Sprintf("%d:", group)
	for _, r := range p.Replicas {
		line += fmt.Sprintf(" %s=%s", catalog.NodeOf(r.ID), r.State)
	}
	return line
}

// TestPortsFail: two of three calls fail, half of them after they took effect, and it still gets there; and a failure that repeats itself does
// not fill the log.
func TestPortsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, "n1")
		f.before = func(call int, _ string) error {
			if call%3 == 0 {
				return errors.New("the disk hesitates")
			}
			return nil
		}
		f.after = func(call int, _ string) error {
			if call%3 == 1 {
				return errors.New("the answer was lost")
			}
			return nil
		}
		f.join("n2")
		f.join("n3")
		_, stop := f.drive(nil)
		f.settle()
		if got := f.shape(); !slices.Equal(got, grown) {
			t.Errorf("%q", got)
		}
		_ = stop()
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, "n1")
		f.before = func(int, string) error { return errors.New("never") }
		f.join("n2")
		logged := &records{}
		_, stop := f.drive(func(o *membership.Options) { o.Logger = slog.New(logged) })
		time.Sleep(10 * time.Minute)
		_ = stop()
		if warned, tried := logged.count(slog.LevelWarn), f.calls; tried < 500 || warned > 50 || warned < 5 {
			t.Errorf("%d tries, %d warnings", tried, warned)
		}
	})
}

// TestSlowFilling: what has not caught up does not vote, however long it takes; fake checks each promotion.
func TestSlowFilling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, "n1", "n2", "n3")
		f.fill = 10 * time.Minute
		f.join("n4")
		f.order("move", catalog.MoveReplica, catalog.OperationParams{Group: 1, From: "n1", To: "n4"})
		_, stop := f.drive(nil)
		time.Sleep(9 * time.Minute)
		if got := f.operation("move").State; got.Done() {
			t.Errorf("the move is %s", got)
		}
		time.Sleep(15 * time.Minute)
		if o := f.operation("move"); o.State != catalog.OperationCompleted {
			t.Errorf("the move is %s %+v", o.State, o.Targets)
		}
		_ = stop()
	})
}

// TestDeadNode: a node that does not answer keeps its replicas; its leaderships are taken by the living in Raft's own way, and the driver only
// asks.
func TestDeadNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, "n1", "n2", "n3")
		f.join("n4")
		_, stop := f.drive(nil)
		f.settle()
		before := f.shape()
		f.mu.Lock()
		f.node["n3"].dead = true
		for _, r := range f.raft {
			if catalog.NodeOf(r.leader) == "n3" {
				r.leader = replicaID("n1", 1)
				r.term++
			}
		}
		f.log = nil
		f.mu.Unlock()
		time.Sleep(time.Hour)
		for _, what := range f.log {
			if !strings.Contains(what, "transfer") && !strings.Contains(what, "PreferLeader") {
				t.Errorf("did %q", what)
			}
		}
		if after := f.shape(); !slices.Equal(before, after) {
			t.Errorf("it was %q and is %q", before, after)
		}
		f.order("gone", catalog.RemoveNode, catalog.OperationParams{Node: "n3", Gone: true})
		f.settle()
		if o := f.operation("gone"); o.State != catalog.OperationCompleted {
			t.Errorf("the removal is %s %q %+v", o.State, o.Detail, o.Targets)
		}
		want := []string{"0: n1=VOTER n2=VOTER n4=VOTER", "1: n1=VOTER n2=VOTER n4=VOTER", "2: n1=VOTER n2=VOTER n4=VOTER"}
		if got := f.shape(); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
		_ = stop()
	})
}

// TestStuckFilling: a node that dies while it fills its replicas is not waited for if another one can take them; its tombstones are kept until
// it is back and has obeyed them.
func TestStuckFilling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, "n1")
		f.fill = 10 * time.Second
		f.join("n2")
		f.join("n3")
		_, stop := f.drive(nil)
		time.Sleep(15 * time.Second)
		for group := uint32(1); group <= 2; group++ {
			if got := f.shapeOf(group); got != fmt.Sprintf("%d: n1=VOTER n2=ADDING n3=ADDING", group) {
				t.Fatalf("%q", got)
			}
		}
		f.mu.Lock()
		f.node["n3"].dead = true
		f.mu.Unlock()
		f.join("n4")
		time.Sleep(2 * time.Minute)
		for group := uint32(1); group <= 2; group++ {
			if got := f.shapeOf(group); !strings.HasSuffix(got, "n1=VOTER n2=VOTER n3=TOMBSTONE n4=VOTER") {
				t.Errorf("%q", got)
			}
		}
		f.mu.Lock()
		f.node["n3"].dead = false
		f.obey()
		f.mu.Unlock()
		f.settle()
		for _, line := range f.shape() {
			if strings.Contains(line, "TOMBSTONE") {
				t.Errorf("%q", line)
			}
		}
		_ = stop()
	})
}

// TestPoke: a round comes at once, and many pokes make no more rounds than there is time for.
func TestPoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, "n1")
		o := &observer{}
		d, stop := f.drive(func(opts *membership.Options) { opts.Observer, opts.Interval = o, time.Minute })
		time.Sleep(time.Second)
		if o.rounds() != 1 {
			t.Errorf("%d rounds at the start", o.rounds())
		}
		for range 1000 {
			d.Poke()
		}
		time.Sleep(100 * time.Millisecond)
		if n := o.rounds(); n < 2 || n > 7 {
			t.Errorf("%d rounds after many pokes", n)
		}
		_ = stop()
	})
}

// TestObserver: rounds, steps by kind and what is being filled are told.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, "n1")
		f.fill = 5 * time.Second
		o := &observer{}
		f.join("n2")
		f.join("n3")
		_, stop := f.drive(func(opts *membership.Options) { opts.Observer = o })
		f.settle()
		_ = stop()
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.steps[plan.Promote] != 4 || o.steps[plan.AddLearner] != 4 || o.nodes != 3 || o.reachable != 3 || o.mostFilling == 0 || o.filling != 0 {
			t.Errorf("%+v", o)
		}
	})
}

type observer struct {
	mu                            sync.Mutex
	n, nodes, reachable           int
	steps                         map[plan.StepKind]int
	filling, mostFilling, refused int
}

func (o *observer) Round(nodes, reachable, _ int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	o.nodes, o.reachable = nodes, reachable
}

func (o *observer) Step(kind plan.StepKind, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.steps == nil {
		o.steps = map[plan.StepKind]int{}
	}
	if err != nil {
		o.refused++
		return
	}
	o.steps[kind]++
}

func (o *observer) Filling(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.filling, o.mostFilling = n, max(o.mostFilling, n)
}

func (o *observer) rounds() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

func TestValidate(t *testing.T) {
	f := newFake(t, 1, "n1")
	good := membership.Options{Node: "n1", Control: f, Nodes: f, Groups: f, Now: now}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, break_ := range map[string]func(*membership.Options){
		"Node":        func(o *membership.Options) { o.Node = "" },
		"Groups":      func(o *membership.Options) { o.Groups = nil },
		"Now":         func(o *membership.Options) { o.Now = nil },
		"Interval":    func(o *membership.Options) { o.Interval = time.Hour },
		"StepTimeout": func(o *membership.Options) { o.StepTimeout = time.Millisecond },
		"LongTimeout": func(o *membership.Options) { o.LongTimeout = 2 * time.Hour },
	} {
		o := good
		break_(&o)
		if _, err := membership.New(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
