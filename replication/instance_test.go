package replication

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Settings that must not drift, each with a hazard behind it (REPLICATION.md).
func TestRaftConfig(t *testing.T) {
	g := &Group{opts: options(nil, nil).withDefaults(), logger: discard()}
	c := g.raftConfig()
	if c.RestoreCommittedLogs || !c.NoSnapshotRestoreOnStart || c.ShutdownOnRemove || !c.BatchApplyCh || c.PreVoteDisabled || !c.NoLegacyTelemetry {
		t.Errorf("switches: %+v", c)
	}
	if c.HeartbeatTimeout != 600*time.Millisecond || c.ElectionTimeout != 600*time.Millisecond || c.LeaderLeaseTimeout != 500*time.Millisecond ||
		c.CommitTimeout != 500*time.Millisecond || c.MaxAppendEntries != 128 || c.TrailingLogs != 1024 {
		t.Errorf("values: %+v", c)
	}
	if err := raft.ValidateConfig(c); err != nil {
		t.Error(err)
	}
}

// spyTransport is a transport that would offer what Raft must not use.
type spyTransport struct {
	*loopback
	handlers, closed atomic.Int64
}

func (s *spyTransport) SetHeartbeatHandler(func(raft.RPC)) { s.handlers.Add(1) }

func (s *spyTransport) Close() error {
	s.closed.Add(1)
	return nil
}

// Heartbeats take Raft's main loop whatever the transport offers (695), and the transport outlives the group.
func TestTransportIsShielded(t *testing.T) {
	s := newStore(t)
	o := options(s, newCounter())
	spy := &spyTransport{loopback: newLoopback(raft.ServerAddress(rid("n1")))}
	o.Transport = spy
	g, _ := lead(t, o)
	do(t, g, "a")
	closeGroup(t, g)
	if spy.handlers.Load() != 0 || spy.closed.Load() != 0 {
		t.Fatalf("heartbeat handler set %d times, transport closed %d times", spy.handlers.Load(), spy.closed.Load())
	}
}

func TestLoopbackHasNoPeers(t *testing.T) {
	l := newLoopback("a")
	for i, err := range []error{
		l.AppendEntries("x", "y", nil, nil), l.RequestVote("x", "y", nil, nil), l.RequestPreVote("x", "y", nil, nil),
		l.InstallSnapshot("x", "y", nil, nil, nil), l.TimeoutNow("x", "y", nil, nil),
	} {
		if !errors.Is(err, ErrNoPeers) {
			t.Errorf("call %d: %v", i, err)
		}
		if strings.Contains(err.Error(), "unexpected command") {
			t.Error("Raft takes this text for a granted pre-vote")
		}
	}
	if l.DecodePeer(l.EncodePeer("x", "addr:1")) != "addr:1" {
		t.Error("address did not survive")
	}
}

func TestRaftLogger(t *testing.T) {
	var out bytes.Buffer
	alone := true
	l := &raftLogger{to: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), alone: func() bool { return alone }}
	named := l.Named("raft").With("peer", "n2")
	named.Info("quiet")
	named.Debug("quiet")
	named.Log(hclog.Info, "quiet")
	named.Warn(electionStarted)
	if out.Len() > 0 {
		t.Fatalf("wrote %q", out.String())
	}
	alone = false
	named.Warn(electionStarted)
	if !strings.Contains(out.String(), "level=DEBUG") || strings.Contains(out.String(), "level=WARN") {
		t.Errorf("a routine line is not for debugging: %q", out.String())
	}
	named.Warn("stepping down")
	named.Error("broken", "servers", hclog.Fmt("%d of %d", 2, 3))
	for _, want := range []string{"level=WARN", electionStarted, "level=ERROR", "broken", "peer=n2", `servers="2 of 3"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out.String())
		}
	}
	if named.Name() != "raft" || fmt.Sprint(named.ImpliedArgs()) != "[peer n2]" || named.GetLevel() != hclog.Warn || named.IsInfo() {
		t.Error("logger does not describe itself")
	}
	named.StandardLogger(nil).Print("through the standard logger")
	if !strings.Contains(out.String(), "through the standard logger") {
		t.Error("standard logger wrote nothing")
	}
}

// sums adds up what an Observer is told.
type sums struct {
	NopObserver
	proposed, answered, applied, refused, snapshots atomic.Int64
}

func (s *sums) EntryProposed(commands, _ int, _ time.Duration)       { s.proposed.Add(int64(commands)) }
func (s *sums) EntryAnswered(commands int, _ time.Duration, _ error) { s.answered.Add(int64(commands)) }
func (s *sums) BatchApplied(_, commands, _ int, _ time.Duration)     { s.applied.Add(int64(commands)) }
func (s *sums) Refused(Class, error)                                 { s.refused.Add(1) }
func (s *sums) SnapshotTaken(index uint64, _ time.Duration, err error) {
	if err == nil && index > 0 {
		s.snapshots.Add(1)
	}
}

func TestObserver(t *testing.T) {
	s := newStore(t)
	o := options(s, newCounter())
	seen := &sums{}
	o.Observer = seen
	g, _ := lead(t, o)
	for i := range 30 {
		do(t, g, id(i))
	}
	if err := g.Propose(t.Context(), Client, nil, nil); err == nil {
		t.Fatal("an empty command was taken")
	}
	if err := g.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	st := g.Status()
	closeGroup(t, g)
	if seen.proposed.Load() != 30 || seen.answered.Load() != 30 || seen.applied.Load() != 30 || seen.refused.Load() != 1 ||
		seen.snapshots.Load() != 1 || st.Commands != 30 || st.Entries < 1 {
		t.Fatalf("proposed %d, answered %d, applied %d, refused %d, snapshots %d; status %+v", seen.proposed.Load(), seen.answered.Load(),
			seen.applied.Load(), seen.refused.Load(), seen.snapshots.Load(), st)
	}
}

// A crash in the middle of founding leaves a term and no entry. Without the repair such a replica has no configuration and waits for ever.
func TestBootstrapAfterACrashInTheMiddle(t *testing.T) {
	s := newStore(t)
	o := options(s, newCounter())
	log, err := s.RaftLog(o.Group)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.SetUint64([]byte("CurrentTerm"), 1); err != nil {
		t.Fatal(err)
	}
	g, _ := lead(t, o)
	do(t, g, "a")
	closeGroup(t, g)
}
