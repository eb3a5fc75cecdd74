package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc/credentials"

	"github.com/sealane/sealane/shard/host"
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
	// InitialCluster names every node of a new cluster with its peer address, this one included; the same on each. Empty on a node that is
	// alone or joins. Ignored once the data directory belongs to a cluster. Key initial-cluster.
	InitialCluster []string `koanf:"initial-cluster"`
	// Join is the peer address of any node of the cluster that this one shall join. Ignored once the data directory belongs to a cluster. Key join.
	Join string `koanf:"join"`
	// TLSCert, TLSKey and TLSCA are PEM files: this node's certificate and key, and the authority that signed every node's. With them nodes
	// prove themselves to each other, and the peer port may be beyond loopback. Keys tls-cert, tls-key, tls-ca.
	TLSCert string `koanf:"tls-cert"`
	TLSKey  string `koanf:"tls-key"`
	TLSCA   string `koanf:"tls-ca"`
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
	// Seams replace a node's edges in simulations. Not a key.
	Seams Seams `koanf:"-"`
}

// Seams are a node's edges: what a simulation puts its own in place of. A nil one is the real thing.
type Seams struct {
	FS      vfs.FS
	Listen  func(address string) (net.Listener, error)
	Dial    func(ctx context.Context, address string) (net.Conn, error)
	Clock   host.Clock
	Carrier host.Carrier
	// SnapshotEntries and TrailingEntries make every group take snapshots early and keep a short log; 0 for the node's own rule.
	SnapshotEntries, TrailingEntries uint64
}

func (s Seams) clock() host.Clock {
	if s.Clock == nil {
		return host.NewClock()
	}
	return s.Clock
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
	v.check(c.NodeID != joinName, "node-id", fmt.Sprintf("must not be %q, which stands for a node that is not known yet", joinName))
	v.check(validNodeID(c.NodeID), "node-id", "must be 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit")
	v.check(c.DataDir != "" || c.InMemory, "data-dir", "is required")
	v.check(c.DataDir == "" || !c.InMemory, "data-dir", "must not be set when everything is kept in memory")
	v.address("grpc-addr", c.GRPCAddr)
	v.address("http-addr", c.HTTPAddr)
	c.validatePeers(&v)
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

// address accepts host:port on a loopback host. Anything wider needs TLS and authentication, which the public doors of this version do not have
// yet (DESIGN 12).
func (v *configProblems) address(key, addr string) {
	v.check(v.hostPort(key, addr), key, fmt.Sprintf("is %q: without TLS and authentication a node binds loopback only", addr))
}

// hostPort checks the form and tells whether the host is a loopback one.
func (v *configProblems) hostPort(key, addr string) (loopback bool) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		v.check(false, key, fmt.Sprintf("is %q, want host:port", addr))
		return true
	}
	n, err := strconv.Atoi(port)
	v.check(err == nil && n >= 0 && n <= 65535, key, fmt.Sprintf("has port %q, want 0 to 65535", port))
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// maxInitialNodes bounds the nodes of a new cluster; more can join.
const maxInitialNodes = 64

func (c Config) validatePeers(v *configProblems) {
	secure := c.TLSCert != "" || c.TLSKey != "" || c.TLSCA != ""
	if secure {
		v.check(c.TLSCert != "" && c.TLSKey != "" && c.TLSCA != "", "tls-cert", "goes together with tls-key and tls-ca: all three or none")
	}
	v.check(len(c.InitialCluster) == 0 || c.Join == "", "join", "must not be set together with initial-cluster: a node founds a cluster or joins one")
	v.check(c.Shards == 0 || c.Join == "", "shards", "must not be set together with join: the cluster has its number")
	if c.PeerAddr == "" {
		v.check(len(c.InitialCluster) == 0 && c.Join == "", "peer-addr", "is required in a cluster")
		return
	}
	const alone = "is %q: without tls-cert, tls-key and tls-ca peers are reached on loopback only"
	v.check(v.hostPort("peer-addr", c.PeerAddr) || secure, "peer-addr", fmt.Sprintf(alone, c.PeerAddr))
	if c.Join != "" {
		v.check(v.hostPort("join", c.Join) || secure, "join", fmt.Sprintf(alone, c.Join))
	}
	v.check(len(c.InitialCluster) <= maxInitialNodes, "initial-cluster", fmt.Sprintf("has %d nodes, the limit is %d", len(c.InitialCluster), maxInitialNodes))
	seen := map[string]bool{}
	for _, entry := range c.InitialCluster {
		node, address, ok := strings.Cut(entry, "=")
		if !ok || !validNodeID(node) {
			v.check(false, "initial-cluster", fmt.Sprintf("has %q, want id=host:port", entry))
			continue
		}
		v.check(v.hostPort("initial-cluster", address) || secure, "initial-cluster", fmt.Sprintf(alone, address))
		v.check(!seen[node] && !seen[address], "initial-cluster", fmt.Sprintf("names %q twice", entry))
		seen[node], seen[address] = true, true
	}
	if len(c.InitialCluster) > 0 {
		v.check(seen[c.NodeID], "initial-cluster", fmt.Sprintf("does not name this node, node-id %q", c.NodeID))
		v.check(c.founders()[c.NodeID] == "" || c.founders()[c.NodeID] == c.PeerAddr, "initial-cluster",
			fmt.Sprintf("says that this node is at %s, peer-addr says %s", c.founders()[c.NodeID], c.PeerAddr))
	}
}

// founders are the peer addresses of initial-cluster by node id.
func (c Config) founders() map[string]string {
	out := make(map[string]string, len(c.InitialCluster))
	for _, entry := range c.InitialCluster {
		if node, address, ok := strings.Cut(entry, "="); ok {
			out[node] = address
		}
	}
	return out
}

// peerCredentials make every connection between nodes prove both ends; nil where no TLS is configured.
func (c Config) peerCredentials() (credentials.TransportCredentials, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("%w: tls-cert and tls-key: %w", ErrConfig, err)
	}
	pem, err := os.ReadFile(c.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("%w: tls-ca: %w", ErrConfig, err)
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: tls-ca: %s holds no PEM certificate", ErrConfig, c.TLSCA)
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, RootCAs: authority, ClientCAs: authority, ClientAuth: tls.RequireAndVerifyClientCert,
	}), nil
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
