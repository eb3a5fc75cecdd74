package main

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// fakeNode answers about a cluster and about operations as a script says.
type fakeNode struct {
	sealanev1.UnimplementedClusterServiceServer
	sealanev1.UnimplementedControlServiceServer

	mu      sync.Mutex
	cluster *sealanev1.Cluster
	story   []*sealanev1.Operation            // what the next operation goes through, first to last
	known   map[string][]*sealanev1.Operation // by id
	watched chan struct{}                     // closed with the first watch; the watch then waits for its end. nil: it tells the story
}

// startFake serves a fake node for a test.
func startFake(t *testing.T, f *fakeNode) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	sealanev1.RegisterClusterServiceServer(srv, f)
	sealanev1.RegisterControlServiceServer(srv, f)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("fake node: %v", err)
		}
	})
	return l.Addr().String()
}

func (f *fakeNode) GetCluster(context.Context, *sealanev1.GetClusterRequest) (*sealanev1.GetClusterResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &sealanev1.GetClusterResponse{Cluster: f.cluster}, nil
}

// CreateOperation begins the story, or answers with its end where the id is known.
func (f *fakeNode) CreateOperation(_ context.Context, r *sealanev1.CreateOperationRequest) (*sealanev1.CreateOperationResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if story := f.known[r.GetOperationId()]; story != nil {
		return &sealanev1.CreateOperationResponse{Operation: story[len(story)-1]}, nil
	}
	story := make([]*sealanev1.Operation, len(f.story))
	for i, step := range f.story {
		op := proto.CloneOf(step)
		op.OperationId, op.Reason, op.Actor = r.GetOperationId(), r.GetReason(), "local"
		from, to := r.ProtoReflect(), op.ProtoReflect()
		field := from.WhichOneof(from.Descriptor().Oneofs().ByName("parameters"))
		to.Set(to.Descriptor().Fields().ByName(field.Name()), from.Get(field))
		story[i] = op
	}
	f.known[r.GetOperationId()] = story
	return &sealanev1.CreateOperationResponse{Operation: story[0]}, nil
}

func (f *fakeNode) find(id string) ([]*sealanev1.Operation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if story := f.known[id]; story != nil {
		return story, nil
	}
	return nil, status.Errorf(codes.NotFound, "no operation %s", id)
}

func (f *fakeNode) GetOperation(_ context.Context, r *sealanev1.GetOperationRequest) (*sealanev1.GetOperationResponse, error) {
	story, err := f.find(r.GetId())
	if err != nil {
		return nil, err
	}
	return &sealanev1.GetOperationResponse{Operation: story[len(story)-1]}, nil
}

func (f *fakeNode) ListOperations(context.Context, *sealanev1.ListOperationsRequest) (*sealanev1.ListOperationsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := &sealanev1.ListOperationsResponse{}
	for _, id := range []string{"op-1", "op-2", "op-3"} {
		if story := f.known[id]; story != nil {
			op := proto.CloneOf(story[len(story)-1])
			op.Targets = nil
			resp.Operations = append(resp.Operations, op)
		}
	}
	return resp, nil
}

func (f *fakeNode) WatchOperation(r *sealanev1.WatchOperationRequest, s sealanev1.ControlService_WatchOperationServer) error {
	story, err := f.find(r.GetId())
	if err != nil {
		return err
	}
	if f.watched != nil {
		if err := s.Send(&sealanev1.WatchOperationResponse{Operation: story[0]}); err != nil {
			return err
		}
		close(f.watched)
		<-s.Context().Done()
		return status.FromContextError(s.Context().Err()).Err()
	}
	for _, op := range story {
		if err := s.Send(&sealanev1.WatchOperationResponse{Operation: op}); err != nil {
			return err
		}
	}
	return nil
}

// pretend puts a fake node in the real one's place, with the cluster that the input describes.
func (s *scene) pretend(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	c := &sealanev1.Cluster{}
	if err := prototext.Unmarshal([]byte(d.Input), c); err != nil {
		d.Fatalf(t, "%v", err)
	}
	if s.fake == nil {
		s.fake = &fakeNode{known: map[string][]*sealanev1.Operation{}}
		s.fakeAddr = startFake(t, s.fake)
	}
	s.fake.mu.Lock()
	s.fake.cluster = c
	s.fake.mu.Unlock()
	s.addr = s.fakeAddr
}

// tell sets what the next operation goes through: the stages of the input, with -- between them.
func (s *scene) tell(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	var story []*sealanev1.Operation
	for stage := range strings.SplitSeq(d.Input, "\n--\n") {
		op := &sealanev1.Operation{}
		if err := prototext.Unmarshal([]byte(stage), op); err != nil {
			d.Fatalf(t, "%v", err)
		}
		story = append(story, op)
	}
	s.fake.mu.Lock()
	s.fake.story = story
	s.fake.mu.Unlock()
}

// Ctrl-C ends the waiting and not the operation, and says how to look.
func TestInterruptLeavesTheOperation(t *testing.T) {
	f := &fakeNode{
		known: map[string][]*sealanev1.Operation{}, story: []*sealanev1.Operation{{State: sealanev1.OperationState_APPLYING}}, watched: make(chan struct{}),
	}
	addr := startFake(t, f)
	interrupted := make(chan error, 1)
	go func() {
		select {
		case <-f.watched:
			interrupted <- syscall.Kill(os.Getpid(), syscall.SIGINT)
		case <-time.After(20 * time.Second):
			interrupted <- context.DeadlineExceeded
		}
	}()
	var out, errOut strings.Builder
	a := &app{in: strings.NewReader(""), out: &out, err: &errOut, now: time.Now}
	code := a.run([]string{"cluster", "transfer", "1", "--reason", "r", "--wait", "--operation-id", "op-9", "--addr", addr})
	if err := <-interrupted; err != nil {
		t.Fatal(err)
	}
	if code != exitSignal || !strings.Contains(errOut.String(), "op-9 is APPLYING and goes on") ||
		!strings.Contains(errOut.String(), "sealane operation watch op-9 --addr "+addr) || out.String() != "" {
		t.Errorf("exit %d, %s%s", code, &out, &errOut)
	}
}
