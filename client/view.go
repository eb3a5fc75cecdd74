package client

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// How often the cluster is asked for its nodes and leaders, while calls are made. A random part of up to a quarter is added, and of up to the
// whole after a sign of change, so that the clients of a cluster in trouble do not all ask at once.
const (
	refreshEvery  = 5 * time.Second
	refreshAlone  = 30 * time.Second // a cluster of one node
	refreshSoon   = time.Second      // after a sign that what is known is old
	refreshWithin = 3 * time.Second
	// refreshRefused is the pause where the caller may not read the cluster, or the node has no such call: hints are then done without.
	refreshRefused = 5 * time.Minute
)

// maxHints bounds what is remembered about destinations.
const maxHints = 4096

// view is what the client believes about shards and leaders. All of it may be wrong: every node forwards what belongs elsewhere, so a wrong
// belief costs a hop and nothing else.
type view struct {
	mu      sync.RWMutex
	leaders map[uint32]leader // by shard
	shards  map[string]hint   // by destination, or destination and ordering key

	due     atomic.Int64 // when the next refresh may begin, Unix nanoseconds; 0: at once
	running atomic.Bool
}

type leader struct {
	node string
	term uint64
	at   time.Time
}

// hint is where messages of a destination went. several: into different shards, so the destination has more than one lane.
type hint struct {
	shard   uint32
	several bool
}

func newView() *view { return &view{leaders: map[uint32]leader{}, shards: map[string]hint{}} }

func keyed(destination, orderingKey string) string { return destination + "\x00" + orderingKey }

// leaderFor is the node that probably leads the shard of a message; empty where nothing is known.
func (v *view) leaderFor(destination, orderingKey string) string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	h, ok := v.shards[destination]
	if ok && h.several {
		// The lane of a message without an ordering key is drawn by its key or id; only with one does the past tell the future.
		if h, ok = v.shards[keyed(destination, orderingKey)]; orderingKey == "" {
			ok = false
		}
	}
	if !ok {
		return ""
	}
	return v.leaders[h.shard].node
}

// leaderAt is the node that probably leads the shard of a position; empty where nothing is known.
func (v *view) leaderAt(position string) string {
	shard, ok := shardOf(position)
	if !ok {
		return ""
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.leaders[shard].node
}

// shardOf reads the shard of `shard:index`.
func shardOf(position string) (uint32, bool) {
	text, _, ok := strings.Cut(position, ":")
	n, err := strconv.ParseUint(text, 10, 16)
	return uint32(n), ok && err == nil
}

// learn notes where a message went.
func (v *view) learn(destination, orderingKey, position string) {
	shard, ok := shardOf(position)
	if !ok {
		return
	}
	v.mu.RLock()
	h, known := v.shards[destination]
	k, keyKnown := v.shards[keyed(destination, orderingKey)]
	v.mu.RUnlock()
	several := known && (h.several || h.shard != shard)
	remember := several && orderingKey != "" && !(keyKnown && k.shard == shard)
	if known && h.several == several && !remember {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.putLocked(destination, hint{shard, several})
	if remember {
		v.putLocked(keyed(destination, orderingKey), hint{shard: shard})
	}
}

func (v *view) putLocked(key string, h hint) {
	if _, known := v.shards[key]; !known && len(v.shards) >= maxHints {
		drop := maxHints / 4 // whichever come first: what is forgotten in vain is learned again
		for k := range v.shards {
			delete(v.shards, k)
			if drop--; drop == 0 {
				break
			}
		}
	}
	v.shards[key] = h
}

// adopt takes the leaders that a node named. Where an older term was named than is known, and what is known is not old, it stays: a node
// that lags would otherwise undo what was learned from another.
func (v *view) adopt(shards []*sealanev1.Shard) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	for _, s := range shards {
		known := v.leaders[s.GetNumber()]
		if s.GetTerm() < known.term && now.Sub(known.at) < 2*refreshEvery {
			continue
		}
		v.leaders[s.GetNumber()] = leader{s.GetLeader(), s.GetTerm(), now}
	}
}

// refreshDue asks the cluster in the background if it is time.
func (c *Client) refreshDue() {
	if now := time.Now().UnixNano(); now >= c.view.due.Load() && c.view.running.CompareAndSwap(false, true) {
		c.refreshInBackground()
	}
}

// refreshSoon asks it in a moment: there was a sign that what is known is old.
func (c *Client) refreshSoon() {
	due := c.view.due.Load()
	soon := time.Now().Add(refreshSoon + rand.N(refreshSoon)).UnixNano()
	if due > soon && due-soon < int64(refreshAlone) {
		c.view.due.CompareAndSwap(due, soon)
	}
	c.refreshDue()
}

func (c *Client) refreshInBackground() {
	c.inBackground(func() {
		defer c.view.running.Store(false)
		ctx, cancel := context.WithTimeout(c.ctx, refreshWithin)
		defer cancel()
		next := c.refresh(ctx)
		c.view.due.Store(time.Now().Add(next + rand.N(next/4)).UnixNano())
	})
}

// refresh asks one node for the cluster, and every node of which the id is not known for that. It returns when to ask again.
func (c *Client) refresh(ctx context.Context) time.Duration {
	e, err := c.nodes.acquire(ctx, "", nil)
	if err != nil {
		return refreshSoon
	}
	found, err := c.ask(ctx, e)
	if err != nil {
		if refused, ok := AsError(err); ok && (refused.hopeless() || refused.Code == codes.NotFound) {
			return refreshRefused
		}
		return refreshSoon
	}
	c.view.adopt(found.GetShards())
	c.nodes.learn(e, found.GetNodes())
	for _, e := range c.nodes.nameless() {
		if err := e.link.connect(ctx); err != nil {
			c.nodes.used(e, err)
			continue
		}
		_, _ = c.ask(ctx, e) // a failure is noted against the node, which is asked again with the next refresh
	}
	if len(found.GetNodes()) <= 1 {
		return refreshAlone
	}
	return refreshEvery
}

// ask reads the cluster from one node and learns which node that is.
func (c *Client) ask(ctx context.Context, e *endpoint) (*sealanev1.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, refreshWithin/2)
	defer cancel()
	resp, err := sealanev1.NewClusterServiceClient(e.link).GetCluster(ctx, &sealanev1.GetClusterRequest{})
	c.nodes.used(e, err)
	if err != nil {
		return nil, err
	}
	c.nodes.name(e, resp.GetCluster().GetAnsweredBy())
	return resp.GetCluster(), nil
}
