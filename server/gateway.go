package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sealane/sealane/api/gen/openapi"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// marshalJSON is how every answer of REST looks: the proto's names, and fields present also where they are false, zero or empty, so that a
// client need not know which of them are left out. Messages that are absent stay absent.
var marshalJSON = protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}

// gateway is the HTTP door: REST, the raw submit, watches, metrics and health.
type gateway struct {
	n        *Node
	services *services
	doors    *doors
	rest     *runtime.ServeMux
}

// newGateway joins everything that HTTP serves. REST calls go to the service implementations directly, without a connection between.
func newGateway(n *Node, s *services, d *doors) (http.Handler, error) {
	g := &gateway{n: n, services: s, doors: d}
	g.rest = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &jsonCodec{runtime.JSONPb{MarshalOptions: marshalJSON}}),
		runtime.WithErrorHandler(g.restError), runtime.WithRoutingErrorHandler(g.routingError), runtime.WithIncomingHeaderMatcher(restHeader),
	)
	ctx := context.Background() // only an in-process registration: the context is not kept
	for _, err := range []error{
		sealanev1.RegisterDeliveryServiceHandlerServer(ctx, g.rest, s.delivery),
		sealanev1.RegisterQueryServiceHandlerServer(ctx, g.rest, s.query),
		sealanev1.RegisterDestinationServiceHandlerServer(ctx, g.rest, s.destination),
		sealanev1.RegisterControlServiceHandlerServer(ctx, g.rest, s.control),
		sealanev1.RegisterClusterServiceHandlerServer(ctx, g.rest, s.cluster),
	} {
		if err != nil {
			return nil, err
		}
	}
	document, err := openAPI()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/destinations/{name}/messages", g.submitRaw)
	mux.HandleFunc("GET /v1/messages/{id}", g.watchOrRest)
	mux.Handle("/v1/", g.rest)
	mux.HandleFunc("GET /openapi.json", static("application/json", document))
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", g.healthz)
	mux.HandleFunc("GET /readyz", g.readyz)
	mux.HandleFunc("GET /{$}", static("text/html; charset=utf-8", []byte(frontPage)))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		g.fail(w, r, fmt.Errorf("%w: %s", ErrNoRoute, clipped(r.URL.Path)))
	})

	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.unread(w, r, ErrCrossOrigin) }))
	return g.around(g.sameHost(protection.Handler(mux))), nil
}

// sameHost refuses calls whose Host is neither an address nor localhost. While a node has no authentication it binds loopback only, and a page of
// some other name that has its name resolve to loopback would otherwise count as the same origin (DNS rebinding).
func (g *gateway) sameHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if host != "" && host != "localhost" && net.ParseIP(strings.Trim(host, "[]")) == nil {
			g.unread(w, r, ErrCrossOrigin)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// around bounds bodies, and turns a panic into an answer.
func (g *gateway) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &limitedBody{ReadCloser: r.Body, left: g.bodyLimit(r), limit: g.bodyLimit(r)}
		r.Body = body
		expandDurations(r)
		out := &recorder{ResponseWriter: w, code: http.StatusOK}
		defer func() {
			p := recover()
			if p == http.ErrAbortHandler { // the documented way to cut a connection
				panic(p)
			}
			if p != nil {
				g.log(r, http.StatusInternalServerError, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
				g.fail(out, r, errors.New("a handler panicked"))
			}
			g.n.metrics.calls.WithLabelValues("http", cmp.Or(r.Pattern, "none"), strconv.Itoa(out.code)).Inc()
		}()
		next.ServeHTTP(out, r)
	})
}

// recorder remembers the status of an answer for the metrics.
type recorder struct {
	http.ResponseWriter
	code int
}

func (r *recorder) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

// Unwrap lets watches flush.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// log writes what an operator must see about a call: what is the node's fault.
func (g *gateway) log(r *http.Request, code int, err error) {
	level := slog.LevelDebug
	if code == http.StatusInternalServerError {
		level = slog.LevelError
	}
	g.n.log.Log(r.Context(), level, "a call failed", "door", "http", "call", r.Pattern, "code", code, "error", err)
}

// bodyLimit is the largest body that a request can have: base64 makes a payload a third longer, and a batch may be as large as over gRPC.
func (g *gateway) bodyLimit(r *http.Request) int64 {
	const around = 256 << 10
	switch {
	case isRawSubmit(r.URL.Path):
		return int64(g.n.cfg.MaxPayloadBytes)
	case r.URL.Path == "/v1/messages:batch":
		return maxBatchBytes/3*4 + 4<<20
	case r.URL.Path == "/v1/messages":
		return int64(g.n.cfg.MaxPayloadBytes)/3*4 + around
	}
	return around
}

func isRawSubmit(path string) bool {
	return strings.HasPrefix(path, "/v1/destinations/") && strings.HasSuffix(path, "/messages")
}

// restHeader passes on the one header of a REST call that services look at.
func restHeader(name string) (string, bool) {
	if strings.EqualFold(name, "traceparent") {
		return "traceparent", true
	}
	return "", false
}

func static(contentType string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(body) // the client may be gone
	}
}

// fail answers with an error made here.
func (g *gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	g.answerError(w, r, answered(err))
}

// restError answers with a service's error, or with one that the gateway made while it read the request.
func (g *gateway) restError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	st := status.Convert(err)
	if reasonOf(st) != "" {
		g.answerError(w, r, err)
		return
	}
	cause := fmt.Errorf("%w: %s", ErrInvalidRequest, st.Message())
	if body, ok := r.Body.(*limitedBody); ok && body.exceeded {
		cause = body.err()
	} else if strings.HasPrefix(st.Message(), invalidJSONPrefix) {
		cause = fmt.Errorf("%w: %s", ErrInvalidJSON, strings.TrimPrefix(st.Message(), invalidJSONPrefix))
	}
	if st.Code() != codes.InvalidArgument {
		cause = fmt.Errorf("%s", st.Message())
	}
	g.unread(w, r, cause)
}

// unread answers a call that did not reach its service: if it was a submit, it was certainly not accepted.
func (g *gateway) unread(w http.ResponseWriter, r *http.Request, err error) {
	submits := r.URL.Path == "/v1/messages" || r.URL.Path == "/v1/messages:batch" || isRawSubmit(r.URL.Path)
	if submits && r.Method == http.MethodPost {
		g.answerError(w, r, &answer{err, submitStatus(err, true)})
		return
	}
	g.fail(w, r, err)
}

// routingError answers where no call has this path, or not with this method.
func (g *gateway) routingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	if code == http.StatusMethodNotAllowed {
		st := status.New(codes.Unimplemented, r.Method+" is not a method of this path")
		if full, err := st.WithDetails(&errdetails.ErrorInfo{Reason: reasonMethod, Domain: errorDomain}); err == nil {
			st = full
		}
		writeStatus(w, st, code)
		return
	}
	g.fail(w, r, fmt.Errorf("%w: %s", ErrNoRoute, clipped(r.URL.Path)))
}

func reasonOf(st *status.Status) string {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			return info.GetReason()
		}
	}
	return ""
}

// answerError writes google.rpc.Status JSON. What is too large has HTTP's own status for it.
func (g *gateway) answerError(w http.ResponseWriter, r *http.Request, err error) {
	st := status.Convert(err)
	code := runtime.HTTPStatusFromCode(st.Code())
	if reasonOf(st) == "TOO_LARGE" {
		code = http.StatusRequestEntityTooLarge
	}
	g.log(r, code, err)
	writeStatus(w, st, code)
}

func writeStatus(w http.ResponseWriter, st *status.Status, code int) {
	body, err := marshalJSON.Marshal(st.Proto())
	if err != nil {
		http.Error(w, st.Message(), code)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if code == http.StatusRequestEntityTooLarge {
		h.Set("Connection", "close") // the rest of the body is not read
	}
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}

// openAPI is the generated document with the endpoint that is no RPC added.
func openAPI() ([]byte, error) {
	var doc map[string]any
	if err := json.Unmarshal(openapi.Document(), &doc); err != nil {
		return nil, fmt.Errorf("openapi document: %w", err)
	}
	paths, ok := doc["paths"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("openapi document has no paths")
	}
	paths["/v1/destinations/{name}/messages"] = map[string]any{"post": rawSubmitOperation()}
	return json.MarshalIndent(doc, "", "  ")
}
