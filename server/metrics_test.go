package server

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sealane/sealane/policy"
	"github.com/sealane/sealane/shard"
)

func newTestRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

func counterValue(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var out dto.Metric
	if err := c.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue()
}

// The three side effects are counted apart, an outcome once, and later evidence in a series of its own.
func TestCountEffects(t *testing.T) {
	m := &metrics{}
	m.register(newTestRegistry())
	m.count([]shard.Effect{
		{Kind: shard.EffectAdmitted}, {Kind: shard.EffectAdmitted},
		{Kind: shard.EffectSettled, First: true, SideEffect: policy.Published, Disposition: policy.OK},
		{Kind: shard.EffectSettled, First: true, SideEffect: policy.Unknown, Disposition: policy.MessageRetriable},
		{Kind: shard.EffectSettled, SideEffect: policy.NotPublished},
		{Kind: shard.EffectTerminal, State: shard.StateDelivered},
		{Kind: shard.EffectContradiction}, {Kind: shard.EffectWork},
		{Kind: shard.EffectSettled, First: true, SideEffect: 99, Disposition: 99}, // not ours to judge; never a crash
	})
	for name, c := range map[string]struct {
		counter prometheus.Counter
		want    float64
	}{
		"admissions": {m.admissions, 2}, "published": {m.attempts[policy.Published], 1}, "unknown": {m.attempts[policy.Unknown], 1},
		"not published": {m.attempts[policy.NotPublished], 0}, "ok": {m.dispositions[policy.OK], 1}, "resolved": {m.resolved[policy.NotPublished], 1},
		"delivered": {m.ended[shard.StateDelivered], 1}, "contradicted": {m.contradicted, 1},
	} {
		if got := counterValue(t, c.counter); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Beyond the bound, destinations share one series, and nothing is lost from the sum.
func TestMetricDestinationsAreBounded(t *testing.T) {
	byName := make(map[string]*laneSums)
	for i := range maxMetricDestinations + 50 {
		byName[fmt.Sprintf("d%05d", i)] = &laneSums{counts: shard.LaneCounts{Scheduled: 1}}
	}
	out := bounded(byName)
	if len(out) != maxMetricDestinations+1 || out[otherDestinations].counts.Scheduled != 50 {
		t.Fatalf("%d series, %d in the last", len(out), out[otherDestinations].counts.Scheduled)
	}
}
