package robustness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built keeps the binaries of this test process, by build tag.
var built struct {
	sync.Mutex
	dir    string
	binary map[string]string
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sealane-robustness-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.dir, built.binary = dir, map[string]string{}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// build makes the binary that a test runs, once; SEALANE_TEST_BINARY names one that is there already.
func build(t *testing.T, tags string) string {
	t.Helper()
	if bin := os.Getenv("SEALANE_TEST_BINARY"); bin != "" {
		return bin
	}
	built.Lock()
	defer built.Unlock()
	if bin := built.binary[tags]; bin != "" {
		return bin
	}
	bin := filepath.Join(built.dir, "sealane-"+tags)
	out, err := exec.Command("go", "build", "-tags", tags, "-o", bin, "github.com/sealane/sealane/cmd/sealane").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	built.binary[tags] = bin
	return bin
}
