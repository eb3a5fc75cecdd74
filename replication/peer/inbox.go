package peer

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// request is one that waits for the Raft of its group.
type request struct {
	command any
	frame   frame // its body is what command points into
	in      *incoming
}

// inbox is the bounded queue in front of a group's Raft.
type inbox struct {
	wake chan struct{} // holds one

	mu       sync.Mutex
	requests []request
	bytes    int
	closed   bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// push adds a request and never waits; false: it does not fit, or the group is closed.
func (q *inbox) push(r request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := len(r.frame.body)
	if q.closed || len(q.requests) > 0 && (len(q.requests) >= maxInboxFrames || q.bytes+size > maxInboxBytes) {
		return false
	}
	q.requests = append(q.requests, r)
	q.bytes += size
	signal(q.wake)
	return true
}

func (q *inbox) pop() (request, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.requests) == 0 {
		return request{}, false
	}
	r := q.requests[0]
	q.requests[0] = request{}
	q.requests = q.requests[1:]
	q.bytes -= len(r.frame.body)
	return r, true
}

// close gives what waited and refuses what comes.
func (q *inbox) close() []request {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.requests
	q.requests, q.bytes, q.closed = nil, 0, true
	return left
}

// deliver hands requests to Raft one after the other, in their order, as Raft's main loop takes them anyway.
func (t *Transport) deliver() {
	defer close(t.delivered)
	for {
		select {
		case <-t.inbox.wake:
		case <-t.closing:
			for _, r := range t.inbox.close() {
				r.in.refuse(r.frame, codeClosed, "")
			}
			return
		}
		for {
			r, ok := t.inbox.pop()
			if !ok {
				break
			}
			t.hand(r)
		}
	}
}

// hand gives one request to Raft and passes its answer on. Raft answers everything it takes, soon unless its disk is slow. If it does not, the
// group goes on without: the channel has room for the late answer, which is lost.
func (t *Transport) hand(r request) {
	answers := make(chan raft.RPCResponse, 1)
	select {
	case t.consumer <- raft.RPC{Command: r.command, RespChan: answers}:
	case <-t.closing:
		r.in.refuse(r.frame, codeClosed, "")
		return
	}
	patience := time.NewTimer(answerPatience)
	defer patience.Stop()
	select {
	case answer := <-answers:
		r.in.answer(r.frame, appendAnswer(nil, answer), ClassAnswer)
	case <-patience.C:
		r.in.refuse(r.frame, codeBusy, "")
	case <-t.closing:
		r.in.refuse(r.frame, codeClosed, "")
	}
}
