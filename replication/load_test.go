package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// load proposes at whichever replica leads until stopped.
type load struct {
	c          *cluster
	pause      time.Duration
	quit       chan struct{}
	workers    sync.WaitGroup
	mu         sync.Mutex
	acked      []string
	maybe      []string
	refusals   map[error]int
	longestGap time.Duration // between two acknowledgements
	last       time.Time
}

// load starts so many workers. Each waits for its answer, and a moment more, before it goes on.
func (c *cluster) load(t testing.TB, workers int) *load {
	t.Helper()
	return c.loadEvery(t, workers, 200*time.Microsecond)
}

// loadEvery is load with another pause, for tests of many seconds.
func (c *cluster) loadEvery(t testing.TB, workers int, pause time.Duration) *load {
	t.Helper()
	l := &load{c: c, pause: pause, quit: make(chan struct{}), refusals: map[error]int{}, last: time.Now()}
	for w := range workers {
		l.workers.Add(1)
		go l.work(w)
	}
	return l
}

func (l *load) work(w int) {
	defer l.workers.Done()
	for i := 0; ; i++ {
		select {
		case <-l.quit:
			return
		case <-time.After(l.pause):
		}
		command := fmt.Sprintf("load-%d-%d", w, i)
		var err error = ErrNotLeader
		for _, r := range l.c.replicas {
			if _, _, err = r.live.Load().Do(context.Background(), Client, []byte(command)); !errors.Is(err, ErrNotLeader) {
				break
			}
		}
		l.note(command, err)
	}
}

func (l *load) note(command string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.acked = append(l.acked, command)
		l.longestGap = max(l.longestGap, time.Since(l.last))
		l.last = time.Now()
	case NotAccepted(err):
		for _, sentinel := range notAccepted {
			if errors.Is(err, sentinel) {
				l.refusals[sentinel]++
			}
		}
	default:
		l.maybe = append(l.maybe, command)
	}
}

// stop ends the load and gives the acknowledged commands.
func (l *load) stop() []string {
	close(l.quit)
	l.workers.Wait()
	return slices.Clone(l.acked)
}

func (l *load) unknown() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.maybe)
}
