package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const nodeID = "demo"

// node is the child process. Its addresses are drawn at the first start and kept over restarts, so that clients find it again.
type node struct {
	binary, dataDir, logPath string
	env                      []string
	grpc, http               string

	cmd    *exec.Cmd
	exited chan error // gets the one result of the process
}

// start runs the process until it says that it is ready.
func (n *node) start(ctx context.Context) error {
	log, err := os.OpenFile(n.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("demo: log of the node: %w", err)
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(n.binary, "serve", "--node-id", nodeID, "--data-dir", n.dataDir, "--grpc-addr", n.grpc, "--http-addr", n.http,
		"--peer-addr", "127.0.0.1:0", "--shards", "4", "--allow-loopback-destinations")
	cmd.Env, cmd.Stderr = n.env, log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("demo: start the node: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("demo: start the node: %w", err)
	}
	n.cmd, n.exited = cmd, make(chan error, 1)
	ready := make(chan string, 1)
	go func() {
		watchOutput(out, ready)
		n.exited <- cmd.Wait()
	}()
	timer := time.NewTimer(startBound)
	defer timer.Stop()
	select {
	case line := <-ready:
		if line == "" {
			return n.failedStart(errors.New("it ended before it was ready"))
		}
		return n.readAddresses(line)
	case <-timer.C:
		return n.failedStart(fmt.Errorf("not ready within %s", startBound))
	case <-ctx.Done():
		return n.failedStart(ctx.Err())
	}
}

// watchOutput passes the line that says ready on, empty if there is none, and reads the rest so that the child never waits for us.
func watchOutput(out io.Reader, ready chan<- string) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "sealane: ready ") {
			select {
			case ready <- lines.Text():
			default:
			}
		}
	}
	select {
	case ready <- "":
	default:
	}
}

func (n *node) readAddresses(line string) error {
	for _, word := range strings.Fields(line) {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "grpc":
			n.grpc = value
		case "http":
			n.http = value
		}
	}
	if strings.HasSuffix(n.grpc, ":0") || strings.HasSuffix(n.http, ":0") {
		return n.failedStart(fmt.Errorf("its ready line names no addresses: %q", line))
	}
	return nil
}

// failedStart ends the process and shows the end of its log, where the reason is.
func (n *node) failedStart(why error) error {
	err := fmt.Errorf("demo: the node did not start: %w", why)
	log, readErr := os.ReadFile(n.logPath)
	if readErr == nil && len(log) > 0 {
		err = fmt.Errorf("%w\n%s", err, tail(string(log), 10))
	}
	return errors.Join(err, n.end())
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// kill ends the process as a power cut would, as far as the process is concerned.
func (n *node) kill() error {
	if err := n.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("demo: kill the node: %w", err)
	}
	var exit *exec.ExitError
	if err := <-n.exited; !errors.As(err, &exit) {
		return fmt.Errorf("demo: the node should have been killed: %w", err)
	}
	n.cmd = nil
	return nil
}

// stop asks the process to drain and waits for it; an orderly stop exits with 0.
func (n *node) stop() error {
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("demo: stop the node: %w", err)
	}
	timer := time.NewTimer(startBound)
	defer timer.Stop()
	select {
	case err := <-n.exited:
		n.cmd = nil
		if err != nil {
			return fmt.Errorf("demo: the node should have stopped with exit code 0: %w", err)
		}
		return nil
	case <-timer.C:
		return errors.Join(fmt.Errorf("demo: the node did not stop within %s", startBound), n.end())
	}
}

// end makes sure that the process is gone. After an orderly stop there is nothing to do.
func (n *node) end() error {
	if n.cmd == nil {
		return nil
	}
	err := n.cmd.Process.Kill()
	<-n.exited
	n.cmd = nil
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
