package robustness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// Spec is how a process is started and reached.
type Spec struct {
	Binary string
	Args   []string // after `serve`
	Env    []string // beside the environment of the test
	GRPC   string   // where its gRPC door listens
	// Dial opens a connection to the process; nil is plain TCP. Launch starts the command; nil starts it here.
	Dial   func(ctx context.Context, address string) (net.Conn, error)
	Launch func(*exec.Cmd) error
	Log    io.Writer // gets what it prints, beside the tail that is kept; may be nil
}

// Process is one `sealane serve` on a data directory. It can be killed and started again on the same addresses.
type Process struct {
	spec Spec
	conn *grpc.ClientConn
	out  *tail

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
	why   error         // how it ended
}

// tail keeps the last of what a process printed, for the report of a failure.
type tail struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	also io.Writer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.also != nil {
		if _, err := t.also.Write(p); err != nil {
			return 0, err
		}
	}
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

// NewProcess prepares a node that is alone, on free loopback ports; Start runs it.
func NewProcess(binary, dir string, shards int) (*Process, error) {
	g, err := freeAddress()
	if err != nil {
		return nil, err
	}
	h, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return NewProcessOf(Spec{Binary: binary, GRPC: g, Args: []string{
		"--data-dir", dir, "--grpc-addr", g, "--http-addr", h, "--peer-addr", "127.0.0.1:0",
		"--shards", fmt.Sprint(shards), "--allow-private-destinations", "--log-level", "warn",
	}})
}

// NewProcessOf prepares a process; Start runs it.
func NewProcessOf(spec Spec) (*Process, error) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(), grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 500 * time.Millisecond}, MinConnectTimeout: time.Second,
		}),
	}
	if spec.Dial != nil {
		options = append(options, grpc.WithContextDialer(spec.Dial))
	}
	conn, err := grpc.NewClient("passthrough:///"+spec.GRPC, options...)
	if err != nil {
		return nil, err
	}
	return &Process{spec: spec, conn: conn, out: &tail{also: spec.Log}}, nil
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
	if err := p.Launch(); err != nil {
		return err
	}
	if err := p.Ready(ctx); err != nil {
		return errors.Join(fmt.Errorf("node did not become ready: %w\n%s", err, p.out), p.Kill())
	}
	return nil
}

// Launch runs the node and does not wait for it.
func (p *Process) Launch() error {
	cmd := exec.Command(p.spec.Binary, append([]string{"serve"}, p.spec.Args...)...)
	cmd.Stdout, cmd.Stderr = p.out, p.out
	cmd.Env = append(environment(), p.spec.Env...)
	start := p.spec.Launch
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(cmd); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.ended, p.why = cmd, ended, nil
	p.mu.Unlock()
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		if p.cmd == cmd {
			p.why = err
		}
		p.mu.Unlock()
		close(ended)
	}()
	p.conn.ResetConnectBackoff()
	return nil
}

// environment leaves out the variables that steer these tests: a node takes SEALANE_… as its own and refuses what it does not know.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "SEALANE_") })
}

// ErrEnded: the process ended while it was waited for.
var ErrEnded = errors.New("robustness: the process has ended")

// Ready polls with short calls until the node answers, ends, or the context ends.
func (p *Process) Ready(ctx context.Context) error {
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
		case <-p.Ended():
			return fmt.Errorf("%w: %v", ErrEnded, p.Why())
		case <-time.After(5 * time.Millisecond):
			p.conn.ResetConnectBackoff()
		}
	}
}

// Ended is closed once the process that was launched last has ended.
func (p *Process) Ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = make(chan struct{})
		close(p.ended)
	}
	return p.ended
}

// Why tells how the process ended: nil for exit code 0, or while it runs.
func (p *Process) Why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.why
}

// Signal sends a signal. No process is no error: it may have ended by itself.
func (p *Process) Signal(s syscall.Signal) error {
	pid := p.PID()
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Kill sends SIGKILL and waits for the end. Nothing of the process is given a chance to finish.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.Ended()
	return nil
}

// Terminate sends SIGTERM and waits for the end, which must come with exit code 0.
func (p *Process) Terminate(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.AwaitEnd(ctx)
}

// AwaitEnd waits for the end of a node that has had SIGTERM, and gives what Terminate gives. A second signal would cut the stop short.
func (p *Process) AwaitEnd(ctx context.Context) error {
	select {
	case <-p.Ended():
		return p.Why()
	case <-ctx.Done():
		return fmt.Errorf("the node did not stop after SIGTERM: %w", ctx.Err())
	}
}

// Close ends the process and the connection.
func (p *Process) Close() error { return errors.Join(p.Kill(), p.conn.Close()) }

// PID is the process id, 0 while it does not run.
func (p *Process) PID() int {
	select {
	case <-p.Ended():
		return 0
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Running tells whether the process is there.
func (p *Process) Running() bool { return p.PID() != 0 }

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
func (p *Process) Control() sealanev1.ControlServiceClient {
	return sealanev1.NewControlServiceClient(p.conn)
}
