package replication

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// hookedTransport lets a test look at, delay and fail single messages, and can make TimeoutNow, the message of a transfer, wait until released.
type hookedTransport struct {
	*raft.InmemTransport
	hang      atomic.Bool
	release   chan struct{}
	hanging   atomic.Int64
	delayed   chan raft.RPC // see delayIncoming
	stopDelay chan struct{}
	// hook, if set, sees every call except pipelined appends. call sends it and waits for the answer.
	hook atomic.Pointer[func(kind string, to raft.ServerID, call func() error) error]
}

func newHookedTransport(id string) *hookedTransport {
	_, inner := raft.NewInmemTransport(raft.ServerAddress(id))
	return &hookedTransport{InmemTransport: inner, release: make(chan struct{})}
}

func (h *hookedTransport) setHook(hook func(kind string, to raft.ServerID, call func() error) error) {
	h.hook.Store(&hook)
}

func (h *hookedTransport) through(kind string, to raft.ServerID, call func() error) error {
	if hook := h.hook.Load(); hook != nil {
		return (*hook)(kind, to, call)
	}
	return call()
}

func (h *hookedTransport) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	if h.hook.Load() != nil {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	return h.InmemTransport.AppendEntriesPipeline(id, to)
}

func (h *hookedTransport) AppendEntries(id raft.ServerID, to raft.ServerAddress, in *raft.AppendEntriesRequest, out *raft.AppendEntriesResponse) error {
	return h.through("append", id, func() error { return h.InmemTransport.AppendEntries(id, to, in, out) })
}

func (h *hookedTransport) RequestVote(id raft.ServerID, to raft.ServerAddress, in *raft.RequestVoteRequest, out *raft.RequestVoteResponse) error {
	return h.through("vote", id, func() error { return h.InmemTransport.RequestVote(id, to, in, out) })
}

func (h *hookedTransport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, in *raft.RequestPreVoteRequest, out *raft.RequestPreVoteResponse) error {
	return h.through("prevote", id, func() error { return h.InmemTransport.RequestPreVote(id, to, in, out) })
}

func (h *hookedTransport) TimeoutNow(id raft.ServerID, to raft.ServerAddress, in *raft.TimeoutNowRequest, out *raft.TimeoutNowResponse) error {
	if h.hang.Load() {
		h.hanging.Add(1)
		<-h.release
		return errors.New("released without an answer")
	}
	return h.through("transfer", id, func() error { return h.InmemTransport.TimeoutNow(id, to, in, out) })
}

// delayIncoming makes every call to this replica arrive so much later, in order, and its answer take so long back.
func (h *hookedTransport) delayIncoming(by, back time.Duration) {
	delayed := make(chan raft.RPC, 1024)
	h.delayed, h.stopDelay = delayed, make(chan struct{})
	type stamped struct {
		rpc raft.RPC
		at  time.Time
	}
	line := make(chan stamped, 1024)
	go func() {
		for {
			select {
			case rpc := <-h.InmemTransport.Consumer():
				line <- stamped{rpc, time.Now().Add(by)}
			case <-h.stopDelay:
				return
			}
		}
	}()
	go func() {
		for {
			select {
			case s := <-line:
				h.pause(time.Until(s.at))
				delayed <- h.answeredLate(s.rpc, back)
			case <-h.stopDelay:
				return
			}
		}
	}()
}

// pause is false if the delay was ended by the end of the test, when time no longer passes.
func (h *hookedTransport) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-h.stopDelay:
		return false
	}
}

func (h *hookedTransport) answeredLate(rpc raft.RPC, back time.Duration) raft.RPC {
	answer, asker := make(chan raft.RPCResponse, 1), rpc.RespChan
	rpc.RespChan = answer
	go func() {
		select {
		case r := <-answer:
			if h.pause(back) {
				select {
				case asker <- r:
				case <-h.stopDelay:
				}
			}
		case <-h.stopDelay:
		}
	}()
	return rpc
}

// Consumer gives the delayed calls, if they are.
func (h *hookedTransport) Consumer() <-chan raft.RPC {
	if h.delayed != nil {
		return h.delayed
	}
	return h.InmemTransport.Consumer()
}
