package host

import (
	"sync"
	"time"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// message is one thing that happened outside the loop. Exactly one of its parts is set. Messages keep their order, so that an effect is
// never seen before the leadership change that came before it.
type message struct {
	effects  []shard.Effect
	at       time.Duration // mono time at which the effects were applied
	call     func()        // runs on the loop
	returned *claim        // its Send returned
	verdict  *proposal     // the log answered
	results  []shard.Result
	err      error
}

// unseen is work that was not queued because the inbox was full: it will be found by index.
type unseen map[laneTarget]policy.Time

// inbox carries messages to the loop. Appending never blocks.
type inbox struct {
	wake chan struct{} // capacity 1

	mu       sync.Mutex
	messages []message
	work     int // work effects queued
	unseen   unseen
	deadline policy.Time // earliest deadline among the effects that were not queued, 0 if none
	closed   bool
}

func (b *inbox) put(m message) bool {
	b.mu.Lock()
	ok := !b.closed
	if ok {
		b.messages = append(b.messages, m)
	}
	b.mu.Unlock()
	if ok {
		b.rouse()
	}
	return ok
}

func (b *inbox) rouse() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// putEffects queues the effects of one entry. Beyond limit the work among them is only noted, which loses nothing: it is in the index.
func (b *inbox) putEffects(effects []shard.Effect, at time.Duration, limit int) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	work := countWork(effects)
	if work > 0 && b.work+work > limit {
		effects, work = b.note(effects), 0
	}
	b.work += work
	if len(effects) > 0 {
		b.messages = append(b.messages, message{effects: effects, at: at})
	}
	b.mu.Unlock()
	b.rouse()
}

func countWork(effects []shard.Effect) int {
	n := 0
	for i := range effects {
		if effects[i].Kind == shard.EffectWork || effects[i].Kind == shard.EffectDeadline {
			n++
		}
	}
	return n
}

// note keeps of work and deadlines only their earliest times and returns the other effects.
func (b *inbox) note(effects []shard.Effect) []shard.Effect {
	rest := effects[:0:0]
	for i := range effects {
		e := &effects[i]
		switch e.Kind {
		case shard.EffectWork:
			if b.unseen == nil {
				b.unseen = unseen{}
			}
			k := laneTarget{e.Lane, e.Target}
			if at, ok := b.unseen[k]; !ok || e.Due < at {
				b.unseen[k] = e.Due
			}
		case shard.EffectDeadline:
			if b.deadline == 0 || e.Due < b.deadline {
				b.deadline = e.Due
			}
		default:
			rest = append(rest, *e)
		}
	}
	return rest
}

// take hands everything to the loop and gets an empty slice back in exchange.
func (b *inbox) take(empty []message) (messages []message, missed unseen, deadline policy.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	messages, b.messages = b.messages, empty[:0]
	missed, b.unseen = b.unseen, nil
	deadline, b.deadline = b.deadline, 0
	b.work = 0
	return messages, missed, deadline
}

func (b *inbox) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
}
