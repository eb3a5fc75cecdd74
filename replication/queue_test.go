package replication

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func openQueue() *queue {
	q := newQueue()
	q.accept()
	return q
}

func oneItem(tag string, size int) item {
	command := bytes.Repeat([]byte{'.'}, max(size, len(tag)))
	copy(command, tag)
	return item{one: command, bytes: len(command) + commandOverhead, at: 1, done: func(any, uint64, error) {}}
}

func takeAll(q *queue) []*flight {
	var all []*flight
	for {
		f := &flight{}
		if !q.take(f) {
			return all
		}
		all = append(all, f)
	}
}

// Entries stay within their bounds, a larger command goes alone, nothing is lost, and each class keeps its order.
func TestPackingBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := openQueue()
		var want [classes][]string
		for i := range rapid.IntRange(1, 700).Draw(t, "items") {
			class := Class(rapid.IntRange(0, 1).Draw(t, "class"))
			size := rapid.SampledFrom([]int{8, 8, 8, 1000, 60 << 10, 300 << 10}).Draw(t, "size")
			tag := fmt.Sprintf("%d-%04d", class, i)
			if err := q.push(class, oneItem(tag, size)); err != nil {
				if !errors.Is(err, ErrQueueFull) {
					t.Fatal(err)
				}
				continue
			}
			want[class] = append(want[class], tag)
		}
		var got [classes][]string
		for _, f := range takeAll(q) {
			bytes := 0
			for _, it := range f.items {
				tag := string(it.one[:6])
				got[tag[0]-'0'] = append(got[tag[0]-'0'], tag)
				bytes += it.bytes
			}
			if f.commands != len(f.items) || f.bytes != bytes {
				t.Fatalf("entry counts %d commands and %d bytes, holds %d and %d", f.commands, f.bytes, len(f.items), bytes)
			}
			if f.commands > MaxEntryCommands || (f.bytes > MaxEntryBytes && f.commands > 1) {
				t.Fatalf("entry of %d commands and %d bytes", f.commands, f.bytes)
			}
		}
		for c := range want {
			if fmt.Sprint(got[c]) != fmt.Sprint(want[c]) {
				t.Fatalf("class %d: got %v, want %v", c, got[c], want[c])
			}
		}
		if client, engine := q.depth(); client != 0 || engine != 0 {
			t.Fatalf("queue still counts %d and %d", client, engine)
		}
	})
}

// While one class always has more than an entry waiting, the other still gets its share of every second entry at worst.
func TestNoClassStarves(t *testing.T) {
	for _, size := range []int{8, 300 << 10} {
		for _, busy := range []Class{Client, Engine} {
			t.Run(fmt.Sprintf("%s of %d bytes", busy, size), func(t *testing.T) {
				q := openQueue()
				other := Client + Engine - busy
				for range 400 {
					if err := q.push(other, oneItem("other", 8)); err != nil {
						t.Fatal(err)
					}
				}
				without := 0
				for range 40 {
					for q.class[busy].commands < 300 {
						if err := q.push(busy, oneItem("busy", size)); err != nil {
							break // bytes are at their bound: enough waits
						}
					}
					f := &flight{}
					q.take(f)
					found := false
					for _, it := range f.items {
						found = found || string(it.one[:5]) == "other"
					}
					if found || q.class[other].commands == 0 {
						without = 0
					} else if without++; without > 1 {
						t.Fatalf("two entries in a row without a %s command", other)
					}
				}
				if q.class[other].commands > 0 {
					t.Fatalf("%d %s commands still wait", q.class[other].commands, other)
				}
			})
		}
	}
}

// Clients that wait get at least a quarter of every entry of small commands, and the engine what is left.
func TestShareOfAnEntry(t *testing.T) {
	q := openQueue()
	for range 2000 {
		for _, class := range []Class{Client, Engine} {
			if err := q.push(class, oneItem(class.String(), 8)); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := &flight{}
	q.take(f)
	client, engine := q.depth()
	if f.commands != MaxEntryCommands || 2000-client != MaxEntryCommands/4 || 2000-engine != MaxEntryCommands*3/4 {
		t.Fatalf("entry of %d commands took %d from clients and %d from the engine", f.commands, 2000-client, 2000-engine)
	}
}

func TestQueueBounds(t *testing.T) {
	q := openQueue()
	for i := range ClientQueueCommands {
		if err := q.push(Client, oneItem("x", 1)); err != nil {
			t.Fatalf("push %d: %v", i, err)
		}
	}
	if err := q.push(Client, oneItem("x", 1)); !errors.Is(err, ErrQueueFull) || !NotAccepted(err) {
		t.Fatalf("got %v, want ErrQueueFull", err)
	}
	// Reserved room: a client flood leaves the engine's untouched (what was admitted can always be settled).
	for i := range EngineQueueCommands {
		if err := q.push(Engine, oneItem("x", 1)); err != nil {
			t.Fatalf("engine push %d: %v", i, err)
		}
	}
	if err := q.push(Engine, oneItem("x", 1)); !errors.Is(err, ErrQueueFull) {
		t.Fatalf("got %v, want ErrQueueFull", err)
	}
}

func TestQueueBytesBound(t *testing.T) {
	q := openQueue()
	if err := q.push(Client, oneItem("x", ClientQueueBytes-commandOverhead)); err != nil {
		t.Fatal(err)
	}
	if err := q.push(Client, oneItem("x", 1)); !errors.Is(err, ErrQueueFull) {
		t.Fatalf("got %v, want ErrQueueFull", err)
	}
	takeAll(q)
	if err := q.push(Client, oneItem("x", 1)); err != nil {
		t.Fatal(err)
	}
}

func TestVectorIsAllOrNothing(t *testing.T) {
	q := openQueue()
	for range ClientQueueCommands - 10 {
		if err := q.push(Client, oneItem("x", 1)); err != nil {
			t.Fatal(err)
		}
	}
	commands := make([][]byte, 300)
	for i := range commands {
		commands[i] = []byte{1}
	}
	items := split(commands, 1)
	for i := range items {
		items[i].doneMany = func([]any, uint64, error) {}
	}
	if err := q.push(Client, items...); !errors.Is(err, ErrQueueFull) {
		t.Fatalf("got %v, want ErrQueueFull", err)
	}
	if client, _ := q.depth(); client != ClientQueueCommands-10 {
		t.Fatalf("%d commands wait, want none of the vector", client)
	}
}

func TestRefusal(t *testing.T) {
	q := newQueue()
	if err := q.push(Client, oneItem("x", 1)); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("a new queue said %v, want ErrNotLeader", err)
	}
	q.accept()
	var got error
	it := oneItem("x", 1)
	it.done = func(_ any, _ uint64, err error) { got = err }
	if err := q.push(Engine, it); err != nil {
		t.Fatal(err)
	}
	b, err := q.join()
	if err != nil {
		t.Fatal(err)
	}
	q.refuse(ErrTransferring, false).answer()
	<-b.done
	if !errors.Is(got, ErrTransferring) || !errors.Is(b.err, ErrTransferring) {
		t.Fatalf("waiting command got %v, barrier %v", got, b.err)
	}
	q.refuse(ErrStopped, true).answer()
	q.refuse(ErrNotLeader, false).answer()
	q.accept()
	if err := q.push(Client, oneItem("x", 1)); !errors.Is(err, ErrStopped) {
		t.Fatalf("a final refusal became %v", err)
	}
}

// A vector that fits one entry is never spread over two; a longer one is cut only where it must be.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		commands := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []byte {
			return make([]byte, rapid.SampledFrom([]int{1, 100, 5000, 200 << 10, 400 << 10}).Draw(t, "size"))
		}), 1, 600).Draw(t, "commands")
		items := split(commands, 1)
		total, seen := 0, 0
		for i, it := range items {
			seen += len(it.many)
			total += it.bytes
			if it.bytes != sizeOf(it.many) {
				t.Fatalf("item counts %d bytes, has %d", it.bytes, sizeOf(it.many))
			}
			if len(it.many) > MaxEntryCommands || (it.bytes > MaxEntryBytes && len(it.many) > 1) {
				t.Fatalf("item of %d commands and %d bytes", len(it.many), it.bytes)
			}
			if i > 0 {
				before, next := items[i-1], it.many[0]
				if len(before.many) < MaxEntryCommands && before.bytes+len(next)+commandOverhead <= MaxEntryBytes {
					t.Fatalf("cut after %d commands and %d bytes although %d bytes would fit", len(before.many), before.bytes, len(next))
				}
			}
		}
		if seen != len(commands) || total != sizeOf(commands) {
			t.Fatalf("%d commands of %d bytes became %d of %d", len(commands), sizeOf(commands), seen, total)
		}
	})
}
