package peer

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// PeerStatus is what this node knows of its connection with another. Counts are of this process and of both directions of streams: what
// this node asked and what it answered.
type PeerStatus struct {
	Node string
	// Peer is the process that was last heard, or zero.
	Peer Peer
	// Reachable: the control and the data stream to the node are open.
	Reachable bool
	// HeardAgo is how long ago its identity was last seen in a call or answer, or bytes came from it; -1 if never.
	HeardAgo time.Duration
	// What waits to be sent.
	ControlFrames, DataFrames, DataBytes int
	// What was sent and received: frames, the gRPC messages that they were packed into, and the bytes of those.
	FramesSent, MessagesSent, BytesSent             uint64
	FramesReceived, MessagesReceived, BytesReceived uint64
	// QueueFull counts frames refused because too much waited to be sent, InboxFull requests refused because their group did not keep up.
	QueueFull, InboxFull uint64
	// TimedOut counts calls without an answer in time, Late the answers that came after.
	TimedOut, Late uint64
	// Intercepted counts frames that a simulation dropped.
	Intercepted uint64
	// LastError is the last reason why the connection ended or could not be made. It stays after the node is back.
	LastError string
}

// counters are kept for each node.
type counters struct {
	framesSent, messagesSent, bytesSent             atomic.Uint64
	framesReceived, messagesReceived, bytesReceived atomic.Uint64
	queueFull, inboxFull, timedOut, late            atomic.Uint64
	intercepted                                     atomic.Uint64

	mu      sync.Mutex
	peer    Peer
	heardAt time.Duration
	known   bool
	err     error
}

func (c *counters) sent(frames, bytes int) {
	c.framesSent.Add(uint64(frames))
	c.messagesSent.Add(1)
	c.bytesSent.Add(uint64(bytes))
}

func (c *counters) received(frames, bytes int) {
	c.framesReceived.Add(uint64(frames))
	c.messagesReceived.Add(1)
	c.bytesReceived.Add(uint64(bytes))
}

func (c *counters) heard(p Peer, at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peer, c.heardAt, c.known = p, at, true
}

// failed keeps an error and tells whether its text is new.
func (c *counters) failed(err error) bool {
	if err == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := c.err == nil || c.err.Error() != err.Error()
	c.err = err
	return fresh
}

// errNoneYet stands for a connection that has neither come about nor failed so far.
type errNoneYet struct{}

func (errNoneYet) Error() string { return "still connecting" }

func (c *counters) lastError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return errNoneYet{}
	}
	return c.err
}

// countersOf gives the counters of a node. Beyond maxPeers nodes they are counted nowhere.
func (n *Network) countersOf(node string) *counters {
	n.mu.RLock()
	c := n.counters[node]
	n.mu.RUnlock()
	if c != nil {
		return c
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if c = n.counters[node]; c == nil {
		c = &counters{}
		if len(n.counters) < maxPeers && node != AnyNode {
			n.counters[node] = c
		}
	}
	return c
}

// Status tells of every node that this one has a connection to or was called by, in the order of their ids.
func (n *Network) Status() []PeerStatus {
	n.mu.RLock()
	defer n.mu.RUnlock()
	out := make([]PeerStatus, 0, len(n.counters))
	for node, c := range n.counters {
		out = append(out, c.status(node, n.links[node], n.now()))
	}
	slices.SortFunc(out, func(a, b PeerStatus) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

func (c *counters) status(node string, l *link, now time.Duration) PeerStatus {
	s := PeerStatus{
		Node: node, HeardAgo: -1,
		FramesSent: c.framesSent.Load(), MessagesSent: c.messagesSent.Load(), BytesSent: c.bytesSent.Load(),
		FramesReceived: c.framesReceived.Load(), MessagesReceived: c.messagesReceived.Load(), BytesReceived: c.bytesReceived.Load(),
		QueueFull: c.queueFull.Load(), InboxFull: c.inboxFull.Load(), TimedOut: c.timedOut.Load(), Late: c.late.Load(),
		Intercepted: c.intercepted.Load(),
	}
	c.mu.Lock()
	heardAt := c.heardAt
	s.Peer = c.peer
	if c.err != nil {
		s.LastError = c.err.Error()
	}
	if c.known {
		s.HeardAgo = now - heardAt
	}
	c.mu.Unlock()
	if l == nil || l.control == nil {
		return s
	}
	control, data := l.control.current(), l.data.current()
	s.Reachable = control != nil && data != nil
	if control != nil {
		s.ControlFrames, _ = control.out.size()
		s.HeardAgo = min(s.HeardAgo, now-time.Duration(l.read.Load()))
	}
	if data != nil {
		s.DataFrames, s.DataBytes = data.out.size()
	}
	return s
}
