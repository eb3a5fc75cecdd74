package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/sealane/sealane/server"
)

const devHelp = `Starts one node to try things with. It needs no configuration and permits destinations on this machine.

Without --data-dir everything is kept in memory, and nothing is promised once the process ends. With it the node keeps what it has on disk and
comes back with it.`

func (a *app) devCommand() *cobra.Command {
	cfg := server.DefaultConfig()
	cfg.NodeID, cfg.LogLevel, cfg.PeerAddr = "dev", "warn", ""
	cfg.AllowLoopbackDestinations = true
	c := &cobra.Command{
		Use: "dev", Short: "Start one node to try things with", Long: devHelp, Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fillFlags(cmd.Flags(), "", a.env); err != nil {
				return err
			}
			cfg.InMemory = cfg.DataDir == ""
			if cfg.Shards == 0 && !holdsData(cfg.DataDir) {
				cfg.Shards = server.DevShards
			}
			if err := cfg.Validate(); err != nil {
				return configError(err)
			}
			return a.serve(cmd.Context(), cfg, func(n *server.Node) { a.welcome(n, cfg) })
		},
	}
	c.Flags().StringVar(&cfg.DataDir, "data-dir", "", "keep everything in this directory instead of in memory")
	nodeFlags(c.Flags(), &cfg)
	return c
}

// holdsData tells whether a directory has been used before; its number of shards is then fixed.
func holdsData(dir string) bool {
	if dir == "" {
		return false
	}
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0
}

func (a *app) welcome(n *server.Node, cfg server.Config) {
	kept := "in memory: gone when this process ends"
	if !cfg.InMemory {
		kept = "in " + cfg.DataDir
	}
	fmt.Fprintf(a.out, `sealane dev is ready: gRPC %s, HTTP http://%s, %s

Try it from another terminal:
  sealane sink
  curl -X PUT http://%[2]s/v1/destinations/hello -d '{"http":{"url":"http://%[4]s/ok"}}'
  curl http://%[2]s/v1/destinations/hello/messages -H 'Content-Type: text/plain' -d 'hello'
  sealane message list%[5]s

Ctrl-C stops it.
`, n.GRPCAddr(), n.HTTPAddr(), kept, defaultSinkAddr, a.addrFlag(n.GRPCAddr()))
}
