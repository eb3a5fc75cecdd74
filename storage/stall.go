package storage

import (
	"sync"
	"time"
)

// writing watches the writes of the log that are under way.
type writing struct {
	mu    sync.Mutex
	count int
	since time.Time // when one began while none was under way, or one ended: the last sign of life
}

func (w *writing) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count++; w.count == 1 {
		w.since = time.Now()
	}
}

func (w *writing) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	w.since = time.Now()
}

// LogStalled is how long the log's writes have made no progress; 0 while none is under way. A node whose disk hangs must not go on leading
// (503): past Options.LogWriteDeadline the store fails, and well before that its groups fall silent.
func (s *Store) LogStalled() time.Duration {
	s.writing.mu.Lock()
	defer s.writing.mu.Unlock()
	if s.writing.count == 0 {
		return 0
	}
	return time.Since(s.writing.since)
}
