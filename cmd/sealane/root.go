package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sealane/sealane/client"
)

const about = `Sealane delivers messages to webhooks and can always say, with evidence, what happened to each.

  sealane dev       starts one node in memory to try things with
  sealane demo      shows the whole story in under a minute
  sealane serve     starts a node that keeps everything on disk`

// Bounds of --timeout.
const (
	defaultTimeout = 10 * time.Second
	maxTimeout     = 10 * time.Minute
)

// root builds the tree of commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "sealane", Short: "Durable delivery with evidence", Long: about, Args: cobra.ArbitraryArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		try := fmt.Sprintf("`%s --help` shows the flags", cmd.CommandPath())
		var bad *pflag.InvalidValueError
		if errors.As(err, &bad) {
			err = fmt.Errorf("%s is %q, want %s", bad.GetFlag().Name, bad.GetValue(), kindOf(bad.GetFlag()))
		}
		return &usageError{err, try}
	})
	root.PersistentFlags().StringVarP(&a.output, "output", "o", outputTable, "table, or json: what the API answered (SEALANE_OUTPUT)")
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return a.settle(root) }
	root.AddCommand(
		a.serveCommand(), a.devCommand(), a.demoCommand(), a.sinkCommand(), a.destinationCommand(), a.messageCommand(), a.deadLetterCommand(),
		a.uncertainCommand(), a.laneCommand(), a.operationCommand(), a.clusterCommand(), a.verifyCommand(), a.versionCommand(), exitCodesTopic(),
	)
	return root
}

// settle fills the shared flags from the environment and checks them.
func (a *app) settle(root *cobra.Command) error {
	if v, ok := a.lookup("SEALANE_OUTPUT"); ok && !root.PersistentFlags().Changed("output") {
		a.output = v
	}
	if a.output != outputTable && a.output != outputJSON {
		bad := a.output
		a.output = outputTable
		return usagef("output is %q, want table or json", bad)
	}
	return nil
}

func (a *app) lookup(name string) (string, bool) {
	for _, kv := range slices.Backward(a.env) {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// group makes a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return &usageError{fmt.Errorf("%s needs a command", cmd.CommandPath()), fmt.Sprintf("`%s --help` shows them", cmd.CommandPath())}
		},
	}
	c.AddCommand(commands...)
	return c
}

func unknownCommand(cmd *cobra.Command, name string) error {
	try := fmt.Sprintf("`%s --help` shows the commands", cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		try = "did you mean " + strings.Join(near, " or ") + "? " + try
	}
	return &usageError{fmt.Errorf("%s has no command %q", cmd.CommandPath(), name), try}
}

// args checks the number of arguments and names the missing ones.
func args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, got []string) error {
		if len(got) < len(names) {
			return &usageError{fmt.Errorf("%s is missing", names[len(got)]), "usage: " + cmd.UseLine()}
		}
		if len(got) > len(names) {
			return &usageError{fmt.Errorf("%q is one argument too many", got[len(names)]), "usage: " + cmd.UseLine()}
		}
		return nil
	}
}

// clientFlags gives a command the flags of a client.
func (a *app) clientFlags(commands ...*cobra.Command) {
	for _, c := range commands {
		c.Flags().StringVar(&a.addr, "addr", client.DefaultAddr, "gRPC addresses of nodes, separated by commas (SEALANE_ADDR)")
		c.Flags().DurationVar(&a.timeout, "timeout", defaultTimeout, "how long to wait for the answer, 1ms to 10m")
	}
}

// call runs f with a connected client, inside the timeout.
func (a *app) call(cmd *cobra.Command, f func(ctx context.Context, c *client.Client) error) error {
	if a.timeout < time.Millisecond || a.timeout > maxTimeout {
		return usagef("timeout is %s, want 1ms to 10m", a.timeout)
	}
	return a.dial(cmd, func(c *client.Client) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
		defer cancel()
		return f(ctx, c)
	})
}

func (a *app) dial(cmd *cobra.Command, f func(c *client.Client) error) error {
	if v, ok := a.lookup("SEALANE_ADDR"); ok && !cmd.Flags().Changed("addr") {
		a.addr = v
	}
	c, err := client.Dial(a.addr, client.Options{RetryFor: min(max(a.timeout, time.Millisecond), client.MaxRetryFor), FailFast: true})
	if err != nil {
		return &usageError{err, "for example --addr " + client.DefaultAddr + ", or several separated by commas"}
	}
	err = f(c)
	if closed := c.Close(); err == nil {
		err = closed
	}
	return err
}

// isTerminal tells whether a stream is a terminal, where people would wait for a prompt or want colour.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitHelp}
}
