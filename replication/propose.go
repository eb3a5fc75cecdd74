package replication

import (
	"context"
	"fmt"
	"sync"
)

// Propose queues one command and returns at once. If it returns nil, done is called exactly once: with the machine's result and the
// entry's index after the entry is applied and committed to the state here, or with an error. done runs on a goroutine of the group, so
// it must be cheap and must not block; it may propose again. The command's bytes must not change until done is called.
// An error returned here, and one given to done for which NotAccepted is true, means that the command is not in the log and never will be.
func (g *Group) Propose(ctx context.Context, class Class, command []byte, done func(result any, index uint64, err error)) error {
	if err := checkProposal(ctx, class, command); err != nil {
		return g.refused(class, err)
	}
	it := item{one: command, done: done, bytes: len(command) + commandOverhead, at: g.now()}
	if err := g.queue.push(class, it); err != nil {
		return g.refused(class, err)
	}
	return nil
}

// ProposeVector queues commands of one caller that keep their order. If they fit one entry they share it, and so apply with nothing in
// between and share one fate. Otherwise they go in as few entries as hold them, in order, and if those meet different fates done gets
// an error for which NotAccepted is false. All are queued or none. index is the last entry's; else as Propose.
func (g *Group) ProposeVector(ctx context.Context, class Class, commands [][]byte,
	done func(results []any, index uint64, err error)) error {
	if len(commands) == 0 {
		return g.refused(class, fmt.Errorf("%w: vector has 0 commands, want at least 1", ErrInvalid))
	}
	if err := checkProposal(ctx, class, commands...); err != nil {
		return g.refused(class, err)
	}
	items := split(commands, g.now())
	if len(items) == 1 {
		items[0].doneMany = done
	} else {
		j := &joiner{done: done, left: len(items), results: make([]any, len(commands))}
		at := 0
		for i := range items {
			items[i].doneMany = j.part(at, len(items[i].many))
			at += len(items[i].many)
		}
	}
	if err := g.queue.push(class, items...); err != nil {
		return g.refused(class, err)
	}
	return nil
}

// Do proposes one command and waits for its verdict. When ctx ends first the error is ErrMaybeAccepted wrapping the context's.
func (g *Group) Do(ctx context.Context, class Class, command []byte) (result any, index uint64, err error) {
	w, ok := g.verdicts.Get().(*verdict)
	if !ok {
		w = newVerdict()
	}
	if err := g.Propose(ctx, class, command, w.set); err != nil {
		g.verdicts.Put(w)
		return nil, 0, err
	}
	select {
	case <-w.done:
		result, index, err = w.result, w.index, w.err
		w.result, w.err = nil, nil
		g.verdicts.Put(w)
		return result, index, err
	case <-ctx.Done():
		return nil, 0, maybeAccepted(ctx.Err()) // w stays with the callback
	}
}

// verdict carries an answer from the callback to Do.
type verdict struct {
	done   chan struct{} // holds one
	set    func(result any, index uint64, err error)
	result any
	index  uint64
	err    error
}

func newVerdict() *verdict {
	w := &verdict{done: make(chan struct{}, 1)}
	w.set = func(result any, index uint64, err error) {
		w.result, w.index, w.err = result, index, err
		w.done <- struct{}{}
	}
	return w
}

func (g *Group) refused(class Class, err error) error {
	g.opts.Observer.Refused(class, err)
	return err
}

// checkProposal refuses what could never be applied.
func checkProposal(ctx context.Context, class Class, commands ...[]byte) error {
	if class >= classes {
		return fmt.Errorf("%w: class is %d, want Client or Engine", ErrInvalid, class)
	}
	for i, c := range commands {
		if len(c) == 0 || len(c) > MaxCommandBytes {
			return fmt.Errorf("%w: command %d has %d bytes, want 1 to %d", ErrInvalid, i, len(c), MaxCommandBytes)
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrContext, err)
	}
	return nil
}

// split cuts a vector into runs that each fit one entry. A command too large for any goes alone.
func split(commands [][]byte, now int64) []item {
	items := make([]item, 0, 1)
	begin, bytes := 0, 0
	for i, c := range commands {
		size := len(c) + commandOverhead
		if i > begin && (i-begin == MaxEntryCommands || bytes+size > MaxEntryBytes) {
			items = append(items, item{many: commands[begin:i], bytes: bytes, at: now})
			begin, bytes = i, 0
		}
		bytes += size
	}
	return append(items, item{many: commands[begin:], bytes: bytes, at: now})
}

// joiner makes one answer of the answers to the parts of a vector.
type joiner struct {
	mu       sync.Mutex
	done     func(results []any, index uint64, err error)
	left     int
	results  []any
	index    uint64
	accepted bool // at least one part is, or may be, in the log
	err      error
}

// part gives the callback of the part whose results begin at position at.
func (j *joiner) part(at, n int) func([]any, uint64, error) {
	return func(results []any, index uint64, err error) {
		j.mu.Lock()
		if err == nil {
			copy(j.results[at:at+n], results)
			j.index = max(j.index, index)
		} else if j.err == nil {
			j.err = err
		}
		j.accepted = j.accepted || !NotAccepted(err)
		j.left--
		last := j.left == 0
		j.mu.Unlock()
		if !last {
			return
		}
		switch {
		case j.err == nil:
			j.done(j.results, j.index, nil)
		case j.accepted && NotAccepted(j.err):
			j.done(nil, 0, maybeAccepted(j.err))
		default:
			j.done(nil, 0, j.err)
		}
	}
}
