package replication

import (
	"fmt"
	"sync"
)

// item is one caller's commands waiting to be packed. Exactly one of done and doneMany is set, with one or many beside it.
type item struct {
	one      []byte
	many     [][]byte
	done     func(result any, index uint64, err error)
	doneMany func(results []any, index uint64, err error)
	bytes    int   // encoded size, overhead included
	at       int64 // when it was queued, nanoseconds of the group's own monotonic clock
}

func (it *item) commands() int {
	if it.doneMany != nil {
		return len(it.many)
	}
	return 1
}

// fail answers the caller with an error.
func (it *item) fail(err error) {
	if it.doneMany != nil {
		it.doneMany(nil, 0, err)
		return
	}
	it.done(nil, 0, err)
}

// barrier is one read barrier that any number of readers share. err and index are set before done is closed.
type barrier struct {
	done  chan struct{}
	index uint64
	err   error
}

func (b *barrier) settle(index uint64, err error) {
	b.index, b.err = index, err
	close(b.done)
}

// queue holds what waits to be packed: one bounded FIFO per class, the open read barrier, and the wish for an empty entry. It also is
// where a proposal learns that the group does not accept any.
type queue struct {
	mu      sync.Mutex
	class   [classes]fifo
	barrier *barrier
	marking *barrier // a digest mark that is wanted
	start   bool     // pack an entry even if it holds no command and the group does not accept proposals
	refusal error    // why proposals are refused; nil when they are accepted
	final   bool     // refusal is never lifted again
	skipped bool     // the last entry left waiting clients without a place
	idle    bool     // the proposer sleeps and must be woken
	wake    chan struct{}
}

func newQueue() *queue {
	q := &queue{wake: make(chan struct{}, 1), refusal: ErrNotLeader}
	q.class[Client].maxCommands, q.class[Client].maxBytes = ClientQueueCommands, ClientQueueBytes
	q.class[Engine].maxCommands, q.class[Engine].maxBytes = EngineQueueCommands, EngineQueueBytes
	return q
}

// push queues all items or none. Their callbacks are owned by the queue only if it returns nil.
func (q *queue) push(class Class, items ...item) error {
	commands, bytes := 0, 0
	for i := range items {
		commands += items[i].commands()
		bytes += items[i].bytes
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refusal != nil {
		return q.refusal
	}
	f := &q.class[class]
	if !f.fits(commands, bytes) {
		return fmt.Errorf("%w: class %s holds %d of %d commands and %d of %d bytes", ErrQueueFull, class,
			f.commands, f.maxCommands, f.bytes, f.maxBytes)
	}
	for i := range items {
		f.push(items[i])
	}
	q.wakeLocked()
	return nil
}

// join returns the open read barrier, opening one if needed.
func (q *queue) join() (*barrier, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refusal != nil {
		return nil, q.refusal
	}
	if q.barrier == nil {
		q.barrier = &barrier{done: make(chan struct{})}
		q.wakeLocked()
	}
	return q.barrier, nil
}

// mark returns the open wish for a digest mark, opening one if needed.
func (q *queue) mark() (*barrier, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refusal != nil {
		return nil, q.refusal
	}
	if q.marking == nil {
		q.marking = &barrier{done: make(chan struct{})}
		q.wakeLocked()
	}
	return q.marking, nil
}

// nudge asks for an entry now, empty if nothing waits.
func (q *queue) nudge() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.start = true
	q.wakeLocked()
}

// accept lifts a refusal that is not final.
func (q *queue) accept() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.final {
		q.refusal = nil
	}
}

// refused is what waited when a queue began to refuse.
type refused struct {
	items            []item
	barrier, marking *barrier
	err              error
}

// answer tells everyone who waited. It runs callbacks, so no lock may be held.
func (r refused) answer() {
	for i := range r.items {
		r.items[i].fail(r.err)
	}
	if r.barrier != nil {
		r.barrier.settle(0, r.err)
	}
	if r.marking != nil {
		r.marking.settle(0, r.err)
	}
}

// refuse makes every later proposal fail with err and hands out what waits, for the caller to answer. A final refusal stays.
func (q *queue) refuse(err error, final bool) refused {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.final {
		return refused{}
	}
	q.refusal, q.final = err, final
	waiting := refused{barrier: q.barrier, marking: q.marking, err: err}
	for c := range q.class {
		waiting.items = q.class[c].drain(waiting.items)
	}
	q.barrier, q.marking = nil, nil
	return waiting
}

func (q *queue) wakeLocked() {
	if q.idle {
		q.idle = false
		q.wake <- struct{}{} // never blocks: at most one wake-up per sleep
	}
}

// wait blocks until something waits to be packed; false when stop is closed first.
func (q *queue) wait(stop <-chan struct{}) bool {
	q.mu.Lock()
	if q.waitingLocked() {
		q.mu.Unlock()
		return true
	}
	q.idle = true
	q.mu.Unlock()
	select {
	case <-q.wake:
		return true
	case <-stop:
		return false
	}
}

func (q *queue) waitingLocked() bool {
	return q.start || q.barrier != nil || q.marking != nil || q.class[Client].commands+q.class[Engine].commands > 0
}

// take moves what fits into one entry from the queue into f. Engine commands come first but leave a quarter of the entry to waiting
// clients; after an entry that had no place for a client the order is turned once. So neither class can starve the other.
func (q *queue) take(f *flight) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.waitingLocked() {
		return false
	}
	if q.marking != nil { // a mark goes alone
		f.mark, f.barrier, q.marking = true, q.marking, nil
		return true
	}
	f.barrier, q.barrier, q.start = q.barrier, nil, false
	first, second := Engine, Client
	if q.skipped {
		first, second = Client, Engine
	}
	share := room{commands: MaxEntryCommands, bytes: MaxEntryBytes}
	if q.class[second].commands > 0 {
		share = room{commands: MaxEntryCommands * 3 / 4, bytes: MaxEntryBytes * 3 / 4}
	}
	clientsBefore := q.class[Client].commands
	full := room{commands: MaxEntryCommands, bytes: MaxEntryBytes}
	q.class[first].moveTo(f, share)
	q.class[second].moveTo(f, full)
	q.class[first].moveTo(f, full)
	q.skipped = clientsBefore > 0 && q.class[Client].commands == clientsBefore
	return true
}

// depth is the number of commands that wait, by class.
func (q *queue) depth() (client, engine int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.class[Client].commands, q.class[Engine].commands
}

// room bounds what an entry may hold after a move.
type room struct{ commands, bytes int }

// fifo is a bounded first-in-first-out of items; bounds count commands and bytes.
type fifo struct {
	items                 []item
	head                  int
	commands, bytes       int
	maxCommands, maxBytes int
}

// fits reports whether so much more may be queued. An empty queue takes anything that passed the checks of a single proposal, since
// refusing it would refuse it for ever.
func (f *fifo) fits(commands, bytes int) bool {
	if f.commands == 0 {
		return true
	}
	return f.commands+commands <= f.maxCommands && f.bytes+bytes <= f.maxBytes
}

func (f *fifo) push(it item) {
	f.items = append(f.items, it)
	f.commands += it.commands()
	f.bytes += it.bytes
}

// moveTo moves items from the front into the entry while it stays within r. An item larger than r goes alone.
func (f *fifo) moveTo(to *flight, r room) {
	moved := f.head
	for moved < len(f.items) {
		it := &f.items[moved]
		n := it.commands()
		if to.commands > 0 && (to.commands+n > r.commands || to.bytes+it.bytes > r.bytes) {
			break
		}
		to.items = append(to.items, *it)
		to.commands += n
		to.bytes += it.bytes
		if to.oldest == 0 || it.at < to.oldest {
			to.oldest = it.at
		}
		f.commands -= n
		f.bytes -= it.bytes
		moved++
	}
	f.release(moved)
}

// release forgets the items before head and keeps the backing array small and free of stale references.
func (f *fifo) release(head int) {
	clear(f.items[f.head:head])
	f.head = head
	switch {
	case f.head == len(f.items):
		f.items, f.head = f.items[:0], 0
		if cap(f.items) > 1<<13 {
			f.items = nil
		}
	case f.head >= 1<<10 && f.head*2 >= len(f.items):
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
}

// drain appends everything that waits to dst and empties the queue.
func (f *fifo) drain(dst []item) []item {
	dst = append(dst, f.items[f.head:]...)
	f.items, f.head, f.commands, f.bytes = nil, 0, 0, 0
	return dst
}
