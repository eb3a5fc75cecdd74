package shardtest

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

// Script is the state of one running script: a shard and the names the script gave its messages.
type Script struct {
	*Shard
	ids      map[string]shard.MessageID
	names    map[shard.MessageID]string
	versions map[string]uint64
}

// NewScript returns an empty shard that understands script lines.
func NewScript() *Script {
	return &Script{Shard: NewShard(), ids: map[string]shard.MessageID{}, names: map[shard.MessageID]string{}, versions: map[string]uint64{}}
}

// Clone copies the script's whole world: what is done to the copy does not show in the original.
func (s *Script) Clone() *Script {
	return &Script{Shard: s.Shard.Clone(), ids: maps.Clone(s.ids), names: maps.Clone(s.names), versions: maps.Clone(s.versions)}
}

// Do runs one line of a script and returns what a script would show.
func (s *Script) Do(line string) (string, error) {
	cmd, rest, err := datadriven.ParseLine(line)
	if err != nil {
		return "", err
	}
	return s.run(&datadriven.TestData{Cmd: cmd, CmdArgs: rest})
}

// ID is the id of a message the script named, zero for a name it has not used.
func (s *Script) ID(name string) shard.MessageID { return s.ids[name] }

// Run executes every script of a directory. -rewrite updates the expected output.
func Run(t *testing.T, dir string) {
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		s := NewScript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := s.run(d)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return out
		})
	})
}

func (s *Script) run(d *datadriven.TestData) (string, error) {
	a := args{d}
	switch d.Cmd {
	case "install":
		return s.install(a)
	case "submit":
		return s.submit(a)
	case "batch":
		return s.batch(d)
	case "wait":
		s.Advance(a.dur("for", 0))
		return "", nil
	case "show":
		return s.show(a.first())
	case "lane":
		return s.showLane(a.first())
	case "due":
		return s.due(a.first())
	case "inbox":
		return s.inbox()
	case "deadletters":
		return s.deadLetters()
	case "restart":
		s.Machine.Reset()
		s.Owner.Boot++
		return "", nil
	}
	c, err := s.command(d.Cmd, a)
	if err != nil {
		return "", err
	}
	return s.apply(c)
}

// batch puts several commands, one a line, into one entry.
func (s *Script) batch(d *datadriven.TestData) (string, error) {
	return s.Batch(strings.Split(strings.TrimSpace(d.Input), "\n")...)
}

// Batch puts several lines, each a command, into one entry.
func (s *Script) Batch(lines ...string) (string, error) {
	var cmds []shard.Command
	for _, line := range lines {
		cmd, rest, err := datadriven.ParseLine(line)
		if err != nil {
			return "", err
		}
		c, err := s.command(cmd, args{&datadriven.TestData{Cmd: cmd, CmdArgs: rest}})
		if err != nil {
			return "", err
		}
		cmds = append(cmds, c)
	}
	return s.apply(cmds...)
}

func (s *Script) apply(cmds ...shard.Command) (string, error) {
	results, effects, err := s.Apply(cmds...)
	if err != nil {
		return "error: " + err.Error() + "\n", nil
	}
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintln(&b, s.result(r))
	}
	for _, e := range effects {
		if line := s.effect(e); line != "" {
			fmt.Fprintln(&b, "  "+line)
		}
	}
	return b.String(), nil
}

func (s *Script) result(r shard.Result) string {
	if r.Rejected != nil {
		return s.clear(strings.TrimPrefix(r.Rejected.Error(), "shard: "))
	}
	out := "ok"
	if !r.Ref.ID.IsZero() {
		out += " " + s.ref(r.Ref)
	}
	if r.State != 0 {
		out += " " + r.State.String()
	}
	if r.Removed > 0 {
		out += fmt.Sprintf(" removed=%d", r.Removed)
	}
	if r.Deduplicated {
		out += fmt.Sprintf(" deduplicated index=%d", r.Index)
	}
	return out
}

// clear puts the script's names in place of ids, and relative times in place of stamps.
func (s *Script) clear(text string) string {
	ids := make([]shard.MessageID, 0, len(s.names))
	for id := range s.names {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i].String() < ids[j].String() })
	for _, id := range ids {
		text = strings.ReplaceAll(text, id.String(), s.names[id])
	}
	words := strings.Fields(text)
	for i, w := range words {
		if n, err := strconv.ParseInt(w, 10, 64); err == nil && n > int64(Start)/2 {
			words[i] = rel(policy.Time(n))
		}
	}
	return strings.Join(words, " ")
}

func (s *Script) ref(r shard.Ref) string {
	name := s.names[r.ID]
	if name == "" {
		name = r.ID.String()
	}
	return fmt.Sprintf("%s-%d", name, r.Generation)
}

var effectNames = map[shard.EffectKind]string{
	shard.EffectWork: "work", shard.EffectAdmitted: "admitted", shard.EffectSettled: "settled", shard.EffectTerminal: "terminal",
	shard.EffectLane: "lane", shard.EffectInstalled: "installed", shard.EffectWorkGone: "work gone", shard.EffectContradiction: "contradiction",
}

func (s *Script) effect(e shard.Effect) string {
	switch e.Kind {
	case shard.EffectDeadline:
		return ""
	case shard.EffectWork:
		return fmt.Sprintf("work %s attempt %d at %s", s.ref(e.Ref), e.Attempt, rel(e.Due))
	case shard.EffectAdmitted:
		return fmt.Sprintf("admitted %s attempt %d until %s by boot %d", s.ref(e.Ref), e.Attempt, rel(e.Due), e.Owner.Boot)
	case shard.EffectSettled:
		return fmt.Sprintf("settled %s attempt %d %s first=%v", s.ref(e.Ref), e.Attempt, e.SideEffect, e.First)
	case shard.EffectTerminal:
		return fmt.Sprintf("terminal %s %s %s", s.ref(e.Ref), e.State, e.Reason)
	case shard.EffectLane, shard.EffectInstalled:
		return effectNames[e.Kind]
	}
	return effectNames[e.Kind] + " " + s.ref(e.Ref)
}

// rel shows a time as its distance from Start.
func rel(t policy.Time) string {
	if t == 0 {
		return "-"
	}
	return "+" + t.Sub(Start).String()
}

type args struct{ d *datadriven.TestData }

func (a args) first() string {
	if len(a.d.CmdArgs) == 0 {
		return ""
	}
	return a.d.CmdArgs[0].Key
}

func (a args) text(key, def string) string {
	for _, c := range a.d.CmdArgs {
		if c.Key == key && len(c.Vals) > 0 {
			return c.Vals[0]
		}
	}
	return def
}

func (a args) has(key string) bool {
	for _, c := range a.d.CmdArgs {
		if c.Key == key {
			return true
		}
	}
	return false
}

func (a args) num(key string, def uint64) uint64 {
	n, err := strconv.ParseUint(a.text(key, strconv.FormatUint(def, 10)), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s: %s is not a number", a.d.Cmd, key))
	}
	return n
}

func (a args) dur(key string, def time.Duration) time.Duration {
	v, err := time.ParseDuration(a.text(key, def.String()))
	if err != nil {
		panic(fmt.Sprintf("%s: %s is not a duration", a.d.Cmd, key))
	}
	return v
}

// at reads a time given as a distance from Start.
func (a args) at(key string) policy.Time {
	if !a.has(key) {
		return 0
	}
	return Start.Add(a.dur(key, 0))
}

func hashOf(s string) [32]byte { return sha256.Sum256([]byte(s)) }
