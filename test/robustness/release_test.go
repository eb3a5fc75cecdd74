package robustness

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sealane/sealane/server/fault"
)

// TestReleaseHasNoFaults looks into both builds: what injects faults is in the one that asks for it, and nothing of it is in the other.
func TestReleaseHasNoFaults(t *testing.T) {
	if os.Getenv("SEALANE_TEST_BINARY") != "" {
		t.Skip("SEALANE_TEST_BINARY is set: there is one binary only, and nobody knows which")
	}
	words := []string{fault.Variable, fault.SnapshotVariable, "fault endpoint", "disk.slow_sync"}
	for tags, want := range map[string]bool{"": false, "faults": true} {
		bin := build(t, tags)
		b, err := os.ReadFile(bin)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range words {
			if got := bytes.Contains(b, []byte(w)); got != want {
				t.Errorf("build with tags %q contains %q: %v, want %v", tags, w, got, want)
			}
		}
		out, err := exec.Command("go", "tool", "nm", bin).Output()
		if err != nil {
			t.Fatal(err)
		}
		symbols := 0
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "/server/fault.") {
				symbols++
			}
		}
		if (symbols > 0) != want {
			t.Errorf("build with tags %q has %d symbols of server/fault, want some: %v", tags, symbols, want)
		}
	}
}
