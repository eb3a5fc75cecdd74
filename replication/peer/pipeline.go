package peer

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// pipeline keeps up to pipelineDepth appends to one replica under way. Raft takes it in place of single calls once those succeed, and drops
// it at the first failure. It never holds up the goroutine that receives answers, and AppendEntries returns when the pipeline is closed or its
// time is over, so that a follower cannot be forgotten (hashicorp/raft 612).
type pipeline struct {
	t       *Transport
	s       *session
	to      string
	out     chan raft.AppendFuture
	results chan *appendFuture // room for all under way, so that a result never waits
	places  chan struct{}
	closed  chan struct{}
	once    sync.Once
}

// AppendEntriesPipeline begins a pipeline. It lasts at most as long as the connection.
func (t *Transport) AppendEntriesPipeline(_ raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	l, err := t.linkTo(to)
	if err != nil {
		return nil, err
	}
	s, err := t.reach(l, ClassAppend)
	if err != nil {
		return nil, err
	}
	p := &pipeline{
		t: t, s: s, to: string(to), out: make(chan raft.AppendFuture), results: make(chan *appendFuture, pipelineDepth),
		places: make(chan struct{}, pipelineDepth), closed: make(chan struct{}),
	}
	go p.pass()
	return p, nil
}

// pass hands results to Raft, which may be slow to take them or never do, and frees the place of each one taken.
func (p *pipeline) pass() {
	for {
		select {
		case f := <-p.results:
			select {
			case p.out <- f:
				<-p.places
			case <-p.closed:
				return
			case <-p.t.closing:
				return
			}
		case <-p.closed:
			return
		case <-p.t.closing:
			return
		}
	}
}

// AppendEntries sends an append, cut as Transport.AppendEntries cuts. It waits for a place for at most appendTimeout.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, answer *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	select {
	case <-p.closed:
		return nil, raft.ErrPipelineShutdown
	default:
	}
	timer := time.NewTimer(appendTimeout)
	defer timer.Stop()
	select {
	case p.places <- struct{}{}:
	case <-p.closed:
		return nil, raft.ErrPipelineShutdown
	case <-p.t.closing:
		return nil, ErrClosed
	case <-p.s.done:
		return nil, ErrUnreachable
	case <-timer.C:
		return nil, ErrTimeout
	}
	b, urgent := p.t.encodeAppend(args)
	f := &appendFuture{started: time.Now(), args: args, answer: answer, ended: make(chan struct{})}
	after := func(err error) {
		f.finish(err)
		p.results <- f
	}
	if _, err := p.s.begin(b, frame{kind: kindAppend, urgent: urgent, group: p.t.group}, ClassAppend, p.to, answer, after); err != nil {
		<-p.places
		return nil, err
	}
	return f, nil
}

// Consumer gives the futures that have ended.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.out }

// Close drops what is under way; its futures fail or succeed as their answers come, but Raft is not told of them.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// appendFuture is one append of a pipeline.
type appendFuture struct {
	started time.Time
	args    *raft.AppendEntriesRequest
	answer  *raft.AppendEntriesResponse
	err     error
	ended   chan struct{}
}

func (f *appendFuture) finish(err error) {
	f.err = err
	close(f.ended)
}

// Error waits for the end and gives its error.
func (f *appendFuture) Error() error {
	<-f.ended
	return f.err
}

// Start is when it was sent.
func (f *appendFuture) Start() time.Time { return f.started }

// Request is what was sent.
func (f *appendFuture) Request() *raft.AppendEntriesRequest { return f.args }

// Response is the answer; zero if there was an error.
func (f *appendFuture) Response() *raft.AppendEntriesResponse { return f.answer }
