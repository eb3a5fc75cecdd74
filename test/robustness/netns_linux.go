package robustness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNoNamespaces: this machine does not let the test make network namespaces. The text says what failed.
var ErrNoNamespaces = errors.New("robustness: no network namespaces here")

// namePrefix begins the names of all namespaces of these tests; the process id follows, so that left-over ones are recognised.
const namePrefix = "sealanetest"

// nobodysHardware is a link address that no interface has: what is sent to it disappears.
const nobodysHardware = "02:00:00:00:00:01"

// Namespaces gives every node its own network namespace, joined by a bridge in a hub. Peers and the receiver talk over the bridge, the public
// doors stay on each namespace's loopback. A cut in one direction is a wrong neighbour entry, a pulled cable is a link set down: both are
// silent, as in reality.
type Namespaces struct {
	prefix string
	hub    *namespace

	mu    sync.Mutex
	nodes map[string]*namespace
}

// namespace is one of them, open as long as the test needs it.
type namespace struct {
	name   string
	number int
	file   *os.File
}

// NewNamespaces makes the hub, after sweeping away what tests that were killed left behind.
func NewNamespaces() (Net, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: not root", ErrNoNamespaces)
	}
	sweep()
	n := &Namespaces{prefix: fmt.Sprintf("%s-%d-", namePrefix, os.Getpid()), nodes: map[string]*namespace{}}
	hub, err := n.add("hub", 254)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrNoNamespaces, err)
	}
	n.hub = hub
	err = ip(
		"-n", hub.name, "link", "add", "br0", "type", "bridge", ";",
		"-n", hub.name, "addr", "add", hub.address()+"/24", "dev", "br0", ";",
		"-n", hub.name, "link", "set", "br0", "up", ";",
		"-n", hub.name, "link", "set", "lo", "up",
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %v", ErrNoNamespaces, err), n.Close())
	}
	return n, nil
}

// sweep removes namespaces of test processes that are gone.
func sweep() {
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		return // making the hub will say what is wrong
	}
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		parts := strings.SplitN(name, "-", 3)
		if len(parts) != 3 || parts[0] != namePrefix {
			continue
		}
		if pid, err := strconv.Atoi(parts[1]); err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			_ = ip("netns", "del", name) // another test may have swept it already
		}
	}
}

// ip runs ip(8) commands, separated by ";", and stops at the first that fails.
func ip(args ...string) error {
	for len(args) > 0 {
		one := args
		rest := []string(nil)
		for i, a := range args {
			if a == ";" {
				one, rest = args[:i], args[i+1:]
				break
			}
		}
		if out, err := exec.Command("ip", one...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %v: %s", strings.Join(one, " "), err, strings.TrimSpace(string(out)))
		}
		args = rest
	}
	return nil
}

func (n *Namespaces) add(id string, number int) (*namespace, error) {
	s := &namespace{name: n.prefix + id, number: number}
	if err := ip("netns", "add", s.name); err != nil {
		return nil, err
	}
	f, err := os.Open("/run/netns/" + s.name)
	if err != nil {
		return nil, errors.Join(err, ip("netns", "del", s.name))
	}
	s.file = f
	return s, nil
}

func (s *namespace) address() string { return fmt.Sprintf("10.77.0.%d", s.number) }

// enter runs f on an operating system thread inside the namespace. The thread is thrown away after it: none can stray.
func (s *namespace) enter(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter %s: %w", s.name, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// Site makes the namespace of a node and plugs it into the hub.
func (n *Namespaces) Site(id string) (*Site, error) {
	n.mu.Lock()
	number := len(n.nodes) + 1
	n.mu.Unlock()
	s, err := n.add(id, number)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.nodes[id] = s
	n.mu.Unlock()
	port := s.port()
	err = ip(
		"-n", n.hub.name, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", s.name, ";",
		"-n", n.hub.name, "link", "set", port, "master", "br0", "up", ";",
		"-n", s.name, "addr", "add", s.address()+"/24", "dev", "eth0", ";",
		"-n", s.name, "link", "set", "eth0", "up", ";",
		"-n", s.name, "link", "set", "lo", "up",
	)
	if err != nil {
		return nil, err
	}
	// The doors are on loopback in every namespace, on ports of their own, so that the address alone names the node.
	return &Site{
		ID: id, GRPC: fmt.Sprintf("127.0.0.1:%d", 7400+10*number), HTTP: fmt.Sprintf("127.0.0.1:%d", 7401+10*number),
		Peer: s.address() + ":7452", Faults: fmt.Sprintf("127.0.0.1:%d", 7403+10*number), Dial: s.dial, Launch: s.launch,
	}, nil
}

func (s *namespace) port() string { return fmt.Sprintf("port%d", s.number) }

// dial connects from inside the namespace; the socket stays there when the thread has gone.
func (s *namespace) dial(ctx context.Context, address string) (c net.Conn, err error) {
	err = s.enter(func() error {
		var failed error
		c, failed = dialTCP(ctx, address)
		return failed
	})
	return c, err
}

func (s *namespace) launch(cmd *exec.Cmd) error { return s.enter(cmd.Start) }

// Listen listens in the hub.
func (n *Namespaces) Listen() (l net.Listener, err error) {
	err = n.hub.enter(func() error {
		var failed error
		l, failed = net.Listen("tcp", n.hub.address()+":0")
		return failed
	})
	return l, err
}

func (n *Namespaces) node(id string) (*namespace, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.nodes[id]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("no namespace for %s", id)
}

// Block makes a node send what is for another to nobody.
func (n *Namespaces) Block(_ context.Context, from, to string) error {
	a, err := n.node(from)
	if err != nil {
		return err
	}
	b, err := n.node(to)
	if err != nil {
		return err
	}
	return ip("-n", a.name, "neigh", "replace", b.address(), "lladdr", nobodysHardware, "dev", "eth0", "nud", "permanent")
}

// Unblock lets it find the other again.
func (n *Namespaces) Unblock(_ context.Context, from, to string) error {
	a, err := n.node(from)
	if err != nil {
		return err
	}
	b, err := n.node(to)
	if err != nil {
		return err
	}
	return ip("-n", a.name, "neigh", "del", b.address(), "dev", "eth0")
}

// Unplug pulls a node's cable.
func (n *Namespaces) Unplug(_ context.Context, id string) error { return n.cable(id, "down") }

// Plug puts it back.
func (n *Namespaces) Plug(_ context.Context, id string) error { return n.cable(id, "up") }

func (n *Namespaces) cable(id, state string) error {
	s, err := n.node(id)
	if err != nil {
		return err
	}
	return ip("-n", n.hub.name, "link", "set", s.port(), state)
}

// TLS is needed: peers are not on loopback.
func (n *Namespaces) TLS() bool { return true }

// Close removes all namespaces; processes in them must have ended.
func (n *Namespaces) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, s := range n.nodes {
		errs = append(errs, s.remove())
	}
	n.nodes = map[string]*namespace{}
	if n.hub != nil {
		errs = append(errs, n.hub.remove())
		n.hub = nil
	}
	return errors.Join(errs...)
}

func (s *namespace) remove() error { return errors.Join(s.file.Close(), ip("netns", "del", s.name)) }
