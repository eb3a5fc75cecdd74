package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/lane"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Numbers of the shard's enums are converted by value: the two lists must say the same.
func TestEnumsAgree(t *testing.T) {
	check := func(kind string, number int32, name string, names map[int32]string) {
		t.Helper()
		if names[number] != name {
			t.Errorf("%s %d is %q in the core and %q in the contract", kind, number, name, names[number])
		}
	}
	for s := shard.StateScheduled; s <= shard.StateSuperseded; s++ {
		check("state", int32(s), s.String(), sealanev1.GenerationState_Value_name)
	}
	for r := shard.ReasonPublished; r <= shard.ReasonReplayed; r++ {
		check("reason", int32(r), r.String(), sealanev1.TerminalReason_Value_name)
	}
	for s := policy.Published; s <= policy.Unknown; s++ {
		check("side effect", int32(s), s.String(), sealanev1.SideEffect_Value_name)
	}
	for d := policy.OK; d <= policy.AdapterBug; d++ {
		check("disposition", int32(d), d.String(), sealanev1.Disposition_Value_name)
	}
	for n, name := range map[shard.Work]string{
		shard.WorkInitial: "INITIAL", shard.WorkRetry: "RETRY", shard.WorkUncertainRetry: "UNCERTAIN_RETRY", shard.WorkOperatorRetry: "OPERATOR_RETRY",
	} {
		check("work", int32(n), name, sealanev1.Work_Value_name)
	}
	for n, name := range map[shard.ResolveVerdict]string{
		shard.ResolvePublished: "PUBLISHED", shard.ResolveNotPublished: "NOT_PUBLISHED", shard.ResolveRetry: "RETRY", shard.ResolveDeadLetter: "DEAD_LETTER",
	} {
		check("verdict", int32(n), name, sealanev1.ResolveVerdict_Value_name)
	}
	if len(sealanev1.GenerationState_Value_name) != int(shard.StateSuperseded)+1 || len(sealanev1.TerminalReason_Value_name) != int(shard.ReasonReplayed)+1 {
		t.Error("one list is longer than the other")
	}
}

// Words that are converted by name exist on the other side.
func TestWordsAgree(t *testing.T) {
	for _, g := range []lane.Gate{lane.GateOpen, lane.GatePaused, lane.GateClosed} {
		if gateOf(g).String() != g.String() {
			t.Errorf("gate %s", g)
		}
	}
	for _, r := range []lane.Readiness{lane.Recovering, lane.Ready, lane.Blocked} {
		if readinessOf(r).String() != r.String() {
			t.Errorf("readiness %s", r)
		}
	}
	for p := lane.CircuitClosed; p <= lane.CircuitHalfOpen; p++ {
		if _, ok := sealanev1.CircuitPhase_Value_value[p.String()]; !ok {
			t.Errorf("phase %s", p)
		}
	}
	for r := policy.ReasonBackoff; r <= policy.ReasonOperator; r++ {
		if nextReasonOf(r.String()).String() != r.String() {
			t.Errorf("next attempt reason %s", r)
		}
	}
	for _, o := range []string{shard.OriginSubmit, shard.OriginReschedule, shard.OriginReplay} {
		if originOf(o).String() != o {
			t.Errorf("origin %s", o)
		}
	}
	words := whys(t)
	if len(words) < 15 {
		t.Fatalf("only %d causes were found", len(words))
	}
	for _, w := range words {
		if _, ok := sealanev1.SendHold_Value_value[w]; !ok {
			t.Errorf("the runtime says %s, which the contract does not know", w)
		}
	}
	for _, name := range sealanev1.SendHold_Value_name {
		if name != "HOLD_UNSPECIFIED" && !slices.Contains(words, name) {
			t.Errorf("the contract has %s, which the runtime never says", name)
		}
	}
}

// whys are the values of the constants of type Why in package host.
func whys(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../shard/host/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.ValueSpec)
			if !ok || len(s.Values) != 1 {
				return true
			}
			if kind, ok := s.Type.(*ast.Ident); !ok || kind.Name != "Why" {
				return true
			}
			if lit, ok := s.Values[0].(*ast.BasicLit); ok {
				w, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, w)
			}
			return true
		})
	}
	return out
}

// fullDestination sets every field that a definition has.
const fullDestination = `{
  "name": "billing",
  "http": {"url": "https://billing.example.com/hooks", "timeout": "15s", "headers": {"X-Tenant": "acme", "X-A": "b"}, "status_verdicts": "strict",
    "tls": {"pin": "sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},
    "signing": {"standard_webhooks": {"secret": {"env": "BILLING"}, "previous_secret": {"file": "/run/secret"}}}},
  "retry": {"max_attempts": 5, "multiplier": 3, "max_backoff": "60s", "jitter": "equal", "initial_backoff": "2s", "lifetime": "3600s"},
  "uncertainty": {"on_uncertain": "retry", "max_retries": 3, "receiver_dedup_window": "86400s", "when_exhausted": "dead_letter",
    "probe": {"url": "https://x.example/{webhook_id}", "found": [200], "absent": [404], "absent_is_authoritative": true}},
  "lane": {"max_in_flight": 8, "rate_per_second": 100, "spread": 2, "max_pending": "10", "max_pending_bytes": "1000", "max_bytes_in_flight": "20000000"},
  "circuit": {"failure_threshold": 6, "open_for": "5s", "max_open_for": "50s", "half_open_successes": 2, "trial_timeout": "7s"},
  "dead_letter": {"retention": "720000s", "export": {"destination": "archive"}},
  "retention": "7200s", "idempotency_window": "120s"
}`

// A definition comes back as it was given, every field of it.
func TestDestinationRoundTrip(t *testing.T) {
	in := &sealanev1.Destination{}
	if err := protojson.Unmarshal([]byte(fullDestination), in); err != nil {
		t.Fatal(err)
	}
	spec, err := destinationSpec(in)
	if err != nil {
		t.Fatal(err)
	}
	if filled := spec.WithDefaults(); len(filled.Validate(4)) > 0 {
		t.Fatal(filled.Validate(4))
	}
	out := destinationOf(&catalog.Version{Namespace: "default", Version: 3, Spec: spec.WithDefaults()})
	if out.Version != 3 || out.Namespace != "default" {
		t.Fatal(out)
	}
	out.Version, out.Namespace = 0, ""
	if !proto.Equal(in, out) {
		t.Fatalf("in  %v\nout %v", in, out)
	}
}

// What is left out takes the defaults of DESIGN 5, 7 and 8, and an explicit zero is never taken for left out.
func TestDestinationZeros(t *testing.T) {
	spec, err := destinationSpec(&sealanev1.Destination{Name: "a", Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: "http://x"}}})
	if err != nil {
		t.Fatal(err)
	}
	spec = spec.WithDefaults()
	if spec.Retry.MaxAttempts != 8 || spec.Retry.Lifetime != 72*time.Hour || spec.HTTP.Timeout != 15*time.Second || spec.Lane.MaxInFlight != 32 ||
		spec.Circuit.FailureThreshold != 5 || spec.Retention != 7*24*time.Hour || spec.DeadLetter.Retention != 30*24*time.Hour {
		t.Fatalf("%+v", spec)
	}
	zero := durationpb.New(0)
	for field, d := range map[string]*sealanev1.Destination{
		"retention":                      {Retention: zero},
		"idempotency_window":             {IdempotencyWindow: zero},
		"http.timeout":                   {Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Timeout: zero}}},
		"retry.lifetime":                 {Retry: &sealanev1.RetryPolicy{Lifetime: zero}},
		"retry.max_backoff":              {Retry: &sealanev1.RetryPolicy{MaxBackoff: zero}},
		"circuit.open_for":               {Circuit: &sealanev1.CircuitPolicy{OpenFor: zero}},
		"dead_letter.retention":          {DeadLetter: &sealanev1.DeadLetterPolicy{Retention: zero}},
		"retry.schedule[1]":              {Retry: &sealanev1.RetryPolicy{Schedule: []*durationpb.Duration{zero, {Seconds: 1, Nanos: -1}}}},
		"retry.jitter":                   {Retry: &sealanev1.RetryPolicy{Jitter: 9}},
		"http.status_verdicts":           {Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{StatusVerdicts: 9}}},
		"uncertainty.on_uncertain":       {Uncertainty: &sealanev1.UncertaintyPolicy{OnUncertain: 9}},
		"dead_letter.export.destination": {DeadLetter: &sealanev1.DeadLetterPolicy{Export: &sealanev1.DeadLetterExportPolicy{}}},
	} {
		_, err := destinationSpec(d)
		if names, _ := fields(err); len(names) != 1 || names[0] != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	spec, err = destinationSpec(&sealanev1.Destination{Retry: &sealanev1.RetryPolicy{InitialBackoff: zero}})
	if d := policy.NextRetry(spec.WithDefaults().Retry, policy.RetryInput{Now: 5, Counted: 3}); err != nil || d.Delay != 0 {
		t.Errorf("zero backoff waits %s, %v", d.Delay, err)
	}
}

func TestSecretReferences(t *testing.T) {
	for name, c := range map[string]struct {
		ref   *sealanev1.SecretReference
		field string
	}{
		"variable":                   {&sealanev1.SecretReference{Source: &sealanev1.SecretReference_Env{Env: "A_1"}}, ""},
		"file":                       {&sealanev1.SecretReference{Source: &sealanev1.SecretReference_File{File: "/run/x"}}, ""},
		"neither":                    {&sealanev1.SecretReference{}, "http.signing.standard_webhooks.secret"},
		"a value in place of a name": {&sealanev1.SecretReference{Source: &sealanev1.SecretReference_Env{Env: "whsec_abc="}}, "http.signing.standard_webhooks.secret.env"},
		"relative":                   {&sealanev1.SecretReference{Source: &sealanev1.SecretReference_File{File: "x"}}, "http.signing.standard_webhooks.secret.file"},
	} {
		_, err := destinationSpec(&sealanev1.Destination{Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{
			Signing: &sealanev1.HttpSigning{Scheme: &sealanev1.HttpSigning_StandardWebhooks{StandardWebhooks: &sealanev1.StandardWebhooks{Secret: c.ref}}},
		}}})
		names, _ := fields(err)
		if got := strings.Join(names, " "); got != c.field {
			t.Errorf("%s: %q, want %q", name, got, c.field)
		}
	}
}

// The history tells decisions in the order of their positions, whatever generation and attempt they are about.
func TestHistory(t *testing.T) {
	g1 := &shard.Generation{Number: 1, State: shard.StateSuperseded, TerminalReason: shard.ReasonRescheduled, TerminalIndex: 9, TerminalAt: 9, DestinationVersion: 1}
	g2 := &shard.Generation{Number: 2, Origin: shard.OriginReschedule, CreatedIndex: 9, CreatedAt: 9, State: shard.StateUncertain}
	a := &shard.Attempt{
		Number: 1, AdmittedIndex: 10, AdmittedAt: 10, Settled: true, OutcomeIndex: 12, OutcomeAt: 12, Decision: "HOLD HOLD_POLICY", SideEffect: policy.Published,
		Outcome:     shard.Outcome{SideEffect: policy.Unknown, Disposition: policy.MessageRetriable, Evidence: shard.Evidence{Rule: "HTTP_H3"}},
		Resolutions: []shard.Resolution{{SideEffect: policy.Published, Index: 14, At: 14, Effect: "RESOLVED", Override: true, Actor: "ann", Reason: "seen", OperationID: "op-1"}},
	}
	v := &shard.MessageView{
		Message:     &shard.Message{AcceptedIndex: 5, AcceptedAt: 5, Destination: "billing"},
		Generations: []shard.GenerationView{{Generation: g1}, {Generation: g2, Attempts: []*shard.Attempt{a}}},
	}
	var got []string
	for _, h := range historyOf(v, 3) {
		got = append(got, h.GetPosition()+" "+h.GetEvent().String())
	}
	want := "3:5 ACCEPTED, 3:9 ENDED, 3:9 GENERATION_CREATED, 3:10 ADMITTED, 3:12 OUTCOME, 3:14 EVIDENCE"
	if s := strings.Join(got, ", "); s != want {
		t.Fatalf("%s\nwant %s", s, want)
	}
	last := historyOf(v, 3)[5]
	if last.GetActor() != "ann" || last.GetOperationId() != "op-1" || !strings.Contains(last.GetDetail(), "override") {
		t.Fatal(last)
	}
}

// Targets are described without what may be secret.
func TestDescribeTarget(t *testing.T) {
	for key, want := range map[string]string{
		"http https://u:p@h.example:8443/a?token=s#f sha256/x": "https://h.example:8443/a",
		"http http://h ":  "http://h",
		"kafka something": "kafka",
		"":                "",
	} {
		if got := describeTarget(key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}
