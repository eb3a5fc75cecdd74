package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sealane/sealane/server"
)

const serveHelp = `Starts a node that keeps everything on disk. It prints one line when it is ready, and logs to standard error.

Settings come from flags, else from SEALANE_… variables (--data-dir is SEALANE_DATA_DIR), else from the YAML file that --config names, else
from defaults. An unknown key is refused by its name.

Without TLS and authentication a node binds loopback addresses only. Between nodes there is TLS in this version (--tls-cert, --tls-key,
--tls-ca), so --peer-addr may be another address with it; clients reach a node on loopback.

A node founds a cluster with the others that --initial-cluster names, joins one at --join, or is alone. Once its data directory belongs to a
cluster both flags are ignored, so that they may stay in its settings.

SIGTERM and SIGINT stop it: it takes no more calls, waits for requests in flight (--drain-timeout), and exits with 0. A second signal stops it
at once; what was in flight then is recovered as UNKNOWN at the next start.`

func (a *app) serveCommand() *cobra.Command {
	cfg := server.DefaultConfig()
	var config string
	c := &cobra.Command{
		Use: "serve --data-dir DIRECTORY", Short: "Start a node", Long: serveHelp, Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fillFlags(cmd.Flags(), config, a.env); err != nil {
				return err
			}
			if err := cfg.Validate(); err != nil {
				return configError(err)
			}
			return a.serve(cmd.Context(), cfg, func(n *server.Node) {
				fmt.Fprintf(a.out, "sealane: ready node=%s grpc=%s http=%s data-dir=%s version=%s\n", cfg.NodeID, n.GRPCAddr(), n.HTTPAddr(), cfg.DataDir, server.Version)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&config, "config", "", "YAML file with these settings")
	f.StringVar(&cfg.DataDir, "data-dir", cfg.DataDir, "directory of log and state; required")
	f.StringVar(&cfg.NodeID, "node-id", cfg.NodeID, "name of this node for ever, 1 to 63 letters, digits, '.', '_' and '-'")
	f.StringVar(&cfg.PeerAddr, "peer-addr", cfg.PeerAddr, "where the other nodes reach it; a port of its own, never for clients")
	f.StringSliceVar(&cfg.InitialCluster, "initial-cluster", nil, "id=peer-address of every node of a new cluster, comma-separated, the same on each; none: this node alone")
	f.StringVar(&cfg.Join, "join", "", "peer address of any node of the cluster that this node shall join")
	f.StringVar(&cfg.TLSCert, "tls-cert", "", "this node's certificate, PEM; with key and authority nodes prove themselves to each other")
	f.StringVar(&cfg.TLSKey, "tls-key", "", "its key, PEM")
	f.StringVar(&cfg.TLSCA, "tls-ca", "", "the authority that signed every node's certificate, PEM")
	f.BoolVar(&cfg.AllowPrivateDestinations, "allow-private-destinations", false, "permit destinations on private, loopback and link-local addresses")
	f.BoolVar(&cfg.AllowLoopbackDestinations, "allow-loopback-destinations", false, "permit destinations on loopback addresses")
	f.Int64Var(&cfg.MinFreeBytes, "min-free-bytes", cfg.MinFreeBytes, "free bytes of the disk below which new messages are refused; 0, or at least 201326592")
	f.Int64Var(&cfg.CacheBytes, "cache-bytes", cfg.CacheBytes, "bytes of the block cache, at least 1048576")
	nodeFlags(f, &cfg)
	return c
}

// nodeFlags are those that serve and dev share.
func nodeFlags(f *pflag.FlagSet, cfg *server.Config) {
	f.StringVar(&cfg.GRPCAddr, "grpc-addr", cfg.GRPCAddr, "where clients reach gRPC; port 0 takes a free one")
	f.StringVar(&cfg.HTTPAddr, "http-addr", cfg.HTTPAddr, "where clients reach REST, metrics and health; port 0 takes a free one")
	f.Uint32Var(&cfg.Shards, "shards", cfg.Shards, "shards of a new cluster, 1 to 64, fixed for ever; 0: the default")
	f.IntVar(&cfg.MaxPayloadBytes, "max-payload-bytes", cfg.MaxPayloadBytes, "largest payload, 1 to 16777216")
	f.DurationVar(&cfg.DrainTimeout, "drain-timeout", cfg.DrainTimeout, "longest wait for requests in flight at the end, 0s to 10m")
	f.StringVar(&cfg.LogFormat, "log-format", cfg.LogFormat, "text or json")
	f.StringVar(&cfg.LogLevel, "log-level", cfg.LogLevel, "debug, info, warn or error")
}

// configError shows what Validate found, one problem a line, without the name of the package that found it.
func configError(err error) error {
	text := strings.ReplaceAll(err.Error(), server.ErrConfig.Error()+": ", "")
	return &usageError{errors.New(text), "`sealane serve --help` shows the settings and their limits"}
}

// serve runs a node until a signal or a failure ends it.
func (a *app) serve(ctx context.Context, cfg server.Config, ready func(*server.Node)) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := newLogger(a.err, cfg)
	libraryLog(log)

	type opened struct {
		node *server.Node
		err  error
	}
	starting := make(chan opened, 1)
	go func() {
		n, err := server.Open(ctx, cfg, log)
		starting <- opened{n, err}
	}()
	var node *server.Node
	select {
	case o := <-starting:
		if o.err != nil {
			return startError(o.err)
		}
		node = o.node
	case <-signals:
		cancel()
		o := <-starting
		if o.node == nil {
			return nil
		}
		return a.stop(o.node, signals)
	}
	ready(node)
	select {
	case <-signals:
		return a.stop(node, signals)
	case <-ctx.Done():
		return a.stop(node, signals)
	case err := <-node.Failed():
		// Fail-stop: closing would write to the store that has just failed. The next start recovers the state from the log.
		return fmt.Errorf("the node had to stop: %w", err)
	}
}

func startError(err error) error {
	if errors.Is(err, server.ErrConfig) {
		return configError(err)
	}
	return fmt.Errorf("the node did not start: %w", err)
}

// stop drains and closes a node; a second signal does not wait for that.
func (a *app) stop(n *server.Node, signals <-chan os.Signal) error {
	closed := make(chan error, 1)
	go func() { closed <- n.Close(context.Background()) }()
	select {
	case err := <-closed:
		return err
	case <-signals:
		return errSecondSignal
	}
}

// libraryLog takes what libraries print through the standard logger. What net/http says there is about receivers, and a receiver can make it say
// it without end, so it is for debugging.
func libraryLog(to *slog.Logger) {
	bridge := slog.NewLogLogger(to.Handler(), slog.LevelDebug)
	stdlog.SetFlags(0)
	stdlog.SetOutput(bridge.Writer())
}

func newLogger(w io.Writer, cfg server.Config) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	o := &slog.HandlerOptions{Level: levels[cfg.LogLevel]}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
