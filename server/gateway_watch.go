package server

import (
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// watchSuffix ends the path of a watch, GET /v1/messages/{id}:watch.
const watchSuffix = ":watch"

// watchOrRest serves watches, which the in-process gateway cannot, and hands everything else to it.
func (g *gateway) watchOrRest(w http.ResponseWriter, r *http.Request) {
	id, ok := strings.CutSuffix(r.PathValue("id"), watchSuffix)
	if !ok || r.Method != http.MethodGet {
		g.rest.ServeHTTP(w, r)
		return
	}
	q := r.URL.Query()
	m := &sealanev1.WatchMessageRequest{Id: id, Position: q.Get("position")}
	switch q.Get("include_payload") {
	case "", "false":
	case "true":
		m.IncludePayload = true
	default:
		g.fail(w, r, invalid("include_payload", "is %q, want true or false", clipped(q.Get("include_payload"))))
		return
	}
	out := http.NewResponseController(w)
	// A watch outlives the time that reading a request may take. A connection without deadlines has none to lift.
	_ = out.SetReadDeadline(time.Time{})
	started := false
	err := g.services.query.watch(r.Context(), m, func(now *sealanev1.WatchMessageResponse) error {
		if !started {
			w.Header().Set("Content-Type", "application/x-ndjson")
			started = true
		}
		if err := writeLine(w, "result", now); err != nil {
			return err
		}
		return out.Flush()
	})
	switch {
	case err == nil || r.Context().Err() != nil:
	case started:
		_ = writeLine(w, "error", statusOf(err).Proto()) // the last line; the client may be gone
	default:
		g.fail(w, r, err)
	}
}

// writeLine writes one line of a stream, in the form that grpc-gateway gives streams: {"result":…} or {"error":…}.
func writeLine(w http.ResponseWriter, name string, m proto.Message) error {
	body, err := marshalJSON.Marshal(m)
	if err != nil {
		return err
	}
	line := make([]byte, 0, len(body)+16)
	line = append(line, `{"`+name+`":`...)
	line = append(line, body...)
	_, err = w.Write(append(line, "}\n"...))
	return err
}
