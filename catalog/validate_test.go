package catalog_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/policy"
)

const shards = 16

// valid is a definition with every field set, and legal.
func valid() catalog.Destination {
	return catalog.Destination{
		Name: "billing",
		HTTP: &catalog.HTTPTarget{
			URL: "https://billing.example.com/hooks?a=b", Timeout: time.Second, Headers: []catalog.Header{{Name: "X-Tenant", Value: "acme corp\t1"}},
			StatusVerdicts: catalog.VerdictsStrict, TLSPin: "sha256/" + strings.Repeat("A", 43) + "=", SigningSecrets: []catalog.SecretRef{{Env: "NEW"}, {File: "/old"}},
		},
		Retry:       policy.DefaultRetry(),
		Uncertainty: policy.Uncertainty{OnUncertain: policy.UncertainRetry, MaxRetries: 3, ReceiverDedupWindow: time.Hour},
		Probe:       &catalog.Probe{URL: "https://billing.example.com/seen/{webhook_id}", Found: []uint32{200}, Absent: []uint32{404}},
		Lane:        catalog.LaneLimits{MaxInFlight: 32, RatePerSecond: 100, Spread: 4, MaxPending: 1000, MaxPendingBytes: 1 << 20, MaxBytesInFlight: 1 << 10},
		Circuit:     policy.DefaultCircuit(), Retention: time.Hour, IdempotencyWindow: time.Hour,
		DeadLetter: catalog.DeadLetter{Retention: time.Hour, Export: "archive"},
	}
}

func fields(ps []policy.Problem) []string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = p.Field
	}
	return out
}

// rule is one bound of a definition: what is just legal, what is just not, which field the complaint names, and a word of its reason.
type rule struct {
	field, reason string
	good, bad     func(*catalog.Destination)
}

func num[T int | uint32 | uint64 | time.Duration](field, reason string, of func(*catalog.Destination) *T, good, bad T) rule {
	return rule{field, reason, func(d *catalog.Destination) { *of(d) = good }, func(d *catalog.Destination) { *of(d) = bad }}
}

func text(field, reason string, of func(*catalog.Destination) *string, good, bad string) rule {
	return rule{field, reason, func(d *catalog.Destination) { *of(d) = good }, func(d *catalog.Destination) { *of(d) = bad }}
}

func headers(n, size int) []catalog.Header {
	h := make([]catalog.Header, n)
	for i := range h {
		h[i] = catalog.Header{Name: fmt.Sprintf("X-%02d", i), Value: strings.Repeat("v", size)}
	}
	return h
}

func nameRules() []rule {
	name := func(d *catalog.Destination) *string { return &d.Name }
	var rules []rule
	for good, bad := range map[string]string{
		"a": "", "0": "A", "a.b_c-d": "a b", "a9": "-a", "a1": ".a", "a2": "_a", "a3": "a/b", "a4": "ä", "a5": "a\n", strings.Repeat("x", 63): strings.Repeat("x", 64),
	} {
		rules = append(rules, text("name", "must match", name, good, bad))
	}
	export := func(d *catalog.Destination) *string { return &d.DeadLetter.Export }
	return append(rules,
		text("dead_letter.export.destination", "must be a destination name", export, "", "Archive"),
		text("dead_letter.export.destination", "not be the destination itself", export, "billing2", "billing"),
	)
}

func httpRules() []rule {
	url := func(d *catalog.Destination) *string { return &d.HTTP.URL }
	head := func(field, reason string, good, bad []catalog.Header) rule {
		return rule{field, reason, func(d *catalog.Destination) { d.HTTP.Headers = good }, func(d *catalog.Destination) { d.HTTP.Headers = bad }}
	}
	one := func(name, value string) []catalog.Header { return []catalog.Header{{Name: name, Value: value}} }
	rules := []rule{
		{"http", "is required", func(*catalog.Destination) {}, func(d *catalog.Destination) { d.HTTP = nil }},
		text("http.url", "http:// or https://", url, "http://h", "ftp://h"),
		text("http.url", "name a host", url, "https://h:1/", "https://:1/"),
		text("http.url", "not hold user name or password", url, "https://h", "https://u:p@h"),
		text("http.url", "fragment", url, "https://h/?q", "https://h/#f"),
		text("http.url", "not a URL", url, "https://h/%20", "https://h/%2"),
		text("http.url", "2048 bytes", url, "https://h/"+strings.Repeat("x", 2038), "https://h/"+strings.Repeat("x", 2039)),
		num("http.timeout", "from 10ms", func(d *catalog.Destination) *time.Duration { return &d.HTTP.Timeout }, 10*time.Millisecond, 10*time.Millisecond-1),
		num("http.timeout", "to 10m", func(d *catalog.Destination) *time.Duration { return &d.HTTP.Timeout }, 10*time.Minute, 10*time.Minute+1),
		head("http.headers", "at most 64", headers(64, 1), headers(65, 1)),
		head("http.headers", "8192 bytes together", headers(1, 8188), headers(1, 8189)),
		head("http.headers.\"\"", "not a header name", one("!#$", "x"), one("", "x")),
		head("http.headers.\"a b\"", "not a header name", one("ab", "x"), one("a b", "x")),
		head("http.headers.\"a:\"", "not a header name", one("a|", "x"), one("a:", "x")),
		head("http.headers.X", "printable ASCII", one("X", "a\tb c"), one("X", "a\r\nb")),
		head("http.headers.X", "printable ASCII", one("X", ""), one("X", "\x7f")),
		head("http.headers.X", "printable ASCII", one("X", "a b"), one("X", "é")),
		head("http.headers.X", "printable ASCII", one("X", "a"), one("X", " a")),
		text("http.status_verdicts", "receiver or strict", func(d *catalog.Destination) *string { return &d.HTTP.StatusVerdicts }, "receiver", ""),
		text("http.tls.pin", "base64 of 32 bytes", func(d *catalog.Destination) *string { return &d.HTTP.TLSPin }, "", "sha256/"+strings.Repeat("A", 44)),
		text("http.tls.pin", "base64 of 32 bytes", func(d *catalog.Destination) *string { return &d.HTTP.TLSPin }, "sha256/"+strings.Repeat("/", 43)+"=", strings.Repeat("A", 43)+"="),
		{"http.signing.standard_webhooks", "at most 2", func(d *catalog.Destination) { d.HTTP.SigningSecrets = nil }, func(d *catalog.Destination) { d.HTTP.SigningSecrets = make3() }},
		{"http.signing.standard_webhooks.secret", "exactly one of env and file", func(*catalog.Destination) {}, func(d *catalog.Destination) { d.HTTP.SigningSecrets[0].File = "both" }},
		{"http.signing.standard_webhooks.secret", "exactly one of env and file", func(*catalog.Destination) {}, func(d *catalog.Destination) { d.HTTP.SigningSecrets[1].File = "" }},
		text("uncertainty.probe.url", "http:// or https://", func(d *catalog.Destination) *string { return &d.Probe.URL }, "http://h", "h"),
		{"uncertainty.probe.found", "at least one", func(d *catalog.Destination) { d.Probe = nil }, func(d *catalog.Destination) { d.Probe.Found = nil }},
	}
	for _, reserved := range []string{"webhook-id", "Webhook-Signature", "IDEMPOTENCY-KEY", "Host", "Content-Length", "content-type", "Transfer-Encoding", "traceparent", "Sealane-Attempt", "sealane-anything"} {
		rules = append(rules, head("http.headers."+reserved, "set by Sealane", one("x-"+reserved, "x"), one(reserved, "x")))
	}
	return rules
}

func make3() []catalog.SecretRef { return []catalog.SecretRef{{Env: "A"}, {Env: "B"}, {Env: "C"}} }

func limitRules() []rule {
	const day = 24 * time.Hour
	retention := func(d *catalog.Destination) *time.Duration { return &d.Retention }
	dead := func(d *catalog.Destination) *time.Duration { return &d.DeadLetter.Retention }
	window := func(d *catalog.Destination) *time.Duration { return &d.IdempotencyWindow }
	inFlight := func(d *catalog.Destination) *uint32 { return &d.Lane.MaxInFlight }
	rate := func(d *catalog.Destination) *uint32 { return &d.Lane.RatePerSecond }
	spread := func(d *catalog.Destination) *uint32 { return &d.Lane.Spread }
	return []rule{
		num("lane.max_in_flight", "at least lane.spread", inFlight, 4, 3),
		num("lane.max_in_flight", "to 10000", inFlight, 10_000, 10_001),
		num("lane.rate_per_second", "at most 1000000", rate, 1_000_000, 1_000_001),
		num("lane.rate_per_second", "0 or at least lane.spread", rate, 4, 3),
		num("lane.rate_per_second", "0 or at least lane.spread", rate, 0, 1),
		num("lane.spread", "number of shards, 16", spread, 16, 17),
		num("lane.spread", "from 1", spread, 1, 0),
		num("lane.max_pending", "from 1", func(d *catalog.Destination) *uint64 { return &d.Lane.MaxPending }, 1, 0),
		num("lane.max_pending", "to 1000000000", func(d *catalog.Destination) *uint64 { return &d.Lane.MaxPending }, 1_000_000_000, 1_000_000_001),
		num("lane.max_pending_bytes", "at least 1", func(d *catalog.Destination) *uint64 { return &d.Lane.MaxPendingBytes }, 1, 0),
		num("lane.max_bytes_in_flight", "at least 1", func(d *catalog.Destination) *uint64 { return &d.Lane.MaxBytesInFlight }, 1, 0),
		num("retention", "from 1m", retention, time.Minute, time.Minute-1),
		num("retention", "to 8784h", retention, 366*day, 366*day+1),
		num("idempotency_window", "from 1m", window, time.Minute, time.Minute-1),
		num("idempotency_window", "to 8784h", window, 366*day, 366*day+1),
		num("dead_letter.retention", "from 1m", dead, time.Minute, time.Minute-1),
		num("dead_letter.retention", "to 8784h", dead, 366*day, 366*day+1),
	}
}

func policyRules() []rule {
	const day = 24 * time.Hour
	r := func(d *catalog.Destination) *policy.Retry { return &d.Retry }
	u := func(d *catalog.Destination) *policy.Uncertainty { return &d.Uncertainty }
	c := func(d *catalog.Destination) *policy.Circuit { return &d.Circuit }
	return []rule{
		{"retry.max_attempts", "from 1", func(d *catalog.Destination) { d.Uncertainty, d.Retry.MaxAttempts = policy.Uncertainty{}, 1 }, func(d *catalog.Destination) { d.Retry.MaxAttempts = 0 }},
		num("retry.max_attempts", "to 1000000", func(d *catalog.Destination) *uint32 { return &r(d).MaxAttempts }, 1_000_000, 1_000_001),
		num("retry.max_backoff", "to 720h", func(d *catalog.Destination) *time.Duration { return &r(d).MaxBackoff }, 30*day, 30*day+1),
		num("retry.initial_backoff", "to max_backoff", func(d *catalog.Destination) *time.Duration { return &r(d).InitialBackoff }, time.Hour, time.Hour+1),
		num("retry.initial_backoff", "from 0s", func(d *catalog.Destination) *time.Duration { return &r(d).InitialBackoff }, 0, -1),
		num("retry.multiplier", "from 1", func(d *catalog.Destination) *uint32 { return &r(d).Multiplier }, 1, 0),
		num("retry.multiplier", "to 10", func(d *catalog.Destination) *uint32 { return &r(d).Multiplier }, 10, 11),
		{"retry.jitter", "full, equal or none", func(d *catalog.Destination) { d.Retry.Jitter = policy.JitterNone }, func(d *catalog.Destination) { d.Retry.Jitter = 3 }},
		{"retry.schedule", "at most 100", func(d *catalog.Destination) { d.Retry.Schedule = make([]time.Duration, 100) }, func(d *catalog.Destination) { d.Retry.Schedule = make([]time.Duration, 101) }},
		{"retry.schedule[1]", "from 0s", func(d *catalog.Destination) { d.Retry.Schedule = []time.Duration{0, 30 * day} }, func(d *catalog.Destination) { d.Retry.Schedule = []time.Duration{0, -1} }},
		num("retry.lifetime", "more than 0s", func(d *catalog.Destination) *time.Duration { return &r(d).Lifetime }, 1, 0),
		num("retry.lifetime", "at most 8784h", func(d *catalog.Destination) *time.Duration { return &r(d).Lifetime }, 366*day, 366*day+1),
		{"uncertainty.on_uncertain", "hold or retry", func(*catalog.Destination) {}, func(d *catalog.Destination) { *u(d) = policy.Uncertainty{OnUncertain: 2} }},
		num("uncertainty.max_retries", "from 1", func(d *catalog.Destination) *uint32 { return &u(d).MaxRetries }, 1, 0),
		{"uncertainty.max_retries", "to 1000", func(d *catalog.Destination) { u(d).MaxRetries, d.Retry.MaxAttempts = 1000, 1001 }, func(d *catalog.Destination) { u(d).MaxRetries, d.Retry.MaxAttempts = 1001, 1002 }},
		num("uncertainty.max_retries", "less than retry.max_attempts, 8", func(d *catalog.Destination) *uint32 { return &u(d).MaxRetries }, 7, 8),
		num("uncertainty.receiver_dedup_window", "to 8784h", func(d *catalog.Destination) *time.Duration { return &u(d).ReceiverDedupWindow }, 366*day, 366*day+1),
		{"uncertainty.on_uncertain", "exactly one of", func(*catalog.Destination) {}, func(d *catalog.Destination) { u(d).AcceptDuplicates = true }},
		{"uncertainty.on_uncertain", "exactly one of", func(*catalog.Destination) {}, func(d *catalog.Destination) { u(d).ReceiverDedupWindow = 0 }},
		{"uncertainty.max_retries", "0 with on_uncertain: hold", func(d *catalog.Destination) { *u(d) = policy.Uncertainty{} }, func(d *catalog.Destination) { *u(d) = policy.Uncertainty{MaxRetries: 1} }},
		{"uncertainty.accept_duplicates", "with on_uncertain: hold", func(*catalog.Destination) {}, func(d *catalog.Destination) { *u(d) = policy.Uncertainty{AcceptDuplicates: true} }},
		{"uncertainty.when_exhausted", "hold or dead_letter", func(d *catalog.Destination) { u(d).WhenExhausted = 1 }, func(d *catalog.Destination) { u(d).WhenExhausted = 2 }},
		num("circuit.failure_threshold", "from 1", func(d *catalog.Destination) *uint32 { return &c(d).FailureThreshold }, 1, 0),
		num("circuit.failure_threshold", "to 10000", func(d *catalog.Destination) *uint32 { return &c(d).FailureThreshold }, 10_000, 10_001),
		num("circuit.open_for", "from 10ms", func(d *catalog.Destination) *time.Duration { return &c(d).OpenFor }, 10*time.Millisecond, 10*time.Millisecond-1),
		num("circuit.max_open_for", "from open_for", func(d *catalog.Destination) *time.Duration { return &c(d).MaxOpenFor }, 30*time.Second, 30*time.Second-1),
		num("circuit.max_open_for", "24h", func(d *catalog.Destination) *time.Duration { return &c(d).MaxOpenFor }, day, day+1),
		num("circuit.half_open_successes", "from 1", func(d *catalog.Destination) *uint32 { return &c(d).HalfOpenSuccesses }, 1, 0),
		num("circuit.half_open_successes", "to 1000", func(d *catalog.Destination) *uint32 { return &c(d).HalfOpenSuccesses }, 1000, 1001),
		num("circuit.trial_timeout", "from 1s", func(d *catalog.Destination) *time.Duration { return &c(d).TrialTimeout }, time.Second, time.Second-1),
		num("circuit.trial_timeout", "to 1h", func(d *catalog.Destination) *time.Duration { return &c(d).TrialTimeout }, time.Hour, time.Hour+1),
	}
}

func allRules() []rule {
	return slices.Concat(nameRules(), httpRules(), limitRules(), policyRules())
}

// TestValidate tries every bound from both sides: the legal side gives no complaint at all, the other one names the field and the limit.
func TestValidate(t *testing.T) {
	if ps := valid().Validate(shards); len(ps) > 0 {
		t.Fatalf("the base is not valid: %v", ps)
	}
	for _, r := range allRules() {
		d := valid()
		r.good(&d)
		if ps := d.Validate(shards); len(ps) > 0 {
			t.Errorf("%s, legal: %v", r.field, ps)
		}
		d = valid()
		r.bad(&d)
		ps := d.Validate(shards)
		found := slices.ContainsFunc(ps, func(p policy.Problem) bool { return p.Field == r.field && strings.Contains(p.Reason, r.reason) })
		if !found {
			t.Errorf("%s: want a complaint of %q, got %v", r.field, r.reason, ps)
		}
	}
}

// TestValidateReachesEveryField: no field of a definition is left unchecked, except those for which every value is legal.
func TestValidateReachesEveryField(t *testing.T) {
	var complaints []string
	for _, r := range allRules() {
		complaints = append(complaints, r.field)
	}
	anything := []string{"Absent", "AbsentIsAuthoritative"}
	short := map[string]string{
		"HTTP": "http", "URL": "http.url", "TLSPin": "http.tls.pin", "SigningSecrets": "http.signing.standard_webhooks", "Env": "http.signing.standard_webhooks.secret",
		"File": "http.signing.standard_webhooks.secret", "Value": "http.headers.X", "Probe": "uncertainty.probe.found", "Found": "uncertainty.probe.found",
		"Export": "dead_letter.export.destination", "Retention": "retention", "DeadLetter": "dead_letter.retention", "Headers": "http.headers",
	}
	var walk func(reflect.Type, string)
	walk = func(ty reflect.Type, under string) {
		for i := range ty.NumField() {
			f := ty.Field(i)
			name := short[f.Name]
			if name == "" {
				name = snake(f.Name)
			}
			ok := slices.Contains(anything, f.Name) || slices.ContainsFunc(complaints, func(c string) bool {
				return c == name || strings.HasSuffix(c, "."+name) || strings.HasPrefix(c, name+".")
			})
			if !ok {
				t.Errorf("no rule is about %s.%s (%s)", under, f.Name, name)
			}
			inner := f.Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				walk(inner, f.Name)
			}
		}
	}
	walk(reflect.TypeFor[catalog.Destination](), "Destination")
}

func snake(s string) string {
	var b strings.Builder
	for i, c := range s {
		if c >= 'A' && c <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// TestValidateAll: one call reports everything that is wrong, in the order of the fields.
func TestValidateAll(t *testing.T) {
	d := catalog.Destination{
		Name: "Bad", HTTP: &catalog.HTTPTarget{URL: "x", Timeout: -1, StatusVerdicts: "?", TLSPin: "?"}, Retry: policy.Retry{Jitter: 9},
		Uncertainty: policy.Uncertainty{OnUncertain: 9}, Probe: &catalog.Probe{}, DeadLetter: catalog.DeadLetter{Export: "Bad"},
	}
	want := []string{
		"name", "http.url", "http.url", "http.timeout", "http.status_verdicts", "http.tls.pin", "retry.max_attempts", "retry.multiplier", "retry.jitter", "retry.lifetime",
		"uncertainty.on_uncertain", "uncertainty.probe.url", "uncertainty.probe.url", "uncertainty.probe.found", "lane.max_in_flight", "lane.spread", "lane.max_pending",
		"lane.max_pending_bytes", "lane.max_bytes_in_flight", "circuit.failure_threshold", "circuit.open_for", "circuit.half_open_successes", "circuit.trial_timeout", "retention",
		"idempotency_window", "dead_letter.retention", "dead_letter.export.destination", "dead_letter.export.destination",
	}
	if got := fields(d.Validate(shards)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if ps := (catalog.Destination{}).Validate(0); len(ps) == 0 || fields(ps)[0] != "name" {
		t.Errorf("an empty definition: %v", ps)
	}
}

// TestWithDefaults: a definition that says nothing but its target is legal, defaults are those of the design, and twice is once.
func TestWithDefaults(t *testing.T) {
	d := catalog.Destination{Name: "d", HTTP: &catalog.HTTPTarget{URL: "https://h"}}
	full := d.WithDefaults()
	if ps := full.Validate(shards); len(ps) > 0 {
		t.Errorf("defaults are not legal: %v", ps)
	}
	if !reflect.DeepEqual(full.WithDefaults(), full) {
		t.Error("applying defaults twice changes something")
	}
	if d.HTTP.Timeout != 0 {
		t.Error("the caller's definition was changed")
	}
	want := catalog.Destination{
		Name: "d", HTTP: &catalog.HTTPTarget{URL: "https://h", Timeout: 15 * time.Second, StatusVerdicts: "receiver"},
		Retry:     policy.Retry{MaxAttempts: 8, InitialBackoff: time.Second, MaxBackoff: time.Hour, Multiplier: 2, Lifetime: 72 * time.Hour},
		Lane:      catalog.LaneLimits{MaxInFlight: 32, Spread: 1, MaxPending: 1_000_000, MaxPendingBytes: 10 << 30, MaxBytesInFlight: 64 << 20},
		Circuit:   policy.Circuit{FailureThreshold: 5, OpenFor: 30 * time.Second, MaxOpenFor: 10 * time.Minute, HalfOpenSuccesses: 3, TrialTimeout: time.Minute},
		Retention: 7 * 24 * time.Hour, IdempotencyWindow: 24 * time.Hour, DeadLetter: catalog.DeadLetter{Retention: 30 * 24 * time.Hour},
	}
	if !reflect.DeepEqual(full, want) {
		t.Errorf("got  %+v\nwant %+v", full, want)
	}
	set := valid()
	if !reflect.DeepEqual(set.WithDefaults(), set) {
		t.Error("a default replaced what was set")
	}
	short := catalog.Destination{Retry: policy.Retry{MaxBackoff: time.Millisecond}, Circuit: policy.Circuit{OpenFor: time.Hour}}.WithDefaults()
	if short.Retry.InitialBackoff != time.Millisecond || short.Circuit.MaxOpenFor != time.Hour {
		t.Errorf("a default breaks a bound: %+v %+v", short.Retry, short.Circuit)
	}
}
