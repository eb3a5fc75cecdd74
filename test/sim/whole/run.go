package whole

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// plan is what a run is made of. Everything else follows from the seed.
type plan struct {
	nodes           int
	shards          uint32
	workers         int
	registers       int
	lasts           time.Duration // of the faults
	faults          []fault       // drawn from these; none: nothing is done to the cluster
	snapshotEntries uint64
	trailingEntries uint64
	// planned runs hold only what operators do on purpose: no attempt may become unknown by it.
	planned bool
	// clocks are wrong in this run: nothing can be said about when requests are early.
	clocks bool
}

// Run is one simulation: everything in it follows from the plan and the seed, except how the runtime schedules goroutines.
type Run struct {
	seed       uint64
	plan       plan
	random     *rand.Rand // of the nemesis
	trace      *trace
	receivers  *receivers
	cluster    *cluster
	journal    *journal
	load       *load
	registers  *registers
	background sync.WaitGroup
	reads      atomic.Int64
	operations atomic.Int64 // of the nemesis
	report     report

	mu           sync.Mutex
	problems     []string
	expected     map[string][]error   // why a node may stop by itself
	unknownSince map[string]time.Time // unknown attempts, since operators saw them
	did          map[string]int       // how often each fault was made
}

func newRun(seed uint64, p plan) *Run {
	r := &Run{
		seed: seed, plan: p, random: rand.New(rand.NewPCG(seed, 1)), trace: newTrace(), journal: newJournal(),
		expected: map[string][]error{}, unknownSince: map[string]time.Time{}, did: map[string]int{},
	}
	r.receivers = newReceivers(r, seed)
	r.cluster = newCluster(r)
	r.registers = newRegisters(r)
	return r
}

// maxProblems bounds what is kept: one cause often shows a hundred times.
const maxProblems = 50

// problem notes what must not be.
func (r *Run) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.trace.note("PROBLEM", "%s", text)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, text)
	}
}

// bad tells whether something was found.
func (r *Run) bad() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.problems) > 0
}

// expect says why a node may stop by itself from now on.
func (r *Run) expect(id string, why ...error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expected[id] = why
}

// stopped is told of a process that ended by itself.
func (r *Run) stopped(id string, err error) {
	r.mu.Lock()
	why := r.expected[id]
	r.mu.Unlock()
	for _, e := range why {
		if errors.Is(err, e) {
			return
		}
	}
	r.problem("%s stopped by itself: %v", id, err)
}

// Limits of a run, in the simulation's time.
const (
	openWithin = time.Minute
	// leadWithin is how long after the last fault every shard must take a write.
	leadWithin = 20 * time.Second
	// restWithin is how long after the last fault and the last submit everything that is due must have moved.
	restWithin = 2 * time.Minute
)

// execute is the whole run. It returns when nothing of it is left.
func (r *Run) execute() {
	r.cluster.found(r.plan.nodes)
	for _, id := range r.cluster.all() {
		r.cluster.start(id)
	}
	if r.cluster.awaitOpen(openWithin) {
		r.load = newLoad(r)
		r.load.apply()
		if !r.bad() {
			r.perform()
		}
		if err := r.load.client.Close(); err != nil {
			r.problem("close the client: %v", err)
		}
	}
	r.cluster.closeAll()
	r.background.Wait()
}

// perform does what the run is for: load and faults, then rest, then judgement.
func (r *Run) perform() {
	r.load.work(r.plan.workers)
	r.load.operate()
	r.registers.begin()
	r.torment()
	r.heal()
	alive := r.awaitLife()
	time.Sleep(2 * time.Second)
	close(r.load.stop)
	r.registers.end()
	if !alive || !r.awaitRest() {
		return
	}
	r.compareDigests()
	r.audit()
}
