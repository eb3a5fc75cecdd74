package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// The example of DESIGN 12, as it stands there.
const billingFile = `
name: billing
http:
  url: https://billing.example.com/hooks
  timeout: 15s
  headers: {X-Tenant: acme}
  status_verdicts: receiver            # or strict
  tls: {pin: "sha256/…"}
  signing: {standard_webhooks: {secret: {env: BILLING_WEBHOOK_SECRET}}}
retry: {max_attempts: 8, initial_backoff: 1s, max_backoff: 1h, jitter: full, lifetime: 72h}   # or schedule: [5s, 5m, 30m]
uncertainty: {on_uncertain: retry, max_retries: 3, receiver_dedup_window: 24h, when_exhausted: hold,
  probe: {url: "https://billing.example.com/hooks/{webhook_id}", found: [200], absent: [404], absent_is_authoritative: true}}
lane: {max_in_flight: 32, rate_per_second: 100, spread: 1}
circuit: {failure_threshold: 5}
dead_letter: {retention: 720h, export: {destination: dead-letter-archive}}
`

func billing() *sealanev1.Destination {
	return &sealanev1.Destination{
		Name: "billing",
		Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{
			Url: "https://billing.example.com/hooks", Timeout: durationpb.New(15 * time.Second), Headers: map[string]string{"X-Tenant": "acme"},
			StatusVerdicts: sealanev1.StatusVerdicts_receiver, Tls: &sealanev1.HttpTls{Pin: "sha256/…"},
			Signing: &sealanev1.HttpSigning{Scheme: &sealanev1.HttpSigning_StandardWebhooks{StandardWebhooks: &sealanev1.StandardWebhooks{
				Secret: &sealanev1.SecretReference{Source: &sealanev1.SecretReference_Env{Env: "BILLING_WEBHOOK_SECRET"}},
			}}},
		}},
		Retry: &sealanev1.RetryPolicy{
			MaxAttempts: 8, InitialBackoff: durationpb.New(time.Second), MaxBackoff: durationpb.New(time.Hour), Jitter: sealanev1.Jitter_full,
			Lifetime: durationpb.New(72 * time.Hour),
		},
		Uncertainty: &sealanev1.UncertaintyPolicy{
			OnUncertain: sealanev1.OnUncertain_retry, MaxRetries: 3, ReceiverDedupWindow: durationpb.New(24 * time.Hour), WhenExhausted: sealanev1.WhenExhausted_hold,
			Probe: &sealanev1.HttpProbe{Url: "https://billing.example.com/hooks/{webhook_id}", Found: []uint32{200}, Absent: []uint32{404}, AbsentIsAuthoritative: true},
		},
		Lane:    &sealanev1.LaneLimits{MaxInFlight: 32, RatePerSecond: 100, Spread: 1},
		Circuit: &sealanev1.CircuitPolicy{FailureThreshold: 5},
		DeadLetter: &sealanev1.DeadLetterPolicy{
			Retention: durationpb.New(720 * time.Hour), Export: &sealanev1.DeadLetterExportPolicy{Destination: "dead-letter-archive"},
		},
	}
}

func TestReadDestinationFile(t *testing.T) {
	all, err := readDestinations("f", strings.NewReader(billingFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || !proto.Equal(all[0], billing()) {
		t.Errorf("read as %v", all)
	}
}

// What `destination get` prints can be applied again.
func TestPrintedDestinationReadsBack(t *testing.T) {
	for _, d := range []*sealanev1.Destination{billing(), {
		Name: "a.b", Version: 7, Namespace: "default",
		Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: "http://h/?a=b#", Headers: map[string]string{"X": "yes", "Y": "12", "Z": "a: b # c", "W": ""}}},
		Retry: &sealanev1.RetryPolicy{
			Schedule: []*durationpb.Duration{durationpb.New(0), durationpb.New(90 * time.Minute), durationpb.New(1500 * time.Millisecond), durationpb.New(100 * time.Minute)},
		},
		Lane: &sealanev1.LaneLimits{MaxPendingBytes: 1<<64 - 1},
	}} {
		var out bytes.Buffer
		if err := writeDestination(&out, d); err != nil {
			t.Fatal(err)
		}
		again, err := readDestinations("printed", bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		want := proto.CloneOf(d)
		want.Version, want.Namespace = 0, ""
		if !proto.Equal(again[0], want) {
			t.Errorf("printed as\n%s\nread as %v", &out, again[0])
		}
	}
}

func TestReadSeveralDestinations(t *testing.T) {
	all, err := readDestinations("f", strings.NewReader("name: a\n---\n---\nname: b\nversion: 3\ncreated_at: x\nretry:\n"))
	if err != nil || len(all) != 2 || all[1].GetName() != "b" || all[1].GetVersion() != 0 || all[1].GetRetry() != nil {
		t.Errorf("read as %v, %v", all, err)
	}
}

func TestReadDestinationRefuses(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"", "holds no destination"},
		{"# nothing\n", "holds no destination"},
		{"name: a\nhtpp: {url: x}\n", "line 2: htpp is not a known field; known here: name, http, retry"},
		{"name: a\nhttp: {url: x, timeuot: 3s}\n", "line 2: http.timeuot is not a known field; known here: url, timeout"},
		{"name: a\nuncertainty:\n  probe:\n    fuond: [200]\n", "line 4: uncertainty.probe.fuond is not a known field"},
		{"name: a\nname: b\n", "line 2: name stands twice"},
		{"name: a\nhttp: {headers: {X: 1, X: 2}}\n", "http.headers.X stands twice"},
		{"http: {url: x}\n", "line 1: name is required"},
		{"name: a\nhttp: {timeout: 15}\n", `line 2: http.timeout is "15", want a duration like 15s, 1h30m or 72h`},
		{"name: a\nretry: {schedule: [5s, never]}\n", `line 2: retry.schedule[1] is "never", want a duration`},
		{"name: a\nretry: {schedule: 5s}\n", "line 2: retry.schedule must be a list"},
		{"name: a\nretry: {jitter: some}\n", `retry.jitter is "some", want full or equal or none`},
		{"name: a\nretry: {max_attempts: -1}\n", `retry.max_attempts is "-1", want a whole number from 0 to 4294967295`},
		{"name: a\nretry: {max_attempts: 1.5}\n", `retry.max_attempts is "1.5"`},
		{"name: a\nlane: {max_pending: x}\n", `lane.max_pending is "x", want a whole number from 0 to 18446744073709551615`},
		{"name: a\nuncertainty: {accept_duplicates: yes}\n", `uncertainty.accept_duplicates is "yes", want true or false`},
		{"name: a\nhttp: {signing: {standard_webhooks: {secret: {env: A, file: /b}}}}\n", "http.signing.standard_webhooks.secret.file excludes env"},
		{"name: a\nhttp: {headers: [a]}\n", "http.headers must be a mapping"},
		{"name: a\nhttp: {headers: {X: [a]}}\n", "http.headers.X must be a text"},
		{"name: [a]\n", "name must be a single value"},
		{"name: a\nhttp: x\n", "http must be a mapping with the fields url"},
		{"- a\n", "the document must be a mapping"},
		{"a: [", "line 1"},
		{"name: a\n" + strings.Repeat("#", maxFileBytes), "more than 1048576 bytes"},
		{strings.Repeat("name: a\n---\n", maxDestinations+1), "more than 1000 destinations"},
		{"name: a\nx: 1\ny: 2\n", "line 3: y is not"},
	} {
		_, err := readDestinations("f", strings.NewReader(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q gives %v, want %q", c.file, err, c.want)
		}
	}
}

// Any text either is refused with an error or gives a destination that prints and reads back as the same.
func FuzzReadDestinations(f *testing.F) {
	f.Add(billingFile)
	f.Add("name: a\nretry: {schedule: [1s, &x 2s, *x]}\n")
	f.Add("{\"name\": \"a\", \"http\": {\"timeout\": \"5400s\"}}")
	f.Add("name: &a [*a]\n")
	f.Add("name: \"\\u2028\\x00\"\nhttp: {headers: {? \"a b\" : \"\\n\"}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := readDestinations("f", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, d := range all {
			var out bytes.Buffer
			if err := writeDestination(&out, d); err != nil {
				t.Fatal(err)
			}
			again, err := readDestinations("printed", bytes.NewReader(out.Bytes()))
			if err != nil || len(again) != 1 || !proto.Equal(again[0], d) {
				t.Fatalf("%v\nprinted as\n%s\nread as %v (%v)", d, &out, again, err)
			}
		}
	})
}
