package server

import (
	"strings"
	"testing"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/catalog"
)

// TestWhatNothingActsOnIsRefused: a definition that asks for a probe or an export is refused by name until there is one.
func TestWhatNothingActsOnIsRefused(t *testing.T) {
	s := &destinationService{n: &Node{cluster: catalog.Cluster{Shards: 4}}}
	base := func() *sealanev1.Destination {
		return &sealanev1.Destination{Name: "d", Adapter: &sealanev1.Destination_Http{Http: &sealanev1.HttpTarget{Url: "https://example.com"}}}
	}
	probe, export := base(), base()
	probe.Uncertainty = &sealanev1.UncertaintyPolicy{Probe: &sealanev1.HttpProbe{Url: "https://example.com/{webhook_id}", Found: []uint32{200}}}
	export.DeadLetter = &sealanev1.DeadLetterPolicy{Export: &sealanev1.DeadLetterExportPolicy{Destination: "archive"}}
	for field, d := range map[string]*sealanev1.Destination{"uncertainty.probe": probe, "dead_letter.export": export} {
		if _, err := s.spec(&sealanev1.ApplyDestinationRequest{Name: "d", Destination: d}); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := s.spec(&sealanev1.ApplyDestinationRequest{Name: "d", Destination: base()}); err != nil {
		t.Errorf("a plain definition: %v", err)
	}
}
