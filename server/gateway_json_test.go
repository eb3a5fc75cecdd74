package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Durations are right in both forms, at any depth, in either spelling of the field; nothing else is touched.
func TestRewriteDurations(t *testing.T) {
	d := (&sealanev1.Destination{}).ProtoReflect().Descriptor()
	for _, c := range []struct{ name, in, want string }{
		{"hours and minutes", `{"retention":"1h30m"}`, `{"retention":"5400s"}`},
		{"nested", `{"retry":{"max_backoff":"1h","max_attempts":3}}`, `{"retry":{"max_backoff":"3600s","max_attempts":3}}`},
		{"list", `{"retry":{"schedule":["5s","5m","1.5s"]}}`, `{"retry":{"schedule":["5s","300s","1.500000000s"]}}`},
		{"in the adapter", `{"http":{"timeout":"1m"}}`, `{"http":{"timeout":"60s"}}`},
		{"camel case", `{"idempotencyWindow":"24h"}`, `{"idempotencyWindow":"86400s"}`},
		{"negative below a second", `{"retention":"-500ms"}`, `{"retention":"-0.500000000s"}`},
		{"protobuf's form stays", `{"retention":"5400s"}`, `{"retention":"5400s"}`},
		{"not a duration stays", `{"retention":"soon"}`, `{"retention":"soon"}`},
		{"a number stays", `{"retention":5}`, `{"retention":5}`},
		{"other text stays", `{"name":"1h30m","http":{"headers":{"X":"1h"}}}`, `{"name":"1h30m","http":{"headers":{"X":"1h"}}}`},
		{"unknown fields stay for the decoder", `{"nope":"1h"}`, `{"nope":"1h"}`},
		{"a doubled field stays for the decoder", `{"retention":"1h","retention":"2h"}`, `{"retention":"1h","retention":"2h"}`},
		{"not JSON stays", `{"retention":"1h"`, `{"retention":"1h"`},
		{"two values stay", `{"retention":"1h"} {}`, `{"retention":"1h"} {}`},
		{"a list stays", `["1h"]`, `["1h"]`},
	} {
		if got := string(rewriteDurations([]byte(c.in), d)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func FuzzRewriteDurations(f *testing.F) {
	d := (&sealanev1.Destination{}).ProtoReflect().Descriptor()
	for _, s := range []string{`{"retention":"1h30m"}`, `{"retry":{"schedule":["5s",1,null]}}`, `{"a":`, `null`, `{"retention":"\u0031h"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out := rewriteDurations(b, d)
		if json.Valid(b) != json.Valid(out) {
			t.Fatalf("%q became %q", b, out)
		}
		// What the decoder takes without the rewriting it takes with it, and reads the same.
		var before, after sealanev1.Destination
		if protojson.Unmarshal(b, &before) != nil {
			return
		}
		if err := protojson.Unmarshal(out, &after); err != nil {
			t.Fatalf("%q became %q: %v", b, out, err)
		}
		if before.String() != after.String() {
			t.Fatalf("%q became %q", b, out)
		}
	})
}

func TestSecondsForm(t *testing.T) {
	for in, want := range map[string]string{"2s": "2s", "1h30m": "5400s", "0s": "0s", "1ns": "0.000000001s", "-1m": "-60s", "": "", "5": "", "1d": ""} {
		if got, ok := secondsForm(in); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v", in, got, ok)
		}
	}
}

// The decoder fills a whole request and, as the gateway asks for it, one field of one.
func TestJSONCodec(t *testing.T) {
	codec := &jsonCodec{}
	req := &sealanev1.ApplyDestinationRequest{}
	if err := codec.NewDecoder(strings.NewReader(`{"name":"a","http":{"timeout":"1m30s"}}`)).Decode(&req.Destination); err != nil {
		t.Fatal(err)
	}
	if got := req.GetDestination().GetHttp().GetTimeout().AsDuration(); got != 90*time.Second {
		t.Fatal(got)
	}
	m := &sealanev1.SubmitRequest{}
	if err := codec.NewDecoder(strings.NewReader(`{"destination":"a","payload":"AA=="}`)).Decode(m); err != nil || len(m.GetPayload()) != 1 {
		t.Fatal(m, err)
	}
	for _, bad := range []string{`{"destinatoin":"a"}`, `{"destination":"a","destination":"b"}`, `{`, `[]`, `{"payload":"%"}`} {
		if err := codec.NewDecoder(strings.NewReader(bad)).Decode(&sealanev1.SubmitRequest{}); err == nil || !strings.HasPrefix(err.Error(), invalidJSONPrefix) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := codec.NewDecoder(strings.NewReader("  ")).Decode(m); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// A body at the limit passes whole, one byte more fails whatever the sizes of the reads, and never delivers that byte.
func TestLimitedBody(t *testing.T) {
	for _, limit := range []int64{0, 1, 7, 512} {
		for _, size := range []int64{0, limit, limit + 1, limit + 100} {
			body := &limitedBody{ReadCloser: io.NopCloser(bytes.NewReader(make([]byte, size))), limit: limit, left: limit}
			b, err := io.ReadAll(body)
			if over := size > limit; over != body.exceeded || over != errors.Is(err, ErrTooLarge) || int64(len(b)) > limit {
				t.Errorf("%d of %d: %d read, exceeded %v, %v", size, limit, len(b), body.exceeded, err)
			}
		}
	}
}

func TestExpandDurations(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/v1/uncertainAttempts?min_age=1h30m&wait=2s&page_token=1h", nil)
	expandDurations(r)
	if q := r.URL.Query(); q.Get("min_age") != "5400s" || q.Get("wait") != "2s" || q.Get("page_token") != "1h" {
		t.Fatal(q)
	}
}

// The served document holds every REST call of the contract and the one that is no RPC, with valid references.
func TestOpenAPI(t *testing.T) {
	b, err := openAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths       map[string]map[string]any `json:"paths"`
		Definitions map[string]any            `json:"definitions"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/destinations/{name}/messages", "/v1/messages", "/v1/messages:batch", "/v1/cluster"} {
		if doc.Paths[path] == nil {
			t.Errorf("%s is missing", path)
		}
	}
	for _, ref := range strings.Split(string(b), `"$ref": "#/definitions/`)[1:] {
		name, _, _ := strings.Cut(ref, `"`)
		if doc.Definitions[name] == nil {
			t.Errorf("reference to %s, which is not defined", name)
		}
	}
}
