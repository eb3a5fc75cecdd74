package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

// process is this very code as a process of its own.
type process struct {
	cmd   *exec.Cmd
	lines chan string
	err   *strings.Builder
	grpc  string
}

const processBound = 30 * time.Second

// startProcess runs a command line and waits for a line that matches; without such a line the process has ended.
func startProcess(t *testing.T, ready string, args ...string) *process {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(binary, args...), lines: make(chan string, 100), err: &strings.Builder{}}
	p.cmd.Env = append(withoutOurs(os.Environ()), asBinary)
	p.cmd.Stderr = p.err
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(out)
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill() // a failed test: whatever is left of it must go
			_ = p.cmd.Wait()
		}
	})
	if ready != "" {
		line := p.line(t)
		if !regexp.MustCompile(ready).MatchString(line) {
			t.Fatalf("printed %q, want %s\n%s", line, ready, p.wait(t))
		}
		if m := regexp.MustCompile(`grpc=(\S+)`).FindStringSubmatch(line); m != nil {
			p.grpc = m[1]
		}
	}
	return p
}

func (p *process) read(out io.Reader) {
	defer close(p.lines)
	s := bufio.NewScanner(out)
	for s.Scan() {
		p.lines <- s.Text()
	}
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	select {
	case l := <-p.lines:
		return l
	case <-time.After(processBound):
		t.Fatalf("nothing printed within %s", processBound)
		return ""
	}
}

// wait waits for the end and returns what was written to standard error.
func (p *process) wait(t *testing.T) string {
	t.Helper()
	stop := time.AfterFunc(processBound, func() { _ = p.cmd.Process.Kill() })
	defer stop.Stop()
	for range p.lines { // Wait closes the pipe, so everything must have been read
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.err.String()
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

const readyLine = `^sealane: ready node=\S+ grpc=127\.0\.0\.1:\d+ http=127\.0\.0\.1:\d+ data-dir=\S+ version=\S+$`

func serveArgs(dir string, more ...string) []string {
	return append([]string{
		"serve", "--data-dir", dir, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--peer-addr", "127.0.0.1:0", "--shards", "1",
		"--allow-loopback-destinations",
	}, more...)
}

// One line when it is ready; SIGTERM drains and exits with 0; a second start finds what the first one kept.
func TestServeStartsStopsAndComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "node")
	_, sinkAddr := startSink(t)
	p := startProcess(t, readyLine, serveArgs(dir)...)
	c := dialTest(t, p.grpc)
	apply(t, c, "ok", "http://"+sinkAddr+"/ok")
	a, err := c.Submit(t.Context(), client.Message{Destination: "ok", Payload: []byte("kept")})
	if err != nil {
		t.Fatal(err)
	}
	// A second process on the same directory is refused, and says why.
	second := startProcess(t, "", serveArgs(dir)...)
	if text := second.wait(t); second.cmd.ProcessState.ExitCode() != exitRefused || !strings.Contains(text, "the node did not start") {
		t.Errorf("exit %d, %s", second.cmd.ProcessState.ExitCode(), text)
	}
	p.signal(t, syscall.SIGTERM)
	if text := p.wait(t); p.cmd.ProcessState.ExitCode() != exitDone {
		t.Fatalf("exit %d: %s", p.cmd.ProcessState.ExitCode(), text)
	}
	// Another number of shards or another name is refused for a directory in use.
	for _, change := range [][]string{{"--shards", "2"}, {"--node-id", "other"}} {
		p := startProcess(t, "", serveArgs(dir, change...)...)
		if text := p.wait(t); p.cmd.ProcessState.ExitCode() != exitRefused || !strings.Contains(text, "the node did not start") {
			t.Errorf("%v: exit %d, %s", change, p.cmd.ProcessState.ExitCode(), text)
		}
	}
	p = startProcess(t, readyLine, serveArgs(dir)...)
	resp, err := dialTest(t, p.grpc).Query().GetMessage(t.Context(), &sealanev1.GetMessageRequest{Id: a.MessageID, IncludePayload: true})
	if err != nil || string(resp.GetMessage().GetPayload()) != "kept" {
		t.Errorf("after the restart: %v, %v", resp, err)
	}
	p.signal(t, syscall.SIGINT)
	if text := p.wait(t); p.cmd.ProcessState.ExitCode() != exitDone {
		t.Errorf("exit %d: %s", p.cmd.ProcessState.ExitCode(), text)
	}
}

// A request is under way for longer than the drain may take: the second signal does not wait for it.
func TestServeSecondSignal(t *testing.T) {
	s, sinkAddr := startSink(t)
	p := startProcess(t, readyLine, serveArgs(filepath.Join(t.TempDir(), "node"), "--drain-timeout", "10m")...)
	c := dialTest(t, p.grpc)
	_, err := c.Destinations().ApplyDestination(t.Context(), &sealanev1.ApplyDestinationRequest{Destination: &sealanev1.Destination{
		Name: "hanging", Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: "http://" + sinkAddr + "/hang", Timeout: durationpb.New(10 * time.Minute)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(t.Context(), client.Message{Destination: "hanging"}); err != nil {
		t.Fatal(err)
	}
	poll(t, func() bool { return s.Count() > 0 })
	p.signal(t, syscall.SIGTERM)
	// Calls are refused once it drains; only then is the next signal the second one.
	poll(t, func() bool {
		_, err := c.Delivery().Submit(t.Context(), &sealanev1.SubmitRequest{Destination: "hanging"})
		return err != nil
	})
	p.signal(t, syscall.SIGTERM)
	if text := p.wait(t); p.cmd.ProcessState.ExitCode() != exitSignal || !strings.Contains(text, "second signal") {
		t.Errorf("exit %d: %s", p.cmd.ProcessState.ExitCode(), text)
	}
}

func TestDevAndSinkAsProcesses(t *testing.T) {
	for _, c := range []struct {
		ready string
		args  []string
	}{
		{`^sealane dev is ready: gRPC 127\.0\.0\.1:\d+, HTTP http://127\.0\.0\.1:\d+, in memory`, []string{"dev", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}},
		{`^sealane sink: ready on http://127\.0\.0\.1:\d+$`, []string{"sink", "--listen", "127.0.0.1:0"}},
	} {
		p := startProcess(t, c.ready, c.args...)
		p.signal(t, syscall.SIGTERM)
		if text := p.wait(t); p.cmd.ProcessState.ExitCode() != exitDone {
			t.Errorf("%v: exit %d: %s", c.args, p.cmd.ProcessState.ExitCode(), text)
		}
	}
}

func apply(t *testing.T, c *client.Client, name, url string) {
	t.Helper()
	_, err := c.Destinations().ApplyDestination(t.Context(), &sealanev1.ApplyDestinationRequest{
		Destination: &sealanev1.Destination{Name: name, Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: url}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func poll(t *testing.T, yes func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(processBound); !yes(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s", processBound)
		}
	}
}
