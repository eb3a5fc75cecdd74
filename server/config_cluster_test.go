package server

import (
	"strings"
	"testing"
)

// Each wrong setting of a cluster is refused by its key, and the right ones are not.
func TestClusterConfig(t *testing.T) {
	base := DefaultConfig()
	base.NodeID, base.DataDir, base.PeerAddr = "n1", "/data", "127.0.0.1:7452"
	const all = "n1=127.0.0.1:7452,n2=127.0.0.1:7462"
	for name, c := range map[string]struct {
		change func(*Config)
		want   string // part of the problem; empty: none
	}{
		"alone":               {func(*Config) {}, ""},
		"founding":            {func(c *Config) { c.InitialCluster = strings.Split(all, ",") }, ""},
		"joining":             {func(c *Config) { c.Join = "127.0.0.1:7462" }, ""},
		"both":                {func(c *Config) { c.InitialCluster, c.Join = strings.Split(all, ","), "127.0.0.1:7462" }, "join must not be set together with initial-cluster"},
		"join with shards":    {func(c *Config) { c.Join, c.Shards = "127.0.0.1:7462", 4 }, "shards must not be set together with join"},
		"not itself":          {func(c *Config) { c.InitialCluster = []string{"n2=127.0.0.1:7462", "n3=127.0.0.1:7472"} }, `initial-cluster does not name this node, node-id "n1"`},
		"another address":     {func(c *Config) { c.InitialCluster = []string{"n1=127.0.0.1:9999"} }, "peer-addr says 127.0.0.1:7452"},
		"twice":               {func(c *Config) { c.InitialCluster = []string{"n1=127.0.0.1:7452", "n2=127.0.0.1:7452"} }, "twice"},
		"no address":          {func(c *Config) { c.InitialCluster = []string{"n1"} }, `initial-cluster has "n1", want id=host:port`},
		"bad port":            {func(c *Config) { c.InitialCluster = []string{"n1=127.0.0.1:http"} }, `initial-cluster has port "http"`},
		"beyond loopback":     {func(c *Config) { c.PeerAddr = "10.0.0.1:7452" }, "peer-addr is \"10.0.0.1:7452\": without tls-cert"},
		"join beyond":         {func(c *Config) { c.Join = "10.0.0.1:7452" }, "join is \"10.0.0.1:7452\": without tls-cert"},
		"beyond with TLS":     {func(c *Config) { c.PeerAddr, c.TLSCert, c.TLSKey, c.TLSCA = "10.0.0.1:7452", "c", "k", "a" }, ""},
		"half of TLS":         {func(c *Config) { c.TLSCert = "c" }, "tls-cert goes together with tls-key and tls-ca"},
		"no peer port":        {func(c *Config) { c.PeerAddr, c.Join = "", "127.0.0.1:7462" }, "peer-addr is required in a cluster"},
		"the name for nobody": {func(c *Config) { c.NodeID = "join" }, `node-id must not be "join"`},
	} {
		cfg := base
		c.change(&cfg)
		err := cfg.Validate()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
