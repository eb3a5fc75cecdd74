package server

import (
	"errors"
	"testing"

	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/shard"
)

func watchID(n byte) shard.MessageID { return shard.NewMessageID(1, 0, 1, [10]byte{n}) }

func TestWatchers(t *testing.T) {
	w := newWatchers()
	id, other := watchID(1), watchID(2)
	s, stop, err := w.subscribe(id)
	if err != nil {
		t.Fatal(err)
	}
	w.notify([]shard.Effect{{Ref: shard.Ref{ID: other}}, {Kind: shard.EffectLane}})
	select {
	case <-s.changed:
		t.Fatal("poked for another message")
	default:
	}
	w.notify([]shard.Effect{{Ref: shard.Ref{ID: id}}, {Ref: shard.Ref{ID: id}}})
	<-s.changed
	select {
	case <-s.changed:
		t.Fatal("two changes are two pokes")
	default:
	}
	stop()
	stop() // harmless
	if w.count.Load() != 0 || len(w.m) != 0 {
		t.Fatalf("%d watchers, %d messages are left", w.count.Load(), len(w.m))
	}
}

// A watcher that leaves too much unread is told so, once.
func TestSlowWatcher(t *testing.T) {
	w := newWatchers()
	id := watchID(1)
	s, stop, err := w.subscribe(id)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	change := []shard.Effect{{Ref: shard.Ref{ID: id}}}
	for range maxUnread {
		w.notify(change)
	}
	if !s.seen() {
		t.Fatal("cut at the bound")
	}
	for range maxUnread + 1 {
		w.notify(change)
	}
	if s.seen() || !s.seen() {
		t.Fatal("not cut beyond the bound, or not forgotten")
	}
}

func TestWatchersAreBounded(t *testing.T) {
	w := newWatchers()
	for range maxMessageWatchers {
		if _, _, err := w.subscribe(watchID(1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := w.subscribe(watchID(1)); !errors.Is(err, ErrTooManyWatchers) {
		t.Fatal(err)
	}
	if _, stop, err := w.subscribe(watchID(2)); err != nil {
		t.Fatal(err)
	} else {
		stop()
	}
	w.count.Store(maxWatchers)
	if _, _, err := w.subscribe(watchID(2)); !errors.Is(err, ErrTooManyWatchers) {
		t.Fatal(err)
	}
}

// Circuits that are closed are forgotten, and each change of phase counts once.
func TestCircuitTransitions(t *testing.T) {
	m := &metrics{}
	m.register(newTestRegistry())
	var c circuits
	k := circuitKey{1, 1}
	for _, p := range []lane.CircuitPhase{
		lane.CircuitClosed, lane.CircuitOpen, lane.CircuitOpen, lane.CircuitHalfOpen, lane.CircuitOpen, lane.CircuitHalfOpen, lane.CircuitClosed, lane.CircuitClosed,
	} {
		c.now(m, k, p)
	}
	for p, want := range map[lane.CircuitPhase]float64{lane.CircuitOpen: 2, lane.CircuitHalfOpen: 2, lane.CircuitClosed: 1} {
		if got := counterValue(t, m.transitions[p]); got != want {
			t.Errorf("to %s: %v, want %v", p, got, want)
		}
	}
	if len(c.phases) != 0 {
		t.Error("a closed circuit is remembered")
	}
}
