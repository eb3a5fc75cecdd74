package logcodec_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	logv1 "github.com/sealane/sealane/api/gen/sealane/log/v1"
	"github.com/sealane/sealane/catalog"
	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
	"github.com/sealane/sealane/shard/logcodec"
	"pgregory.net/rapid"
)

// catalogSamples has one command of every kind, with every field set.
func catalogSamples() []catalog.Command {
	d := sampleDestination()
	return []catalog.Command{
		&catalog.FoundCluster{Incarnation: 0x0102030405060708, Shards: 16},
		&catalog.ApplyDestination{Namespace: "ns", Spec: catalog.Destination{
			Name: "billing",
			HTTP: &catalog.HTTPTarget{
				URL: "https://billing.example.com/hooks", Timeout: time.Second, Headers: []catalog.Header{{Name: "X-Tenant", Value: "acme"}, {Name: "X-Z", Value: "1"}},
				StatusVerdicts: catalog.VerdictsStrict, TLSPin: "sha256/x", SigningSecrets: []catalog.SecretRef{{Env: "A"}, {File: "/b"}},
			},
			Retry: d.Retry, Uncertainty: d.Uncertainty,
			Probe:   &catalog.Probe{URL: "https://p/{webhook_id}", Found: []uint32{200, 204}, Absent: []uint32{404}, AbsentIsAuthoritative: true},
			Lane:    catalog.LaneLimits{MaxInFlight: 1, RatePerSecond: 2, Spread: 3, MaxPending: 4, MaxPendingBytes: 5, MaxBytesInFlight: 6},
			Circuit: d.Circuit, Retention: 6, IdempotencyWindow: 7, DeadLetter: catalog.DeadLetter{Retention: 8, Export: "archive"},
		}},
		&catalog.DeleteDestination{Namespace: "ns", Name: "billing"},
	}
}

func mustAppendCatalog(t testing.TB, c catalog.Command) []byte {
	t.Helper()
	b, err := logcodec.AppendCatalog(nil, c)
	if err != nil {
		t.Fatalf("%T: %v", c, err)
	}
	return b
}

func TestCatalogSamplesAreFull(t *testing.T) {
	kinds := (&logv1.CatalogCommand{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields().Len()
	if len(catalogSamples()) != kinds {
		t.Errorf("%d samples of %d kinds", len(catalogSamples()), kinds)
	}
	for _, c := range catalogSamples() {
		v := reflect.ValueOf(c).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("the sample of %T leaves out %s", c, v.Type().Field(i).Name)
			}
		}
		if a, ok := c.(*catalog.ApplyDestination); ok {
			spec := reflect.ValueOf(a.Spec)
			for i := range spec.NumField() {
				if spec.Field(i).IsZero() {
					t.Errorf("the sample leaves out %s", spec.Type().Field(i).Name)
				}
			}
		}
	}
}

// TestCatalogRoundTrip: any command of the control group comes back as it was.
func TestCatalogRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		found := rapid.Make[catalog.FoundCluster]().Draw(t, "found")
		deleted := rapid.Make[catalog.DeleteDestination]().Draw(t, "delete")
		applied := rapid.Make[catalog.ApplyDestination]().Draw(t, "apply")
		normal(&applied.Spec)
		for _, c := range []catalog.Command{&found, &deleted, &applied} {
			b, err := logcodec.AppendCatalog(nil, c)
			if err != nil {
				t.Fatal(err)
			}
			got, err := logcodec.DecodeCatalog(b)
			if err != nil || !reflect.DeepEqual(got, c) {
				t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, c)
			}
		}
	})
}

// normal makes empty lists nil and keeps enumerations to what this build knows.
func normal(d *catalog.Destination) {
	d.Retry.Jitter %= 3
	d.Uncertainty.OnUncertain %= 2
	d.Uncertainty.WhenExhausted %= 2
	if len(d.Retry.Schedule) == 0 {
		d.Retry.Schedule = nil
	}
	if h := d.HTTP; h != nil {
		if len(h.Headers) == 0 {
			h.Headers = nil
		}
		if len(h.SigningSecrets) == 0 {
			h.SigningSecrets = nil
		}
	}
	if p := d.Probe; p != nil {
		if len(p.Found) == 0 {
			p.Found = nil
		}
		if len(p.Absent) == 0 {
			p.Absent = nil
		}
	}
}

// TestCatalogUnknown: a field or number this build does not know stops the control group, wherever it is.
func TestCatalogUnknown(t *testing.T) {
	for _, c := range catalogSamples() {
		tryUnknown(t, kindName(c), mustAppendCatalog(t, c), &logv1.CatalogCommand{}, func(b []byte) error {
			_, err := logcodec.DecodeCatalog(b)
			return err
		})
	}
	if _, err := logcodec.DecodeCatalog(nil); !errors.Is(err, logcodec.ErrUnknown) {
		t.Errorf("an empty command: %v", err)
	}
	if _, err := logcodec.DecodeCatalog([]byte{0xff}); !errors.Is(err, logcodec.ErrMalformed) {
		t.Errorf("no protobuf at all: %v", err)
	}
	if _, err := logcodec.AppendCatalog(nil, nil); !errors.Is(err, logcodec.ErrUnknown) {
		t.Errorf("no command: %v", err)
	}
}

func FuzzDecodeCatalog(f *testing.F) {
	for _, c := range catalogSamples() {
		b := mustAppendCatalog(f, c)
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := logcodec.DecodeCatalog(b)
		if err != nil {
			if !errors.Is(err, logcodec.ErrUnknown) && !errors.Is(err, logcodec.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		again, err := logcodec.DecodeCatalog(mustAppendCatalog(t, c))
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%v\n%+v\n%+v", err, c, again)
		}
	})
}

// TestBoundsAgree: what a definition may say and what a shard takes are the same bounds.
func TestBoundsAgree(t *testing.T) {
	for _, r := range []struct {
		ok  bool
		why string
	}{
		{catalog.MaxNameBytes == shard.MaxDestinationName, "names of destinations"},
		{catalog.DefaultMaxPending == shard.DefaultLaneMessages, "default backlog in messages"},
		{catalog.DefaultMaxPendingBytes == shard.DefaultLaneBytes, "default backlog in bytes"},
		{catalog.DefaultMaxPendingBytes >= shard.MaxPayloadBytes, "a lane must hold its largest message"},
		{catalog.MaxRetention <= shard.MaxExpiry, "history is not kept longer than a message may live"},
		{catalog.MaxTimeout < policy.MaxBackoffLimit, "an attempt ends before its longest wait"},
		{catalog.MinIdempotencyWindow > 0, "a key is remembered"},
		{catalog.MaxSpread <= 1<<16, "shards are numbered by 16 bits"},
		{catalog.DefaultTimeout < catalog.MaxTimeout, "the default timeout is legal"},
	} {
		if !r.ok {
			t.Error(r.why)
		}
	}
}
