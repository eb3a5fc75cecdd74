package peer

//lint:file-ignore SA1019 the library's old fields are part of what it sends, and come back as they were

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/sealane/sealane/storage"
	"pgregory.net/rapid"
)

func TestLimits(t *testing.T) {
	if need := storage.MaxEntryBytes + 4<<10; maxFrameBytes < need {
		t.Errorf("the largest entry does not fit a frame: %d < %d", maxFrameBytes, need)
	}
	if maxAppendBytes > maxFrameBytes/2 || maxFrameBytes > maxInboxBytes || maxFrameBytes > maxQueueBytes {
		t.Error("a frame must fit the queues, and a cut append a frame")
	}
	if election := time.Second; controlTimeout > election*2/3 || appendTimeout > election*4/5 {
		t.Error("calls must end well before an election timeout")
	}
	if reconnectLast+dialTimeout > 1200*time.Millisecond {
		t.Error("a node that is back must be reached within about a second")
	}
	if pingAfter+2*watchEvery > silentAfter || silentAfter > 3*time.Second {
		t.Error("a connection must be asked before it is given up, within a few seconds")
	}
	if maxSnapshots*streamWindow > connectionWindow/2 {
		t.Error("stalled snapshots must leave room for other streams")
	}
}

var someBytes = rapid.SliceOfN(rapid.Byte(), 0, 40)

func draw[T any](t *rapid.T, g *rapid.Generator[T]) T { return g.Draw(t, "v") }

func drawHeader(t *rapid.T) raft.RPCHeader {
	h := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersion(rapid.IntRange(0, 3).Draw(t, "version")), ID: draw(t, someBytes)}
	if h.Addr = h.ID; rapid.Bool().Draw(t, "own address") {
		h.Addr = draw(t, someBytes)
	}
	return h
}

func drawOld(t *rapid.T, h raft.RPCHeader) []byte {
	if rapid.Bool().Draw(t, "same") {
		return h.Addr
	}
	return draw(t, someBytes)
}

// normal makes empty and missing slices, and times, comparable.
func normal(v any) any {
	value := reflect.ValueOf(v).Elem()
	walk(value)
	return value.Interface()
}

func walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		walk(v.Elem())
	case reflect.Slice:
		if v.Len() == 0 && v.CanSet() {
			v.SetZero()
		}
		for i := range v.Len() {
			if v.Index(i).Kind() != reflect.Uint8 {
				walk(v.Index(i))
			}
		}
	case reflect.Struct:
		if at, ok := v.Interface().(time.Time); ok {
			v.Set(reflect.ValueOf(at.UTC()))
			return
		}
		for i := range v.NumField() {
			walk(v.Field(i))
		}
	}
}

func same(t *rapid.T, got, want any, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	if g, w := normal(got), normal(want); !reflect.DeepEqual(g, w) {
		t.Fatalf("got  %+v\nwant %+v", g, w)
	}
}

func drawEntries(t *rapid.T) (out []*raft.Log) {
	for range rapid.IntRange(0, 5).Draw(t, "entries") {
		e := &raft.Log{
			Index: draw(t, rapid.Uint64()), Term: draw(t, rapid.Uint64()), Type: raft.LogType(draw(t, rapid.Byte())),
			Data: draw(t, someBytes), Extensions: draw(t, someBytes),
		}
		if rapid.Bool().Draw(t, "dated") {
			e.AppendedAt = time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns"))
		}
		out = append(out, e)
	}
	return out
}

// Everything that Raft's structures hold comes back.
func TestMessagesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := func() uint64 { return draw(t, rapid.Uint64()) }
		h := drawHeader(t)
		a := &raft.AppendEntriesRequest{RPCHeader: h, Term: u(), Leader: drawOld(t, h), PrevLogEntry: u(), PrevLogTerm: u(), LeaderCommitIndex: u(), Entries: drawEntries(t)}
		gotA, err := decodeAppend(appendAppend(nil, a))
		same(t, gotA, a, err)
		v := &raft.RequestVoteRequest{RPCHeader: h, Term: u(), Candidate: drawOld(t, h), LastLogIndex: u(), LastLogTerm: u(), LeadershipTransfer: draw(t, rapid.Bool())}
		gotV, err := decodeVote(appendVote(nil, v))
		same(t, gotV, v, err)
		p := &raft.RequestPreVoteRequest{RPCHeader: h, Term: u(), LastLogIndex: u(), LastLogTerm: u()}
		gotP, err := decodePreVote(appendPreVote(nil, p))
		same(t, gotP, p, err)
		n := &raft.TimeoutNowRequest{RPCHeader: h}
		gotN, err := decodeTimeoutNow(appendTimeoutNow(nil, n))
		same(t, gotN, n, err)
		s := &raft.InstallSnapshotRequest{
			RPCHeader: h, SnapshotVersion: raft.SnapshotVersion(rapid.IntRange(-1, 3).Draw(t, "version")), Term: u(), Leader: drawOld(t, h), LastLogIndex: u(),
			LastLogTerm: u(), Peers: draw(t, someBytes), Configuration: draw(t, someBytes), ConfigurationIndex: u(), Size: rapid.Int64Range(0, 1<<62).Draw(t, "size"),
		}
		gotS, err := decodeSnapshot(appendSnapshot(nil, s))
		same(t, gotS, s, err)
	})
}

func TestAnswersComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, b := func() uint64 { return draw(t, rapid.Uint64()) }, func() bool { return draw(t, rapid.Bool()) }
		h := drawHeader(t)
		for _, pair := range [][2]any{
			{&raft.AppendEntriesResponse{RPCHeader: h, Term: u(), LastLog: u(), Success: b(), NoRetryBackoff: b()}, &raft.AppendEntriesResponse{}},
			{&raft.RequestVoteResponse{RPCHeader: h, Term: u(), Peers: draw(t, someBytes), Granted: b()}, &raft.RequestVoteResponse{}},
			{&raft.RequestPreVoteResponse{RPCHeader: h, Term: u(), Granted: b()}, &raft.RequestPreVoteResponse{}},
			{&raft.TimeoutNowResponse{RPCHeader: h}, &raft.TimeoutNowResponse{}},
			{&raft.InstallSnapshotResponse{RPCHeader: h, Term: u(), Success: b()}, &raft.InstallSnapshotResponse{}},
		} {
			err := decodeAnswer(appendAnswer(nil, raft.RPCResponse{Response: pair[0]}), pair[1])
			same(t, pair[1], pair[0], err)
		}
	})
}

func TestIdentitiesComeBack(t *testing.T) {
	p := Peer{Node: "n1", Replica: "n1@abc", Boot: 1 << 63, Incarnation: 1<<64 - 1, Version: ProtocolVersion}
	got, to, err := decodeIdentity(appendIdentity(nil, p, "n2"))
	if err != nil || got != p || to != "n2" {
		t.Fatalf("got %+v for %q, %v", got, to, err)
	}
	for name, c := range map[string]struct {
		change func(*Peer)
		want   error
	}{
		"no node":          {func(p *Peer) { p.Node, p.Replica = "", "@x" }, ErrIdentity},
		"other's replica":  {func(p *Peer) { p.Replica = "n2@abc" }, ErrIdentity},
		"replica, no '@'":  {func(p *Peer) { p.Replica = "n1" }, ErrIdentity},
		"no boot":          {func(p *Peer) { p.Boot = 0 }, ErrIdentity},
		"node too long":    {func(p *Peer) { p.Node = strings.Repeat("n", maxNodeBytes+1) }, ErrMalformed},
		"replica too long": {func(p *Peer) { p.Replica = "n1@" + strings.Repeat("x", maxReplicaBytes) }, ErrMalformed},
		"a newer version":  {func(p *Peer) { p.Version = ProtocolVersion + 1 }, ErrVersion},
	} {
		bad := p
		c.change(&bad)
		_, _, err := decodeIdentity(appendIdentity(nil, bad, ""))
		wantErr(t, err, c.want, name)
	}
}

// An answer that is an error leaves the response alone, becomes the sentinel of its code, and never has the words that grant a pre-vote
// (hashicorp/raft, preElectSelf). The line against it is in harmless, errors.go: the ReplaceAll.
func TestErrorsAreHarmless(t *testing.T) {
	for c, want := range codeErrors {
		var out raft.RequestPreVoteResponse
		raw := append([]byte{byte(c)}, "unexpected command: "+strings.Repeat("ü", 300)...) // as another version might send it
		for _, b := range [][]byte{raw, appendFailure(nil, c, "an unexpected command"), {byte(c)}} {
			err := decodeAnswer(b, &out)
			wantErr(t, err, want, string(b[1:]))
			if strings.Contains(err.Error(), grantingWords) {
				t.Fatalf("raft would take %q for a granted pre-vote", err)
			}
			if len(err.Error()) > 2*maxErrorBytes {
				t.Fatalf("error text of %d bytes", len(err.Error()))
			}
		}
		if out.Granted || out.Term != 0 {
			t.Fatal("an error changed the response")
		}
	}
	b := appendAnswer(nil, raft.RPCResponse{Error: errors.New("unexpected command")})
	if bytes.Contains(b, []byte(grantingWords)) {
		t.Fatalf("sent: %q", b)
	}
}

func TestAppendsAreCut(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int
		count int
	}{
		{"none", nil, 0},
		{"small", []int{1, 2, 3}, 3},
		{"one that is larger than the limit", []int{maxAppendBytes * 3, 1}, 1},
		{"one small before a larger one", []int{1, maxAppendBytes * 3}, 1},
		{"half and half", []int{maxAppendBytes / 2, maxAppendBytes / 2, 5}, 1},
		{"thirds", []int{maxAppendBytes / 3, maxAppendBytes / 3, maxAppendBytes / 3}, 2},
	} {
		if n, _ := cutEntries(entries("n1", 1, c.sizes...).Entries); n != c.count {
			t.Errorf("%s: %d entries, want %d", c.name, n, c.count)
		}
	}
	q := entries("n1", 1, maxAppendBytes-100, 200)
	b := encodeAppend(q)
	got, err := decodeAppend(b[frameHeader:])
	if err != nil || len(got.Entries) != 1 || len(q.Entries) != 1 {
		t.Fatalf("%d entries sent, %d left in the request, %v", len(got.Entries), len(q.Entries), err)
	}
}

func sampleFrames() [][]byte {
	a := seal(appendAppend(newFrame(0), entries("n1", 3, 5, 0)), frame{kind: kindAppend, urgent: true, group: 7, call: 9, target: targetOf("n2@x")})
	v := seal(appendVote(newFrame(0), &raft.RequestVoteRequest{RPCHeader: headerOf("n1"), LeadershipTransfer: true}), frame{kind: kindVote, group: 1})
	p := seal(appendPreVote(newFrame(0), &raft.RequestPreVoteRequest{RPCHeader: headerOf("n1"), Term: 3}), frame{kind: kindPreVote})
	n := seal(appendTimeoutNow(newFrame(0), &raft.TimeoutNowRequest{RPCHeader: headerOf("n1")}), frame{kind: kindTimeoutNow})
	s := seal(appendSnapshot(newFrame(0), &raft.InstallSnapshotRequest{RPCHeader: headerOf("n1"), Size: 5}), frame{kind: kindSnapshot})
	return [][]byte{a, v, p, n, s, bytes.Join([][]byte{a, v, p}, nil), {}}
}

func TestFrames(t *testing.T) {
	var got []frame
	all := bytes.Join(sampleFrames()[:2], nil)
	if err := walkFrames(all, func(f frame) { got = append(got, f) }); err != nil || len(got) != 2 {
		t.Fatalf("%d frames, %v", len(got), err)
	}
	if f := got[0]; f.kind != kindAppend || !f.urgent || f.group != 7 || f.call != 9 || f.target != targetOf("n2@x") || got[1].urgent || got[1].group != 1 {
		t.Fatalf("got %+v", got)
	}
	for cut := 1; cut < len(all); cut++ {
		if cut == len(sampleFrames()[0]) {
			continue
		}
		wantErr(t, walkFrames(all[:cut], func(frame) {}), ErrMalformed, "a cut message")
	}
	huge := append([]byte{0xff, 0xff, 0xff, 0xff}, all...)
	wantErr(t, walkFrames(huge, func(frame) {}), ErrMalformed, "a length beyond the limit")
	flagged := bytes.Clone(all)
	flagged[5] |= 0x40
	wantErr(t, walkFrames(flagged, func(frame) {}), ErrMalformed, "unknown flags")
}

func FuzzFrames(f *testing.F) {
	for _, b := range sampleFrames() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = walkFrames(b, func(fr frame) {
			if command, _, err := decodeRequest(fr.kind, fr.body); err == nil {
				again(t, fr.kind, command)
			} else if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error without its sentinel: %v", err)
			}
			if q, err := decodeSnapshot(fr.body); err == nil {
				if _, err := decodeSnapshot(appendSnapshot(nil, q)); err != nil || q.Size < 0 {
					t.Fatalf("snapshot of size %d: %v", q.Size, err)
				}
			}
		})
	})
}

// again checks that what was decoded can be sent and decoded once more to the same.
func again(t *testing.T, k kind, command any) {
	var b []byte
	switch q := command.(type) {
	case *raft.AppendEntriesRequest:
		b = appendAppend(nil, q)
	case *raft.RequestVoteRequest:
		b = appendVote(nil, q)
	case *raft.RequestPreVoteRequest:
		b = appendPreVote(nil, q)
	case *raft.TimeoutNowRequest:
		b = appendTimeoutNow(nil, q)
	}
	got, _, err := decodeRequest(k, b)
	if err != nil || !reflect.DeepEqual(normal(got), normal(command)) {
		t.Fatalf("again: %+v, %v; want %+v", got, err, command)
	}
}

func FuzzAnswers(f *testing.F) {
	for _, r := range []any{&raft.AppendEntriesResponse{Term: 3, LastLog: 9, Success: true}, &raft.RequestVoteResponse{Peers: []byte("x")},
		&raft.RequestPreVoteResponse{Granted: true}, &raft.TimeoutNowResponse{}, &raft.InstallSnapshotResponse{RPCHeader: headerOf("n1")}} {
		f.Add(appendAnswer(nil, raft.RPCResponse{Response: r}))
	}
	f.Add(appendFailure(nil, codeBusy, "unexpected command"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, out := range []any{&raft.AppendEntriesResponse{}, &raft.RequestVoteResponse{}, &raft.RequestPreVoteResponse{}, &raft.TimeoutNowResponse{}, &raft.InstallSnapshotResponse{}} {
			if err := decodeAnswer(b, out); err != nil {
				if strings.Contains(err.Error(), grantingWords) {
					t.Fatalf("raft would take %q for a granted pre-vote", err)
				}
				if !reflect.ValueOf(out).Elem().IsZero() {
					t.Fatalf("an error changed the response: %+v", out)
				}
			}
		}
	})
}

func FuzzIdentity(f *testing.F) {
	f.Add(appendIdentity(nil, Peer{Node: "n1", Replica: "n1@ab", Boot: 7, Incarnation: 8, Version: ProtocolVersion}, "n2"))
	f.Add(appendIdentity(nil, Peer{Version: 2}, ""))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, to, err := decodeIdentity(b)
		if err != nil {
			return
		}
		if got, gotTo, err := decodeIdentity(appendIdentity(nil, p, to)); err != nil || got != p || gotTo != to {
			t.Fatalf("again: %+v for %q, %v; want %+v for %q", got, gotTo, err, p, to)
		}
	})
}
