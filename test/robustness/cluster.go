package robustness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
	"github.com/sealane/sealane/server/fault"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// ClusterOptions says what cluster a test wants.
type ClusterOptions struct {
	Binary string // of the fault build
	Dir    string // of data, certificates and logs
	Nodes  int    // founders
	Shards uint32
	Net    Net
	Env    []string // of every node
	Log    func(format string, args ...any)
}

// Cluster is some nodes as real processes, which a test can hurt one by one.
type Cluster struct {
	o    ClusterOptions
	ca   *Authority
	mu   sync.Mutex
	all  []*Member // in the order in which they were made; those that have left too
	dead []string  // ends that nothing explains: findings
	logs []io.Closer
	seq  atomic.Uint64
}

// Member is one node of a cluster.
type Member struct {
	*Process
	ID     string
	Site   *Site
	Dir    string
	Faults *Faults
	// MayEnd is set while a fault is at work that may make the process end by itself.
	MayEnd atomic.Bool
	// Gone is set when the node has left the cluster.
	Gone atomic.Bool

	static *client.Client // talks to this node only
}

// NewCluster prepares the founders; Start runs them.
func NewCluster(o ClusterOptions) (*Cluster, error) {
	c := &Cluster{o: o}
	if o.Net.TLS() {
		ca, err := NewAuthority(o.Dir)
		if err != nil {
			return nil, err
		}
		c.ca = ca
	}
	var members []*Member
	var founders []string
	for i := range o.Nodes {
		m, err := c.place(fmt.Sprintf("n%d", i+1))
		if err != nil {
			return nil, err
		}
		members, founders = append(members, m), append(founders, m.ID+"="+m.Site.Peer)
	}
	for _, m := range members {
		args := []string{"--shards", fmt.Sprint(o.Shards)}
		if o.Nodes > 1 {
			args = append(args, "--initial-cluster", strings.Join(founders, ","))
		}
		if err := c.equip(m, args...); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// place makes the site of a node.
func (c *Cluster) place(id string) (*Member, error) {
	s, err := c.o.Net.Site(id)
	if err != nil {
		return nil, err
	}
	return &Member{ID: id, Site: s, Dir: filepath.Join(c.o.Dir, id), Faults: NewFaults(s)}, nil
}

// equip makes the process of a node and the client that talks to it alone, and counts it among the members.
func (c *Cluster) equip(m *Member, args ...string) error {
	args = append([]string{
		"--node-id", m.ID, "--data-dir", m.Dir, "--grpc-addr", m.Site.GRPC, "--http-addr", m.Site.HTTP, "--peer-addr", m.Site.Peer,
		"--allow-private-destinations", "--log-level", "info", "--min-free-bytes", "201326592", "--cache-bytes", "33554432",
	}, args...)
	if c.ca != nil {
		cert, key, err := c.ca.Issue(m.ID, m.Site.Peer)
		if err != nil {
			return err
		}
		args = append(args, "--tls-cert", cert, "--tls-key", key, "--tls-ca", c.ca.CA())
	}
	log, err := os.OpenFile(filepath.Join(c.o.Dir, m.ID+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.logs = append(c.logs, log)
	c.mu.Unlock()
	env := append([]string{fault.Variable + "=" + m.Site.Faults}, c.o.Env...)
	p, err := NewProcessOf(Spec{
		Binary: c.o.Binary, Args: args, Env: env, GRPC: m.Site.GRPC, Dial: c.dial, Launch: m.Site.Launch, Log: log,
	})
	if err != nil {
		return err
	}
	m.Process = p
	m.static, err = client.Dial(m.Site.GRPC, client.Options{Static: true, RetryFor: 2 * time.Second, TryFor: time.Second, DialOptions: c.dialOptions()})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, m)
	return err
}

func (c *Cluster) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(c.dial), grpc.WithTransportCredentials(insecure.NewCredentials())}
}

// Client makes a client that knows every founder and learns the others.
func (c *Cluster) Client(o client.Options) (*client.Client, error) {
	var addresses []string
	for _, m := range c.Members() {
		addresses = append(addresses, m.Site.GRPC)
	}
	o.DialOptions = append(o.DialOptions, c.dialOptions()...)
	return client.Dial(strings.Join(addresses, ","), o)
}

// Members are the nodes that have not left, by id.
func (c *Cluster) Members() []*Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*Member
	for _, m := range c.all {
		if !m.Gone.Load() {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *Member) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Pick picks one of the members that run, nil if none does.
func (c *Cluster) Pick(random *rand.Rand) *Member {
	members := slices.DeleteFunc(c.Members(), func(m *Member) bool { return !m.Running() })
	if len(members) == 0 {
		return nil
	}
	return members[random.IntN(len(members))]
}

// Member is a node by id, nil for none.
func (c *Cluster) Member(id string) *Member {
	for _, m := range c.Members() {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// Start runs all founders at once, and waits until each answers and every shard has a leader.
func (c *Cluster) Start(ctx context.Context) error {
	for _, m := range c.Members() {
		if err := c.Launch(m); err != nil {
			return err
		}
	}
	return c.AwaitReady(ctx)
}

// Launch runs one node with nothing wrong, and watches for its end.
func (c *Cluster) Launch(m *Member) error {
	m.Faults.Forget()
	m.MayEnd.Store(false)
	if err := m.Process.Launch(); err != nil {
		return err
	}
	ended := m.Ended()
	go func() {
		<-ended
		if why := m.Why(); why != nil && !m.MayEnd.Load() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.dead = append(c.dead, fmt.Sprintf("%s ended by itself (%v), its last words:\n%s", m.ID, why, lastLines(m.Output(), 15)))
		}
	}()
	return nil
}

// Kill ends a node the hard way. Whatever was wrong with it ends with it.
func (c *Cluster) Kill(m *Member) error {
	m.MayEnd.Store(true)
	return m.Process.Kill()
}

// Terminate ends a node the soft way.
func (c *Cluster) Terminate(ctx context.Context, m *Member) error {
	m.MayEnd.Store(true)
	return m.Process.Terminate(ctx)
}

// Ends are the ends of processes that nothing explains.
func (c *Cluster) Ends() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.dead)
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return "    " + strings.Join(lines[max(0, len(lines)-n):], "\n    ")
}

// AwaitReady waits until every member answers and every shard has a leader in the eyes of all.
func (c *Cluster) AwaitReady(ctx context.Context) error {
	for _, m := range c.Members() {
		if err := m.Ready(ctx); err != nil {
			return fmt.Errorf("%s: %w\n%s", m.ID, err, lastLines(m.Output(), 20))
		}
	}
	return c.AwaitLeaders(ctx)
}

// AwaitLeaders waits until some node knows a leader for every shard.
func (c *Cluster) AwaitLeaders(ctx context.Context) error {
	for {
		missing := ""
		for s := range c.o.Shards {
			if c.Leader(ctx, s) == nil {
				missing = fmt.Sprintf("shard %d has no leader", s)
			}
		}
		if missing == "" {
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%s: %w", missing, ctx.Err())
		}
	}
}

// View asks every running member for the cluster, each within half a second. Those that do not answer are left out.
func (c *Cluster) View(ctx context.Context) []*sealanev1.Cluster {
	members := c.Members()
	out := make([]*sealanev1.Cluster, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		if !m.Running() {
			continue
		}
		wg.Go(func() {
			call, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			defer cancel()
			if r, err := m.Cluster().GetCluster(call, &sealanev1.GetClusterRequest{}); err == nil {
				out[i] = r.GetCluster()
			}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(out, func(v *sealanev1.Cluster) bool { return v == nil })
}

// Leader is the running member that leads a shard by the newest term anybody knows, nil where there is none.
func (c *Cluster) Leader(ctx context.Context, shard uint32) *Member {
	var leader string
	var term uint64
	for _, v := range c.View(ctx) {
		for _, s := range v.GetShards() {
			if s.GetNumber() == shard && s.GetTerm() >= term && s.GetLeader() != "" {
				leader, term = s.GetLeader(), s.GetTerm()
			}
		}
	}
	if m := c.Member(leader); m != nil && m.Running() {
		return m
	}
	return nil
}

// Close kills what runs.
func (c *Cluster) Close() error {
	c.mu.Lock()
	all, logs := slices.Clone(c.all), c.logs
	c.logs = nil
	c.mu.Unlock()
	var errs []error
	for _, m := range all {
		m.MayEnd.Store(true)
		errs = append(errs, m.Process.Close())
		if m.static != nil {
			errs = append(errs, m.static.Close())
		}
	}
	for _, l := range logs {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// positionIndex is the index of a position `shard:index`, 0 for none.
func positionIndex(position string) uint64 {
	_, index, _ := strings.Cut(position, ":")
	n, err := strconv.ParseUint(index, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// unfinished tells what a view's placement still lacks: every shard wants so many voters, and no replica on its way in or out.
func unfinished(v *sealanev1.Cluster, voters int) string {
	for _, s := range v.GetShards() {
		n := 0
		for _, p := range s.GetReplicas() {
			switch p.GetPlacement() {
			case "VOTER":
				n++
			case "ADDING", "REMOVING":
				return fmt.Sprintf("shard %d: %s is %s", s.GetNumber(), p.GetNodeId(), p.GetPlacement())
			}
		}
		if n != voters {
			return fmt.Sprintf("shard %d has %d voters, want %d", s.GetNumber(), n, voters)
		}
	}
	return ""
}
