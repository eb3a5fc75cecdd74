package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

// trio is a cluster in this process, over the production transport on loopback, each node with a disk of its own in memory.
type trio struct {
	t     *testing.T
	cfg   map[string]Config
	disks map[string]*vfs.MemFS
	mu    sync.Mutex
	nodes map[string]*Node
}

// freePort finds a port that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (c *trio) config(id string) Config {
	cfg := DefaultConfig()
	cfg.NodeID, cfg.InMemory, cfg.AllowLoopbackDestinations, cfg.DrainTimeout, cfg.CacheBytes = id, true, true, 5*time.Second, 8<<20
	cfg.GRPCAddr, cfg.HTTPAddr, cfg.PeerAddr, cfg.MinFreeBytes = "127.0.0.1:0", "127.0.0.1:0", freePort(c.t), 0
	return cfg
}

// startCluster founds a cluster of so many nodes.
func startCluster(t *testing.T, size int) *trio {
	t.Helper()
	c := &trio{t: t, cfg: map[string]Config{}, disks: map[string]*vfs.MemFS{}, nodes: map[string]*Node{}}
	var initial []string
	for i := range size {
		id := fmt.Sprintf("n%d", i+1)
		cfg := c.config(id)
		cfg.Shards = 4
		c.cfg[id] = cfg
		initial = append(initial, id+"="+cfg.PeerAddr)
	}
	var wg sync.WaitGroup
	for id, cfg := range c.cfg {
		if size > 1 {
			cfg.InitialCluster = initial
		}
		c.cfg[id] = cfg
		wg.Go(func() { c.start(id) })
	}
	wg.Wait()
	t.Cleanup(c.stopAll)
	if t.Failed() {
		t.FailNow()
	}
	return c
}

func testLog(id string) *slog.Logger {
	if os.Getenv("SEALANE_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", id)
}

func (c *trio) start(id string) *Node {
	c.mu.Lock()
	cfg := c.cfg[id]
	disk := c.disks[id]
	if disk == nil {
		disk = vfs.NewMem()
		c.disks[id] = disk
	}
	c.mu.Unlock()
	cfg.Seams.FS = disk
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := Open(ctx, cfg, testLog(id))
	if err != nil {
		c.t.Errorf("open %s: %v", id, err)
		return nil
	}
	c.mu.Lock()
	c.nodes[id] = n
	c.mu.Unlock()
	return n
}

func (c *trio) stop(id string) {
	c.mu.Lock()
	n := c.nodes[id]
	delete(c.nodes, id)
	c.mu.Unlock()
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		c.t.Errorf("close %s: %v", id, err)
	}
}

func (c *trio) stopAll() {
	var wg sync.WaitGroup
	for id := range c.cfg {
		wg.Go(func() { c.stop(id) })
	}
	wg.Wait()
}

func (c *trio) conn(id string) *grpc.ClientConn {
	c.t.Helper()
	conn, err := grpc.NewClient(c.nodes[id].GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	return conn
}

func TestClusterDelivers(t *testing.T) {
	recv := newReceiver(t)
	c := startCluster(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	// Applied through one node, submitted through every other, read on a third.
	_, err := sealanev1.NewDestinationServiceClient(c.conn("n1")).ApplyDestination(ctx, &sealanev1.ApplyDestinationRequest{
		Destination: &sealanev1.Destination{Name: "hook", Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: recv.URL + "/ok"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var answers []*sealanev1.SubmitResponse
	for _, id := range []string{"n1", "n2", "n3"} {
		for i := range 20 {
			out, err := sealanev1.NewDeliveryServiceClient(c.conn(id)).Submit(ctx, &sealanev1.SubmitRequest{
				Destination: "hook", Payload: []byte(fmt.Sprintf("%s-%d", id, i)), IdempotencyKey: fmt.Sprintf("%s-%d", id, i),
			})
			if err != nil {
				t.Fatalf("submit through %s: %v", id, err)
			}
			answers = append(answers, out)
		}
	}
	query := sealanev1.NewQueryServiceClient(c.conn("n3"))
	for _, a := range answers {
		for {
			out, err := query.GetMessage(ctx, &sealanev1.GetMessageRequest{Id: a.MessageId, Position: a.Position, Consistency: sealanev1.Consistency_position})
			if err != nil {
				t.Fatal(err)
			}
			if out.GetMessage().GetState() == sealanev1.GenerationState_DELIVERED {
				break
			}
			if err := pause(ctx, 10*time.Millisecond); err != nil {
				t.Fatalf("%s is %s", a.MessageId, out.GetMessage().GetState())
			}
		}
	}
	if got := len(recv.requests()); got != len(answers) {
		t.Errorf("the receiver saw %d requests for %d messages", got, len(answers))
	}

	for id := range c.nodes {
		text := c.metrics(ctx, id)
		for _, want := range []string{"sealane_scrape_errors 0\n", `sealane_nodes{state="active"} 3`, "sealane_peer_bytes_sent_total{peer="} {
			if !strings.Contains(text, want) {
				t.Errorf("the metrics of %s lack %q", id, want)
			}
		}
	}
	if sum := c.sum(ctx, "sealane_shard_leading{"); sum != 4 {
		t.Errorf("%v shards are led, as the nodes' metrics say, want 4", sum)
	}
}

// metrics reads a node's metrics.
func (c *trio) metrics(ctx context.Context, id string) string {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.nodes[id].HTTPAddr()+"/metrics", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(body)
}

// sum adds a series up over its labels and all nodes.
func (c *trio) sum(ctx context.Context, series string) (sum float64) {
	c.t.Helper()
	for id := range c.nodes {
		for line := range strings.Lines(c.metrics(ctx, id)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, series) {
				v, err := strconv.ParseFloat(value, 64)
				if err != nil {
					c.t.Fatalf("%q: %v", line, err)
				}
				sum += v
			}
		}
	}
	return sum
}

// apply registers a destination through a node.
func (c *trio) apply(ctx context.Context, id, name, url string) {
	c.t.Helper()
	_, err := sealanev1.NewDestinationServiceClient(c.conn(id)).ApplyDestination(ctx, &sealanev1.ApplyDestinationRequest{
		Destination: &sealanev1.Destination{Name: name, Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: url}}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// status reads the cluster as a node sees it.
func (c *trio) status(ctx context.Context, id string) *sealanev1.Cluster {
	c.t.Helper()
	out, err := sealanev1.NewClusterServiceClient(c.conn(id)).GetCluster(ctx, &sealanev1.GetClusterRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	return out.GetCluster()
}

// until waits for a condition on the cluster as a node sees it.
func (c *trio) until(ctx context.Context, id, what string, ok func(*sealanev1.Cluster) bool) {
	c.t.Helper()
	for {
		now := c.status(ctx, id)
		if ok(now) {
			return
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			c.t.Fatalf("waiting until %s: %v", what, now)
		}
	}
}

// replicated tells whether every shard has so many voters and a leader, and every voter is up to date within a few entries.
func replicated(voters int) func(*sealanev1.Cluster) bool {
	return func(now *sealanev1.Cluster) bool {
		for _, sh := range append(now.GetShards(), now.GetControlGroup()) {
			if !sh.GetAvailable() {
				return false
			}
			count := 0
			for _, r := range sh.GetReplicas() {
				if r.GetPlacement() == "VOTER" && (r.GetRole() == sealanev1.ReplicaRole_LEADER || r.GetRole() == sealanev1.ReplicaRole_FOLLOWER) {
					count++
				}
			}
			if count != voters {
				return false
			}
		}
		return true
	}
}

// join starts a node that joins through another.
func (c *trio) join(id, through string) {
	cfg := c.config(id)
	cfg.Join = c.cfg[through].PeerAddr
	c.mu.Lock()
	c.cfg[id] = cfg
	c.mu.Unlock()
	c.start(id)
}

func TestClusterGrows(t *testing.T) {
	recv := newReceiver(t)
	c := startCluster(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	c.apply(ctx, "n1", "hook", recv.URL+"/ok")
	submit := func(id, key string) {
		t.Helper()
		_, err := sealanev1.NewDeliveryServiceClient(c.conn(id)).Submit(ctx, &sealanev1.SubmitRequest{Destination: "hook", IdempotencyKey: key})
		if err != nil {
			t.Fatalf("submit %s through %s: %v", key, id, err)
		}
	}
	submit("n1", "alone")
	c.join("n2", "n1")
	submit("n2", "two")
	c.join("n3", "n1")
	submit("n3", "three")
	c.until(ctx, "n3", "every shard has three voters", replicated(3))
	c.until(ctx, "n1", "leaders are spread", func(now *sealanev1.Cluster) bool {
		for _, n := range now.GetNodes() {
			if n.GetLeading() == 0 || n.GetLeading() > 2 {
				return false
			}
		}
		return true
	})
	// The first node goes; what it had is there, and goes on.
	c.stop("n1")
	submit("n2", "after")
	submit("n3", "after too")
	c.until(ctx, "n2", "every shard is available", func(now *sealanev1.Cluster) bool {
		for _, sh := range now.GetShards() {
			if !sh.GetAvailable() {
				return false
			}
		}
		return true
	})
}

// A leadership moves while requests are in flight: their outcomes are handed to the new leader, nothing is sent twice and nothing becomes UNKNOWN.
func TestTransferHandsOutcomesOver(t *testing.T) {
	release := make(chan struct{})
	var once sync.Once
	let := func() { once.Do(func() { close(release) }) }
	defer let()
	var mu sync.Mutex
	seen := map[string]int{}
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		seen[req.Header.Get("Webhook-Id")]++
		mu.Unlock()
		<-release
	}))
	defer slow.Close()
	c := startCluster(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c.apply(ctx, "n1", "slow", slow.URL)
	const messages = 8
	var ids []string
	for i := range messages {
		out, err := sealanev1.NewDeliveryServiceClient(c.conn("n2")).Submit(ctx, &sealanev1.SubmitRequest{Destination: "slow", IdempotencyKey: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, out.GetMessageId())
	}
	for {
		mu.Lock()
		n := len(seen)
		mu.Unlock()
		if n == messages {
			break
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			t.Fatalf("%d requests are in flight, want %d", n, messages)
		}
	}
	leader := ""
	for _, n := range c.nodes {
		for r := range n.replicas() {
			if r.leading() && r.shard == n.shardOfSlot("default", "slow", 0).shard {
				leader = n.cfg.NodeID
				if err := r.group.TransferLeadership(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	let()
	began := time.Now()
	defer func() { t.Logf("settled %s after the receiver answered", time.Since(began)) }()
	query := sealanev1.NewQueryServiceClient(c.conn(leader))
	for _, id := range ids {
		for {
			out, err := query.GetMessage(ctx, &sealanev1.GetMessageRequest{Id: id, Consistency: sealanev1.Consistency_linearizable})
			if err != nil {
				t.Fatal(err)
			}
			m := out.GetMessage()
			if m.GetState() == sealanev1.GenerationState_DELIVERED {
				if n := len(m.GetGenerations()[0].GetAttempts()); n != 1 {
					t.Errorf("%s has %d attempts, want 1", id, n)
				}
				break
			}
			if m.GetState() == sealanev1.GenerationState_UNCERTAIN {
				t.Fatalf("%s became UNCERTAIN by a transfer: %v", id, m)
			}
			if err := pause(ctx, 10*time.Millisecond); err != nil {
				t.Fatalf("%s is %s", id, m.GetState())
			}
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was requested %d times", id, n)
		}
	}
}

// With more nodes than replicas every node still takes every call.
func TestNodesWithoutReplicas(t *testing.T) {
	recv := newReceiver(t)
	c := startCluster(t, 5)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	c.apply(ctx, "n4", "hook", recv.URL+"/ok")
	c.apply(ctx, "n5", "dead", recv.URL+"/refuse")
	without := 0
	for id := range c.nodes {
		n := c.nodes[id]
		r := n.shardOfSlot(defaultNamespace, "hook", 0)
		if r.replica.Load() == nil {
			without++
		}
		conn := c.conn(id)
		out, err := sealanev1.NewDeliveryServiceClient(conn).Submit(ctx, &sealanev1.SubmitRequest{
			Destination: "hook", IdempotencyKey: id, Payload: []byte("from " + id),
		})
		if err != nil {
			t.Fatalf("submit through %s: %v", id, err)
		}
		dead, err := sealanev1.NewDeliveryServiceClient(conn).Submit(ctx, &sealanev1.SubmitRequest{Destination: "dead", IdempotencyKey: id})
		if err != nil {
			t.Fatalf("submit through %s: %v", id, err)
		}
		c.delivered(ctx, id, out.GetMessageId())
		c.deadLettered(ctx, id, dead.GetMessageId())
		query := sealanev1.NewQueryServiceClient(conn)
		got, err := query.GetMessage(ctx, &sealanev1.GetMessageRequest{Id: out.GetMessageId(), Position: out.GetPosition(), IncludePayload: true})
		if err != nil || string(got.GetMessage().GetPayload()) != "from "+id {
			t.Errorf("read through %s: %v, %v", id, got, err)
		}
		lane, err := query.GetLane(ctx, &sealanev1.GetLaneRequest{Destination: "hook"})
		if err != nil || lane.GetLane().GetReadiness() == sealanev1.Readiness_READINESS_UNSPECIFIED {
			t.Errorf("lane through %s: %v, %v", id, lane, err)
		}
		list, err := query.ListDeadLetters(ctx, &sealanev1.ListDeadLettersRequest{Consistency: sealanev1.Consistency_linearizable})
		if err != nil || len(list.GetDeadLetters()) == 0 {
			t.Errorf("dead letters through %s: %v, %v", id, list, err)
		}
		wait, err := query.WaitPosition(ctx, &sealanev1.WaitPositionRequest{Position: dead.GetPosition()})
		if err != nil || wait.GetRead().GetStatus() != sealanev1.ReadStatus_ANSWERED {
			t.Errorf("wait through %s: %v, %v", id, wait, err)
		}
		if _, err := sealanev1.NewControlServiceClient(conn).CreateOperation(ctx, &sealanev1.CreateOperationRequest{
			OperationId: "pause-" + id, Reason: "test", Parameters: &sealanev1.CreateOperationRequest_PauseLane{PauseLane: &sealanev1.PauseLane{Destination: "dead"}},
		}); err != nil {
			t.Errorf("pause through %s: %v", id, err)
		}
		if _, err := sealanev1.NewControlServiceClient(conn).CreateOperation(ctx, &sealanev1.CreateOperationRequest{
			OperationId: "resume-" + id, Reason: "test", Parameters: &sealanev1.CreateOperationRequest_ResumeLane{ResumeLane: &sealanev1.ResumeLane{Destination: "dead"}},
		}); err != nil {
			t.Errorf("resume through %s: %v", id, err)
		}
	}
	if without != 2 {
		t.Errorf("%d of 5 nodes have no replica of a shard, want 2", without)
	}
}

// delivered watches a message through a node until it is delivered.
func (c *trio) delivered(ctx context.Context, id, message string) {
	c.t.Helper()
	c.ends(ctx, id, message, sealanev1.GenerationState_DELIVERED)
}

func (c *trio) deadLettered(ctx context.Context, id, message string) {
	c.t.Helper()
	c.ends(ctx, id, message, sealanev1.GenerationState_DEAD_LETTERED)
}

func (c *trio) ends(ctx context.Context, id, message string, want sealanev1.GenerationState_Value) {
	c.t.Helper()
	stream, err := sealanev1.NewQueryServiceClient(c.conn(id)).WatchMessage(ctx, &sealanev1.WatchMessageRequest{Id: message})
	if err != nil {
		c.t.Fatal(err)
	}
	var last sealanev1.GenerationState_Value
	for {
		out, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			c.t.Fatalf("watch %s through %s, last seen %s: %v", message, id, last, err)
		}
		last = out.GetMessage().GetState()
	}
	if last != want {
		c.t.Errorf("%s ended as %s, want %s", message, last, want)
	}
}

// A rolling restart of all nodes under load: no call of the client fails, nothing becomes UNKNOWN, every message arrives once.
func TestRollingRestart(t *testing.T) {
	recv := newReceiver(t)
	c := startCluster(t, 3)
	for id, n := range c.nodes { // the same address after a restart
		cfg := c.cfg[id]
		cfg.GRPCAddr, cfg.HTTPAddr = n.GRPCAddr(), n.HTTPAddr()
		c.cfg[id] = cfg
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	for i := range 4 {
		c.apply(ctx, "n1", fmt.Sprintf("hook-%d", i), recv.URL+"/ok")
	}
	cl, err := client.Dial(c.cfg["n1"].GRPCAddr+","+c.cfg["n2"].GRPCAddr+","+c.cfg["n3"].GRPCAddr, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()

	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	accepted := map[string]string{} // message to payload
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				payload := fmt.Sprintf("%d-%d", w, i)
				a, err := cl.Submit(ctx, client.Message{Destination: fmt.Sprintf("hook-%d", w), Payload: []byte(payload)})
				if err != nil {
					t.Errorf("submit %s: %v", payload, err)
					return
				}
				mu.Lock()
				accepted[a.MessageID] = payload
				mu.Unlock()
			}
		})
	}
	for _, id := range []string{"n1", "n2", "n3"} {
		c.stop(id)
		if c.start(id) == nil {
			break
		}
	}
	close(stop)
	wg.Wait()
	t.Logf("%d messages accepted during the restarts", len(accepted))
	for id := range accepted {
		c.delivered(ctx, "n2", id)
	}
	times := map[string]int{}
	for _, r := range recv.requests() {
		times[string(r.body)]++
	}
	for _, payload := range accepted {
		if times[payload] != 1 {
			t.Errorf("%s arrived %d times", payload, times[payload])
		}
	}
}
