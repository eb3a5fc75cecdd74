package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sealane/sealane/cmd/sealane/demo"
)

const demoHelp = `Shows in under a minute, with a real node in a process of its own and a real receiver: messages delivered, retried, dead-lettered, held as
uncertain and resolved; a circuit that opens and recovers; the node killed in the middle of its work and started again; and at the end an
audit of the receiver's own record against the ledger. Exits with 1 if the audit does not hold. Everything is removed afterwards.`

func (a *app) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "See the whole story in under a minute", Long: demoHelp, Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			binary, err := os.Executable()
			if err != nil {
				return fmt.Errorf("demo: this binary: %w", err)
			}
			// A reader that goes away (`| head`) must not end this process before the node is stopped and everything is removed.
			signal.Ignore(syscall.SIGPIPE)
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			_, plain := a.lookup("NO_COLOR")
			return demo.Run(ctx, demo.Options{Binary: binary, Env: withoutOurs(a.env), Out: a.out, Bold: isTerminal(a.out) && !plain})
		},
	}
}

// withoutOurs leaves our own variables out of an environment, so that the demo's node is configured by the demo alone.
func withoutOurs(env []string) (kept []string) {
	for _, kv := range env {
		if !strings.HasPrefix(kv, envPrefix) {
			kept = append(kept, kv)
		}
	}
	return kept
}
