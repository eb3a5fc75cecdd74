package replication

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sealane/sealane/storage"
)

// digestVersion is the way in which a digest is computed, and the value that a mark carries in the log. Another way needs another version, since
// replicas of one group may run different binaries.
const digestVersion = 1

// Bounds of what a replica remembers about digests.
const (
	digestsKept   = 16 // marks, computed or not
	digestsQueued = 4  // marks whose state is held open at once; it cannot be compacted away meanwhile
	jumpsKept     = 64
	digestStep    = 1 << 20 // bytes hashed between two looks at the context
)

// DigestState tells what a replica knows about the digest at one mark.
type DigestState uint8

// States of a digest.
const (
	// DigestUnknown: no mark at that index, or it was applied by an earlier process, or more than 16 marks ago.
	DigestUnknown DigestState = iota
	// DigestPending: the mark is not applied here yet, or its digest is being computed.
	DigestPending
	// DigestDone: computed.
	DigestDone
	// DigestSkipped: not computed, which says nothing about the state: an installed state jumped over the mark, or too many marks came at once.
	DigestSkipped
)

func (s DigestState) String() string {
	return [...]string{"UNKNOWN", "PENDING", "DONE", "SKIPPED"}[s]
}

// Digest puts a mark into the log and gives its index. A mark changes nothing but the applied index; each replica computes the digest of its state
// exactly there, in the background. Callers that wait at the same time share one. To be asked of the leader, and only once every replica
// runs a version that knows marks: others stop at it. Errors as Do: NotAccepted or maybe.
func (g *Group) Digest(ctx context.Context) (index uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrContext, err)
	}
	b, err := g.queue.mark()
	if err != nil {
		return 0, err
	}
	select {
	case <-b.done:
		return b.index, b.err
	case <-ctx.Done():
		return 0, maybeAccepted(ctx.Err())
	}
}

// DigestAt gives this replica's digest at a mark, waiting while it is pending. On replicas that are the same, every DONE digest of one mark is
// equal. Errors: the context's, with DigestPending; ErrStopped and ErrFailed; one of reading the state, with DigestSkipped.
func (g *Group) DigestAt(ctx context.Context, index uint64) (sum [32]byte, state DigestState, err error) {
	if g.fsm.digests.jumpedOver(index) {
		return sum, DigestSkipped, nil
	}
	if err := g.index.wait(ctx, index); err != nil {
		return sum, DigestPending, err
	}
	if g.fsm.digests.jumpedOver(index) {
		return sum, DigestSkipped, nil
	}
	d := g.fsm.digests.find(index)
	if d == nil {
		return sum, DigestUnknown, nil
	}
	select {
	case <-d.done:
		return d.sum, d.state, d.err
	case <-ctx.Done():
		return sum, DigestPending, ctx.Err()
	case <-g.stop:
		return sum, DigestPending, ErrStopped
	}
}

// digest is one mark that this replica met.
type digest struct {
	index uint64
	done  chan struct{} // closed when the fields below are final
	sum   [32]byte
	state DigestState
	err   error
}

// digests remembers marks and jumps, and hands the state at each mark to the one who hashes it.
type digests struct {
	mu     sync.Mutex
	marks  []*digest // the newest digestsKept, by index
	jumps  []jump    // the newest jumpsKept
	queued int       // marks whose snapshot is open
	work   chan markedState
	hashed atomic.Uint64 // bytes, since the start of the process
}

// jump says that an install moved the state from one index to another: marks above from, up to to, were never met.
type jump struct{ from, to uint64 }

// markedState is the state at a mark, to be hashed and closed.
type markedState struct {
	digest *digest
	state  *storage.Snapshot
}

func (d *digests) open() { d.work = make(chan markedState, digestsQueued) }

// announce remembers a mark before its index is published, so that who waits for the index finds it.
func (d *digests) announce(index uint64) *digest {
	d.mu.Lock()
	defer d.mu.Unlock()
	mark := &digest{index: index, done: make(chan struct{})}
	if len(d.marks) == digestsKept {
		d.marks = slices.Delete(d.marks, 0, 1)
	}
	d.marks = append(d.marks, mark)
	return mark
}

// take hands over the state at a mark. Called between the batch that ends with the mark and the next.
func (d *digests) take(mark *digest, state *storage.State) {
	d.mu.Lock()
	full := d.queued == digestsQueued
	if !full {
		d.queued++
	}
	d.mu.Unlock()
	if full {
		mark.state = DigestSkipped
		close(mark.done)
		return
	}
	d.work <- markedState{digest: mark, state: state.NewSnapshot()} // has room: queued counts what is in it
}

func (d *digests) jumped(from, to uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if to <= from {
		return
	}
	if len(d.jumps) == jumpsKept {
		d.jumps = slices.Delete(d.jumps, 0, 1)
	}
	d.jumps = append(d.jumps, jump{from: from, to: to})
}

func (d *digests) jumpedOver(index uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.jumps, func(j jump) bool { return j.from < index && index <= j.to })
}

func (d *digests) find(index uint64) *digest {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := slices.IndexFunc(d.marks, func(m *digest) bool { return m.index == index }); at >= 0 {
		return d.marks[at]
	}
	return nil
}

// runDigests hashes one marked state after the other until the group stops; what then waits is closed unread.
func (g *Group) runDigests(ctx context.Context) {
	defer g.goroutines.Done()
	d := &g.fsm.digests
	for {
		select {
		case m := <-d.work:
			d.finish(ctx, m)
		case <-g.stop:
			return
		}
	}
}

// drop closes what nobody will hash. Called once nothing is applied any more.
func (d *digests) drop() {
	for {
		select {
		case m := <-d.work:
			d.finish(cancelled, m)
		default:
			return
		}
	}
}

var cancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (d *digests) finish(ctx context.Context, m markedState) {
	sum, err := hashState(ctx, m.state, &d.hashed)
	if cerr := m.state.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("digest at index %d: %w", m.digest.index, cerr)
	}
	d.mu.Lock()
	d.queued--
	d.mu.Unlock()
	m.digest.sum, m.digest.state, m.digest.err = sum, DigestDone, err
	if err != nil {
		m.digest.sum, m.digest.state = [32]byte{}, DigestSkipped
	}
	close(m.digest.done)
}

// hashState computes the digest of a group's state: every key and value in order, each after its length, and their number at the end. The applied
// index is not among the keys; nor is anything else that a replica writes for itself. progress counts the bytes.
func hashState(ctx context.Context, state *storage.Snapshot, progress *atomic.Uint64) (sum [32]byte, err error) {
	if err := ctx.Err(); err != nil {
		return sum, err
	}
	h := sha256.New()
	h.Write([]byte{digestVersion})
	var keys uint64
	var pending int
	err = state.Scan(nil, nil, false, func(k, v []byte) (bool, error) {
		hashBytes(h, k)
		hashBytes(h, v)
		keys++
		if pending += len(k) + len(v); pending >= digestStep {
			progress.Add(uint64(pending))
			pending = 0
			return true, ctx.Err()
		}
		return true, nil
	})
	if err != nil {
		return sum, err
	}
	progress.Add(uint64(pending))
	var last [8]byte
	binary.BigEndian.PutUint64(last[:], keys)
	h.Write(last[:])
	h.Sum(sum[:0])
	return sum, nil
}

func hashBytes(h hash.Hash, b []byte) {
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(b)))
	h.Write(size[:])
	h.Write(b)
}
