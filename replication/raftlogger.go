package replication

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger lets Raft log through slog. Only warnings and errors pass: below that Raft writes several lines per group and transition.
type raftLogger struct {
	to   *slog.Logger
	name string
	args []any
	// alone tells that this replica is the only voter. Electing itself is then the ordinary way to start, not worth a warning.
	alone func() bool
}

// electionStarted is Raft's line for a follower that missed its leader.
const electionStarted = "heartbeat timeout reached, starting election"

// routine are Raft's lines, by group and try, about a node that is out of reach, catches up, or loses an election. They come by the thousand while a
// node is away, say nothing that an operator could act on, and are for debugging: that a node is out of reach is said once, by whoever runs it.
var routine = map[string]bool{
	electionStarted: true, "Election timeout reached, restarting election": true, "failed to heartbeat to": true, "failed to appendEntries to": true,
	"failed to contact": true, "failed to make requestVote RPC": true, "failed to make requestPreVote RPC": true,
	"rejecting pre-vote request since we have a leader": true, "rejecting vote request since we have a leader": true,
	"rejecting pre-vote request since our last term is greater": true, "rejecting vote request since our last term is greater": true,
	"rejecting pre-vote request since our last index is greater": true, "rejecting vote request since our last index is greater": true,
	"rejecting pre-vote request since node is not in configuration": true, "rejecting vote request since node is not in configuration": true,
	"rejecting pre-vote request since node is not a voter": true, "rejecting vote request since node is not a voter": true,
	"heartbeat timeout reached, not part of a stable configuration or a non-voter, not triggering a leader election": true,
	"failed to get previous log": true, "previous log term mis-match": true, "appendEntries rejected, sending older logs": true,
	"peer has newer term, stopping replication": true, "clearing log suffix": true,
}

var levels = map[hclog.Level]slog.Level{
	hclog.Trace: slog.LevelDebug, hclog.Debug: slog.LevelDebug, hclog.Info: slog.LevelInfo,
	hclog.Warn: slog.LevelWarn, hclog.Error: slog.LevelError,
}

// Log writes a line unless it is below WARN.
func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	if level < hclog.Warn || level == hclog.Off || (msg == electionStarted && l.alone()) {
		return
	}
	rendered := make([]any, 0, len(args))
	for _, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			a = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
		rendered = append(rendered, a)
	}
	at := levels[level]
	if routine[msg] {
		at = slog.LevelDebug
	}
	l.to.Log(context.Background(), at, msg, rendered...)
}

// Trace is dropped.
func (l *raftLogger) Trace(string, ...any) {}

// Debug is dropped.
func (l *raftLogger) Debug(string, ...any) {}

// Info is dropped.
func (l *raftLogger) Info(string, ...any) {}

// Warn writes a warning.
func (l *raftLogger) Warn(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// Error writes an error.
func (l *raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

// IsTrace is false.
func (l *raftLogger) IsTrace() bool { return false }

// IsDebug is false.
func (l *raftLogger) IsDebug() bool { return false }

// IsInfo is false.
func (l *raftLogger) IsInfo() bool { return false }

// IsWarn is true.
func (l *raftLogger) IsWarn() bool { return true }

// IsError is true.
func (l *raftLogger) IsError() bool { return true }

// ImpliedArgs gives what With added.
func (l *raftLogger) ImpliedArgs() []any { return l.args }

// With gives a logger that adds args to each line.
func (l *raftLogger) With(args ...any) hclog.Logger {
	c := *l
	c.to = l.to.With(args...)
	c.args = append(append([]any(nil), l.args...), args...)
	return &c
}

// Name gives the logger's name.
func (l *raftLogger) Name() string { return l.name }

// Named gives a logger with a longer name; the name is not written.
func (l *raftLogger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

// ResetNamed gives a logger with this name.
func (l *raftLogger) ResetNamed(name string) hclog.Logger {
	c := *l
	c.name = name
	return &c
}

// SetLevel is ignored: the level is fixed.
func (l *raftLogger) SetLevel(hclog.Level) {}

// GetLevel is always WARN.
func (l *raftLogger) GetLevel() hclog.Level { return hclog.Warn }

// StandardLogger writes each line as a warning.
func (l *raftLogger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

// StandardWriter writes each line as a warning.
func (l *raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer {
	return slog.NewLogLogger(l.to.Handler(), slog.LevelWarn).Writer()
}
