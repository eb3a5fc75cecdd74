package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// command runs a command line in this process.
func command(t *testing.T, addr, stdin string, args ...string) (out, errOut string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	a := &app{in: strings.NewReader(stdin), out: &o, err: &e, now: time.Now, env: []string{"SEALANE_ADDR=" + addr}}
	code = a.run(args)
	return o.String(), e.String(), code
}

// A payload goes in and comes out byte for byte, whichever way it is given.
func TestPayloadsAreKeptByteForByte(t *testing.T) {
	addr := startNode(t).GRPCAddr()
	apply(t, dialTest(t, addr), "paused", "http://127.0.0.1:1/")
	dir := t.TempDir()
	for i, payload := range []string{
		"", " \t{\"a\" : 1,\"a\":2}\r\n\n", "& < >", "\u2028\u2029", "🙂", "a\x00b", "\xff\xfe invalid UTF-8 \xc3", strings.Repeat("x", 1<<20),
	} {
		file := filepath.Join(dir, "in")
		if err := os.WriteFile(file, []byte(payload), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"--file", file}, {"--file", "-"}, {}} {
			out, errOut, code := command(t, addr, payload, append([]string{"message", "submit", "paused"}, args...)...)
			if code != 0 {
				t.Fatalf("payload %d: exit %d, %s", i, code, errOut)
			}
			id, _, _ := strings.Cut(out, " ")
			if got, errOut, _ := command(t, addr, "", "message", "get", id, "--payload-to", "-"); got != payload {
				t.Errorf("payload %d came back as %.40q (%s)", i, got, errOut)
			}
			if _, errOut, code := command(t, addr, "", "message", "get", id, "--payload-to", filepath.Join(dir, "out")); code != 0 {
				t.Errorf("payload %d: exit %d, %s", i, code, errOut)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || string(got) != payload {
				t.Errorf("payload %d was written as %.40q (%v)", i, got, err)
			}
		}
	}
	_, errOut, code := command(t, addr, strings.Repeat("x", 1<<20+1), "message", "submit", "paused")
	if code != exitRefused || !strings.Contains(errOut, "1048576") || !strings.Contains(errOut, "field:      payload") {
		t.Errorf("one byte too many: exit %d, %s", code, errOut)
	}
	_, errOut, code = command(t, addr, strings.Repeat("x", maxPayload+1), "message", "submit", "paused")
	if code != exitUsage || !strings.Contains(errOut, "16777216") {
		t.Errorf("too much for any node: exit %d, %s", code, errOut)
	}
}

// With --output json every command prints what the API answers: it reads back strictly as that message.
func TestJSONOutputIsTheAPIsAnswer(t *testing.T) {
	_, sinkAddr := startSink(t)
	addr := startNode(t).GRPCAddr()
	c := dialTest(t, addr)
	apply(t, c, "ok", "http://"+sinkAddr+"/status/422")
	apply(t, c, "drop", "http://"+sinkAddr+"/drop")
	submit := func(to string, more ...string) string {
		out, errOut, code := command(t, addr, "x", append([]string{"message", "submit", to, "-o", "json"}, more...)...)
		var a struct {
			MessageID string `json:"message_id"`
		}
		if err := json.Unmarshal([]byte(out), &a); err != nil || code != 0 {
			t.Fatalf("%v, exit %d: %s %s", err, code, out, errOut)
		}
		return a.MessageID
	}
	failed, unknown, later, later2 := submit("ok"), submit("drop"), submit("ok", "--deliver-at", "1h"), submit("ok", "--deliver-at", "1h")
	for id, state := range map[string]sealanev1.GenerationState_Value{failed: sealanev1.GenerationState_DEAD_LETTERED, unknown: sealanev1.GenerationState_UNCERTAIN} {
		poll(t, func() bool {
			resp, err := c.Query().GetMessage(t.Context(), &sealanev1.GetMessageRequest{Id: id})
			if err != nil {
				t.Fatal(err)
			}
			return resp.GetMessage().GetState() == state
		})
	}
	for _, c := range []struct {
		into proto.Message
		args string
	}{
		{&sealanev1.GetMessageResponse{}, "message get " + failed},
		{&sealanev1.ListMessagesResponse{}, "message list"},
		{&sealanev1.WatchMessageResponse{}, "message watch " + failed},
		{&sealanev1.RescheduleResponse{}, "message reschedule --deliver-at 2h " + later},
		{&sealanev1.CancelResponse{}, "message cancel " + later2},
		{&sealanev1.ListDeadLettersResponse{}, "deadletter list"},
		{&sealanev1.DeadLetter{}, "deadletter get " + failed},
		{&sealanev1.ListUncertainAttemptsResponse{}, "uncertain list"},
		{&sealanev1.UncertainAttempt{}, "uncertain resolve --verdict published --reason r --dry-run " + unknown},
		{&sealanev1.Operation{}, "uncertain resolve --verdict published --reason r " + unknown},
		{&sealanev1.ListLanesResponse{}, "lane list"},
		{&sealanev1.Lane{}, "lane get ok"},
		{&sealanev1.ListLanesResponse{}, "lane pause ok --reason r --dry-run"},
		{&sealanev1.Operation{}, "lane pause ok --reason r"},
		{&sealanev1.ListDestinationsResponse{}, "destination list"},
		{&sealanev1.Destination{}, "destination get ok"},
	} {
		out, errOut, code := command(t, addr, "", append(strings.Fields(c.args), "-o", "json")...)
		if err := protojson.Unmarshal([]byte(out), c.into); err != nil || code != 0 || errOut != "" {
			t.Errorf("%s: exit %d, %v\n%s%s", c.args, code, err, out, errOut)
		}
	}
}

// The exit-code page, the flags' environment and the shells' completion.
func TestSharedParts(t *testing.T) {
	var o, e bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &o, err: &e, now: time.Now, env: []string{"SEALANE_OUTPUT=json"}}
	if code := a.run([]string{"version"}); code != 0 || !json.Valid(o.Bytes()) {
		t.Errorf("SEALANE_OUTPUT: exit %d, %s", code, o.String())
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, errOut, code := command(t, "", "", "completion", shell); code != 0 || !strings.Contains(out, "sealane") {
			t.Errorf("%s: exit %d, %s", shell, code, errOut)
		}
	}
	if out, _, _ := command(t, "", "", "__complete", "message", "s"); !strings.Contains(out, "submit") {
		t.Errorf("completes %q", out)
	}
}
