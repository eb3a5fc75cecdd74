package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/sealane/sealane/storage"
)

// Power is cut at random moments under load, several times in a row on the same disk, losing all (F2) or a random part (F3) of what was
// not synced. Every acknowledged command must be there exactly once, every one that was certainly refused must not, and no other more
// than once. Each round also checks that a restart replays to the same state.
func TestCrash(t *testing.T) {
	for _, keep := range []int{0, 30, 70} {
		t.Run(fmt.Sprintf("keeps %d percent unsynced", keep), func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			world := &crashWorld{fs: vfs.NewCrashableMem(), acked: map[string]uint32{}, refused: map[string]uint32{}, maybe: map[string]uint32{}}
			for round := range 6 {
				world.run(t, rng, round, keep)
			}
			if len(world.acked) == 0 {
				t.Fatal("nothing was acknowledged: the test shows nothing")
			}
			t.Logf("%d acknowledged, %d unknown", len(world.acked), len(world.maybe))
		})
	}
}

const crashGroups = 3

type crashWorld struct {
	fs                    *vfs.MemFS
	mu                    sync.Mutex
	acked, refused, maybe map[string]uint32 // command to group
}

// run opens the disk, checks it, loads it, and replaces it with what a power cut would leave.
func (w *crashWorld) run(t *testing.T, rng *rand.Rand, round, keep int) {
	t.Helper()
	s := openStore(t, "data", w.fs)
	var groups []*Group
	for i := range uint32(crashGroups) {
		m := newCounter()
		o := options(s, m)
		o.Group, o.BootID = i+1, uint64(round+1)
		o.TrailingEntries, o.SnapshotEntries = 4*MaxEntriesInFlight, 40
		g := open(t, o)
		waitLed(t, m)
		groups = append(groups, g)
	}
	w.check(t, s, round)

	var clone *vfs.MemFS
	cut := make(chan struct{})
	var load sync.WaitGroup
	for i, g := range groups {
		for c := range 4 {
			load.Add(1)
			go func() {
				defer load.Done()
				w.load(g, uint32(i+1), fmt.Sprintf("r%d-g%d-c%d", round, i, c), cut)
			}()
		}
	}
	target := 50 + rng.IntN(400)
	before := w.known()
	eventually(t, "load", func() bool { return w.known() >= before+target })
	// The clone is taken in the middle of whatever runs. Answers that arrive before it must survive; those after it prove nothing, so the
	// books are closed first.
	w.mu.Lock()
	clone = w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rng})
	close(cut)
	w.mu.Unlock()
	load.Wait()
	for _, g := range groups {
		closeGroup(t, g)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	w.fs = clone
}

func (w *crashWorld) known() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// load proposes commands with distinct names until the power is cut.
func (w *crashWorld) load(g *Group, group uint32, name string, cut <-chan struct{}) {
	var open sync.WaitGroup
	defer open.Wait()
	for i := 0; ; i++ {
		select {
		case <-cut:
			return
		default:
		}
		command := fmt.Sprintf("%s-%d", name, i)
		w.mu.Lock()
		w.maybe[command] = group
		w.mu.Unlock()
		open.Add(1)
		settle := func(_ any, _ uint64, err error) {
			defer open.Done()
			w.mu.Lock()
			defer w.mu.Unlock()
			select {
			case <-cut:
				return // answered by a node that has no power
			default:
			}
			switch {
			case err == nil:
				w.acked[command] = group
			case NotAccepted(err):
				w.refused[command] = group
			}
			if err == nil || NotAccepted(err) {
				delete(w.maybe, command)
			}
		}
		if err := g.Propose(context.Background(), Class(i%2), []byte(command), settle); err != nil {
			settle(nil, 0, err)
		}
		if i%16 == 0 {
			if err := g.ReadBarrier(context.Background()); err != nil && !errors.Is(err, ErrBarrier) {
				return
			}
		}
	}
}

func (w *crashWorld) check(t *testing.T, s *storage.Store, round int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for command, group := range w.acked {
		if n := count(t, s, group, command); n != 1 {
			t.Fatalf("round %d: acknowledged %s counts %d, want 1", round, command, n)
		}
	}
	for command, group := range w.refused {
		if n := count(t, s, group, command); n != 0 {
			t.Fatalf("round %d: refused %s counts %d, want 0", round, command, n)
		}
	}
	for command, group := range w.maybe {
		if n := count(t, s, group, command); n > 1 {
			t.Fatalf("round %d: %s counts %d, want at most 1", round, command, n)
		}
	}
}

// On a real disk: kill without closing is not possible inside a process, so this covers close and open only.
func TestReopenOnDisk(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		s := openStore(t, dir, nil)
		m := newCounter()
		g := open(t, options(s, m))
		waitLed(t, m)
		for i := range 20 {
			if n := do(t, g, id(i)); n != uint64(round+1) {
				t.Fatalf("round %d: command counts %d", round, n)
			}
		}
		if round == 1 {
			if err := g.Snapshot(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		closeGroup(t, g)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A log write that fails is fatal for the store; until the process ends nobody may be told that a command was accepted (F16). On fake
// time, since Raft would panic, which is its way to stop, when it next tries to store a term a second later.
func TestNothingIsAcknowledgedAfterALogFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if failing.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, "/log/") {
				return errorfs.ErrInjected
			}
			return nil
		}))
		fatal := make(chan error, 1)
		s, err := storage.Open(storage.Options{Dir: "data", FS: fs, OnFatal: func(err error) { fatal <- err }, Logger: discard()})
		if err != nil {
			t.Fatal(err)
		}
		m := newCounter()
		g := open(t, options(s, m))
		waitLed(t, m)
		do(t, g, "before")
		failing.Store(true)
		if _, _, err := g.Do(t.Context(), Client, []byte("during")); !errors.Is(err, ErrMaybeAccepted) || NotAccepted(err) {
			t.Fatalf("during the failure: %v", err)
		}
		if err := <-fatal; err == nil {
			t.Fatal("OnFatal got no error")
		}
		failing.Store(false) // the disk recovers: the store must not
		if _, _, err := g.Do(t.Context(), Client, []byte("after")); err == nil {
			t.Fatal("a command was acknowledged after a failed log write")
		}
		closeGroup(t, g)
		if err := s.Close(); err == nil {
			t.Error("a failed store closed without an error")
		}
	})
}
