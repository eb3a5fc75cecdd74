package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sealane/sealane/storage"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const deadline = 30 * time.Second

// counter is a state machine that shows lost and repeated commands. A command is an id; its result is the number of times that id was
// applied, read from and written to the batch, so the count survives with the state. "poison" commands are refused.
type counter struct {
	mu        sync.Mutex
	applied   []Entry // copies, in order, of this process
	committed []uint64
	terms     []uint64 // Led
	deposed   int
	history   []string // of Led and Deposed
	installed []uint64
	ledC      chan uint64
	spoil     atomic.Bool   // count the next command wrong: a state that differs from the others'
	gate      chan struct{} // if set, Apply of a command "hold" waits for it
}

var errPoison = errors.New("poison")

func newCounter() *counter { return &counter{ledC: make(chan uint64, 64)} }

func countKey(id []byte) []byte { return append([]byte("n/"), id...) }

func (c *counter) Apply(b *storage.Batch, e Entry) ([]any, error) {
	results := make([]any, 0, len(e.Commands))
	kept := e
	kept.Commands = nil
	for _, id := range e.Commands {
		if string(id) == "poison" {
			return nil, errPoison
		}
		if string(id) == "hold" && c.gate != nil {
			<-c.gate
		}
		key := countKey(id[:min(len(id), 32)])
		v, ok, err := b.Get(key)
		if err != nil {
			return nil, err
		}
		var n uint64
		if ok {
			n = binary.BigEndian.Uint64(v)
		}
		n++
		if c.spoil.Swap(false) {
			n |= 1 << 40
		}
		if err := b.Set(key, binary.BigEndian.AppendUint64(nil, n)); err != nil {
			return nil, err
		}
		results = append(results, n)
		kept.Commands = append(kept.Commands, append([]byte(nil), id[:min(len(id), 32)]...))
	}
	c.mu.Lock()
	c.applied = append(c.applied, kept)
	c.mu.Unlock()
	return results, nil
}

func (c *counter) Committed(applied uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed = append(c.committed, applied)
}

func (c *counter) Led(term uint64) {
	c.mu.Lock()
	c.terms = append(c.terms, term)
	c.history = append(c.history, "led")
	c.mu.Unlock()
	c.ledC <- term
}

func (c *counter) Deposed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deposed++
	c.history = append(c.history, "deposed")
}

func (c *counter) Installed(applied uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.installed = append(c.installed, applied)
}

func (c *counter) entries() []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Entry(nil), c.applied...)
}

// count reads from the state how often id was applied.
func count(t testing.TB, s *storage.Store, group uint32, id string) uint64 {
	t.Helper()
	v, ok, err := s.State(group).Get(countKey([]byte(id)))
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return 0
	}
	return binary.BigEndian.Uint64(v)
}

func openStore(t testing.TB, dir string, fs vfs.FS) *storage.Store {
	t.Helper()
	s, err := storage.Open(storage.Options{Dir: dir, FS: fs, Logger: discard(),
		CacheBytes: 8 << 20, OnFatal: func(err error) { t.Errorf("storage: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newStore opens a store in memory that the test closes.
func newStore(t testing.TB) *storage.Store {
	t.Helper()
	s := openStore(t, "data", vfs.NewMem())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// rid is the replica id of a node in tests.
func rid(node string) string { return ReplicaID(node, [16]byte{0xab, 1}) }

func options(s *storage.Store, m StateMachine) Options {
	return Options{
		Store: s, Group: 1, NodeID: "n1", ReplicaID: rid("n1"), BootID: 7, Machine: m,
		Stamp:     func() int64 { return time.Now().UnixNano() },
		Bootstrap: []string{rid("n1")},
		Logger:    discard(),
	}
}

// open opens a group that the caller closes.
func open(t testing.TB, o Options) *Group {
	t.Helper()
	g, err := NewGroup(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// start opens a group without waiting for it to lead. The test closes it.
func start(t testing.TB, o Options) *Group {
	t.Helper()
	g := open(t, o)
	t.Cleanup(func() { closeGroup(t, g) })
	return g
}

func closeGroup(t testing.TB, g *Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := g.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// lead opens a group of one replica and waits until it leads.
func lead(t testing.TB, o Options) (*Group, *counter) {
	t.Helper()
	m, ok := o.Machine.(*counter)
	if !ok {
		t.Fatalf("machine is %T", o.Machine)
	}
	g := start(t, o)
	waitLed(t, m)
	return g, m
}

func waitLed(t testing.TB, m *counter) uint64 {
	t.Helper()
	select {
	case term := <-m.ledC:
		return term
	case <-time.After(deadline):
		t.Fatal("no leadership within the deadline")
		return 0
	}
}

func do(t testing.TB, g *Group, id string) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	result, _, err := g.Do(ctx, Client, []byte(id))
	if err != nil {
		t.Fatalf("do %q: %v", id, err)
	}
	return result.(uint64)
}

// eventually polls, for what has no event to wait for.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(deadline)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not within the deadline: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// answer is one call of a callback.
type answer struct {
	result any
	index  uint64
	err    error
}

// answers counts callbacks per command and keeps what they said.
type answers struct {
	mu  sync.Mutex
	got map[string][]answer
}

func newAnswers() *answers { return &answers{got: map[string][]answer{}} }

func (a *answers) done(id string) func(any, uint64, error) {
	return func(result any, index uint64, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.got[id] = append(a.got[id], answer{result, index, err})
	}
}

func (a *answers) of(id string) []answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]answer(nil), a.got[id]...)
}

func (a *answers) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.got)
}

func id(n int) string { return fmt.Sprintf("c%06d", n) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}
