package api_test

import (
	"encoding/json"
	"slices"
	"sort"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sealane/sealane/api/gen/openapi"
)

// binding is one HTTP rule. Body and answer are the field that stands for the whole: "*" is everything, "" is nothing for a body and
// everything for an answer.
type binding struct {
	call, rpc, body, answer string
}

// The REST table of DESIGN 12. The raw-body submit, metrics, health and console are no RPCs.
var restTable = []binding{
	{"PUT /v1/destinations/{name}", "DestinationService.ApplyDestination", "destination", ""},
	{"GET /v1/destinations", "DestinationService.ListDestinations", "", ""},
	{"GET /v1/destinations/{name}", "DestinationService.GetDestination", "", "destination"},
	{"DELETE /v1/destinations/{name}", "DestinationService.DeleteDestination", "", ""},
	{"POST /v1/messages", "DeliveryService.Submit", "*", ""},
	{"POST /v1/messages:batch", "DeliveryService.SubmitBatch", "*", ""},
	{"GET /v1/messages/{id}", "QueryService.GetMessage", "", ""},
	{"GET /v1/messages", "QueryService.ListMessages", "", ""},
	{"POST /v1/messages/{id}:cancel", "DeliveryService.Cancel", "*", ""},
	{"POST /v1/messages/{id}:reschedule", "DeliveryService.Reschedule", "*", ""},
	{"GET /v1/deadLetters", "QueryService.ListDeadLetters", "", ""},
	{"GET /v1/deadLetters/{message_id}", "QueryService.GetDeadLetter", "", ""},
	{"GET /v1/uncertainAttempts", "QueryService.ListUncertainAttempts", "", ""},
	{"GET /v1/messages/{id}:preflight", "ControlService.Preflight", "", ""},
	{"GET /v1/messages/{id}:watch", "QueryService.WatchMessage", "", ""},
	{"POST /v1/operations", "ControlService.CreateOperation", "*", "operation"},
	{"GET /v1/operations/{id}", "ControlService.GetOperation", "", "operation"},
	{"GET /v1/operations", "ControlService.ListOperations", "", ""},
	{"GET /v1/lanes", "QueryService.ListLanes", "", ""},
	{"GET /v1/cluster", "ClusterService.GetCluster", "", "cluster"},
}

func call(t *testing.T, r *annotations.HttpRule) string {
	t.Helper()
	switch p := r.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		return "GET " + p.Get
	case *annotations.HttpRule_Put:
		return "PUT " + p.Put
	case *annotations.HttpRule_Post:
		return "POST " + p.Post
	case *annotations.HttpRule_Delete:
		return "DELETE " + p.Delete
	}
	t.Fatalf("rule %v has a method outside the table", r)
	return ""
}

// rules returns what the descriptors bind, sorted by call.
func rules(t *testing.T) []binding {
	t.Helper()
	var out []binding
	for _, f := range files(t, publicPackage) {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				rule, ok := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
				if !ok || rule == nil {
					continue
				}
				if len(rule.GetAdditionalBindings()) != 0 {
					t.Errorf("%s has a second path", m.FullName())
				}
				out = append(out, binding{call(t, rule), string(s.Name()) + "." + string(m.Name()), rule.GetBody(), rule.GetResponseBody()})
			}
		}
	}
	sortBindings(out)
	return out
}

func sortBindings(b []binding) {
	slices.SortFunc(b, func(x, y binding) int { return strings.Compare(x.call, y.call) })
}

func TestRESTPathsAreExactlyTheTable(t *testing.T) {
	want := slices.Clone(restTable)
	sortBindings(want)
	got := rules(t)
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("not bound: %+v", w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("bound but not in the table: %+v", g)
		}
	}
}

// A variable of a path names a field of the request, and so does a body; else the gateway would drop it.
func TestRESTVariablesAreFields(t *testing.T) {
	for _, f := range files(t, publicPackage) {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(j)
				rule, ok := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
				if !ok || rule == nil {
					continue
				}
				var names []string
				for _, part := range strings.Split(call(t, rule), "{")[1:] {
					name, _, _ := strings.Cut(part, "}")
					names = append(names, name)
				}
				if b := rule.GetBody(); b != "" && b != "*" {
					names = append(names, b)
				}
				for _, n := range names {
					if m.Input().Fields().ByName(protoreflect.Name(n)) == nil {
						t.Errorf("%s: %q is no field of %s", m.FullName(), n, m.Input().FullName())
					}
				}
			}
		}
	}
}

func TestOpenAPIDocument(t *testing.T) {
	var doc struct {
		Swagger string
		Info    struct{ Title, Description string }
		Paths   map[string]map[string]struct {
			Summary     string
			OperationID string `json:"operationId"`
			Parameters  []struct{ Name, In, Description string }
		}
		Definitions map[string]struct {
			Description, Title string
			Properties         map[string]struct{ Description, Title string }
		}
	}
	if err := json.Unmarshal(openapi.Document(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Swagger != "2.0" || doc.Info.Title != "Sealane" {
		t.Errorf("version %q, title %q", doc.Swagger, doc.Info.Title)
	}
	var got []string
	for path, methods := range doc.Paths {
		for method, op := range methods {
			got = append(got, strings.ToUpper(method)+" "+path)
			if op.Summary == "" {
				t.Errorf("%s %s has no summary", method, path)
			}
			for _, p := range op.Parameters {
				if p.In == "query" && (p.Description == "" || p.Name != strings.ToLower(p.Name)) {
					t.Errorf("%s %s: parameter %q is not snake_case or not described", method, path, p.Name)
				}
			}
		}
	}
	var want []string
	for _, b := range restTable {
		want = append(want, b.call)
	}
	sort.Strings(got)
	sort.Strings(want)
	if !slices.Equal(got, want) {
		t.Errorf("document has %q, want %q", got, want)
	}
	for name, d := range doc.Definitions {
		for field, p := range d.Properties {
			if field != strings.ToLower(field) && field != "@type" {
				t.Errorf("%s.%s is not snake_case", name, field)
			}
			if p.Description == "" && p.Title == "" {
				t.Errorf("%s.%s is not described", name, field)
			}
		}
	}
	if len(doc.Definitions) < 50 {
		t.Errorf("only %d definitions", len(doc.Definitions))
	}
}

func TestDocumentIsACopy(t *testing.T) {
	openapi.Document()[0] = 'x'
	if openapi.Document()[0] != '{' {
		t.Error("a caller can change the document")
	}
}
