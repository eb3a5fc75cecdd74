package server

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Version is the build's version, set by the linker.
var Version = "unknown"

// ErrConfig is wrapped by every problem of a configuration; the text names the key and the limit.
var ErrConfig = errors.New("server: invalid configuration")

// Limits of a node's configuration.
const (
	// MaxShards bounds the shards of a cluster for now (REPLICATION).
	MaxShards = 64
	// DefaultShards is the number of a new cluster's shards, DevShards that of `dev`.
	DefaultShards = 16
	DevShards     = 4
	// DefaultPayloadBytes and HardPayloadBytes bound a payload: the default and what a configuration may raise it to.
	DefaultPayloadBytes = 1 << 20
	HardPayloadBytes    = 16 << 20
	// DefaultDrain is how long a node waits for requests in flight when it is told to stop.
	DefaultDrain = 10 * time.Second
	// DefaultMinFreeBytes is the free space below which a node refuses new messages, so that outcomes can always be written.
	DefaultMinFreeBytes = 256 << 20
)

// Config is everything a node is told. Each field names its key, which is also its flag and, in upper case with SEALANE_ before it, its
// environment variable.
type Config struct {
	// NodeID names this node for ever; it is bound to the data directory. Key node-id.
	NodeID string `koanf:"node-id"`
	// DataDir holds log and state. Empty only with InMemory. Key data-dir.
	DataDir string `koanf:"data-dir"`
	// InMemory keeps everything in memory: it promises nothing after the process ends. Not a key; `dev` sets it.
	InMemory bool `koanf:"-"`
	// GRPCAddr, HTTPAddr and PeerAddr are where the doors listen, host:port; port 0 takes a free one. Keys grpc-addr, http-addr, peer-addr.
	GRPCAddr string `koanf:"grpc-addr"`
	HTTPAddr string `koanf:"http-addr"`
	PeerAddr string `koanf:"peer-addr"`
	// Shards of a new cluster, 1 to 64; fixed when it is founded. 0 takes the default of a new one and what is there of an old one. Key shards.
	Shards uint32 `koanf:"shards"`
	// AllowPrivateDestinations permits HTTP destinations on private, loopback and link-local addresses. Key allow-private-destinations.
	AllowPrivateDestinations bool `koanf:"allow-private-destinations"`
	// AllowLoopbackDestinations permits only loopback ones; `dev` sets it. Key allow-loopback-destinations.
	AllowLoopbackDestinations bool `koanf:"allow-loopback-destinations"`
	// MaxPayloadBytes bounds a payload, 1 to 16 MiB. Key max-payload-bytes.
	MaxPayloadBytes int `koanf:"max-payload-bytes"`
	// MinFreeBytes is the free space of the data directory's disk below which new messages are refused: 0 to look at
	// nothing, or at least MinFreeFloor. Key min-free-bytes.
	MinFreeBytes int64 `koanf:"min-free-bytes"`
	// DrainTimeout bounds the wait for requests in flight at the end, 0 to 10 minutes. Key drain-timeout.
	DrainTimeout time.Duration `koanf:"drain-timeout"`
	// CacheBytes is the block cache shared by log and state. Key cache-bytes.
	CacheBytes int64 `koanf:"cache-bytes"`
	// LogFormat is text or json, LogLevel one of debug, info, warn, error. Keys log-format, log-level.
	LogFormat string `koanf:"log-format"`
	LogLevel  string `koanf:"log-level"`
}

// DefaultConfig is what a node runs with when told nothing but a data directory.
func DefaultConfig() Config {
	return Config{
		NodeID: "node-1", GRPCAddr: "127.0.0.1:7450", HTTPAddr: "127.0.0.1:7451", PeerAddr: "127.0.0.1:7452",
		MaxPayloadBytes: DefaultPayloadBytes, MinFreeBytes: DefaultMinFreeBytes, DrainTimeout: DefaultDrain, CacheBytes: 128 << 20,
		LogFormat: "text", LogLevel: "info",
	}
}

// Validate returns every problem at once, each naming its key, or nil.
func (c Config) Validate() error {
	var v configProblems
	v.check(validNodeID(c.NodeID), "node-id", "must be 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit")
	v.check(c.DataDir != "" || c.InMemory, "data-dir", "is required")
	v.check(c.DataDir == "" || !c.InMemory, "data-dir", "must not be set when everything is kept in memory")
	v.address("grpc-addr", c.GRPCAddr)
	v.address("http-addr", c.HTTPAddr)
	v.address("peer-addr", c.PeerAddr)
	v.check(c.GRPCAddr != c.HTTPAddr || strings.HasSuffix(c.GRPCAddr, ":0"), "http-addr", "must not be the same as grpc-addr")
	v.check(c.Shards <= MaxShards, "shards", fmt.Sprintf("must be from 1 to %d", MaxShards))
	v.check(c.MaxPayloadBytes >= 1 && c.MaxPayloadBytes <= HardPayloadBytes, "max-payload-bytes", fmt.Sprintf("must be from 1 to %d", HardPayloadBytes))
	v.check(c.MinFreeBytes == 0 || c.MinFreeBytes >= MinFreeFloor, "min-free-bytes", fmt.Sprintf("must be 0 to look at nothing, or at least %d", MinFreeFloor))
	v.check(c.DrainTimeout >= 0 && c.DrainTimeout <= 10*time.Minute, "drain-timeout", "must be from 0s to 10m")
	v.check(c.CacheBytes >= 1<<20, "cache-bytes", "must be at least 1048576")
	v.check(c.LogFormat == "text" || c.LogFormat == "json", "log-format", "must be text or json")
	v.check(c.LogLevel == "debug" || c.LogLevel == "info" || c.LogLevel == "warn" || c.LogLevel == "error", "log-level", "must be debug, info, warn or error")
	return errors.Join(v...)
}

type configProblems []error

func (v *configProblems) check(ok bool, key, reason string) {
	if !ok {
		*v = append(*v, fmt.Errorf("%w: %s %s", ErrConfig, key, reason))
	}
}

// address accepts host:port on a loopback host. Anything wider needs TLS and authentication, which this version does not have yet (DESIGN 12).
func (v *configProblems) address(key, addr string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		v.check(false, key, fmt.Sprintf("is %q, want host:port", addr))
		return
	}
	n, err := strconv.Atoi(port)
	v.check(err == nil && n >= 0 && n <= 65535, key, fmt.Sprintf("has port %q, want 0 to 65535", port))
	ip := net.ParseIP(host)
	loopback := host == "localhost" || ip != nil && ip.IsLoopback()
	v.check(loopback, key, fmt.Sprintf("is %q: without TLS and authentication a node binds loopback only", addr))
}

func validNodeID(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for i, c := range s {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !plain && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}
