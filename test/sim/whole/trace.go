package whole

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// trace writes down what happened, in order. It is kept for runs that fail.
type trace struct {
	mu    sync.Mutex
	began time.Time
	buf   bytes.Buffer
}

func newTrace() *trace { return &trace{began: time.Now()} }

func (t *trace) note(who, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(&t.buf, "%12s  %-9s %s\n", time.Since(t.began).Round(time.Microsecond), who, fmt.Sprintf(format, args...))
}

func (t *trace) save(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return os.WriteFile(path, t.buf.Bytes(), 0o600)
}

// logger gives a node's log lines a place in the trace.
func (t *trace) logger(who string) *slog.Logger { return slog.New(&lines{t: t, who: who}) }

// lines is a slog.Handler that writes into a trace.
type lines struct {
	t     *trace
	who   string
	attrs string
}

func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	text := r.Message + l.attrs
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	l.t.note(l.who, "%s %s", r.Level, text)
	return nil
}

func (l *lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *l
	for _, a := range attrs {
		next.attrs += " " + a.String()
	}
	return &next
}

func (l *lines) WithGroup(string) slog.Handler { return l }
