package api_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// read parses a body strictly: a field that is not in the contract fails.
func read[M proto.Message](t *testing.T, body string, into M) M {
	t.Helper()
	if err := protojson.Unmarshal([]byte(body), into); err != nil {
		t.Fatal(err)
	}
	return into
}

// The bodies below are those that DESIGN 12 shows, with every field that it names.

func TestReadReplay(t *testing.T) {
	m := read(t, `{"operation_id":"op-7","reason":"receiver fixed","replay":{"filter":{"destination":"billing","reason":"EXHAUSTED",
		"error_class":"TIMEOUT","failed_after":"2026-01-02T03:04:05Z","failed_before":"2026-01-03T00:00:00Z"},
		"version":"latest","rate_per_second":200,"allow_duplicate":true,"dry_run":true}}`, &sealanev1.CreateOperationRequest{})
	r := m.GetReplay()
	if m.GetOperationId() != "op-7" || r.GetVersion() != "latest" || r.GetRatePerSecond() != 200 || !r.GetAllowDuplicate() || !r.GetDryRun() {
		t.Errorf("read as %v", m)
	}
	if f := r.GetFilter(); f.GetDestination() != "billing" || f.GetReason() != sealanev1.TerminalReason_EXHAUSTED {
		t.Errorf("filter read as %v", f)
	}
}

func TestReadResolve(t *testing.T) {
	m := read(t, `{"operation_id":"op-8","reason":"seen in their log",
		"resolve":{"message_id":"msg_x","attempt":1,"verdict":"PUBLISHED","evidence":"line 7"}}`, &sealanev1.CreateOperationRequest{})
	if r := m.GetResolve(); r.GetVerdict() != sealanev1.ResolveVerdict_PUBLISHED || r.GetAttempt() != 1 {
		t.Errorf("read as %v", m)
	}
}

// A lane operation without a slot means all of them, which is not the same as slot 0.
func TestReadLaneSlot(t *testing.T) {
	all := read(t, `{"operation_id":"a","reason":"r","pause_lane":{"destination":"billing"}}`, &sealanev1.CreateOperationRequest{})
	one := read(t, `{"operation_id":"b","reason":"r","pause_lane":{"destination":"billing","slot":0}}`, &sealanev1.CreateOperationRequest{})
	if all.GetPauseLane().Slot != nil || one.GetPauseLane().Slot == nil {
		t.Errorf("read as %v and %v", all, one)
	}
}

// Two kinds in one operation are refused, not settled by the last one.
func TestReadTwoKindsIsRefused(t *testing.T) {
	body := `{"operation_id":"a","reason":"r","pause_lane":{"destination":"b"},"resume_lane":{"destination":"b"}}`
	if err := protojson.Unmarshal([]byte(body), &sealanev1.CreateOperationRequest{}); err == nil {
		t.Error("accepted")
	}
}

// The destination file of DESIGN 12 as JSON, with durations in seconds.
const billing = `{
	"name": "billing",
	"http": {
		"url": "https://billing.example.com/hooks",
		"timeout": "15s",
		"headers": {"X-Tenant": "acme"},
		"status_verdicts": "receiver",
		"tls": {"pin": "sha256/AAAA"},
		"signing": {"standard_webhooks": {"secret": {"env": "BILLING_WEBHOOK_SECRET"}}}
	},
	"retry": {"max_attempts": 8, "initial_backoff": "1s", "max_backoff": "3600s", "jitter": "full", "lifetime": "259200s"},
	"uncertainty": {
		"on_uncertain": "retry", "max_retries": 3, "receiver_dedup_window": "86400s", "when_exhausted": "hold",
		"probe": {"url": "https://billing.example.com/hooks/{webhook_id}", "found": [200], "absent": [404], "absent_is_authoritative": true}
	},
	"lane": {"max_in_flight": 32, "rate_per_second": 100, "spread": 1},
	"circuit": {"failure_threshold": 5},
	"dead_letter": {"retention": "2592000s", "export": {"destination": "dead-letter-archive"}}
}`

func TestReadDestination(t *testing.T) {
	d := read(t, billing, &sealanev1.Destination{})
	switch {
	case d.GetHttp().GetTimeout().AsDuration() != 15*time.Second,
		d.GetHttp().GetStatusVerdicts() != sealanev1.StatusVerdicts_receiver,
		d.GetHttp().GetSigning().GetStandardWebhooks().GetSecret().GetEnv() != "BILLING_WEBHOOK_SECRET",
		d.GetRetry().GetJitter() != sealanev1.Jitter_full,
		d.GetRetry().GetLifetime().AsDuration() != 72*time.Hour,
		d.GetUncertainty().GetOnUncertain() != sealanev1.OnUncertain_retry,
		d.GetUncertainty().GetWhenExhausted() != sealanev1.WhenExhausted_hold,
		len(d.GetUncertainty().GetProbe().GetFound()) != 1,
		d.GetLane().GetRatePerSecond() != 100,
		d.GetDeadLetter().GetExport().GetDestination() != "dead-letter-archive":
		t.Errorf("read as %v", d)
	}
	// What is printed can be applied again: the shape of a file is the shape of an answer.
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if again := read(t, string(b), &sealanev1.Destination{}); !proto.Equal(d, again) {
		t.Errorf("printed as %s, read as %v", b, again)
	}
}

func TestReadRetrySchedule(t *testing.T) {
	d := read(t, `{"retry":{"schedule":["5s","300s","1800s"],"jitter":"none"}}`, &sealanev1.Destination{})
	s := d.GetRetry().GetSchedule()
	if len(s) != 3 || s[2].AsDuration() != 30*time.Minute {
		t.Errorf("read as %v", d)
	}
	if err := protojson.Unmarshal([]byte(`{"retry":{"jitter":"FULL"}}`), &sealanev1.Destination{}); err == nil {
		t.Error("a word of another spelling is accepted")
	}
}

func TestReadSubmit(t *testing.T) {
	m := read(t, `{"destination":"billing","payload":"aGVsbG8=","content_type":"text/plain","idempotency_key":"k","ordering_key":"o",
		"deliver_at":"2026-01-02T03:04:05Z","expire_at":"2026-01-03T03:04:05Z","submit_by":"2026-01-02T00:00:00Z",
		"attributes":{"a":"b"},"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`, &sealanev1.SubmitRequest{})
	if string(m.GetPayload()) != "hello" || m.GetAttributes()["a"] != "b" || m.GetDeliverAt().AsTime().Year() != 2026 {
		t.Errorf("read as %v", m)
	}
}
