package robustness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Process is one `sealane serve` on a data directory. It can be killed and started again on the same addresses.
type Process struct {
	binary, dir string
	grpc, http  string
	shards      int

	mu   sync.Mutex
	cmd  *exec.Cmd
	out  *tail
	conn *grpc.ClientConn
}

// tail keeps the last of what a process printed, for the report of a failure.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buf.Len() > 64<<10 {
		t.buf.Next(t.buf.Len() - 32<<10)
	}
	return t.buf.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

// NewProcess prepares a node; Start runs it.
func NewProcess(binary, dir string, shards int) (*Process, error) {
	g, err := freeAddress()
	if err != nil {
		return nil, err
	}
	h, err := freeAddress()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(g, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(grpc.ConnectParams{
		MinConnectTimeout: time.Second,
	}))
	if err != nil {
		return nil, err
	}
	return &Process{binary: binary, dir: dir, grpc: g, http: h, shards: shards, conn: conn, out: &tail{}}, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Start runs the node and waits until it answers.
func (p *Process) Start(ctx context.Context) error {
	cmd := exec.Command(p.binary, "serve", "--data-dir", p.dir, "--grpc-addr", p.grpc, "--http-addr", p.http, "--peer-addr", "127.0.0.1:0",
		"--shards", fmt.Sprint(p.shards), "--allow-private-destinations", "--log-level", "warn")
	cmd.Stdout, cmd.Stderr = p.out, p.out
	cmd.Env = environment()
	if err := cmd.Start(); err != nil {
		return err
	}
	p.mu.Lock()
	p.cmd = cmd
	p.mu.Unlock()
	p.conn.ResetConnectBackoff()
	if err := p.ready(ctx); err != nil {
		return errors.Join(fmt.Errorf("node did not become ready: %w\n%s", err, p.out), p.Kill())
	}
	return nil
}

// environment leaves out the variables that steer these tests: a node takes SEALANE_… as its own and refuses what it does not know.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "SEALANE_") })
}

// ready polls with short calls until the node answers or the context ends.
func (p *Process) ready(ctx context.Context) error {
	for {
		call, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		_, err := p.Cluster().GetCluster(call, &sealanev1.GetClusterRequest{})
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(5 * time.Millisecond):
			p.conn.ResetConnectBackoff()
		}
	}
}

// Kill sends SIGKILL and waits for the end. Nothing of the process is given a chance to finish.
func (p *Process) Kill() error {
	p.mu.Lock()
	cmd := p.cmd
	p.cmd = nil
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	_ = cmd.Wait() // killed: the exit status is no news
	return nil
}

// Close ends the process and the connection.
func (p *Process) Close() error { return errors.Join(p.Kill(), p.conn.Close()) }

// PID is the process id, 0 while it does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Running tells whether the process is there.
func (p *Process) Running() bool {
	pid := p.PID()
	return pid != 0 && syscall.Kill(pid, 0) == nil && !zombie(pid)
}

// zombie tells whether a process has ended and only waits to be collected, where /proc tells.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(b), ") ")
	return ok && strings.HasPrefix(rest, "Z")
}

// Output is the last of what the process printed.
func (p *Process) Output() string { return p.out.String() }

// Clients of the node. Calls fail while it is down.
func (p *Process) Delivery() sealanev1.DeliveryServiceClient {
	return sealanev1.NewDeliveryServiceClient(p.conn)
}
func (p *Process) Query() sealanev1.QueryServiceClient {
	return sealanev1.NewQueryServiceClient(p.conn)
}
func (p *Process) Destinations() sealanev1.DestinationServiceClient {
	return sealanev1.NewDestinationServiceClient(p.conn)
}
func (p *Process) Cluster() sealanev1.ClusterServiceClient {
	return sealanev1.NewClusterServiceClient(p.conn)
}
