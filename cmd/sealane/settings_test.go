package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/sealane/sealane/server"
)

func testFlags(cfg *server.Config) *pflag.FlagSet {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.String("config", "", "")
	f.StringVar(&cfg.DataDir, "data-dir", "", "")
	f.BoolVar(&cfg.AllowPrivateDestinations, "allow-private-destinations", false, "")
	nodeFlags(f, cfg)
	return f
}

// Flags come before the environment, the environment before the file, the file before the defaults.
func TestSettingsPrecedence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.yaml")
	text := "data-dir: from-file\ngrpc-addr: 127.0.0.1:1\nhttp-addr: 127.0.0.1:2\ndrain-timeout: 3s\nshards: 8\nallow-private-destinations: true\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := server.DefaultConfig()
	f := testFlags(&cfg)
	if err := f.Parse([]string{"--grpc-addr=127.0.0.1:7"}); err != nil {
		t.Fatal(err)
	}
	env := []string{"SEALANE_GRPC_ADDR=127.0.0.1:5", "SEALANE_HTTP_ADDR=127.0.0.1:6", "SEALANE_ADDR=elsewhere:1", "SEALANE_SERVICE_HOST=10.0.0.1", "SEALANE_PORT_7450_TCP=x", "HOME=/"}
	if err := fillFlags(f, path, env); err != nil {
		t.Fatal(err)
	}
	if cfg.GRPCAddr != "127.0.0.1:7" || cfg.HTTPAddr != "127.0.0.1:6" || cfg.DataDir != "from-file" || cfg.Shards != 8 ||
		cfg.DrainTimeout != 3*time.Second || !cfg.AllowPrivateDestinations || cfg.LogLevel != "info" {
		t.Errorf("%+v", cfg)
	}
}

func TestSettingsRefuse(t *testing.T) {
	for _, c := range []struct {
		name, file string
		env        []string
		want       []string
	}{
		{"unknown keys", "data_dir: x\nshard: 1\n", nil, []string{`unknown key "data_dir", did you mean data-dir?`, `unknown key "shard"`}},
		{"unknown variable", "", []string{"SEALANE_DATADIR=x"}, []string{"unknown variable SEALANE_DATADIR, did you mean data-dir?"}},
		{"config inside config", "config: x\n", nil, []string{`unknown key "config"`}},
		{"nested", "grpc-addr: {host: x}\n", nil, []string{"grpc-addr"}},
		{"a list", "log-level: [a]\n", nil, []string{"log-level wants one value"}},
		{"several bad values", "shards: x\ndrain-timeout: 5\n", []string{"SEALANE_MAX_PAYLOAD_BYTES=1MiB"}, []string{
			`shards is "x", want a whole number`, `drain-timeout is "5", want a duration`, `SEALANE_MAX_PAYLOAD_BYTES: max-payload-bytes is "1MiB", want a whole number`,
		}},
		{"a bad truth", "allow-private-destinations: maybe\n", nil, []string{`is "maybe", want true or false`}},
		{"no YAML", "{", nil, []string{"config: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "node.yaml")
			if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg := server.DefaultConfig()
			err := fillFlags(testFlags(&cfg), path, c.env)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
	cfg := server.DefaultConfig()
	if err := fillFlags(testFlags(&cfg), "/nowhere/node.yaml", nil); err == nil || !strings.Contains(err.Error(), "/nowhere/node.yaml: no such file") {
		t.Errorf("got %v", err)
	}
}

func FuzzSettings(f *testing.F) {
	f.Add("shards: 3\ngrpc-addr: 127.0.0.1:1\n", "SEALANE_SHARDS=4")
	f.Add("a: [1, {b: c}]\n1: 2\n", "SEALANE_=")
	f.Add("? {a: b}\n: c\n", "SEALANE__._=x")
	f.Fuzz(func(t *testing.T, file, variable string) {
		path := filepath.Join(t.TempDir(), "node.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := server.DefaultConfig()
		_ = fillFlags(testFlags(&cfg), path, []string{variable}) // refused or not, it must not fail otherwise
	})
}
