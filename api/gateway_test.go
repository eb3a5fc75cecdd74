package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// backend remembers the request that the gateway made of an HTTP call.
type backend struct {
	sealanev1.UnimplementedDeliveryServiceServer
	sealanev1.UnimplementedQueryServiceServer
	sealanev1.UnimplementedDestinationServiceServer
	sealanev1.UnimplementedControlServiceServer
	sealanev1.UnimplementedClusterServiceServer
	got proto.Message
}

func (b *backend) Submit(_ context.Context, r *sealanev1.SubmitRequest) (*sealanev1.SubmitResponse, error) {
	b.got = r
	return &sealanev1.SubmitResponse{MessageId: "msg_x", Generation: 1, Position: "0:5"}, nil
}

func (b *backend) SubmitBatch(_ context.Context, r *sealanev1.SubmitBatchRequest) (*sealanev1.SubmitBatchResponse, error) {
	b.got = r
	return &sealanev1.SubmitBatchResponse{}, nil
}

func (b *backend) Cancel(_ context.Context, r *sealanev1.CancelRequest) (*sealanev1.CancelResponse, error) {
	b.got = r
	return &sealanev1.CancelResponse{State: sealanev1.GenerationState_CANCELLED}, nil
}

func (b *backend) GetMessage(_ context.Context, r *sealanev1.GetMessageRequest) (*sealanev1.GetMessageResponse, error) {
	b.got = r
	return &sealanev1.GetMessageResponse{Message: &sealanev1.Message{Id: r.GetId(), State: sealanev1.GenerationState_UNCERTAIN}}, nil
}

func (b *backend) ListMessages(_ context.Context, r *sealanev1.ListMessagesRequest) (*sealanev1.ListMessagesResponse, error) {
	b.got = r
	return &sealanev1.ListMessagesResponse{}, nil
}

func (b *backend) ListLanes(_ context.Context, r *sealanev1.ListLanesRequest) (*sealanev1.ListLanesResponse, error) {
	b.got = r
	return &sealanev1.ListLanesResponse{}, nil
}

func (b *backend) Preflight(_ context.Context, r *sealanev1.PreflightRequest) (*sealanev1.PreflightResponse, error) {
	b.got = r
	return &sealanev1.PreflightResponse{Allowed: true}, nil
}

func (b *backend) ApplyDestination(_ context.Context, r *sealanev1.ApplyDestinationRequest) (*sealanev1.ApplyDestinationResponse, error) {
	b.got = r
	return &sealanev1.ApplyDestinationResponse{Name: r.GetName(), Version: 2}, nil
}

func (b *backend) GetDestination(_ context.Context, r *sealanev1.GetDestinationRequest) (*sealanev1.GetDestinationResponse, error) {
	b.got = r
	return &sealanev1.GetDestinationResponse{Destination: &sealanev1.Destination{Name: r.GetName(), Version: 7}}, nil
}

func (b *backend) CreateOperation(_ context.Context, r *sealanev1.CreateOperationRequest) (*sealanev1.CreateOperationResponse, error) {
	b.got = r
	return &sealanev1.CreateOperationResponse{
		Operation: &sealanev1.Operation{OperationId: r.GetOperationId(), State: sealanev1.OperationState_REGISTERED},
	}, nil
}

func (b *backend) GetOperation(_ context.Context, r *sealanev1.GetOperationRequest) (*sealanev1.GetOperationResponse, error) {
	b.got = r
	return &sealanev1.GetOperationResponse{Operation: &sealanev1.Operation{OperationId: r.GetId()}}, nil
}

func newGateway(t *testing.T) (*backend, http.Handler) {
	t.Helper()
	b := &backend{}
	mux := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.JSONPb{
		MarshalOptions: protojson.MarshalOptions{UseProtoNames: true},
	}))
	ctx := t.Context()
	for _, err := range []error{
		sealanev1.RegisterDeliveryServiceHandlerServer(ctx, mux, b),
		sealanev1.RegisterQueryServiceHandlerServer(ctx, mux, b),
		sealanev1.RegisterDestinationServiceHandlerServer(ctx, mux, b),
		sealanev1.RegisterControlServiceHandlerServer(ctx, mux, b),
		sealanev1.RegisterClusterServiceHandlerServer(ctx, mux, b),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b, mux
}

// An HTTP call becomes the request that the contract describes, and the answer has the shape that DESIGN 12 shows.
func TestGateway(t *testing.T) {
	slot := uint32(0)
	for _, c := range []struct {
		method, path, body string
		want               proto.Message
		answer             string
	}{
		{
			"POST", "/v1/messages", `{"destination":"billing","payload":"aGk=","idempotency_key":"k"}`,
			&sealanev1.SubmitRequest{Destination: "billing", Payload: []byte("hi"), IdempotencyKey: "k"},
			`{"message_id":"msg_x","generation":1,"position":"0:5"}`,
		},
		{
			"POST", "/v1/messages:batch", `{"messages":[{"destination":"a"},{"destination":"b"}]}`,
			&sealanev1.SubmitBatchRequest{Messages: []*sealanev1.SubmitRequest{{Destination: "a"}, {Destination: "b"}}}, `{}`,
		},
		{
			"POST", "/v1/messages/msg_x:cancel", `{"generation":2,"reason":"r"}`,
			&sealanev1.CancelRequest{Id: "msg_x", Generation: 2, Reason: "r"}, `{"state":"CANCELLED"}`,
		},
		{
			"GET", "/v1/messages/msg_x?position=3:17&include_payload=true&consistency=linearizable", "",
			&sealanev1.GetMessageRequest{Id: "msg_x", Position: "3:17", IncludePayload: true, Consistency: sealanev1.Consistency_linearizable},
			`{"message":{"id":"msg_x","state":"UNCERTAIN"}}`,
		},
		{
			"GET", "/v1/messages?destination=billing&state=DEAD_LETTERED&page_size=5&page_token=x&positions=1:2&positions=2:3", "",
			&sealanev1.ListMessagesRequest{
				Destination: "billing", State: sealanev1.GenerationState_DEAD_LETTERED, PageSize: 5, PageToken: "x", Positions: []string{"1:2", "2:3"},
			}, `{}`,
		},
		{
			"GET", "/v1/messages/msg_x:preflight?action=resolve_retry&attempt=2", "",
			&sealanev1.PreflightRequest{Id: "msg_x", Action: sealanev1.IntendedAction_resolve_retry, Attempt: 2}, `{"allowed":true}`,
		},
		{"GET", "/v1/lanes?destination=billing&slot=0", "", &sealanev1.ListLanesRequest{Destination: "billing", Slot: &slot}, `{}`},
		{
			"PUT", "/v1/destinations/billing", `{"name":"billing","http":{"url":"http://h/"},"lane":{"max_pending":1000000}}`,
			&sealanev1.ApplyDestinationRequest{Name: "billing", Destination: &sealanev1.Destination{
				Name:    "billing",
				Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: "http://h/"}},
				Lane:    &sealanev1.LaneLimits{MaxPending: 1_000_000},
			}}, `{"name":"billing","version":2}`,
		},
		{"GET", "/v1/destinations/dead-letter.archive", "", &sealanev1.GetDestinationRequest{Name: "dead-letter.archive"}, `{"name":"dead-letter.archive","version":7}`},
		{
			"POST", "/v1/operations", `{"operation_id":"op-1","reason":"r","resume_lane":{"destination":"billing"}}`,
			&sealanev1.CreateOperationRequest{
				OperationId: "op-1", Reason: "r",
				Parameters: &sealanev1.CreateOperationRequest_ResumeLane{ResumeLane: &sealanev1.ResumeLane{Destination: "billing"}},
			}, `{"operation_id":"op-1","state":"REGISTERED"}`,
		},
		{"GET", "/v1/operations/op-1", "", &sealanev1.GetOperationRequest{Id: "op-1"}, `{"operation_id":"op-1"}`},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			b, gateway := newGateway(t)
			w := httptest.NewRecorder()
			gateway.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
			if w.Code != http.StatusOK {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			if !proto.Equal(b.got, c.want) {
				t.Errorf("request\n%v\nwant\n%v", b.got, c.want)
			}
			if got := compact(t, w.Body.Bytes()); got != c.answer {
				t.Errorf("answer %s, want %s", got, c.answer)
			}
		})
	}
}

func TestGatewayReadsDurationsOfQueries(t *testing.T) {
	b, gateway := newGateway(t)
	w := httptest.NewRecorder()
	gateway.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/messages/msg_x?wait=2s", nil))
	if m, ok := b.got.(*sealanev1.GetMessageRequest); !ok || m.GetWait().AsDuration() != 2*time.Second {
		t.Errorf("status %d, request %v", w.Code, b.got)
	}
}

// What the contract does not know is refused, so that a misspelt field does not pass in silence.
func TestGatewayRefusesUnknownWords(t *testing.T) {
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/messages", `{"destnation":"billing"}`},
		{"GET", "/v1/messages/msg_x?consistency=eventual", ""},
		{"PUT", "/v1/destinations/billing", `{"retry":{"jitter":"some"}}`},
		{"PUT", "/v1/destinations/billing", `{"retry":{"max_backoff":"1h30m"}}`},
	} {
		b, gateway := newGateway(t)
		w := httptest.NewRecorder()
		gateway.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		if w.Code != http.StatusBadRequest || b.got != nil {
			t.Errorf("%s %s %s: status %d, request %v", c.method, c.path, c.body, w.Code, b.got)
		}
	}
}

// compact removes the white space that protojson adds at random.
func compact(t *testing.T, b []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Fatalf("answer %s: %v", b, err)
	}
	return out.String()
}
